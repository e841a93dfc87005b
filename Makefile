# Every target sets up what it needs, on a machine with Python >= 3.11 (and its venv module), make and git.

.DEFAULT_GOAL := help
.PHONY: help demo test check search explore image fuzz e2e e2e-tools soak bench sbom audit lock clean

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# The Python to make .venv with; empty: the newest one found of those that requirements.lock holds for
# (3.15 is not among them yet: cfn-lint, which moto's server needs, does not accept it).
PYTHON ?=
PYTHONS := python3.14 python3.13 python3.12 python3.11 python3 python
SUITS := import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))
# The oldest Python that is supported makes the lock, so that no older one lacks a package.
LOCK_PYTHON ?= python3.11

# A mirror, a proxy or a certificate in pip's own configuration is respected. What would install to another
# place, from source only, other versions, or refuse `-e .` for its missing hash, is not.
unexport PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE PIP_TARGET PIP_PREFIX PIP_ROOT PIP_REQUIREMENT PIP_EDITABLE PIP_DRY_RUN
export PIP_USER := 0
export PIP_REQUIRE_VIRTUALENV := 0
export PIP_REQUIRE_HASHES := 0
export PIP_NO_BINARY := :none:
export PIP_ONLY_BINARY := :none:
export PIP_CONSTRAINT := /dev/null
export PIP_DISABLE_PIP_VERSION_CHECK := 1

help: ## Say what can be made
	@echo "make TARGET, where TARGET is one of:"
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 13

demo: $(STAMP) ## See a broken node recovered (FAST=1 quickly; KEEP=1 stay up; CLOUD=aws|aws-gpu|azure|baremetal; MODE=fleet; OBSERVE=1 with recovery off)
	@$(BIN)/node-recovery demo \
		$(if $(filter 1,$(FAST)),--fast) $(if $(filter 1,$(KEEP)),--keep) $(if $(CLOUD),--cloud $(CLOUD)) $(if $(MODE),--mode $(MODE)) $(if $(filter 1,$(OBSERVE)),--observe)

test: $(STAMP) ## Run all tests, in random order (ARGS="-k name" for some of them)
	$(BIN)/python -m pytest $(ARGS)

check: $(STAMP) ## Run the linter, the format check, the type check and the layer check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict
	$(BIN)/lint-imports --no-cache

search: $(STAMP) ## Look for histories that break a law, for a minute (MINUTES=, SEEDS=; SEED=: one again, as a story)
	$(BIN)/python -m tests.search $(if $(SEED),--seed $(SEED)) $(if $(SEEDS),--seeds $(SEEDS)) \
		$(if $(MINUTES),--minutes $(MINUTES)) $(if $(WITHOUT),--without $(WITHOUT)) $(ARGS)

explore: $(STAMP) ## Two agents, two nodes, one slot: every order of their effects (some minutes)
	PYTHONHASHSEED=0 $(BIN)/python -m tests.search.explore

fuzz: $(STAMP) ## Feed what strangers write, in many wrong ways, to where it comes in (CASES=100000, SEED=1, ONLY=record)
	$(BIN)/python -m tests.fuzz $(if $(CASES),--cases $(CASES)) $(if $(SEED),--seed $(SEED)) \
		$(foreach name,$(ONLY),--only $(name))

image: $(STAMP) ## Make what the container image holds, by the image's own steps, and try it
	$(BIN)/python -m pytest -n 0 tests/image $(ARGS)

e2e: $(STAMP) e2e-tools ## Run the end-to-end tests, on real programs (Go and Node for those not installed)
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder tests/e2e $(ARGS)

soak: $(STAMP) e2e-tools ## 200 recoveries on a real control plane that is disturbed in every way (RECOVERIES=, SEED=, MODE=fleet)
	MODE=$(MODE) RECOVERIES=$(or $(RECOVERIES),200) $(BIN)/python -m pytest -n 0 -s tests/soak $(ARGS)

e2e-tools: $(STAMP) ## Build the programs that make e2e needs and does not find
	@$(BIN)/python tests/e2e/toolbox.py

bench: $(STAMP) e2e-tools ## Measure size, cost and speed against their budgets (half an hour; FAST=1: some minutes)
	@set -eu; found=; missed=; \
	for file in bench/bench_*.py; do \
		[ -e "$$file" ] || continue; found=1; echo "== $$file"; $(BIN)/python "$$file" || missed="$$missed $$file"; \
	done; \
	[ -n "$$found" ] || { echo "There is no benchmark in bench/ (bench_*.py)." >&2; exit 1; }; \
	[ -z "$$missed" ] || { echo "A budget was missed:$$missed" >&2; exit 1; }

