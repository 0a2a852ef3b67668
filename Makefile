# `make demo` and `make test` set up all they need in .venv, then do their job.
# On Windows (untested) a shell with `touch` is needed, such as that of Git.
ifeq ($(OS),Windows_NT)
PYTHON ?= python
SCRIPTS := Scripts
else
PYTHON ?= python3
SCRIPTS := bin
endif
VENV := .venv
BIN := $(VENV)/$(SCRIPTS)
LOWEST := .venv-lowest
READY := $(VENV)/.ready

.PHONY: bench demo docs study test test-fast test-real test-lowest soak lint format clean
SECONDS ?= 300

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "plench needs Python 3.11 or newer (set PYTHON=...)")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $(READY)

demo: $(READY)
	$(BIN)/plench demo --output-dir demo-results

test: lint
	$(BIN)/python -m pytest -n 2

# The inner loop: what an edit of an algorithm breaks first.
test-fast: $(READY)
	$(BIN)/python -m pytest -n 2 -q tests/conformance/test_vectors.py -k 'not folder and not other_names and not dtype0' \
		tests/training/test_stack.py tests/algorithms/test_parts.py tests/algorithms/test_pages.py

test-real: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[test-encoders]'
	$(BIN)/python -m pytest -m real

# The lowest versions that pyproject.toml allows; untested where the registry has no such torch.
test-lowest:
	$(PYTHON) -m venv $(LOWEST)
	$(PYTHON) scripts/lowest_versions.py > $(LOWEST)/constraints.txt
	$(LOWEST)/$(SCRIPTS)/python -m pip install --quiet --constraint $(LOWEST)/constraints.txt --editable '.[dev]'
	$(LOWEST)/$(SCRIPTS)/python -m pytest -n 2

# What plench costs compared with baselines measured in the same run (docs/bench.md).
bench: $(READY)
	$(BIN)/plench bench step stack image evaluation sweep reading --output build/bench.json

# The documentation as a site, offline: build/docs/html/index.html.
docs: $(READY)
	$(BIN)/python scripts/make_docs.py

# Kills and damages runs and sweeps for SECONDS; a later call continues the campaign (docs/trust.md).
soak: $(READY)
	$(BIN)/python -m campaigns.soak --seconds $(SECONDS) $(SOAK)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) $(LOWEST) build dist src/*.egg-info

# Pages that follow from results/study.parquet.
study: $(READY)
	$(BIN)/python benchmarks/study.py
	$(BIN)/python -m benchmarks.portfolio
	$(BIN)/python scripts/make_pages.py
