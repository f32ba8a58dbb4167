# `make` lists the targets. Only Python 3.11 or later and make are assumed; everything else goes into .venv.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.set-up
# What builds the project itself, pinned in constraints.txt too, so that no install resolves anything.
BUILD  := pip setuptools wheel hatchling editables
PYTEST = $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadgroup

# The JARs of delta-spark and the servers of the tests, fetched on first use, stay in the project.
export REFDELTA_CACHE ?= $(CURDIR)/.cache

# Without compiled files beside the sources, each of the many processes of a test run would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup servers demo demo-s3 check test test-all test-every floors newest pythons environments documents recipes libraries verify histories oracle programs mutations races puts lint faults bench bench-full bench-report bench-compare bench-spark pipeline precision precision-spark spec spec-map features claims reference casts pictures docs map commit-protocol corpus needed-rules how-we-know engines fuzz growth golden kills kills-catalogs kills-cluster kills-follow spark-settings soak clients wheel lock clean

##@ Set up

help:  ## list the targets
	@awk -F ':.*## ' '/^##@ /{printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## /{printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP)  ## create .venv with everything pinned (about a minute, then only after changes of the pins)

$(STAMP): pyproject.toml refdelta/core/pyproject.toml .ci/build_hook.py constraints.txt
	@test -n "$(PYTHON)" || { echo "refdelta needs Python 3.11 or later: none found" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11) and "refdelta needs Python 3.11 or later; say make PYTHON=...")'
	"$(PYTHON)" -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt $(BUILD)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt --no-build-isolation -e '.[dev]'
	@touch $@

servers: setup  ## put versitygw (S3) and fake-gcs-server (both need Go) and Azurite and Quint (need npm) into .cache, for the tests on real stores and the specification
	@$(BIN)/python tests/servers/install.py

lock: setup  ## write constraints.txt and the locks of Azurite and Quint anew, with the newest versions that fit together
	$(BIN)/python -m venv .cache/lock
	.cache/lock/bin/python -m pip install -q --disable-pip-version-check uv
	printf '%s\n' $(BUILD) > .cache/lock/build.in
	.cache/lock/bin/uv pip compile -q --python-version 3.11 --no-header --no-annotate --no-emit-package refdelta-core --extra dev pyproject.toml .cache/lock/build.in > .cache/lock/new
	mv .cache/lock/new constraints.txt
	rm -f tests/servers/azurite/package-lock.json tests/servers/quint/package-lock.json
	npm install --package-lock-only --omit-lockfile-registry-resolved --no-fund --no-audit --prefix tests/servers/azurite
	npm install --package-lock-only --omit-lockfile-registry-resolved --no-fund --no-audit --prefix tests/servers/quint

clean:  ## remove what the targets made, but for .venv and the JARs
	rm -rf build dist docs/site demo-table bench/data .mypy_cache .ruff_cache .pytest_cache .hypothesis .benchmarks .import_linter_cache spark-warehouse metastore_db derby.log
	find refdelta storage tests bench -name __pycache__ -type d -exec rm -rf {} +

##@ After every change

check: setup  ## what needs no Java, Go or npm, for after every change (nine minutes beside other work)
	$(PYTEST) --tier check

lint: setup  ## ruff, mypy --strict, which package may import which, and habits of writing (.ci/words.py)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python .ci/words.py

##@ Before a commit is shared

test: setup  ## tests of all kinds, real Spark and real servers, too (half an hour on two quiet cores); what needs Java 17, Go or npm skips without
	@$(BIN)/python tests/servers/install.py >/dev/null || true
	$(PYTEST) --tier test

demo: setup  ## the main job: processes write a year of flights at once, others change rows beside OPTIMIZE; everything is checked
	@$(BIN)/refdelta demo

demo-s3: setup servers  ## the same on S3: versitygw is started for it and serves a folder, which delta-spark reads
	@$(BIN)/python tests/servers/demo.py

##@ What .ci/run adds

test-all: setup  ## also a part of the long ones and of the exhaustive searches; what CI runs
	@$(BIN)/python tests/servers/install.py >/dev/null || true
	$(PYTEST) --tier all

