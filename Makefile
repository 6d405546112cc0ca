# `make help` lists the targets. Needs python3 (3.11 or newer) and nothing else.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
STAMP := $(VENV)/.installed
PYTEST_ARGS ?=
BENCH_ARGS ?=

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help demo test check docs pictures bench bench-full bench-check bench-spark clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(STAMP) ## Run the main job end to end, then a report of it
	$(RUN) -m toril.cli demo

test: $(STAMP) ## Run the tests and the coverage limits (PYTEST_ARGS="..." runs a part, without limits)
ifeq ($(strip $(PYTEST_ARGS)),)
	$(RUN) -m pytest -n 3 --maxschedchunk 1 -m repeat
	$(RUN) -m pytest -n 3 --maxschedchunk 1 -m "not spark and not repeat" --cov --cov-report= --cov-fail-under=0
	$(RUN) -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m spark --cov --cov-append --cov-report=term --cov-report=json --cov-fail-under=0
	$(RUN) scripts/check_coverage.py coverage.json
else
	$(RUN) -m pytest -n 2 $(PYTEST_ARGS)
endif

check: $(STAMP) ## Check format, lint and types
	$(RUN) -m ruff format --check
	$(RUN) -m ruff check
	$(RUN) -m mypy

docs: $(STAMP) ## Write the parts of the docs that come from the code
	$(RUN) -m scripts.generate_docs

pictures: $(STAMP) ## Draw the pictures of the docs anew; the report needs Java and chromium
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(RUN) scripts/terminal_picture.py docs/pictures/demo.svg toril demo --no-spark
	mkdir -p build && $(VENV)/bin/toril demo --out build/report.html
	chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1000,600 \
	  --screenshot=docs/pictures/report.png build/report.html

bench: $(STAMP) ## Measure the core, and shortly the storages beside two peers (minutes)
	$(RUN) benchmarks/core.py
	$(RUN) -m benchmarks.compare W1 W2 W3 W4 --server valkey --reps 1 --jobs 8000 \
	  --peers toril-lean,toril-wire,toril-file,toril-memory,bullmq-node-5,arq $(BENCH_ARGS)

bench-full: $(STAMP) ## Measure everything beside every peer (hours; BENCH_ARGS=--page writes the docs)
	$(RUN) -m benchmarks.lean bulk call halfopen flat load --million
	$(RUN) -m benchmarks.lean pickup --idle 60 --reps 1
	$(RUN) -m benchmarks.wire
	$(RUN) -m benchmarks.file
	$(RUN) -m benchmarks.compare --million $(BENCH_ARGS)

bench-check: $(STAMP) ## Fail if CPU time per job grew by more than a quarter against the baseline (minutes)
	$(RUN) -m benchmarks.compare.guard $(BENCH_ARGS)

bench-spark: $(STAMP) ## Measure sources, sink, fleet and analytics on Spark (minutes)
	$(RUN) -m benchmarks.spark

clean: ## Remove what the other targets made
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis
	rm -rf .coverage .coverage.* coverage.json htmlcov build dist
	find src tests scripts examples benchmarks -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

$(STAMP): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || \
	  { echo "toril: no '$(PYTHON)' found; install Python 3.11 or newer" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "toril: needs Python 3.11 or newer, '$(PYTHON)' is $$($(PYTHON) -V 2>&1);" \
	    "name a newer one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "toril: preparing $(VENV) (first time, or the dependencies changed)"
	@$(PYTHON) -m venv $(VENV) || \
	  { echo "toril: '$(PYTHON) -m venv' failed; on Debian and Ubuntu install python3-venv" >&2; \
	    rm -rf $(VENV); exit 1; }
	@$(RUN) -m pip install --quiet --editable ".[dev,bullmq,spark]" --constraint constraints.txt
	@touch $@
