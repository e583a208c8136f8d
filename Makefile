# `make serve` needs Python 3.11, 3.12 or 3.13 and nothing else. `make help` lists the targets.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install serve test check format bench lock clean

VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check
SUPPORTED := import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python; do \
	$$p -c "$(SUPPORTED)" >/dev/null 2>&1 && echo $$p && break; done)

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

install: $(VENV)/.complete ## .venv with everything: the service, its tests, benchmarks and experiments

serve: $(VENV)/.runtime ## run the service on http://127.0.0.1:8000 with its data in ./data
	@exec $(BIN)/ftrl serve

test: $(VENV)/.complete ## run the tests
	$(BIN)/python -m pytest

check: $(VENV)/.complete ## format, lint, types, layers and tests: what CI runs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest

format: $(VENV)/.complete ## rewrite the sources as the formatter and the linter want them
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.complete ## measure against River, Vowpal Wabbit and an empty endpoint
	$(BIN)/python -m bench

clean: ## remove the environment and every cache; ./data stays
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find model_core service tests bench -name __pycache__ -prune -exec rm -rf {} +

LOCK := $(VENV)/lock/bin/uv pip compile --quiet --no-config --universal --python-version 3.11 \
	--fork-strategy fewest --generate-hashes --no-emit-index-url --no-annotate --no-header $(LOCK_OPTIONS)

lock: $(VENV)/.complete ## resolve the locks again; LOCK_OPTIONS=--upgrade takes newer versions
	$(BIN)/python -m venv $(VENV)/lock
	$(VENV)/lock/bin/python -m pip install --quiet --disable-pip-version-check uv
	$(LOCK) pyproject.toml --group build -o requirements.lock
	$(LOCK) pyproject.toml --group build --all-extras -c requirements.lock -o requirements-dev.lock

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "make: Python 3.11, 3.12 or 3.13 with venv is needed (on Debian: apt install python3-venv)" >&2; exit 1; }
	@echo "Making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)

# The stamps make a second run a no-op. Kernels are compiled once here rather than at the first request.
$(VENV)/.runtime: requirements.lock pyproject.toml | $(BIN)/python
	@echo "Installing the service (once, a minute or two: it compiles the kernels, too)"
	@$(PIP) --require-hashes -r requirements.lock
	@$(PIP) --no-deps --no-build-isolation --editable .
	@$(BIN)/ftrl warm-up
	@touch $@

$(VENV)/.complete: requirements-dev.lock $(VENV)/.runtime
	@echo "Installing what tests, benchmarks and experiments need (once)"
	@$(PIP) --require-hashes -r requirements-dev.lock
	@touch $@
