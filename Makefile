# All set-up happens here, on a bare machine too: `make test` and `make run` need Python 3.11 or newer and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TORCH := torch==2.13.0
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: run test lint bench dist clean help

run: $(STAMP) ## See a wrong kernel found, shrunk, replayed and repaired (a minute)
	@$(BIN)/python scripts/demo

# They start hundreds of processes, none of which shall compile our modules anew. Two processes that run tests, each with
# as many threads as processors, wait for one another: what takes 2 s alone took 26 s.
test: $(STAMP) ## Run all tests, style and types among them
	@PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

lint: $(STAMP) ## Check style, format, types and imports only
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(STAMP) ## Measure speed with every program in scripts/bench
	@for program in scripts/bench/[!_.]*; do \
		test -f $$program || continue; \
		echo "== $$program"; $(BIN)/python $$program || exit 1; \
	done

# A release: raise __version__ in kernel_assay/__init__.py, then `towncrier build --version` that one, then this.
dist: $(STAMP) ## Build the wheel and the sdist into dist/
	@rm -rf dist
	@$(BIN)/python -m build --no-isolation --outdir dist .

clean: ## Remove the virtual environment, caches and builds; what was found (corpus/local) stays
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

help: ## Say what there is
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' Makefile

# torch comes first and pinned: the quirks in kernels/quirks.py are those of this version. The stamp is newer than
# pyproject.toml once everything in it is installed. A pip that is missing means a set-up that was cut short.
$(STAMP): pyproject.toml Makefile
	@command -v $(PYTHON) >/dev/null || { \
		echo "$(PYTHON) is not installed: install Python 3.11 or newer, or name one with make PYTHON=..."; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "$(PYTHON) is too old: Python 3.11 or newer is needed, name one with make PYTHON=..."; exit 2; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet $(TORCH)
	$(BIN)/python -m pip install --quiet -e '.[dev]'
	@touch $@
