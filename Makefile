# Everything runs in .venv, which `make setup` builds from Python 3.11 alone.
PYTHON ?= $(shell command -v python3.11 || command -v python3 || echo python3.11)
BIN := .venv/bin

.PHONY: setup demo test lint bench pictures translations clean

setup: .venv/installed

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,train,hf,studio]'
	touch $@

demo: setup
	$(BIN)/glasshead demo

# Two processes; their threads sleep while they wait, as both spin on the same cores otherwise.
test: setup
	OMP_WAIT_POLICY=passive $(BIN)/pytest --numprocesses 2

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/pyright

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

pictures: setup
	$(BIN)/python docs/pictures.py

LOCALES := glasshead/explanation/locales
translations: setup
	$(BIN)/pybabel --quiet extract --no-default-keywords --keywords='_ say' --omit-header \
	    --add-location=file --width=100 --output-file=$(LOCALES)/glasshead.pot \
	    glasshead/cli glasshead/drawing glasshead/explanation glasshead/studio
	$(BIN)/pybabel --quiet update --domain=glasshead --no-fuzzy-matching --ignore-obsolete \
	    --ignore-pot-creation-date --width=100 --input-file=$(LOCALES)/glasshead.pot \
	    --output-dir=$(LOCALES)
	$(BIN)/pybabel --quiet compile --domain=glasshead --directory=$(LOCALES)

clean:
	rm -rf .venv demo build dist .pytest_cache .ruff_cache .hypothesis
