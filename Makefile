# `make demo` and `make test` set up all they need (python 3.11 or newer and pip are enough).
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt
OTHER_PYTHONS ?= python3.12 python3.13

.PHONY: demo test test-core test-other-pythons lint gen gen-check check bench docs clean setup

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) "$$(grep '^torch==' constraints.txt)"
	$(PIP) -e ".[engine,dev]"
	touch $@

demo: setup
	PATH="$(CURDIR)/$(BIN):$$PATH" sh tools/demo.sh

test: setup test-other-pythons
	$(BIN)/python -m pytest -q -m "not gpu and not sglang"

# The core without torch, transformers and sglang, on each further interpreter that is there.
test-other-pythons:
	sh tools/test_core.sh $(OTHER_PYTHONS)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

gen: setup
	$(BIN)/python tools/generate.py

gen-check: setup
	$(BIN)/python tools/generate.py --check

check: lint gen-check test

docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: setup
	$(BIN)/python benchmarks/inspect.py
	$(BIN)/python benchmarks/normalize.py

clean:
	rm -rf $(VENV) .demo build dist *.egg-info src/*.egg-info .mypy_cache .ruff_cache .hypothesis
