# fedmq. `make demo` and `make test` need Python 3.11, make and git, on Debian nothing else.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-builtin-rules --no-print-directory
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --progress-bar off
MERMAID := docs/assets/mermaid.min.js
# Half as many again as there are cores: many tests wait for daemons.
WORKERS ?= $(shell expr \( $$(nproc) \* 3 + 1 \) / 2)
RABBITMQ := /usr/lib/rabbitmq/bin/rabbitmq-server
RABBITMQ4 := .rabbitmq4/bin/rabbitmq-server

# Three workers and hundreds of processes of the tests would each compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore
export DEBIAN_FRONTEND := noninteractive

.PHONY: help demo test test-long seeds durations lint pytest test-matrix oldest rabbitmq4 wheel-matrix older-release chaos survived fuzz circuits form histories clean release
.PHONY: debian docs site docs-serve charts
.PHONY: bench bench-training bench-paired bench-safety bench-apart bench-estimate bench-garbling bench-wide bench-wide-area bench-many-rows bench-secretflow bench-screening bench-hidden-screen bench-correlation bench-on-paper bench-cores bench-wide-memory
.PHONY: bench-reading bench-disclosed-columns bench-classes bench-gradient-bits bench-merged-cells bench-alignment bench-online papers soak soak-sessions rabbitmq postgresql softhsm
.PHONY: bench-console bench-console-day chromium screenshots

help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 24

demo: $(VENV)/demo.stamp ## train three parties with Paillier; the last line is JSON
	@$(BIN)/fedmq demo

test: | $(BIN)/pip ## lint, types, rooms, tests, side by side
	@$(MAKE) --jobs=2 $(VENV)/test.stamp debian
	@$(MAKE) --jobs=2 lint pytest

lint: $(VENV)/test.stamp ## ruff, mypy --strict, import-linter
	@echo "ruff" && $(BIN)/ruff check --quiet && $(BIN)/ruff format --check --quiet
	@echo "mypy" && $(BIN)/mypy --no-error-summary
	@echo "import-linter" && $(BIN)/lint-imports

# All workers at once would compile the modules of a new clone, each for itself: one does before.
pytest: $(VENV)/test.stamp debian
	@[ -d tests/__pycache__ ] || $(BIN)/pytest --collect-only -qq >/dev/null 2>&1 || true
	@$(BIN)/pytest --numprocesses $(WORKERS) --dist loadfile

test-long: $(VENV)/test.stamp rabbitmq chromium ## every seed and case, command of the docs, link of the site, page of the console
	@$(BIN)/pytest -m long --numprocesses $(WORKERS) --dist loadfile

seeds: $(VENV)/test.stamp ## the tests that take seeds, with other ones than those of the other targets; FIRST=1000
	@FEDMQ_FIRST_SEED=$(or $(FIRST),1000) $(BIN)/pytest -m seeded --numprocesses $(WORKERS) --dist loadfile

durations: $(VENV)/test.stamp rabbitmq postgresql softhsm ## measure the tests, so that workers take the longest first
	@$(BIN)/pytest --store-durations --numprocesses $(WORKERS) --dist loadfile

test-matrix: $(VENV)/test.stamp rabbitmq postgresql softhsm ## the tests with each Python, oldest and newest dependencies; PYTHONS= TESTS=
	@.ci/test-matrix $(TESTS)

oldest: $(VENV)/test.stamp rabbitmq postgresql softhsm ## the tests with the oldest versions of all that pyproject.toml allows
	@PYTHONS=3.11 VERSIONS=lowest-direct .ci/test-matrix $(TESTS)

rabbitmq4: $(VENV)/test.stamp rabbitmq $(RABBITMQ4) ## the tests that start a broker, with RabbitMQ 4 of Debian 13
	@FEDMQ_RABBITMQ=$(CURDIR)/.rabbitmq4/bin $(BIN)/pytest -m broker --numprocesses $(WORKERS) --dist loadfile