environments: setup  ## an eighth of the tests of make check with the newest versions of a day, another with the lowest ones, and the pages (minutes)
	$(BIN)/python .ci/environments.py --part 8 newest
	$(BIN)/python .ci/environments.py --part 8 floors
	$(BIN)/python .ci/environments.py --install recipes dagster dbt
	$(BIN)/python .ci/environments.py documents

documents: setup  ## the blocks of each page, in an environment with just what the page installs (a minute or two)
	$(BIN)/python .ci/environments.py documents

recipes: setup  ## the recipes for Airflow, Dagster, Prefect and dbt, each in an environment of its own, and cron (minutes; TOOLS=dagster for one)
	$(BIN)/python .ci/environments.py recipes $(TOOLS)

libraries: setup  ## a script of each library that uses deltalake, in an environment of its own with refdelta in its place (minutes; LIBRARIES=dlt for one)
	$(BIN)/python .ci/environments.py libraries $(LIBRARIES)

##@ Before a release

test-every: setup  ## every test and every example, before a release (hours)
	@$(BIN)/python tests/servers/install.py >/dev/null || true
	$(PYTEST)

floors: setup  ## the tests of make check with the lowest declared versions, in .venv-floors (minutes)
	$(BIN)/python .ci/environments.py floors

newest: setup  ## the same with the newest versions of today that the extras allow, in .venv-newest; runs each week, too (minutes)
	$(BIN)/python .ci/environments.py --today newest

pythons: setup  ## the same with the pinned versions on Python 3.12, 3.13 and 3.14, where these are installed (minutes each)
	$(BIN)/python .ci/environments.py 3.12 3.13 3.14

oracle: setup  ## every test on Spark, those too that test-all leaves out (half an hour)
	@$(BIN)/python tests/servers/install.py >/dev/null || true
	$(PYTEST) -m spark

wheel: setup  ## build the wheels and the source distributions of refdelta and refdelta-core into dist/
	$(BIN)/python -m build --no-isolation --outdir dist refdelta/core
	REFDELTA_RELEASE=1 $(BIN)/python -m build --no-isolation

##@ Long searches

verify: setup  ## the tests of the API once more, and the data of every table that they leave is verified, too (some minutes)
	REFDELTA_VERIFY=full $(BIN)/python -m pytest -n auto --maxprocesses 4 -m "not spark" tests/api

histories: setup  ## delta-spark writes random histories of tables, HISTORIES=0-99, which are read, compared and verified (some 15 s each)
	REFDELTA_HISTORIES=$(HISTORIES) $(BIN)/python -m pytest tests/oracle/test_random_tables.py

HISTORIES ?= 0-99

programs: setup  ## programs in which any two features meet, all of them, by delta-spark and refdelta in turns (some minutes)
	$(BIN)/python -m pytest tests/oracle/test_features_together.py

clients: setup  ## refdelta serve under clients that were not written here: from PyPI, and with cargo in Rust (a minute; the first build takes three more)
	REFDELTA_RUST=1 $(BIN)/python -m pytest tests/catalog/test_foreign_client.py tests/catalog/test_rust_client.py tests/catalog/test_golden.py

spec: setup servers  ## the specification of the commit protocol (spec_notes/quint): run it, replay its traces through the core (minutes; SPEC="--samples 20000 --seed 7")
	PYTHONPATH=tests $(BIN)/python -m model.specification $(SPEC)

mutations: setup  ## change the code in fifty places, one at a time: does TIER=check find it? (half an hour; MUTATIONS="--seed 7" and others)
	PYTHONPATH=tests $(BIN)/python -m mutations --tier $(TIER) $(MUTATIONS)

TIER ?= check

races: setup servers  ## ten processes that append and change rows of one table on S3 and on Azure, the long run (minutes)
	REFDELTA_RACES=full $(BIN)/python -m pytest tests/backends/test_processes.py -s