sbom: $(STAMP) ## List what the image holds in build/sbom.cdx.json (CycloneDX), by the image's own steps
	@PATH="$(CURDIR)/$(BIN):$$PATH" .ci/install-image "$(CURDIR)/build/image"
	@mv build/image/sbom.cdx.json build/sbom.cdx.json && rm -rf build/image
	@$(BIN)/python -c 'import json; print("build/sbom.cdx.json:", \
		len(json.load(open("build/sbom.cdx.json"))["components"]), "components")'

audit: $(STAMP) ## Ask for known vulnerabilities of all that the locks name (STRICT=1: not to be answered is a failure)
	@$(BIN)/python .ci/audit.py $(if $(filter 1,$(STRICT)),--strict)

lock: ## Write the locks again after a change of a pyproject.toml (UPGRADE=1 takes newer versions)
	@command -v $(LOCK_PYTHON) >/dev/null && $(LOCK_PYTHON) -c '' || \
		{ echo "The lock is made with Python 3.11; name one: make lock LOCK_PYTHON=/path/to/python3.11" >&2; exit 1; }
	@rm -rf build/lock && mkdir -p build/lock && $(LOCK_PYTHON) -m venv build/lock/venv
	@build/lock/venv/bin/python -m pip install --quiet --upgrade pip pip-tools
# The image's locks have the versions of the first: what is tested is what runs.
	@$(call compile,all,requirements.lock,)
	@$(call compile,runtime,requirements-runtime.lock,--constraint requirements.lock)
	@$(call compile,build,requirements-build.lock,--constraint requirements.lock)
	@$(call compile,audit,requirements-audit.lock,)
	@rm -rf build/lock
	@echo "requirements.lock and those for runtime, build and audit are written."

# $(call compile,PURPOSE,LOCK,OPTIONS), PURPOSE as .ci/lock_input.py takes it. A lock that is there keeps its versions.
# Local wheels are left aside, so that the hashes of all files that the registry has are written.
compile = $(LOCK_PYTHON) .ci/lock_input.py $(1) > build/lock/requirements.in && \
	if [ -s $(2) ]; then cp $(2) build/lock/; fi && \
	PIP_FIND_LINKS= CUSTOM_COMPILE_COMMAND="make lock" build/lock/venv/bin/pip-compile --quiet --no-config \
		--generate-hashes --strip-extras --allow-unsafe --newline lf $(if $(filter 1,$(UPGRADE)),--upgrade) $(3) \
		--no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-emit-options \
		--output-file build/lock/$(2) - < build/lock/requirements.in && \
	sed 's/\(\# via\|\#  \) -r -$$/\1 pyproject.toml/' build/lock/$(2) > $(2)

clean: ## Remove everything that was made here
	rm -rf $(VENV) build dist testkit/dist demo/dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Made once, and again when the lock or pyproject.toml changes. A half-made one has no stamp and is completed.
$(STAMP): requirements.lock pyproject.toml testkit/pyproject.toml demo/pyproject.toml
	@set -eu; \
	if ! $(BIN)/python -c 'import pip; $(SUITS)' 2>/dev/null; then \
		chosen=; bare=; \
		for python in $(or $(PYTHON),$(PYTHONS)); do \
			"$$python" -c '$(SUITS)' 2>/dev/null || continue; \
			if "$$python" -c 'import ensurepip, venv' 2>/dev/null; then chosen="$$python"; break; fi; \
			[ -n "$$bare" ] || bare="$$python"; \
		done; \
		if [ -z "$$chosen" ] && [ -n "$$bare" ]; then \
			echo "$$bare has no venv module. Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; \
		elif [ -z "$$chosen" ] && [ -n "$(PYTHON)" ]; then \
			echo "PYTHON=$(PYTHON) is not a Python 3.11, 3.12, 3.13 or 3.14 that runs." >&2; exit 1; \
		elif [ -z "$$chosen" ]; then \
			echo "No Python 3.11, 3.12, 3.13 or 3.14 was found. Install one, or name it: make PYTHON=/path/to/python" >&2; exit 1; \
		fi; \
		echo "Making $(VENV) with $$("$$chosen" --version) ..."; \
		"$$chosen" -m venv --clear $(VENV); \
	fi; \
	echo "Installing what requirements.lock names into $(VENV) (once; about a minute) ..."; \
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock; \
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e . -e testkit -e demo; \
	touch $@