wheel-matrix: $(RABBITMQ4) | $(BIN)/pip ## the wheel alone with each Python: demo, init, a training over RabbitMQ 4; PYTHONS=
	@FEDMQ_RABBITMQ=$(CURDIR)/.rabbitmq4/bin .ci/wheel-matrix

older-release: $(VENV)/test.stamp rabbitmq ## daemons of older commits, built as wheels, beside those of this tree; RELEASES="v0.1.0 v0.2.0"
	@.ci/older-release $(RELEASES)

$(RABBITMQ4):
	@command -v debootstrap >/dev/null || { $(call debian_package,debootstrap,for RabbitMQ 4); }
	@tests/debian13_rabbitmq .rabbitmq4

chaos: $(VENV)/test.stamp rabbitmq ## 200 seeded faults on real daemons around a real broker
	@FEDMQ_CHAOS_FAULTS=$(or $(FAULTS),200) $(BIN)/pytest tests/chaos -m "long or not long" --capture no --timeout 7200

survived: $(VENV)/bench.stamp rabbitmq ## faults under sessions of every kind, five engines and scores, into docs/measured; FAULTS=300 MINUTES=120
	@$(BIN)/python -m benchmarks.survived --faults $(or $(FAULTS),300) --minutes $(or $(MINUTES),120) --page docs/measured/survived.md

fuzz: $(VENV)/test.stamp ## 2,000 drawn tables and options beside XGBoost; TABLES= FIRST=
	@$(BIN)/python -m tests.differential.fuzz $(or $(TABLES),2000) $(or $(FIRST),0)

circuits: $(VENV)/test.stamp ## 10,000,000 numbers, 1,000,000 gains and 10,000 nodes through circuits; NUMBERS= GAINS= NODES=
	@$(BIN)/python -m tests.privacy.garbling.float_parts $(or $(NUMBERS),10000000)
	@$(BIN)/python -m tests.privacy.hidden_sums.gains $(or $(GAINS),1000000)
	@$(BIN)/python -m tests.privacy.hidden_sums.filtered $(or $(NODES),10000)

form: $(VENV)/test.stamp ## how far a reader walks, largest classes, imports: today's figures; UPDATE=1 lowers the limits
	@$(BIN)/python -m tests.form.figures $(if $(UPDATE),--update)

histories: $(VENV)/test.stamp ## record the sessions that tests replay anew
	@$(BIN)/python -m tests.histories.record

# Benchmarks write pages of docs/measured or print tables; DATA is a folder with credit1_*.csv and credit2_*.csv.

define data
	@test -n "$(DATA)" || { echo "say where the data is: make $@ DATA=folder" >&2; exit 2; }
endef

bench: $(VENV)/bench.stamp rabbitmq ## time, memory and traffic of trees, into docs/measured; FULL=1 PARTS=
	$(data)
	@$(BIN)/python -m benchmarks.report --data "$(DATA)" $(if $(FULL),--full) \
		$(if $(PARTS),--parts $(PARTS))

bench-training: $(VENV)/bench.stamp ## seconds per tree beside XGBoost
	$(data)
	@$(BIN)/python -m benchmarks.training "$(DATA)"

bench-paired: $(VENV)/bench.stamp rabbitmq ## what a tree and a score cost beside another checkout; OTHER=folder
	$(data)
	@test -n "$(OTHER)" || { echo "say where the other checkout is: make $@ DATA=folder OTHER=folder" >&2; exit 2; }
	@$(BIN)/python -m benchmarks.paired "$(DATA)" "$(OTHER)" --scores

bench-safety: $(VENV)/bench.stamp rabbitmq ## what seals and checkpoints cost
	$(data)
	@$(BIN)/python -m benchmarks.safety "$(DATA)" --page docs/measured/safety.md

bench-apart: $(VENV)/bench.stamp rabbitmq ## parties with a core each, with and without noise made ahead
	$(data)
	@$(BIN)/python -m benchmarks.apart "$(DATA)"

