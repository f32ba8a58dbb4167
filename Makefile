# `make` lists the targets. Only Python 3.11 or later and make are assumed; everything else goes into .venv.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.set-up
# What builds the project itself, pinned in constraints.txt too, so that no install resolves anything.
BUILD  := pip setuptools wheel hatchling editables
PIP    := pip install -q --disable-pip-version-check
PYTEST  = $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadgroup

# The JARs of delta-spark, the servers of the tests and golden tables stay in the project's ignored cache.
export REFDELTA_CACHE ?= $(CURDIR)/.cache

# Without compiled files beside the sources, each of the many processes of a test run would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup servers lock clean check test lint demo nightly search mutations precision environments libraries findings golden wheel bench bench-report bench-compare docs generate engines

##@ Set up

help:  ## list the targets
	@awk -F ':.*## ' '/^##@ /{printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP)  ## create .venv with everything pinned (two minutes, then only after changes of the pins)

$(STAMP): pyproject.toml refdelta/core/pyproject.toml .ci/build_hook.py constraints.txt
	@test -n "$(PYTHON)" || { echo "refdelta needs Python 3.11 or later: none found" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11) and "refdelta needs Python 3.11 or later; say make PYTHON=...")'
	"$(PYTHON)" -m venv $(VENV)
	$(BIN)/python -m $(PIP) -c constraints.txt $(BUILD)
	$(BIN)/python -m $(PIP) -c constraints.txt --no-build-isolation -e '.[dev]'
	@touch $@

servers: setup  ## put the servers of the tests into .cache: for S3 and GCS (Go), for Azure and the specification (npm)
	@$(BIN)/python tests/servers/install.py

lock: setup  ## write constraints.txt and the locks of Azurite and Quint anew, with the newest versions that fit together
	$(BIN)/python -m venv .cache/lock
	.cache/lock/bin/python -m $(PIP) uv
	printf '%s\n' $(BUILD) > .cache/lock/build.in
	.cache/lock/bin/uv pip compile -q --python-version 3.11 --no-header --no-annotate --no-emit-package refdelta-core --extra dev pyproject.toml .cache/lock/build.in > .cache/lock/new
	mv .cache/lock/new constraints.txt
	rm -f tests/servers/azurite/package-lock.json tests/servers/quint/package-lock.json
	npm install --package-lock-only --omit-lockfile-registry-resolved --no-fund --no-audit --prefix tests/servers/azurite
	npm install --package-lock-only --omit-lockfile-registry-resolved --no-fund --no-audit --prefix tests/servers/quint

clean:  ## remove what the targets made, except .venv, the JARs and the servers
	rm -rf build dist docs/site demo-table bench/data .nox .mypy_cache .ruff_cache .pytest_cache .hypothesis .benchmarks .import_linter_cache spark-warehouse metastore_db derby.log
	find refdelta storage tests bench -name __pycache__ -type d -exec rm -rf {} +

##@ For every change

check: setup  ## the tests that need only Python, for after every change (under two minutes)
	$(PYTEST) --tier check

test: setup  ## the gate: everything that a change can break, with Spark and real servers (under ten minutes)
	@$(BIN)/python tests/servers/install.py >/dev/null || true
	$(PYTEST) --tier test

lint: setup  ## the hooks of pre-commit on all files: ruff, mypy --strict, imports, spelling, the form of Markdown
	$(BIN)/pre-commit run --all-files --show-diff-on-failure

demo: setup  ## the main job: processes write a year of flights at once beside OPTIMIZE; all is checked (ON=s3: on S3)
	@$(if $(filter s3,$(ON)),$(BIN)/python tests/servers/install.py && $(BIN)/python tests/servers/demo.py,$(BIN)/refdelta demo)

##@ Every night, and before a release

nightly: setup  ## every test, every environment and the long searches, into a report page (hours; PARTS="tests search-kills")
	$(BIN)/python .ci/nightly.py $(PARTS)

search: setup  ## a long search for counterexamples; without NAME= they are listed (NAME=kills ARGS="300 7")
	@PYTHONPATH=tests $(BIN)/python -m searches $(NAME) $(ARGS)

