# Everything runs in .venv, made here from any Python of at least 3.11; nothing else is needed.
#   make demo    train a network on real handwritten digits
#   make check   linters, types, layers: what to run before each commit
#   make test    the tests that one waits for: some minutes, and nothing beyond the core is needed
#   make test-full  all tests, also those that compare with PyTorch
#   make test-devices  every row of the conformance suite on every device that is here
#   make bench   the figures of docs/performance.md
#   make trading replay a market with a compiled critical path, and tell its latencies
#   make pictures run a small image language on a photograph, and time it beside Pillow
#   make chargpt train a character transformer on Python's help pages, and sample from it
#   make page    train a network and serve a page that reads the digits drawn on it
#   make kernels run the examples of kernels, each checked and timed beside NumPy
#   make coverage  record what each device computes, for the pages of the documentation
#   make accuracy  record the largest errors of functions on each device, and check their bounds
#   make docs    the documentation site, from guides and docstrings, into site/
#   make requirements  what Weft must have, and the tests that are named after each row
#   make fuzz    random programs, and all values of functions, for FUZZ_SECONDS in all
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV  := .venv
BIN   := $(VENV)/bin
JOBS  ?= 2
TESTS ?= tests
FUZZ_SECONDS ?= 1500
TORCH := torch==2.13.0

# Images of containers set this to stay small. Without byte code pytest compiles all tests anew in each
# process (25 s of the CPU), and hundreds of tests start Python, which would compile Weft anew.
unexport PYTHONDONTWRITEBYTECODE

# The first that runs and is new enough; a name may exist and yet not run (pyenv).
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$p && break; \
	done)

.PHONY: help demo coverage accuracy device-pages docs requirements chargpt trading kernels pictures \
        page check test test-full test-devices bench fuzz torch clean

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

$(VENV)/.docs: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	@touch $@

# PyTorch is an oracle of the tests, never needed to run Weft. On Linux only its CPU build is
# taken unasked, because the default one brings gigabytes of GPU libraries.
torch: | $(BIN)/python
	@$(BIN)/python -c 'import torch' 2>/dev/null \
	|| $(BIN)/python -m pip install --quiet --disable-pip-version-check '$(TORCH)+cpu' 2>/dev/null \
	|| { case "$$(uname -s),$(WEFT_REQUIRE)," in Linux,*,torch,*|Darwin,*) \
	       $(BIN)/python -m pip install --quiet --disable-pip-version-check '$(TORCH)';; \
	     *) false;; esac; } \
	|| { echo "PyTorch could not be installed: what compares with it cannot run"; \
	     case ",$(WEFT_REQUIRE)," in *,torch,*) exit 1;; esac; }

demo: $(VENV)/.demo
	@$(BIN)/weft demo --output demo

pictures: $(VENV)/.examples
	@$(BIN)/python -m examples.imagepipe.measure

trading: $(VENV)/.demo
	@$(BIN)/python -m examples.trading

chargpt: $(VENV)/.demo
	@$(BIN)/python -m examples.chargpt

page: $(VENV)/.demo
	@$(BIN)/python examples/web/digits.py demo/page
	@$(BIN)/python -m http.server --bind 127.0.0.1 --directory demo/page

kernels: $(VENV)/.demo
	@set -e; for script in examples/kernels/[a-z]*.py; do \
	  printf '%s: ' "$$script"; $(BIN)/python $$script; \
	done

check: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# What Weft must have, and the tests that are named after each row.
requirements: $(VENV)/.test
	@$(BIN)/python tests/requirement_rows.py

# Which tests a tier has is told in tests/tiers.py.
test: export WEFT_REQUIRE ?= cpu
test: $(VENV)/.test
	$(BIN)/python -m pytest -n $(JOBS) --tier fast $(TESTS)

test-full: export WEFT_REQUIRE ?= cpu,torch
test-full: $(VENV)/.test torch
	$(BIN)/python -m pytest -n $(JOBS) --tier full $(TESTS)

# Of slow devices the full tier takes a share of the rows.
test-devices: export WEFT_ALL_DEVICES := 1
test-devices: export WEFT_REQUIRE ?= cpu
test-devices: $(VENV)/.test
	$(BIN)/python -m pytest -n $(JOBS) --tier full tests/conformance tests/runtimes tests/backends

# What each device computes, from the tests that compute it: of all devices, or of those whose names
# are given (`make coverage DEVICES=vulkan`), which takes an hour where drivers are slow to compile.
coverage: export WEFT_COVERAGE := $(shell mktemp -d)
coverage: export WEFT_REQUIRE ?= cpu,cpu/c,interpreter
coverage: $(VENV)/.test
	$(BIN)/python -m pytest -q -n $(JOBS) -k "$(DEVICES)" $(addprefix tests/conformance/test_, \
	  op_values.py reduction_values.py movement_values.py conversions.py indexing_values.py)
	$(BIN)/python tests/conformance/device_coverage.py $(WEFT_COVERAGE)
	$(BIN)/python tests/conformance/device_pages.py

# How exact floats are on devices: on all that are here, or on those whose names are given.
accuracy: $(VENV)/.test
	$(BIN)/python tests/conformance/device_errors.py $(DEVICES)
	$(BIN)/python tests/conformance/device_pages.py

device-pages: $(VENV)/.test
	$(BIN)/python tests/conformance/device_pages.py

docs: $(VENV)/.docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: $(VENV)/.test torch
	@set -e; for script in bench/*.py; do for threads in 1 2; do \
	  echo "== $$script, $$threads threads"; \
	  WEFT_NUM_THREADS=$$threads $(BIN)/python $$script; \
	done; done

# Each script has an equal share of the time.
fuzz: $(VENV)/.test
	@set -e; scripts=$$(ls tests/fuzz/*.py); \
	share=$$(($(FUZZ_SECONDS) / $$(echo $$scripts | wc -w))); \
	for script in $$scripts; do \
	  echo "== $$script, $$share s"; $(BIN)/python $$script --seconds $$share; \
	done

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache build dist site
