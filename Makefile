# Every target sets itself up: a checkout and Python 3.11 to 3.14 are enough.

VENV      := .venv
BIN       := $(VENV)/bin
PIP       := $(BIN)/python -m pip --disable-pip-version-check -qq
RUN_READY := $(VENV)/.ready-run
DEV_READY := $(VENV)/.ready-dev
WHEEL_DIR := build/wheel

# What `make run` shows, and what `make bench` measures.
MAIN_JOB  ?= $(BIN)/confide run
BENCH_JOB ?= $(BIN)/python benchmarks/run.py

# Import every module, and make sure that it is the wheel's and not the checkout's.
IMPORT_ALL = import confide, importlib, pathlib, pkgutil; \
  assert pathlib.Path(confide.__file__).is_relative_to(pathlib.Path("$(WHEEL_DIR)").resolve()), confide.__file__; \
  names = [m.name for m in pkgutil.walk_packages(confide.__path__, "confide.") if not m.name.endswith("__main__")]; \
  print(len([importlib.import_module(name) for name in names]), "modules import from the wheel")

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run test lint types docs wheel pytest bench bench-quick audit audit-quick clean

help:
	@echo "make run          a million private rounds, with a report"
	@echo "make test         every check: lint, types, docs, wheel, tests with doctests"
	@echo "make docs         build the site into site/"
	@echo "make bench        all benchmarks"
	@echo "make bench-quick  the benchmarks that take a minute or two"
	@echo "make audit        attack Confide with its own adversaries; can be stopped and continued"
	@echo "make audit-quick  a first look at the audit, in three minutes"
	@echo "make clean        remove $(VENV), caches and everything built"
	@echo "PYTHON=...        the Python to build $(VENV) with (default: the first suitable one found)"

$(BIN)/python:
	@python="$(PYTHON)"; \
	for candidate in $${python:-python3.13 python3.12 python3.11 python3.14 python3}; do \
	  if $$candidate -c 'import ensurepip, sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2>/dev/null; \
	  then echo "creating $(VENV) with $$candidate"; exec $$candidate -m venv $(VENV); fi; \
	done; \
	echo "no Python 3.11 to 3.14 with venv found: install one, or name it with PYTHON=..." >&2; exit 1

# Installed anew only when pyproject.toml changes; a development install serves `make run` too.
$(RUN_READY): pyproject.toml | $(BIN)/python
	@echo "installing confide"
	@$(PIP) install --editable .
	@touch $@

$(DEV_READY): pyproject.toml | $(BIN)/python
	@echo "installing confide with its test and docs tools"
	@$(PIP) install --editable '.[test,docs]'
	@touch $(RUN_READY) $@

run: $(RUN_READY)
	$(MAIN_JOB)

test: lint types docs wheel pytest

lint: $(DEV_READY)
	$(BIN)/ruff check

types: $(DEV_READY)
	$(BIN)/mypy --strict

docs: $(DEV_READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# The wheel goes to a folder of its own, and every module must import from there.
wheel: $(DEV_READY)
	@rm -rf dist $(WHEEL_DIR)
	$(BIN)/python -m build --wheel --no-isolation --outdir dist . > /dev/null
	@$(PIP) install --no-deps --target $(WHEEL_DIR) dist/confide-*.whl
	@PYTHONPATH=$(WHEEL_DIR) $(BIN)/python -P -c '$(IMPORT_ALL)'

pytest: $(DEV_READY)
	MPLBACKEND=Agg OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -q -n 2

bench: $(DEV_READY)
	$(BENCH_JOB)

bench-quick: $(DEV_READY)
	$(BENCH_JOB) --quick

# Finished games are kept: the same command goes on.
audit: $(RUN_READY)
	$(BIN)/confide audit --folder build/audit --json build/audit/audit.json --plot build/audit/audit.svg

audit-quick: $(RUN_READY)
	$(BIN)/confide audit --quick

clean:
	rm -rf $(VENV) build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
