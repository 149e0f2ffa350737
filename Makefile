# Every target makes the virtual environment it needs; nothing is installed again until pyproject.toml or the
# constraints change.

PYTHON ?= python3
VENV := .venv
BENCH_VENV := .venv-bench
BENCH_PYTHON = LD_LIBRARY_PATH="$$(cat $(BENCH_VENV)/.library-path)" $(BENCH_VENV)/bin/python
# Further arguments of the benchmark, as in: make bench BENCH="--cases random --repeat 3"
BENCH ?=
PIP := -m pip install --quiet --disable-pip-version-check

# In the order of folders: otherwise files of few tests come last, and some of these take longest.
PYTEST = $(VENV)/bin/python -m pytest -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help demo check test test-long coverage lint types docs figures bench bench-training bench-gpu clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.installed ## make six clips, read frames at random, prove them right
	@$(VENV)/bin/framefeed demo --folder .demo

check: lint types ## lint and types, within a minute

test: check ## lint, types and all tests
	@$(PYTEST)

test-long: $(VENV)/.installed-dev ## tests marked slow: thousands of damaged files, an hour or more
	@$(VENV)/bin/python -m pytest -n auto --maxprocesses 4 -m slow

coverage: $(VENV)/.installed-dev ## all tests, slower, with a report of lines and branches in .coverage/html
	@$(PYTEST) --cov --cov-report=term --cov-report=html

lint: $(VENV)/.installed-dev ## ruff: rules and format
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .

types: $(VENV)/.installed-dev ## mypy, strict
	@$(VENV)/bin/mypy

docs: $(VENV)/.installed-dev ## the documentation site, in site/; warnings are errors
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/python -m mkdocs build --strict --quiet
	@echo "site/index.html"

figures: $(VENV)/.installed-dev ## write tables and pictures of the documentation from benchmarks/results
	@PYTHONPATH=. $(VENV)/bin/python docs/tools/texts.py
	@PYTHONPATH=. $(VENV)/bin/python docs/tools/pictures.py

bench: $(BENCH_VENV)/.installed ## compare with other libraries, in an environment of its own
	@$(BENCH_PYTHON) -m benchmarks.decoder --output .bench/results.json $(BENCH)

bench-training: $(BENCH_VENV)/.installed ## compare loaders over many files with torch's DataLoader over other libraries
	@$(BENCH_PYTHON) -m benchmarks.training --output .bench/training.json $(BENCH)

# With $(PYTHON) as it is, not in an environment of its own: torch with CUDA, PyNvVideoCodec and PyAV belong to the machine.
bench-gpu: ## compare decoding on a GPU with bare decoders and PyNvVideoCodec's own readers
	@PYTHONPATH="src$${PYTHONPATH:+:$$PYTHONPATH}" $(PYTHON) -m benchmarks.gpu --output .bench/gpu.json $(BENCH)

clean: ## remove everything that these targets made
	rm -rf $(VENV) $(BENCH_VENV) .demo .bench .coverage .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist site
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.installed: $(VENV)/.made pyproject.toml constraints.txt
	@echo "installing framefeed into $(VENV)"
	@$(VENV)/bin/python $(PIP) -c constraints.txt -e .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.made pyproject.toml constraints.txt
	@echo "installing framefeed and its development tools into $(VENV)"
	@$(VENV)/bin/python $(PIP) -c constraints.txt -e ".[dev]"
	@touch $@ $(VENV)/.installed

$(BENCH_VENV)/.installed: $(BENCH_VENV)/.made pyproject.toml constraints.txt constraints-bench.txt
	@echo "installing framefeed and the libraries it is compared with into $(BENCH_VENV)"
	@$(BENCH_VENV)/bin/python $(PIP) -c constraints-bench.txt -e ".[bench]"
	@$(BENCH_VENV)/bin/python -m benchmarks.torchcodec_libraries $(BENCH_VENV)/torchcodec > $(BENCH_VENV)/.library-path
	@touch $@

%/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
		echo "framefeed needs Python 3.10 or later; $(PYTHON) is $$($(PYTHON) --version 2>&1)." >&2; \
		echo "Name another one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -m venv $* || { \
		echo "No virtual environment: Debian and Ubuntu have it in the package python3-venv." >&2; exit 1; }
	@echo '*' > $*/.gitignore
	@touch $@