puts: setup servers  ## 50 writers in five processes race for one object, 100 times, on disk, S3, Azure and GCS (some minutes)
	PYTHONPATH=tests $(BIN)/python tests/storage/races.py

faults: setup servers  ## writers on S3 and Azure while requests and replies are lost, repeated and cut, and while the servers end: 1,200 faults (some minutes)
	PYTHONPATH=tests $(BIN)/python -m faults.campaign

fuzz: setup  ## a million changed logs, checkpoints, vectors, data files, schemas and predicates (some minutes; FUZZ=--seed 7 for more)
	PYTHONPATH=tests $(BIN)/python -m fuzz.run --inputs 1000000 $(FUZZ)

growth: setup  ## texts, commits and tables that grow: does anything cost more than it is long? (GROWTH="--texts 100 --commits 0 --tables 50" and others)
	cd tests && ../$(BIN)/python -m growth $(GROWTH)

golden: setup  ## read golden tables of other engines: GOLDEN=folder with check.py, ../shared/golden unless said
	@test -f "$(GOLDEN)/check.py" || { echo "no check.py in $(GOLDEN); say make golden GOLDEN=folder" >&2; exit 1; }
	$(BIN)/python "$(GOLDEN)/check.py"
	REFDELTA_GOLDEN="$(GOLDEN)/tables" $(BIN)/python -m pytest -q tests/core/log/test_golden_claims.py

GOLDEN ?= ../shared/golden

kills: setup  ## kill writers at random moments, KILLS=300 SEED=20261121, on disk and on S3; delta-spark reads what is left (minutes)
	PYTHONPATH=tests $(BIN)/python -m kills $(KILLS) $(SEED)

kills-catalogs: setup  ## the same with tables of a catalog in SQLite and in PostgreSQL, which is restarted under load (minutes)
	PYTHONPATH=tests $(BIN)/python -m kills.catalogs $(KILLS) $(SEED)

kills-cluster: setup  ## statements on a Spark cluster of this machine while executors, tasks, jobs and drivers are killed (hours)
	PYTHONPATH=tests $(BIN)/python -m kills.cluster $(KILLS) $(SEED)

kills-follow: setup  ## kill readers that follow a table and copy it, beside writers, KILLS=100: each change once (a minute or two)
	PYTHONPATH=tests $(BIN)/python -m kills.following $(KILLS) $(SEED)

spark-settings: setup  ## each setting of a Spark session changed, one at a time: reads, writes and MERGE as at the defaults (an hour)
	PYTHONPATH=tests $(BIN)/python -m spark.settings $(SETTINGS)

soak: setup  ## tables of one folder are made by two libraries, removed and made anew beside background work, SECONDS=3600 (an hour)
	PYTHONPATH=tests $(BIN)/python -m kills.soak $(SECONDS) $(SEED)

KILLS ?= 300
SECONDS ?= 3600
SEED ?= 20261121

##@ Figures

bench: setup  ## every benchmark next to its rivals and its floor (three quarters of an hour; BENCH="-k log --without delta-spark" and others)
	@$(SERVERS_FOR_BENCH)
	@mkdir -p $(RESULTS)
	$(CONTESTS) --size default --benchmark-json $(RESULT) $(BENCH)
	@echo "raw samples: $(RESULT)"

bench-full: setup  ## the same with the largest tables and the most writers (hours)
	@$(SERVERS_FOR_BENCH)
	@mkdir -p $(RESULTS)
	$(CONTESTS) --size full --benchmark-json $(RESULT) $(BENCH)
	@echo "raw samples: $(RESULT)"

bench-report: setup  ## the README's five lines, bench/figures.md and the plots, of the newest run, or of FILE= (one or several)
	@$(BIN)/python bench/reporting.py $(FILE)

bench-compare: setup  ## refdelta at two commits, A= and B=, by the same benchmarks in turn (BENCH="-k log --pairs 5 --size smoke")
	@test -n "$(A)" -a -n "$(B)" || { echo "say make bench-compare A=<commit> B=<commit>" >&2; exit 2; }
	@$(BIN)/python bench/compare.py "$(A)" "$(B)" $(BENCH)

