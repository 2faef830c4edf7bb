# Every target makes .venv and installs what it needs by itself.
#   make PYTHON=python3.12 test

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SCRATCH := $(CURDIR)/build

SHAPE := 4096x4096x4096
PYTEST := $(BIN)/pytest -n auto --maxprocesses 8 --dist loadfile
SUPPORTED := $(shell sed -n 's/.*"Programming Language :: Python :: \(3\.[0-9]*\)".*/python\1/p' pyproject.toml)

# Hundreds of tests start Python, which would compile all that it imports each time.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo test check types docs pythons $(SUPPORTED) gpu-test wheel clean

help:
	@echo "make demo      tune $(SHAPE) on the recording of an H100, look it up, print occupancies"
	@echo "make test      the tests that need no GPU"
	@echo "make check     linters, types, import contracts and the tests, those of the site among them"
	@echo "make docs      build the documentation site: build/docs/index.html"
	@echo "make pythons   the tests on each of $(SUPPORTED) that is installed"
	@echo "make gpu-test  the tests that need a GPU, a driver and a CUDA toolkit"
	@echo "make wheel     build the wheel from the sdist and use it in an empty environment"
	@echo "make clean     remove .venv and everything that was built"

demo: $(VENV)/package
	rm -rf $(SCRATCH)/demo
	AUTOTUNE_CACHE_DIR=$(SCRATCH)/demo $(BIN)/autotune tune $(SHAPE) --device replay:h100 --trials 300
	AUTOTUNE_CACHE_DIR=$(SCRATCH)/demo $(BIN)/autotune best $(SHAPE) --device replay:h100
	AUTOTUNE_CACHE_DIR=$(SCRATCH)/demo $(BIN)/autotune occupancy --device h100

test: $(VENV)/installed
	$(PYTEST)

check: $(VENV)/installed
	$(BIN)/python scripts/fit/stale.py count
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports
	$(BIN)/pytest --collect-only -qq tests/gpu
	$(MAKE) --jobs 2 types test

types: $(VENV)/installed
	$(BIN)/mypy

docs: export NO_MKDOCS_2_WARNING = 1
docs: $(VENV)/installed
	$(BIN)/mkdocs build --quiet --strict
	@echo "$(SCRATCH)/docs/index.html"

pythons: $(SUPPORTED)

$(SUPPORTED):
	@if $@ -c "" 2>/dev/null; then $(MAKE) PYTHON=$@ VENV=$(SCRATCH)/$@ test; \
	else echo "$@: not installed"; fi

gpu-test: $(VENV)/installed-gpu
	$(BIN)/pytest -n auto --maxprocesses 16 --dist worksteal -m "not timing" tests/gpu
	$(BIN)/pytest -m timing tests/gpu

wheel: $(VENV)/installed
	$(BIN)/python scripts/fit/stale.py count --refuse
	rm -rf $(SCRATCH)/wheel
	$(BIN)/hatchling build -t sdist -d $(SCRATCH)/wheel
	$(BIN)/pip wheel --quiet --no-deps -w $(SCRATCH)/wheel $(SCRATCH)/wheel/*.tar.gz
	$(PYTHON) -m venv $(SCRATCH)/wheel/empty
	$(SCRATCH)/wheel/empty/bin/pip install --quiet $(SCRATCH)/wheel/*.whl
	cd $(SCRATCH)/wheel && export AUTOTUNE_CACHE_DIR=$(SCRATCH)/wheel/cache && \
	empty/bin/autotune device --device h100 && \
	empty/bin/autotune occupancy --device h100 && \
	empty/bin/autotune tune $(SHAPE) --device replay:h100 --trials 50 && \
	empty/bin/autotune best $(SHAPE) --device replay:h100

clean:
	rm -rf $(VENV) $(SCRATCH) dist

# pip would compile every module of every package, for half a minute; Python compiles those it imports.
$(VENV)/package: pyproject.toml hatch_build.py autotune/runtime/native/calls.c
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --editable .
	touch $@

$(VENV)/installed: $(VENV)/package
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --no-compile --group dev
	touch $@

$(VENV)/installed-gpu: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --editable ".[gpu]"
	touch $@
