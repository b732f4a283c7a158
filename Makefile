# Every target sets itself up: a checkout and Python 3.11 to 3.14 are enough.

VENV      := .venv
BIN       := $(VENV)/bin
PIP       := $(BIN)/python -m pip --disable-pip-version-check -qq
# Bytecode of every module of every package would take half a minute: each is compiled when it is first imported.
INSTALL   := $(PIP) install --no-compile
# Bytecode is kept whatever the environment says: every process that is started here would compile it all again.
export PYTHONDONTWRITEBYTECODE :=
QUIET     := MPLBACKEND=Agg OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
# Tests that stand together mostly run together, and share plans, kernels and models; whoever is done first takes over.
PYTEST    := pytest -q -n 2 --dist worksteal
# Tests that compile most of the kernels: by themselves, so that two processes do not compile them at the same moment.
# Then those of the learners, on the core that is done with types, lint, docs and wheel before the others are compiled.
FIRST     := tests/banks
SECOND    := tests/learners
RUN_READY := $(VENV)/.ready-run
DEV_READY := $(VENV)/.ready-dev
WHEEL_DIR := build/wheel

# The interpreters that `make test-pythons` and `make wheel-check` look for, the tests that the former runs (all of them
# if empty), and how often `make chaos` kills.
PYTHONS   ?= python3.11 python3.12 python3.13 python3.14 $(wildcard $(HOME)/.pyenv/versions/3.1[1-4].*/bin/python)
TESTS     ?=
KILLS     ?= 300

VERSION   := $(BIN)/python -c 'import confide; print(confide.__version__)'

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
.PHONY: help run test check lint types docs docs-check newcomer wheel wheel-check pytest first second chaos test-pythons bench bench-full audit \
  audit-quick timing clean evidence evidence-quick evidence-page

help:
	@echo "make run          a million private rounds, with a report"
	@echo "make test         every check: lint, types, docs, wheel, tests with doctests"
	@echo "make check        while you work: lint, types and the tests that are fast, in a minute or two"
	@echo "make chaos        processes and a server under load killed $(KILLS) times (KILLS=...), and many scripts for two worlds"
	@echo "make test-pythons the tests with every Python 3.11 to 3.14 that is there (PYTHONS=..., TESTS=... for some of them)"
	@echo "make wheel-check  the wheel in a fresh environment of each of them, from wheels alone: no compiler is needed"
	@echo "make docs         build the site into site/, this version beside others"
	@echo "make docs-check   run every command and snippet of the guides, in some minutes"
	@echo "make newcomer     time a newcomer's path: new environment, install, a private answer"
	@echo "make bench        every benchmark in its short form, seconds to minutes each; says what missed its target"
	@echo "make bench-full   every benchmark in whole, hours"
	@echo "make evidence     Confide beside its peers, hours; can be stopped and continued (CONFIDE_DATA=folder)"
	@echo "make evidence-quick  the same on small streams, in minutes; make evidence-page: docs/evidence.md from the results"
	@echo "make timing       what the time of an answer tells about others, channel by channel"
	@echo "make audit        attack Confide with its own adversaries; can be stopped and continued"
	@echo "make audit-quick  a first look at the audit, in a minute or two"
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
# While one core unpacks what the tests need, the other compiles with the core alone what takes longest.
$(RUN_READY): pyproject.toml | $(BIN)/python
	@echo "installing confide"
	@$(INSTALL) --editable '.[cli,report,parquet]'
	@touch $@

$(DEV_READY): pyproject.toml | $(BIN)/python
	@echo "installing confide with its test and docs tools"
	@$(INSTALL) --editable .
	@{ $(BIN)/python -m tests.warm || true; } & $(INSTALL) --editable '.[test,docs]'; code=$$?; wait; exit $$code
	@touch $(RUN_READY) $@

run: $(RUN_READY)
	$(MAIN_JOB)

# What needs one core runs beside something else; the tests need all of them.
test: $(DEV_READY)
	@$(MAKE) --no-print-directory -j2 first types lint docs wheel second
	@CONFIDE_SITE=$(CURDIR)/site/$$($(VERSION)) $(MAKE) --no-print-directory pytest PYTEST="$(PYTEST) $(addprefix --ignore=,$(FIRST) $(SECOND))"

check: $(DEV_READY)
	@$(MAKE) --no-print-directory -j2 types lint pytest PYTEST="$(PYTEST) -m 'not slow'"

lint: $(DEV_READY)
	$(BIN)/ruff check
	$(BIN)/lint-imports --no-cache --no-logo

types: $(DEV_READY)
	$(BIN)/mypy --strict

