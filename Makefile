# `make serve` needs Python 3.11 to 3.14 and nothing else. `make help` lists the targets.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install packages serve test test-all soak kafka-soak check static format bench trace picture compose-test lock audit clean

VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check

# Or each of hundreds of processes would compile the same sources again.
unexport PYTHONDONTWRITEBYTECODE
SUPPORTED := import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	$$p -c "$(SUPPORTED)" >/dev/null 2>&1 && echo $$p && break; done)

SECONDS ?= 1800

# More than the processors of a typical test machine, since tests are idle for half of their time.
WORKERS ?= 3
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

install: $(VENV)/.complete ## .venv with everything: the service, its tests, benchmarks and experiments

packages: $(VENV)/.packages # the same but for the compiled kernels

serve: $(VENV)/.runtime ## run the service on http://127.0.0.1:8000 with its data in ./data
	@exec $(BIN)/ftrl serve

test: WORKERS = 4 # none of these kills servers or loads the processors for long
test: $(VENV)/.complete ## before a commit: the tests of every package, but those marked slow or faults
	@$(BIN)/ftrl warm-up # otherwise every worker would compile the changed kernels
	$(PYTEST) -m 'not slow and not faults'

test-all: $(VENV)/.complete ## every test; only containers and the soak are left out
	@$(BIN)/ftrl warm-up
	$(PYTEST)

check: static test-all ## what CI runs: format, lint, types, import contracts and every test

static: $(VENV)/.packages ## format, lint, types and import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

soak: $(VENV)/.complete ## kill and pause all processes under simulated traffic for SECONDS=1800 (SEED=N repeats)
	SOAK_SECONDS=$(SECONDS) SOAK_SEED=$(or $(SEED),$(shell date +%s)) $(BIN)/python -m pytest tests/faults/test_feedback_faults.py -k whatever -s -q

kafka-soak: $(VENV)/.complete ## 200,000 messages of Kafka through 50 kills of consumers, brokers, Redis and learner (SEED=N)
	KAFKA_MESSAGES=200000 KAFKA_KILLS=50 KAFKA_SEED=$(or $(SEED),1) $(BIN)/python -m pytest tests/faults/test_kafka_faults.py -k whatever -q

format: $(VENV)/.complete ## format the sources and apply automatic fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.complete ## measure against River, Vowpal Wabbit and an empty endpoint
	$(BIN)/python -m bench

# A script that starts docker-compose.yml without Docker and then runs the given command.
FTRL_COMPOSE_UP ?= ../shared/tools/compose_up.sh
COMPOSE_TEST := env COMPOSE_PROJECT_NAME=ftrl-test COMPOSE_TEST=1 API_PORTS=28000 PROMETHEUS_PORT=29090 \
	ALERTMANAGER_PORT=29093 GRAFANA_PORT=23000
COMPOSE_PYTEST := $(BIN)/python -m pytest -m compose tests/deploy

compose-test: $(VENV)/.complete ## start docker-compose.yml, predict, learn, kill, restart, and check the results
	@if [ -f "$(FTRL_COMPOSE_UP)" ]; then $(COMPOSE_TEST) bash "$(FTRL_COMPOSE_UP)" . $(COMPOSE_PYTEST); \
	elif docker info >/dev/null 2>&1; then \
		$(COMPOSE_TEST) docker compose up --build --wait && $(COMPOSE_TEST) $(COMPOSE_PYTEST); status=$$?; \
		$(COMPOSE_TEST) docker compose down --volumes; exit $$status; \
	else echo "compose-test skipped: no Docker here, and FTRL_COMPOSE_UP names no script to replace it"; fi

trace: $(VENV)/.complete ## the source files that one prediction, one update and one restore run through
	@$(BIN)/python -m tests.support.trace

picture: $(VENV)/.complete ## take docs/dashboard.png again, of a service that learns (needs chromium)
	$(BIN)/python -m tests.support.dashboard_picture

clean: ## remove the environment and every cache; ./data stays
	rm -rf $(VENV) build dist *.egg-info ftrl_client/build ftrl_client/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find ftrl_client model_core service lab tests bench -name __pycache__ -prune -exec rm -rf {} +

LOCK := $(VENV)/lock/bin/uv pip compile --quiet --no-config --universal --python-version 3.11 \
	--fork-strategy fewest --generate-hashes --no-emit-index-url --no-annotate --no-header $(LOCK_OPTIONS)

lock: $(VENV)/.complete ## resolve the locks again; LOCK_OPTIONS=--upgrade takes newer versions
	$(BIN)/python -m venv $(VENV)/lock
	$(VENV)/lock/bin/python -m pip install --quiet --disable-pip-version-check uv
	$(LOCK) pyproject.toml --group build -o requirements.lock
	$(LOCK) pyproject.toml --group build --extra s3 --extra kafka -c requirements.lock -o requirements-image.lock
	$(LOCK) pyproject.toml --group build --all-extras -c requirements-image.lock -o requirements-dev.lock
	$(LOCK) --group clients -o requirements-clients.lock

audit: $(VENV)/.complete ## check the locked packages for known vulnerabilities (asks the index)
	$(BIN)/python -m venv $(VENV)/audit
	$(VENV)/audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit
	$(VENV)/audit/bin/pip-audit --strict --disable-pip --require-hashes -r requirements-image.lock -r requirements-dev.lock -r requirements-clients.lock

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "make: Python 3.11 to 3.14 with venv is needed (on Debian: apt install python3-venv)" >&2; exit 1; }
	@echo "Making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)

# The stamps make a second run a no-op. Kernels are compiled once here rather than at the first request.
$(VENV)/.service: requirements.lock pyproject.toml | $(BIN)/python
	@echo "Installing the service (once, a minute or two: it compiles the kernels, too)"
	@$(PIP) --require-hashes -r requirements.lock
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.runtime: $(VENV)/.service
	@$(BIN)/ftrl warm-up
	@touch $@

$(VENV)/.packages: requirements-dev.lock $(VENV)/.service
	@echo "Installing what tests, benchmarks and experiments need (once)"
	@$(PIP) --no-compile --require-hashes -r requirements-dev.lock # most of it is never imported
	@touch $@

TYPESCRIPT := tests/service/api/typescript

# Generators of clients, which tests run: what they depend on does not fit what the service does.
$(VENV)/.clients: requirements-clients.lock $(TYPESCRIPT)/package-lock.json | $(BIN)/python
	@$(BIN)/python -m venv $(VENV)/clients
	@$(VENV)/clients/bin/python -m pip install -qq --disable-pip-version-check --no-compile --require-hashes -r requirements-clients.lock
	@if command -v npm >/dev/null; then mkdir -p $(VENV)/clients/typescript && \
		cp $(TYPESCRIPT)/*.json $(VENV)/clients/typescript && \
		npm ci --prefix $(VENV)/clients/typescript --silent --ignore-scripts --no-audit --no-fund; fi
	@touch $@

$(VENV)/.complete: $(VENV)/.runtime $(VENV)/.packages $(VENV)/.clients
	@touch $@
