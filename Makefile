# Two commands a newcomer needs: `make demo` and `make test`. Each sets itself up in .venv.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
DEMO := $(VENV)/.installed-demo
STAMP := $(VENV)/.installed
SOURCES := pyproject.toml constraints.txt src/unpooled/__init__.py CMakeLists.txt $(wildcard src/unpooled/kernels/native/*.?pp src/unpooled/kernels/native/exact/* src/unpooled/kernels/native/grouping/* src/unpooled/kernels/native/text/*)

.PHONY: demo test lint types imports tests machines browser postgres container docs docs-site docs-check axe bench bench-sites assurance results release-rehearsal pythons scorecard quick repeat coverage clean help

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
	$(BIN)/unpooled demo --out demo --overwrite

test: lint types imports tests   ## everything CI runs

lint: $(STAMP)   ## style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)  ## mypy --strict
	$(BIN)/mypy

imports: $(STAMP)  ## imports run one way
	$(BIN)/lint-imports --no-cache

tests: $(STAMP) browser postgres axe  ## all tests, docstrings and README included; those between processes beside the others
	@mkdir -p build; $(BIN)/pytest -q --numprocesses 2 --dist loadfile --durations 15 tests/machines >build/machines.log 2>&1 & beside=$$!; \
	$(BIN)/pytest --numprocesses 2 --dist loadfile --ignore=tests/machines --durations 20; rest=$$?; \
	wait $$beside; apart=$$?; cat build/machines.log; \
	test $$rest -eq 0 && test $$apart -eq 0

QUICK := tests/core tests/estimators tests/kept tests/kernels/test_kernels_backend.py tests/kernels/test_observed.py \
	tests/kernels/test_plain_numbers.py tests/data/test_scaling.py tests/data/test_validation.py tests/data/test_agreement.py \
	tests/site/test_policy.py tests/site/test_log.py tests/site/test_fuzz_targets.py tests/privacy/test_shamir.py \
	tests/privacy/test_fixed.py tests/runtimes/test_in_process.py tests/algorithms/test_lloyd.py tests/algorithms/test_kfed.py \
	tests/analysis/test_metrics.py tests/optimum/test_rational.py tests/laws/test_public.py \
	tests/docs/test_design.py tests/docs/test_readme.py src/unpooled/core src/unpooled/kernels src/unpooled/site
quick: $(STAMP)  ## tests of every room, in a minute on two cores
	$(BIN)/pytest --numprocesses 2 --dist loadfile -k 'not kill and not fuzz_any' $(QUICK)

RUNS ?= 20
repeat: $(STAMP) browser postgres axe  ## flaky tests: all once, those whose outcome could differ RUNS times
	$(BIN)/python -m tests.repeat $(RUNS)

machines: $(STAMP)  ## only the tests between processes, with the real engine
	$(BIN)/pytest tests/machines

browser:         ## a Chromium for the report's tests, where there is none and root may install it
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || \
		test "$$(id -u)" != 0 || \
		(apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends chromium >/dev/null)

postgres:        ## a PostgreSQL for the tests of databases, where there is none and root may install it
	@command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || \
		test "$$(id -u)" != 0 || \
		(apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends postgresql >/dev/null)

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

docs-check: docs-site browser axe  ## the site in a browser: telephone and desktop, light and dark, axe, links, search, no other host
	$(BIN)/python -m website.check

axe: $(STAMP)    ## axe-core, for checks of accessibility
	@test -f build/axe/axe_playwright_python/axe.min.js || \
		PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --disable-pip-version-check --no-deps --target build/axe axe-playwright-python

bench: $(STAMP)  ## what was asked of the speed, and what was reached
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.bench_sources

bench-sites: $(STAMP)  ## very many sites in one process, and regions of sites through doors and codec
	$(BIN)/python -m benchmarks.bench_tree
	-PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --no-deps --target build/pfl pfl multiprocess dill
	for sites in 1000 10000 100000; do PYTHONPATH=build/pfl $(BIN)/python -m benchmarks.peer_sites $$sites; done

assurance: $(STAMP)  ## the long versions of what the tests hold, and their figures
	UNPOOLED_RUNS=150 $(BIN)/pytest tests/laws/test_contract.py -k no_reply_contains_a_row
	$(BIN)/python -m tests.attacks
	$(BIN)/python -m benchmarks.bench_copy
	UNPOOLED_HISTORIES=2000 $(BIN)/pytest -s tests/privacy/test_history.py tests/privacy/test_renewals.py
	$(BIN)/python -m benchmarks.bench_renewal
	UNPOOLED_PROBLEMS=10000 $(BIN)/pytest -s tests/optimum/test_no_false_proof.py
	$(BIN)/python -m benchmarks.choice_of_k
	UNPOOLED_TABLES=50000 $(BIN)/pytest tests/laws/test_shares_law.py tests/app/test_release.py -k "dominates or follows or bound or two"
	$(BIN)/python -m benchmarks.missing_cells
	UNPOOLED_NUMBERS=5000000 $(BIN)/pytest tests/kernels/test_plain_numbers.py -k divided
	UNPOOLED_FUZZ=1000000 $(BIN)/pytest tests/site/test_fuzz.py
	UNPOOLED_SCHEDULES=10000 $(BIN)/pytest -s tests/privacy/test_sums.py tests/privacy/test_malice.py
	UNPOOLED_TREES=40 $(BIN)/pytest tests/laws/test_tree.py tests/laws/test_secure_tree.py tests/laws/test_tree_dual.py
	$(BIN)/python -m benchmarks.bench_secure_tree
	UNPOOLED_TREE_KILLS=30 $(BIN)/pytest -s tests/machines/test_tree.py
	UNPOOLED_HISTORY=10000 UNPOOLED_KILLED=200 $(BIN)/pytest -s tests/attacks/test_vault.py -k byte_string
	UNPOOLED_KILLS=200 UNPOOLED_KILL_RUNS=40 $(BIN)/pytest -s tests/machines/test_kills.py
	UNPOOLED_LOSSY_ROUNDS=105 UNPOOLED_CUT=20 $(BIN)/pytest tests/machines/test_weather.py
	$(BIN)/python -m benchmarks.bench_machines
	$(BIN)/python -m benchmarks.bench_sites
	$(BIN)/python -m benchmarks.bench_workers
	$(BIN)/python -m benchmarks.bench_secure_sum
	$(BIN)/python -m benchmarks.bench_door
	UNPOOLED_ROADS=1 $(BIN)/pytest tests/machines/test_roads.py
	$(MAKE) container
	-PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --no-deps --target build/peer diffprivlib
	PYTHONPATH=build/peer $(BIN)/python -m benchmarks.bench_private
	$(BIN)/python -m benchmarks.dual_problems

VERSION ?= 0.2.0
release-rehearsal: $(STAMP)  ## from a tag (VERSION=0.2.0) in a scratch clone to checked files, installed in an empty environment
	$(BIN)/python release/rehearse.py --version $(VERSION)

PYTHONS ?= stable testing:python3.14 testing:python3.15
pythons: $(STAMP)  ## the wheel on other Pythons (PYTHONS=programs or suites of Debian): install, demo, quick tests
	$(BIN)/python release/pythons.py $(PYTHONS)

scorecard: $(STAMP)  ## the list of OpenSSF Scorecard, as far as it can be known from the tree
	$(BIN)/python release/scorecard.py

coverage: $(STAMP)  ## lines and branches of the door (core, site, privacy) that no test of theirs runs
	PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --disable-pip-version-check pytest-cov
	$(BIN)/pytest --cov=unpooled.core --cov=unpooled.site --cov=unpooled.privacy --cov-branch --cov-report=term-missing:skip-covered \
		tests/core tests/site tests/privacy tests/attacks tests/runtimes src/unpooled/core src/unpooled/site src/unpooled/privacy

results: $(STAMP)  ## docs/results.md, docs/leakage.md: the papers recomputed (hours; DATA=folder with the authors' data)
	$(BIN)/python -m benchmarks.results $(if $(DATA),--data $(DATA))
	$(BIN)/python -m benchmarks.leakage

clean:           ## remove what make made
	rm -rf $(VENV) build demo .mypy_cache .pytest_cache .ruff_cache