mutations: setup  ## change the code in fifty places, one at a time: does TIER=test find it? (ARGS="--seed 7")
	PYTHONPATH=tests $(BIN)/python -m mutations --tier $(TIER) $(ARGS)

TIER ?= test

precision: setup  ## how often the engine commits where a judge of serial orders would, into spec_notes/precision.md
	PYTHONPATH=tests $(BIN)/python -m model.precision

environments: setup  ## the tests of make check with the newest and the lowest versions, and others (SESSIONS="floors pythons documents")
	$(BIN)/nox $(if $(SESSIONS),-s $(SESSIONS)) $(if $(ARGS),-- $(ARGS))

libraries: setup  ## libraries that use deltalake, with refdelta in its place (minutes; LIBRARIES=dlt for one)
	$(BIN)/nox -s "libraries$(if $(LIBRARIES),($(LIBRARIES)))"

findings: setup  ## surprises of other libraries, formats and stores, run again (minutes; NAME= for one)
	@findings/run $(NAME)

golden: setup  ## read golden tables of other engines: GOLDEN= a folder with check.py
	@test -f "$(GOLDEN)/check.py" || { echo "no check.py in $(GOLDEN); say make golden GOLDEN=folder" >&2; exit 1; }
	$(BIN)/python "$(GOLDEN)/check.py"
	REFDELTA_GOLDEN="$(GOLDEN)/tables" $(BIN)/python -m pytest -q tests/core/log/test_golden_claims.py

GOLDEN ?= $(REFDELTA_CACHE)/golden

wheel: setup  ## build the wheels and the source distributions of refdelta and refdelta-core into dist/
	$(BIN)/python -m build --no-isolation --outdir dist refdelta/core
	REFDELTA_RELEASE=1 $(BIN)/python -m build --no-isolation

##@ Figures

bench: setup  ## benchmarks next to rivals and floors (three quarters of an hour; SIZE=full, BENCH="-k log", WHAT=spark or pipeline)
	@$(SERVERS_FOR_BENCH)
	@mkdir -p $(RESULTS)
	$(BENCH_OF_$(WHAT)) $(BENCH)

WHAT ?= contests
SIZE ?= default
BENCH_OF_contests = $(BIN)/python -m pytest -c bench/pytest.ini bench --size $(SIZE) --benchmark-json $(RESULT)
BENCH_OF_spark    = $(BIN)/python bench/on_spark.py
BENCH_OF_pipeline = PYTHONPATH=bench $(BIN)/python -m pipeline

# Benchmarks that -k chooses need a server only if it names S3; without the server, those on S3 are skipped.
SERVERS_FOR_BENCH = $(if $(and $(findstring -k,$(BENCH)),$(if $(findstring s3,$(BENCH)),,x)),true,$(BIN)/python tests/servers/install.py >/dev/null || true)
RESULTS := bench/data/results
# By time and commit; both are taken when a target asks first, so that its lines name the same file.
RESULT   = $(eval RESULT := $(RESULTS)/$(shell date -u +%Y%m%d-%H%M%S)-$(shell git rev-parse --short HEAD 2>/dev/null || echo unknown).json)$(RESULT)

bench-report: setup  ## the README's five lines, bench/figures.md and the plots, of the newest run, or of FILE= (one or several)
	@$(BIN)/python bench/reporting.py $(FILE)

bench-compare: setup  ## refdelta at two commits, A= and B=, by the same benchmarks in turn (BENCH="-k log --pairs 5 --size smoke")
	@test -n "$(A)" -a -n "$(B)" || { echo "say make bench-compare A=<commit> B=<commit>" >&2; exit 2; }
	@$(BIN)/python bench/compare.py "$(A)" "$(B)" $(BENCH)

##@ Documents

docs: setup  ## the site, docs/site/index.html, without network: pages, search, notebooks, a page to play with (two minutes)
	$(BIN)/python docs/make_site.py

generate: setup  ## the pages and blocks that the code writes; without NAME= they are listed (NAME=reference, NAME=all)
	@PYTHONPATH=tests $(BIN)/python .ci/generate $(NAME) $(ARGS)

engines: setup  ## docs/engines.md: the conformance suite on each engine (Java 17; a quarter of an hour; ARGS=--missing)
	$(BIN)/python .ci/generate/engines_page.py $(ARGS)