bench-estimate: $(VENV)/bench.stamp rabbitmq ## what fedmq estimate says, beside what the training takes
	$(data)
	@$(BIN)/python -m benchmarks.estimate "$(DATA)" --page docs/measured/estimate.md

bench-gradient-bits: $(VENV)/bench.stamp ## what gradient_bits costs of a model, and saves of the time
	$(data)
	@$(BIN)/python -m benchmarks.gradient_bits "$(DATA)" --page docs/measured/gradient-bits.md

bench-merged-cells: $(VENV)/bench.stamp ## what smallest_cell costs of a model, and what sums then tell
	$(data)
	@$(BIN)/python -m benchmarks.merged_cells "$(DATA)" --page docs/measured/merged-cells.md

bench-disclosed-columns: $(VENV)/bench.stamp ## what the directions of splits tell of another party's columns
	@$(BIN)/python -m benchmarks.disclosed_columns --page docs/measured/disclosed-columns.md

bench-reading: $(VENV)/bench.stamp postgresql ## how long a million rows take to read, and ids to look up
	@$(BIN)/python -m benchmarks.reading --page docs/measured/reading.md

bench-wide: $(VENV)/bench.stamp ## what eight products at once save on wide tables
	@$(BIN)/python -m benchmarks.wide --page docs/measured/wide.md

bench-wide-memory: $(VENV)/bench.stamp rabbitmq ## seconds, bytes and memory of 100,000 x (300 + 300) and 20,000 x (20 + 5,000); TABLES= ENGINES=
	@$(BIN)/python -m benchmarks.wide_memory $(if $(TABLES),--tables $(TABLES)) $(if $(ENGINES),--engines $(ENGINES)) \
		--page docs/measured/wide-memory.md

bench-many-rows: $(VENV)/bench.stamp rabbitmq ## from one to ten million rows, on one machine and over Dask; ROWS= ENGINES= COMPUTE= PROCESSES=
	@$(BIN)/python -m benchmarks.many_rows $(if $(ROWS),--rows $(ROWS)) $(if $(ENGINES),--engines $(ENGINES)) \
		$(if $(COMPUTE),--compute $(COMPUTE)) $(if $(PROCESSES),--workers $(PROCESSES)) \
		--page docs/measured/many-rows.md

bench-on-paper: $(VENV)/bench.stamp ## bytes, core hours and money of 100 million rows and ten parties, estimated; PRICES="CORE_HOUR GIGABYTE"
	@$(BIN)/python -m benchmarks.on_paper $(if $(PRICES),--prices $(PRICES)) --page docs/measured/on-paper.md

bench-cores: $(VENV)/bench.stamp ## parties of one process, two and more: efficiency, and what is serial
	$(data)
	@$(BIN)/python -m benchmarks.more_cores "$(DATA)" --page docs/measured/cores.md

bench-classes: $(VENV)/bench.stamp ## a round of ten classes beside one binary tree
	@$(BIN)/python -m benchmarks.classes --page docs/measured/classes.md

bench-wide-area: $(VENV)/bench.stamp rabbitmq ## trainings of which either party is behind a slow link
	$(data)
	@$(BIN)/python -m benchmarks.wide_area "$(DATA)" --page docs/measured/wide-area.md

bench-secretflow: $(VENV)/bench.stamp rabbitmq ## seconds per tree beside SecretFlow's, which it installs with Python 3.10; WIDE=1 takes 100,000 x (300 + 300) over a link instead
	$(data)
	@$(BIN)/python -m benchmarks.secretflow "$(DATA)" $(if $(WIDE),--wide) --page docs/measured/secretflow$(if $(WIDE),-far).md

bench-screening: $(VENV)/bench.stamp rabbitmq ## screens beside SecretFlow's binning; WIDE=1 adds 100,000 x (300 + 300)
	$(data)
	@$(BIN)/python -m benchmarks.screening "$(DATA)" $(if $(WIDE),--wide) --page docs/measured/screening.md

bench-hidden-screen: $(VENV)/bench.stamp ## what a screen costs that hides sums, beside one that shows them
	@$(BIN)/python -m benchmarks.hidden_screen --page docs/measured/hidden-screen.md

