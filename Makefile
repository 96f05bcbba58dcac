# Every command a person needs; `make help` lists them. All of them may be interrupted and run again.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.ONESHELL:
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
BIN := .venv/bin
# The revision whose releases must be the same here; found where it is not given.
RELEASED ?=
DEBIAN_PACKAGES := caddy git iproute2 mmdebstrap openssh-client postgresql python3-venv restic systemd-container zstd

.PHONY: help
help: ## List every target
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: packages
packages: ## Install the Debian packages that the lab and the virtual environment need (as root)
	@missing=()
	for package in $(DEBIAN_PACKAGES); do
	    dpkg-query --show --showformat='$${db:Status-Abbrev}' "$$package" 2>/dev/null | grep -q '^ii' || missing+=("$$package")
	done
	if [ $${#missing[@]} -eq 0 ]; then exit 0; fi
	if [ "$$(id --user)" -ne 0 ]; then
	    echo "packages: missing: $${missing[*]}; as root, run:" >&2
	    echo "  apt-get update && apt-get install --yes --no-install-recommends $${missing[*]}" >&2
	    exit 0  # what needs them says so itself; checks and offline commands do not
	fi
	echo "packages: installing $${missing[*]}"
	export DEBIAN_FRONTEND=noninteractive
	apt-get update --quiet
	if [[ " $${missing[*]} " == *" postgresql "* ]]; then
	    # Debian would start a cluster of its own; the lab's parents are made by `tenantry lab parents up`.
	    apt-get install --yes --quiet --no-install-recommends postgresql-common
	    sed -i 's/^#\?create_main_cluster *=.*/create_main_cluster = false/' /etc/postgresql-common/createcluster.conf
	fi
	if [[ " $${missing[*]} " == *" caddy "* ]]; then
	    # Nor a server on port 80: the front is started by `tenantry lab parents up`.
	    mkdir --parents /etc/systemd/system
	    ln --symbolic --force /dev/null /etc/systemd/system/caddy.service
	fi
	apt-get install --yes --quiet --no-install-recommends "$${missing[@]}"

.PHONY: setup
setup: packages ## Make the virtual environment .venv from requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || {
	    echo "setup: Python 3.11 or newer is needed, $(PYTHON) is $$($(PYTHON) --version 2>&1 || true)" >&2
	    echo "  give another one: make setup PYTHON=/path/to/python3.11" >&2
	    exit 1
	}
	lock="$$(sha256sum < requirements.lock) $(CURDIR)"
	project="$$(sha256sum < pyproject.toml)"
	if [ "$$(cat .venv/lock.stamp 2>/dev/null)" != "$$lock" ]; then
	    echo "setup: making .venv with $$($(PYTHON) --version), $$(grep -c '^[a-z]' requirements.lock) locked packages"
	    rm -rf .venv
	    $(PYTHON) -m venv .venv || {
	        echo "setup: $(PYTHON) cannot make a virtual environment; as root, run: apt-get install --yes python3-venv" >&2
	        exit 1
	    }
	    $(BIN)/pip install -qq --no-input --disable-pip-version-check --require-hashes --no-deps \
	        --only-binary=:all: --requirement requirements.lock
	    echo "$$lock" > .venv/lock.stamp
	fi
	if [ "$$(cat .venv/project.stamp 2>/dev/null)" != "$$project" ]; then
	    echo "setup: installing this checkout into .venv"
	    $(BIN)/pip install -qq --no-input --disable-pip-version-check --no-deps --no-build-isolation --editable .
	    echo "$$project" > .venv/project.stamp
	fi

.PHONY: converge
converge: setup ## Bring up and provision this fleet's lab tenants, then converge every tenant to the head
	@$(BIN)/tenantry lab up --provision
	$(BIN)/tenantry converge --all

.PHONY: plan
plan: setup ## CI's dry run: what a converge would change on every tenant, with content differences
	@$(BIN)/tenantry plan --all --diff

.PHONY: test
test: setup ## Run every test, real lab hosts included
	@echo "test: all tests, each part's output when it has ended; parts of the lab's at the same time, they need root"
	logs="$$(mktemp --directory)"
	trap 'grep -hE "^(FAILED|ERROR|!+ )|^=+ .*(passed|failed|error)" "$$logs"/*; rm -rf "$$logs"' EXIT
	session() {  # NAME ARGUMENT…
	    [ -z "$${stopped:-}" ] || return 0
	    # A shell starts what runs beside it deaf to an interrupt; in a process group of its own it gets just the one below.
	    setsid env --default-signal=INT $(BIN)/python -m pytest "$${@:2}" > "$$logs/$$1" 2>&1 & pid=$$!
	    trap 'trap "" TERM; stopped=yes; kill -INT $$pid' TERM
	    wait $$pid || { bad=1; wait $$pid || true; }  # a signal ends the first wait too early
	    flock "$$logs" cat "$$logs/$$1"
	}
	part() { session "$$1" --durations 20 --part "$$1" tests/lab; }
	{ part first; exit $${bad:-0}; } &
	{ part second; part hosted; exit $${bad:-0}; } &
	{ session quick --durations 10 tests/cli tests/local tests/unit; part rest; part faults; exit $${bad:-0}; } &
	lanes="$$(jobs -p)"
	trap 'trap "" INT TERM; kill $$lanes || true; wait; exit 1' INT TERM
	for lane in $$lanes; do wait $$lane || status=1; done
	exit $${status:-0}

.PHONY: soak
soak: setup ## Every point of what `make test` samples (some hours)
	@echo "soak: every release and every point of a kill; needs root and 15 GB of disk"
	$(BIN)/python -m pytest -m soak

.PHONY: releases
releases: setup ## Refuse releases that were edited, removed or put in late since RELEASED (default: where main was left)
	@base="$(RELEASED)"
	if [ -z "$$base" ]; then
	    for branch in origin/HEAD origin/main main; do
	        base="$$(git merge-base "$$branch" HEAD 2>/dev/null)" && break
	    done || true
	    # On main itself, and where there is no main: what this commit was made or merged onto.
	    if [ -z "$$base" ] || [ "$$base" = "$$(git rev-parse HEAD)" ]; then
	        base="$$(git rev-parse --verify --quiet HEAD^1 2>/dev/null || true)"
	    fi
	fi
	if [ -z "$$base" ]; then
	    echo "releases: no revision to compare with; name one: make releases RELEASED=GIT-REF" >&2
	    exit 0
	fi
	echo "releases: compared with $$base"
	$(BIN)/tenantry release lint --against "$$base"

.PHONY: check
check: setup releases ## Run the linters, the type checker and the checks of the import layers and of the releases
	@$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: bench
bench: setup ## Run the side-by-side benchmarks on lab hosts
	@for file in bench/[!_]*.py; do $(BIN)/python -m "bench.$$(basename "$$file" .py)"; done

.PHONY: lab-down
lab-down: setup ## Switch this fleet's lab and its parents off; disks and data stay
	@$(BIN)/tenantry lab down
	if [ -d var/lab/parents ]; then $(BIN)/tenantry lab parents down; fi

.PHONY: clean
clean: ## Switch the lab off and remove .venv and caches; var/ with keys, records and disks stays
	@if [ -x $(BIN)/tenantry ] && [ -d var/lab ]; then $(BIN)/tenantry lab down; fi
	if [ -x $(BIN)/tenantry ] && [ -d var/lab/parents ]; then $(BIN)/tenantry lab parents down; fi
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build ./*.egg-info
	find . -name __pycache__ -type d -not -path './var/*' -prune -exec rm -rf {} +
