# Everything runs in .venv, made here from any Python of at least 3.11; nothing else is needed.
#   make demo    train a network on real handwritten digits
#   make test    linters, types, layers, then the test suite
#   make bench   the figures of docs/performance.md
#   make trading replay a market with a compiled critical path, and tell its latencies
#   make pictures run a small image language on a photograph, and time it beside Pillow
#   make kernels run the examples of kernels, each against NumPy
#   make fuzz    exhaustive and long-running checks
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV  := .venv
BIN   := $(VENV)/bin
JOBS  ?= 2
TESTS ?= tests
TORCH := torch==2.13.0

# The first that runs and is new enough; a name may exist and yet not run (pyenv).
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$p && break; \
	done)

.PHONY: help demo trading kernels pictures test bench fuzz lint torch clean

help:
	@sed -n 's/^#   //p' Makefile

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Weft needs Python 3.11 or newer, and found none on PATH"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "$(PYTHON) cannot make virtual environments; on Debian: apt-get install python3-venv"; exit 1; }

$(VENV)/.demo: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[demo]'
	@touch $@

$(VENV)/.examples: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[examples]'
	@touch $@

$(VENV)/.test: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test,lint]'
	@touch $@

# PyTorch is an oracle of the tests, never needed to run Weft. On Linux only its CPU build is
# taken unasked, because the default one brings gigabytes of GPU libraries.
torch: | $(BIN)/python
	@$(BIN)/python -c 'import torch' 2>/dev/null \
	|| $(BIN)/python -m pip install --quiet --disable-pip-version-check '$(TORCH)+cpu' 2>/dev/null \
	|| { case "$$(uname -s),$(WEFT_REQUIRE)," in Linux,*,torch,*|Darwin,*) \
	       $(BIN)/python -m pip install --quiet --disable-pip-version-check '$(TORCH)';; \
	     *) false;; esac; } \
	|| echo "PyTorch could not be installed: tests that compare with it are deselected"

demo: $(VENV)/.demo
	@$(BIN)/weft demo --output demo

pictures: $(VENV)/.examples
	@$(BIN)/python -m examples.imagepipe.measure

trading: $(VENV)/.demo
	@$(BIN)/python -m examples.trading

kernels: $(VENV)/.demo
	@set -e; for script in examples/kernels/[a-z]*.py; do \
	  printf '%s: ' "$$script"; $(BIN)/python $$script; \
	done

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint torch
	$(BIN)/python -m pytest -n $(JOBS) $(TESTS)

bench: $(VENV)/.test torch
	@set -e; for script in bench/*.py; do for threads in 1 2; do \
	  echo "== $$script, $$threads threads"; \
	  WEFT_NUM_THREADS=$$threads $(BIN)/python $$script; \
	done; done

fuzz: $(VENV)/.test
	@set -e; for script in tests/fuzz/*.py; do \
	  echo "== $$script"; $(BIN)/python $$script; \
	done

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache build dist
