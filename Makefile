# Needs Python 3.11 to 3.13, make and nothing else: `make demo` and `make test` build .venv from the hashed lock file.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ENGINES := .venv-engines
PEERS := .venv-bench
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Errors only; byte code is written by the imports that need it, which saves a third of the time.
INSTALL := $(PIP) install --quiet --quiet --no-compile
COMPILE := $(BIN)/uv --no-config pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-annotate --no-header
EXTRA := $(BIN)/python -c 'import sys, tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"][sys.argv[1]], sep="\n")'
PYTEST_ARGS ?=
BENCH_ARGS ?=

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test agreement lint format bench peers docs lock clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' Makefile

demo: $(VENV)/.installed ## train on a synthetic market and write a report
	@$(BIN)/tidewalk demo

# Byte code is kept even where the user has switched that off: every test process would compile all of it again.
test: $(VENV)/.oracles ## run the fast tests (PYTEST_ARGS="-m slow" for the others)
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n logical --dist loadfile $(PYTEST_ARGS)

# The other engines need an older pandas, so an environment of their own, in which a part of the test runs.
agreement: $(VENV)/.oracles $(ENGINES)/.installed ## compare the books with other engines, to the cent
	@$(BIN)/python -m pytest -m slow tests/agreement tests/test_real_files.py $(PYTEST_ARGS)

lint: $(VENV)/.installed ## ruff, pyright, import contracts, size budgets
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright # else it asks the registry for a newer one
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python tools/size_budget.py

format: $(VENV)/.installed ## sort imports and format
	@$(BIN)/ruff check --select I --fix
	@$(BIN)/ruff format

bench: $(VENV)/.installed ## measure this machine, stopping before ten minutes (BENCH_ARGS="--device gpu", "--only epoch,cpu")
	@$(BIN)/python benchmarks/run.py $(BENCH_ARGS)

# torch is several GB where the registry gives a build for CUDA: TORCH names another version, or an index of CPU builds.
TORCH ?= torch==2.13.0
peers: $(PEERS)/.installed ## install other trainers into .venv-bench, for `make bench` to measure beside tidewalk

docs: $(VENV)/.docs ## build the documentation into site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir site

# `make lock` keeps the pins that still fit; `make lock UPGRADE=--upgrade` takes the newest of everything.
lock: $(VENV)/.installed ## write the lock files from pyproject.toml
	@test -x $(BIN)/uv || $(INSTALL) 'uv>=0.13,<0.14'
	@$(COMPILE) $(UPGRADE) --extra dev pyproject.toml --output-file requirements.lock
	@$(EXTRA) docs | $(COMPILE) $(UPGRADE) --constraints requirements.lock - --output-file requirements-docs.lock
	@$(COMPILE) $(UPGRADE) requirements-engines.in --output-file requirements-engines.lock
	@awk '/^[a-z]/ {keep = !/^jax(lib)?==/} keep' requirements.lock > $(VENV)/constraints.txt
	@echo "torch; python_version < '3'" > $(VENV)/overrides.txt
	@$(COMPILE) $(UPGRADE) --constraints $(VENV)/constraints.txt --overrides $(VENV)/overrides.txt pyproject.toml requirements-bench.in --output-file requirements-bench.lock
	@$(EXTRA) oracles | $(COMPILE) $(UPGRADE) --constraints requirements.lock - --output-file requirements-oracles.lock

clean: ## remove the environment and everything built
	rm -rf $(VENV) $(ENGINES) $(PEERS) build dist site .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests tools -name __pycache__ -type d -prune -exec rm -rf {} +

# The packages follow the lock file, the entry points pyproject.toml.
$(VENV)/.packages: requirements.lock
	@$(PYTHON) -c 'import sys; (3, 11) <= sys.version_info < (3, 14) or sys.exit("tidewalk needs Python 3.11 to 3.13, and $(PYTHON) is " + sys.version.split()[0] + "; name another: make PYTHON=python3.12")'
	@echo "Installing tidewalk into $(VENV) (once; 1.6 GB on disk)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(INSTALL) --require-hashes -r requirements.lock
	@touch $@

$(VENV)/.installed: $(VENV)/.packages pyproject.toml
	@$(INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.oracles: $(VENV)/.installed requirements-oracles.lock
	@$(INSTALL) --require-hashes -r requirements-oracles.lock
	@touch $@

$(VENV)/.docs: $(VENV)/.installed requirements-docs.lock
	@$(INSTALL) --require-hashes -r requirements-docs.lock
	@touch $@

$(ENGINES)/.installed: requirements-engines.lock
	@test -x $(ENGINES)/bin/python || $(PYTHON) -m venv $(ENGINES)
	@$(ENGINES)/bin/python -m pip --disable-pip-version-check install --quiet --quiet --require-hashes -r $<
	@touch $@

$(PEERS)/.installed: requirements-bench.lock
	@test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	@$(PEERS)/bin/python -m pip --disable-pip-version-check install --quiet --quiet $(TORCH)
	@$(PEERS)/bin/python -m pip --disable-pip-version-check install --quiet --quiet --no-deps --require-hashes -r $<
	@touch $@
