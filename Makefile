# `make demo` and `make test` set up all they need (python 3.11 or newer and pip are enough).
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt
OTHER_PYTHONS ?= python3.12 python3.13

.PHONY: demo test test-slow smoke-gpu test-sglang test-hub test-other-pythons lint gen gen-check check bench docs clean setup

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) "$$(grep '^torch==' constraints.txt)"
	$(PIP) -e ".[engine,dev]"
	touch $@

demo: setup
	PATH="$(CURDIR)/$(BIN):$$PATH" sh tools/demo.sh

# tests/sglang/inside runs under SGLang's own Python, started by tests/sglang/test_inside.py.
PYTEST := $(BIN)/python -m pytest -q --ignore=tests/sglang/inside

test: setup test-other-pythons test-hub
	$(PYTEST) -m "not gpu and not sglang and not slow"

# Kills, large files, long properties.
test-slow: setup
	$(PYTEST) -m "slow and not gpu and not sglang"

# Stock SGLang 0.5.23 on the CPU, in an environment of its own (11 GB, built once outside the clone).
test-sglang: setup
	sh tools/sglang_env.sh
	$(PYTEST) tests/sglang

# Evidence from this machine's GPU: every trained fixture through stock SGLang and the plugin, on each draft back end. Goes on where it stopped.
# SGLANG_PYTHON is a Python with SGLang 0.5.23; without it the environment of tools/sglang_env.sh. ARGS="--list" shows the cases.
SGLANG_PYTHON ?= $$(sh tools/sglang_env.sh)
smoke-gpu:
	python="$(SGLANG_PYTHON)" && "$$python" -m pip install -q --disable-pip-version-check -e . && "$$python" tools/smoke_gpu.py $(ARGS)

# The Hub tests with the 1.x client as well.
test-hub:
	PYTHON=$(PYTHON) sh tools/test_hub.sh 1.33.0

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
	$(BIN)/python -m benchmarks.detection
	$(BIN)/python -m benchmarks.deep
	$(BIN)/python benchmarks/engine_kv.py

clean:
	rm -rf $(VENV) .demo build dist *.egg-info src/*.egg-info .mypy_cache .ruff_cache .hypothesis
