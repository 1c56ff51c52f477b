# One verb each; the same on a laptop and in CI. `make help` lists them.
SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
# The stamp's name carries what the environment is made of, so that a change sets it up anew.
STAMP := $(VENV)/.set-up-$(shell cat pyproject.toml constraints.txt | cksum | cut -d' ' -f1)

CLUSTER ?= node
NAME ?= demo
# Two processes, few random examples, nothing that starts other programs for long.
QUICK := -n 2 --dist worksteal -m 'not slow' --hypothesis-profile=quick

.PHONY: help setup fmt lint test unit golden generate chart docs demo demo-down cluster-up cluster-down e2e lock pin bench campaign release-check

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## make the Python environment in .venv, and the library of the BLS
	@$(BIN)/python -m support.bls

$(STAMP): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { \
	  echo "make: no $(PYTHON) on PATH; install Python 3.11 or name one: make PYTHON=python3.12" >&2; \
	  exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@rm -f $(VENV)/.set-up-*
	@touch $@

fmt: setup ## format and mend what can be mended
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	@$(BIN)/python -m support.bls fmt

lint: setup ## formatting, rules, types and layers, without changing anything
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@$(BIN)/python -m support.bls lint
	$(BIN)/yamllint -s -c .yamllint.yaml crds manifests .github mkdocs.yml

test: setup ## every layer: unit, golden, triton, controlplane, and e2e when root on Linux
	$(BIN)/python -m pytest

unit: setup ## the quick tests only, within a minute
	$(BIN)/python -m pytest $(QUICK) tests/unit tests/golden tests/cluster

golden: setup ## write the golden files anew; read the diff before committing
	$(BIN)/python tests/golden/update.py

generate: setup ## write what is generated: references in docs, the health check of Argo CD, an alert
	$(BIN)/python tests/unit/api_reference.py
	$(BIN)/python tests/unit/support_reference.py
	$(BIN)/python -m support.reason_tables
	@$(MAKE) --no-print-directory chart

chart: ## copy definition, rules and dashboard into the chart, which takes no files from outside
	cp crds/speculativemodels.yaml charts/specdec-operator/files/crd.yaml
	cp manifests/monitoring/rules.yaml manifests/monitoring/dashboard.json charts/specdec-operator/files/

docs: setup ## the documentation as a site, in site/; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

demo: setup ## the whole product on this machine; CLUSTER=kind where Docker is
	@$(BIN)/python -m demo --cluster $(CLUSTER)

demo-down: setup ## remove what `make demo` made
	@$(BIN)/python -m demo --cluster $(CLUSTER) --down

cluster-up: setup ## a real node (root), or CLUSTER=control-plane without root; NAME=demo
	@$(BIN)/python -m cluster up --name $(NAME) --$(CLUSTER)

cluster-down: setup ## stop that cluster
	@$(BIN)/python -m cluster down --name $(NAME)

e2e: setup ## only the tests on the real node (Linux, root)
	$(BIN)/python -m pytest tests/e2e

bench: setup ## measure against the goals: NAME=reference, bls, client, loop, operator, plan or command
	@test -f tests/bench/$(NAME).py || { \
	  echo "make: no benchmark $(NAME); set NAME to one of:" \
	       "$(basename $(notdir $(filter-out %/report.py,$(wildcard tests/bench/*.py))))" >&2; exit 2; }
	$(BIN)/python -m bench.$(NAME)

campaign: setup ## prove correctness at length: NAME=sampling, equivalence, serving, battery, rights, rollout, renewal or scale (root)
	@test -f tests/campaigns/$(NAME).py || { \
	  echo "make: no campaign $(NAME); set NAME to sampling, equivalence, serving, battery, rights, rollout, renewal or scale" >&2; exit 2; }
	$(BIN)/python -m campaigns.$(NAME)

lock: setup ## write the digests of the images' packages, in the versions of constraints.txt
	$(BIN)/python -m release.locks

pin: setup ## write the digests of the Dockerfile's base images, as their registry has them now (docker)
	@$(BIN)/python -m release.pins

release-check: setup ## whether this tree can be released; TAG=v1.2.3 for a tag that exists
	@$(BIN)/python -m release $(TAG)

# The tests start hundreds of Python processes, which would each compile every module anew.
unexport PYTHONDONTWRITEBYTECODE

# `python -m demo` and `python -m cluster` live under tests/.
export PYTHONPATH := $(CURDIR)/tests