bench-correlation: $(VENV)/bench.stamp rabbitmq ## correlations across parties beside SecretFlow's; SIZES="10000x20" takes these alone
	$(data)
	@$(BIN)/python -m benchmarks.correlation "$(DATA)" $(if $(SIZES),--sizes $(SIZES)) \
		--page docs/measured/correlation.md

bench-garbling: $(VENV)/bench.stamp ## how fast circuits are garbled, and transfers extended
	@$(BIN)/python -m benchmarks.garbling

soak: $(VENV)/bench.stamp rabbitmq ## memory and disk of daemons over 500 trees
	@$(BIN)/python -m benchmarks.soak

soak-sessions: $(VENV)/bench.stamp rabbitmq ## memory, files, disk and queues over trainings, scores, alignments, joins; TRAININGS=1000 SCORES=100000 TREES= ROWS=
	@$(BIN)/python -m benchmarks.soak_sessions --trainings $(or $(TRAININGS),60) --scores $(or $(SCORES),600) \
		--trees $(or $(TREES),20) --rows $(or $(ROWS),300) --page docs/measured/sessions.md

bench-alignment: $(VENV)/bench.stamp ## seconds of alignments of 10^4, 10^5 and 10^6 ids
	@$(BIN)/python -m benchmarks.alignment

bench-console: $(VENV)/bench.stamp rabbitmq ## what an open console costs a daemon, and the scores beside it
	@$(BIN)/python -m benchmarks.console

bench-console-day: $(VENV)/bench.stamp rabbitmq ## what a day with an open console leaves in memory; MINUTES=10
	@$(BIN)/python -m benchmarks.console_day --minutes $(or $(MINUTES),10)

bench-online: $(VENV)/bench.stamp rabbitmq ## latencies of online scores
	$(data)
	@$(BIN)/python -m benchmarks.online "$(DATA)" --page docs/measured/online.md

papers: $(VENV)/bench.stamp ## the papers' experiments, into docs/measured
	$(data)
	@OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.papers "$(DATA)"

release: $(VENV)/release.stamp ## build, check and try sdist and wheel, into dist/
	@.ci/release

screenshots: $(VENV)/test.stamp rabbitmq chromium ## pictures of every page of the console, into docs/console
	@$(BIN)/python -m tests.party.console.screens

docs: $(VENV)/test.stamp ## write docs/reference, the map in CONTRIBUTING.md, and pictures
	@$(BIN)/python docs/reference/generate.py
	@$(BIN)/python docs/pictures/parties.py

site: $(VENV)/docs.stamp $(MERMAID) ## build the documentation site into site/, without a warning
	@$(BIN)/zensical build --clean --strict

docs-serve: $(VENV)/docs.stamp $(MERMAID) ## show the documentation site at http://127.0.0.1:8000 while you write
	@$(BIN)/zensical serve --dev-addr 127.0.0.1:8000

charts: $(VENV)/charts.stamp ## lint, render and compare the Helm chart, alerts and the dashboard of deploy/
	@$(BIN)/pytest tests/deployment

clean: ## remove the virtual environment and all caches
	@rm -rf --one-file-system $(VENV) .matrix .rabbitmq4 .secretflow .cache build dist site $(MERMAID) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# uv installs in seconds what takes pip minutes. Of pip's settings it is told an index and
# constraints; where it cannot install, pip does. $(1): what, with $(comma) where make would part arguments
comma := ,
define install
index=$${PIP_INDEX_URL:-$$($(BIN)/pip config get global.index-url 2>/dev/null || true)}; \
constraints=$${PIP_CONSTRAINT:-$$($(BIN)/pip config get global.constraint 2>/dev/null || true)}; \
{ $(PIP) uv && $(BIN)/uv pip install --quiet --python $(BIN)/python $${index:+--default-index "$$index"} \
  $${constraints:+--constraints "$$constraints"} --editable '$(1)'; } >&2 || $(PIP) --editable '$(1)' >&2
