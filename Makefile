# Two commands a newcomer needs: `make demo` and `make test`. Each sets itself up in .venv.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SOURCES := pyproject.toml constraints.txt CMakeLists.txt $(wildcard src/unpooled/kernels/*.cpp src/unpooled/kernels/*.hpp)

.PHONY: demo test lint types imports tests bench clean help

help:            ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/ -/'

$(STAMP): $(SOURCES)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --disable-pip-version-check --editable ".[dev]"
	touch $@

demo: $(STAMP)   ## cluster the penguins of three islands without pooling them
	$(BIN)/unpooled demo --out demo

test: lint types imports tests   ## everything CI runs

lint: $(STAMP)   ## style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)  ## mypy --strict
	$(BIN)/mypy

imports: $(STAMP)  ## imports run one way
	$(BIN)/lint-imports --no-cache

tests: $(STAMP)  ## all tests, docstrings and README included
	$(BIN)/pytest

bench: $(STAMP)  ## what was asked of the speed, and what was reached
	$(BIN)/python -m benchmarks

clean:           ## remove what make made
	rm -rf $(VENV) build demo .mypy_cache .pytest_cache .ruff_cache
