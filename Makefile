# Two commands do everything on a fresh machine with git, make and Python 3.12 or newer:
#   make study    creates .venv, installs, and runs the main job on its default scenario
#   make test     creates .venv, installs, and runs lint, types and tests
#   make bench    speed against a plain version, BlackJAX and others
#   make endurance     a thousand million chain-steps in one run
#   make experiments   claims of the literature, one figure and one verdict each
#   make mutants  breaks the package on purpose, one line at a time, and sees that the tests notice

PYTHON ?= $(shell for p in python3 python3.12 python3.13 python3.14; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
ARGS ?=

.PHONY: study test bench endurance experiments mutants lint types clean

study: .venv/installed
	$(BIN)/infonce-jax study $(ARGS)

test: lint types
	$(BIN)/python -m pytest -n 2 --dist loadfile -q $(ARGS)

bench: .venv/installed-bench
	$(BIN)/python -m benchmarks.throughput $(ARGS)

endurance: .venv/installed
	$(BIN)/python -m benchmarks.endurance $(ARGS)

experiments: .venv/installed
	$(BIN)/python -m experiments $(ARGS)

mutants: .venv/installed-dev
	$(BIN)/python -m tests.mutants $(ARGS)

lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/installed-dev
	$(BIN)/basedpyright

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "infonce_jax needs Python 3.12 or newer; none of python3, python3.12 ... is; pass PYTHON=/path/to/python"; exit 1; }
	$(PYTHON) -m venv .venv

# The stamps are older than pyproject.toml after an update, so a changed dependency is installed at the next call.
.venv/installed: .venv/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

.venv/installed-dev: .venv/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@ .venv/installed

.venv/installed-bench: .venv/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	@touch $@ .venv/installed

clean:
	rm -rf .venv runs build dist .pytest_cache .ruff_cache .hypothesis