endef

# A stamp is newer than pyproject.toml when what that file asks for is installed.

$(VENV)/demo.stamp: pyproject.toml | $(BIN)/pip
	@echo "installing fedmq for the demo into $(VENV)" >&2
	@$(call install,.[demo])
	@touch $@

$(VENV)/test.stamp: pyproject.toml | $(BIN)/pip
	@echo "installing fedmq for the tests into $(VENV)" >&2
	@$(call install,.[test])
	@touch $@ $(VENV)/demo.stamp

$(VENV)/bench.stamp: pyproject.toml $(VENV)/test.stamp | $(BIN)/pip
	@echo "installing fedmq for the benchmarks into $(VENV)" >&2
	@$(call install,.[test$(comma)bench$(comma)papers])
	@touch $@

$(VENV)/release.stamp: pyproject.toml | $(BIN)/pip
	@echo "installing what builds a release into $(VENV)" >&2
	@$(call install,.[release])
	@touch $@

$(VENV)/docs.stamp: pyproject.toml | $(BIN)/pip
	@echo "installing what builds the documentation site into $(VENV)" >&2
	@$(call install,.[docs])
	@touch $@

$(VENV)/charts.stamp: pyproject.toml $(VENV)/test.stamp | $(BIN)/pip
	@echo "installing what checks the Helm chart into $(VENV)" >&2
	@$(call install,.[test$(comma)charts])
	@touch $@

# Mermaid draws the diagrams in the reader's browser; the site brings it along, so that it needs no network.
$(MERMAID):
	@command -v npm >/dev/null || { $(call debian_package,npm,it fetches mermaid for the diagrams); }
	@mkdir -p $(@D) && archive=$$(npm pack --silent --pack-destination $(@D) mermaid@12.3.0) \
	  && tar --extract --to-stdout --file "$(@D)/$$archive" package/dist/mermaid.min.js >$@ \
	  && rm "$(@D)/$$archive"

# Where Debian's package is missing: install it as root, or say how. $(1): package, $(2): what for
define debian_package
	if [ "$$(id -u)" != 0 ]; then \
	  echo "$(1) is missing ($(2)); install it with: sudo apt-get install $(1)" >&2; exit 1; \
	fi; \
	echo "installing Debian's $(1) ($(2))" >&2; \
	apt-get install -qq -y --no-install-recommends $(1) >/dev/null 2>&1 \
	  || { apt-get update -qq >&2; apt-get install -qq -y --no-install-recommends $(1) >/dev/null; }
endef

$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or later is needed; choose one with: make PYTHON=..." >&2; exit 1; }
	@if ! $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null; then \
	$(call debian_package,python3-venv,for the virtual environment); fi
	@$(PYTHON) -m venv --clear $(VENV)

postgresql:
	@if ! ls /usr/lib/postgresql/*/bin/pg_ctl >/dev/null 2>&1 && ! command -v pg_ctl >/dev/null; then \
	$(call debian_package,postgresql,the tests read a table from it); fi

softhsm:
	@if ! command -v softhsm2-util >/dev/null; then \
	$(call debian_package,softhsm2,the tests keep keys on its token); fi

# What `make test` needs of Debian, at once: two installations would wait for the same lock.
debian: | $(BIN)/pip
	@missing=(); \
	[ -x $(RABBITMQ) ] || missing+=(rabbitmq-server); \
	ls /usr/lib/postgresql/*/bin/pg_ctl >/dev/null 2>&1 || command -v pg_ctl >/dev/null || missing+=(postgresql); \
	command -v softhsm2-util >/dev/null || missing+=(softhsm2); \
	if (( $${#missing[@]} )); then $(call debian_package,$${missing[*]},for the tests); fi

chromium:
	@if ! command -v chromium >/dev/null; then \
	$(call debian_package,chromium,the tests look at the console with it); fi

rabbitmq:
	@if ! [ -x $(RABBITMQ) ]; then \
	$(call debian_package,rabbitmq-server,the tests start private brokers); fi