# This version's pages join those of others that are in site/ already; the header offers all of them.
docs: $(DEV_READY)
	@rm -rf site/$$($(VERSION))
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir site/$$($(VERSION))
	@$(BIN)/python -m docs.tools.versions site

# Every command and snippet of the front page and the guides, each page in a new folder.
docs-check: $(DEV_READY)
	$(QUIET) $(BIN)/python -m docs.tools.check

newcomer: $(DEV_READY)
	$(BIN)/python -m docs.tools.newcomer

# The wheel goes to a folder of its own, and every module must import from there.
wheel: $(DEV_READY)
	@rm -rf dist $(WHEEL_DIR)
	$(BIN)/python -m build --wheel --no-isolation --outdir dist . > /dev/null
	@$(INSTALL) --no-deps --target $(WHEEL_DIR) dist/confide-*.whl
	@PYTHONPATH=$(WHEEL_DIR) $(BIN)/python -P -c '$(IMPORT_ALL)'

pytest: $(DEV_READY)
	$(QUIET) $(BIN)/$(PYTEST)

# Those, and the kernels that others need as soon as they are collected.
first: $(DEV_READY)
	@$(QUIET) $(BIN)/python -c 'import tests.games.test_adversaries, tests.games.test_worst_lean, tests.test_cut_off'
	$(QUIET) $(BIN)/pytest -q $(FIRST)

second: $(DEV_READY)
	$(QUIET) $(BIN)/pytest -q $(SECOND)

chaos: $(DEV_READY)
	CONFIDE_KILLS=$(KILLS) $(QUIET) $(BIN)/pytest -q -k "kill or nobody_else" tests
	$(QUIET) $(BIN)/python -m tests.service.chaos --kills $(KILLS)
	$(QUIET) $(BIN)/python -m tests.service.chaos --kills $(KILLS) --seed 1
	CONFIDE_SERVER_KILLS=$(KILLS) $(QUIET) $(BIN)/pytest -q tests/service/test_chaos_leak.py

# For each interpreter of its kind that is there, once a version: what is in $(1), where $$python is it and $$at its
# environment under build/. Those that are not there are left out; which were there is said at the end.
define each-python
@seen=" "; for python in $(PYTHONS); do \
  version=$$($$python -c 'import ensurepip, sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue; \
  case "$$seen" in *" $$version "*) continue;; esac; seen="$$seen$$version "; \
  at=build/$(2)-$$version; echo "Python $$version"; \
  $$python -m venv $$at && $(1) || exit 1; \
done; \
if [ "$$seen" = " " ]; then echo "none of $(PYTHONS) is here: name one with PYTHONS=..." >&2; exit 1; fi; \
echo "done with Python$$seen"
endef

test-pythons:
	$(call each-python,$$at/bin/python -m pip --disable-pip-version-check -qq install --editable '.[test]' && \
	  $(QUIET) $$at/bin/$(PYTEST) $(TESTS),python)

# Wheels alone, and nothing that could compile: then a plan, from the installed package and nothing else.
wheel-check: wheel
	$(call each-python,CC=false CXX=false $$at/bin/python -m pip --disable-pip-version-check -qq install \
	  --only-binary :all: --force-reinstall "$$(echo dist/confide-*.whl)[all]" && \
	  $$at/bin/python -I -m confide --version && $$at/bin/confide plan -e 1 -d 1e-6 -T 300000 > /dev/null,wheel)

# Each comes to its end whatever the others did; what missed its target, or could not run, is listed at the end.
bench: $(DEV_READY)
	$(BENCH_JOB) --quick

bench-full: $(DEV_READY)
	$(BENCH_JOB)

# Finished cells are kept: the same command goes on, and the page is made of what is there.
evidence: $(DEV_READY)
	$(QUIET) $(BIN)/python -m benchmarks.evidence
	$(BIN)/python -m benchmarks.evidence.page

evidence-quick: $(DEV_READY)
	$(QUIET) $(BIN)/python -m benchmarks.evidence --quick
	$(QUIET) $(BIN)/python -m benchmarks.evidence --quick --check 10

evidence-page: $(DEV_READY)
	$(BIN)/python -m benchmarks.evidence.page

timing: $(DEV_READY)
	$(QUIET) $(BIN)/python benchmarks/timing.py

# Finished games are kept: the same command goes on.
audit: $(DEV_READY)
	$(BIN)/confide audit --folder build/audit --json build/audit/audit.json --plot build/audit/audit.svg
	$(QUIET) $(BIN)/python -m tests.service.leak

audit-quick: $(RUN_READY)
	$(BIN)/confide audit --quick

clean:
	rm -rf $(VENV) build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
