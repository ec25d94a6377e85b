# One command surface. Every target sets up what it needs on a fresh machine: Python 3.11 and Java 17 (or apt-get) are enough.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
HUDI_VENV := .venv-hudi
WORKERS ?= 2

export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python
export PYSPARK_DRIVER_PYTHON := $(CURDIR)/$(BIN)/python

.PHONY: help setup demo test unit test-parsers torture clusters lint format interop interop-full s3-server bench docs clean java

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk 'BEGIN {FS = ":.*## "} {printf "  make %-14s %s\n", $$1, $$2}'

setup: $(VENV)/.ready ## Create the virtual environment .venv with everything that tests need

$(VENV)/.ready: pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "lakebed needs Python 3.11 or newer; set PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "lakebed needs Python 3.11 or newer, this is $$($(PYTHON) --version); set PYTHON=/path/to/python3"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev,spark]'
	@touch $@

demo: setup ## A tour of a table in a minute
	$(BIN)/lakebed demo

test: setup java ## Unit, golden, property and simulation tests
	$(BIN)/python -m pytest tests -m "not interop and not slow" -n $(WORKERS) --dist loadfile -q
	$(MAKE) test-parsers

unit: setup ## The fast loop: unit tests without Spark
	$(BIN)/python -m pytest tests/unit tests/test_layers.py tests/test_public_names.py -m "not slow" -n $(WORKERS) --dist loadfile -q

.cache/parser-lowest/.ready: pyproject.toml
	rm -rf $(@D)
	$(BIN)/python -m pip install --quiet --no-deps --target $(@D) "sqlglot==$$(sed -n 's/.*"sqlglot>=\([0-9.]*\)".*/\1/p' pyproject.toml)"
	@touch $@

.cache/parser-newest/.ready: pyproject.toml
	rm -rf $(@D)
	$(BIN)/python -m pip install --quiet --no-deps --target $(@D) sqlglot
	@touch $@

test-parsers: setup .cache/parser-lowest/.ready .cache/parser-newest/.ready ## Expressions with the lowest and the newest sqlglot that are allowed
	for parser in lowest newest; do PYTHONPATH=$(CURDIR)/.cache/parser-$$parser $(BIN)/python -m pytest tests/unit/expression tests/expressions/test_known_answers.py -n $(WORKERS) --dist loadfile -q || exit 1; done

torture: setup java ## Random histories, then random expressions beside Spark, ten minutes each, with new seeds
	$(BIN)/python -m tests.model --seconds $${LAKEBED_MODEL_SECONDS:-600}
	$(BIN)/python -m tests.expressions --seconds $${LAKEBED_EXPRESSION_SECONDS:-600} --go-on

clusters: setup java ## The Spark round trip on local-cluster, standalone and Connect
	$(BIN)/python -m pytest tests/spark/test_clusters.py -q

lint: setup ## Style, format, strict types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup ## Rewrite the sources in the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

java:
	@command -v java >/dev/null || { \
	  command -v apt-get >/dev/null || { echo "real Hudi runs on Java 17: install a JDK 17 and put java on the PATH"; exit 1; }; \
	  echo "no java found: installing OpenJDK 17 with apt-get"; apt-get update -qq && apt-get install -y -qq openjdk-17-jre-headless; }

$(HUDI_VENV)/.ready: Makefile
	$(PYTHON) -m venv $(HUDI_VENV)
	$(HUDI_VENV)/bin/python -m pip install --quiet --upgrade pip
	$(HUDI_VENV)/bin/python -m pip install --quiet 'pyspark==3.5.*' 'hudi==0.5.*' pyarrow
	@touch $@

.cache/versitygw:
	@command -v go >/dev/null || { echo "the S3 tests build their server with Go: install Go 1.23 or newer, or set LAKEBED_S3_SERVER to a versitygw binary"; exit 1; }
	GOBIN=$(CURDIR)/.cache go install github.com/versity/versitygw/cmd/versitygw@latest

s3-server: .cache/versitygw ## Build the S3 server that interop tests talk to

interop: setup java $(HUDI_VENV)/.ready s3-server ## Against real Hudi 1.2.0 and hudi-rs, within a time budget
	LAKEBED_INTEROP_SECONDS=$${LAKEBED_INTEROP_SECONDS:-60} $(BIN)/python -m pytest tests/interop -m "interop and not slow" -q -x

interop-full: setup java $(HUDI_VENV)/.ready s3-server ## The whole matrix against real Hudi
	$(BIN)/python -m pytest tests/interop -m interop -q

bench: setup ## Benchmarks: ratios against the floor in the same run
	$(BIN)/python -m benchmarks.run

docs: setup ## Regenerate the pages in docs that are made from the source
	$(BIN)/python docs/generate.py

clean: ## Remove environments and caches
	rm -rf $(VENV) $(HUDI_VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .cache