# Benchmarks that -k chooses need a server only if it names S3; without the server, those on S3 are skipped.
SERVERS_FOR_BENCH = $(if $(and $(findstring -k,$(BENCH)),$(if $(findstring s3,$(BENCH)),,x)),true,$(BIN)/python tests/servers/install.py >/dev/null || true)

CONTESTS = $(BIN)/python -m pytest -c bench/pytest.ini bench
RESULTS := bench/data/results
# By time and commit; both are taken when a target asks first, so that its lines name the same file.
RESULT   = $(eval RESULT := $(RESULTS)/$(shell date -u +%Y%m%d-%H%M%S)-$(shell git rev-parse --short HEAD 2>/dev/null || echo unknown).json)$(RESULT)

bench-spark: setup  ## reads, writes, DELETE and MERGE on Spark, next to delta-spark and bare Parquet (some minutes)
	$(BIN)/python bench/on_spark.py

pipeline: setup  ## TPC-H on Spark, raw files to bronze, silver and gold, then on delta-spark: same rows, both times (PIPELINE=--s3 and others)
	PYTHONPATH=bench $(BIN)/python -m pipeline --scale $(SCALE) $(PIPELINE)

# Of TPC-H: 1 has six million line items.
SCALE ?= 0.02

precision: setup  ## how often the engine commits where a judge of serial orders would, into spec_notes/precision.md
	PYTHONPATH=tests $(BIN)/python -m model.precision

precision-spark: setup  ## the same, after asking delta-spark anew about each of these histories (some minutes)
	PYTHONPATH=tests $(BIN)/python -m model.delta_spark
	PYTHONPATH=tests $(BIN)/python -m model.precision

##@ Documents

docs: setup  ## the site, docs/site/index.html, without network: all pages, search, notebooks, a page to play with (two minutes; then from a cache)
	$(BIN)/python docs/make_site.py

reference: setup  ## the pages docs/reference.md and docs/functions.md, from the code
	$(BIN)/python .ci/generate/reference.py

map: setup  ## the rooms of docs/map.md and their drawing, from the imports of the code
	$(BIN)/python .ci/generate/code_map.py

commit-protocol: setup  ## the tables, the diagram and the commits of docs/commit-protocol.md, from the code
	$(BIN)/python .ci/generate/core_document.py
	$(BIN)/python .ci/generate/commit_examples.py

features: setup  ## the table of features, spec_notes/features.md, from the registry and tests/features.toml
	$(BIN)/python .ci/generate/features_table.py

corpus: setup  ## the right outcomes of the cases in refdelta/conformance/corpus, by the judge, and the smallest cases
	$(BIN)/python .ci/generate/corpus.py

needed-rules: setup  ## the table in docs/conformance.md of rules and the cases that are wrong without them, by running all (minutes)
	PYTHONPATH=tests $(BIN)/python .ci/generate/needed_rules.py

how-we-know: setup  ## the sizes in docs/how-we-know.md, from the tests
	PYTHONPATH=tests $(BIN)/python .ci/generate/how_we_know.py

engines: setup  ## docs/engines.md: the conformance suite on each engine (delta-spark needs Java 17; some 15 minutes; ENGINES=--missing for new cases)
	$(BIN)/python .ci/generate/engines_page.py $(ENGINES)

claims: setup  ## the table of spec_notes/other_writers.md: the conclusions from fields of other writers' commits
	$(BIN)/python .ci/generate/claims_table.py

casts: setup  ## the page docs/guide/casts.md, by asking refdelta and deltalake (CASTS=--spark asks delta-spark, too)
	$(BIN)/python .ci/generate/casts_page.py $(CASTS)

spec-map: setup  ## count the clauses of the contracts, PROTOCOL.md, concurrency and ACID, that have code and a test; fails on one that has not
	$(BIN)/python .ci/generate/spec_map.py

pictures: setup  ## the pictures of the documents, docs/pictures
	$(BIN)/python docs/pictures/two_writers.py
	$(BIN)/python docs/pictures/timeline.py
