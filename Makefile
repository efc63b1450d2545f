# Two commands on a fresh machine: `make demo` and `make test`.

DATA ?= synthetic_low_rank
OUT ?= out
WORKERS ?= 2

# The first interpreter that is new enough; asked, not guessed from its name.
PYTHON := $(shell for p in python3 python3.14 python3.13 python3.12; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 12))' >/dev/null 2>&1 && echo $$p && break; done)

# Matrices here are small (d x d): a second BLAS thread never helps, and on a busy machine it waits, up to 50 times longer.
export OPENBLAS_NUM_THREADS ?= 1
# Compiled samplers are kept: the next process finds them, and the next run.
export JAX_COMPILATION_CACHE_DIR ?= $(CURDIR)/.venv/jax
export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS ?= 0.3
# Python writes the bytecode of what is imported; pip would compile all that there is, which takes a minute.
export PYTHONDONTWRITEBYTECODE :=

BIN := .venv/bin
READY := .venv/.ready
comma := ,
# The demonstration needs less than the tests, and nothing more where these have been.
SHOWN := $(if $(wildcard $(READY)),$(READY),.venv/.demo$(if $(filter school,$(DATA)),-school))

.PHONY: demo test test-evidence test-anywhere mutants attack federated lint notebooks docs package bench bench-nodes evidence ci clean

# $(1): extras. What is in the environment already stays.
# --upgrade-deps: the pip that came with Python 3.12 takes half a minute longer to choose versions.
define install
	@test -n "$(PYTHON)" || { echo "mpmtl_prob needs Python 3.12 or newer: install it (for example from python.org, or 'uv python install 3.12') and try again." >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv --upgrade-deps .venv
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt --editable '.[$(1)]'
	@touch $@
endef

$(READY): pyproject.toml constraints.txt
	$(call install,dev)

.venv/.demo: pyproject.toml constraints.txt
	$(call install,plots)

.venv/.demo-school: pyproject.toml constraints.txt
	$(call install,plots$(comma)data)

demo: $(SHOWN) ## Fit every arm on embedded data (or DATA=school), print one table, write figures to OUT
	$(BIN)/mpmtl-prob demo --data $(DATA) --out $(OUT)

test: $(READY) ## The test suite, in two processes (WORKERS=0: in one, for a debugger)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

test-evidence: $(READY) ## What the tests leave out as well, and everything at full length: half an hour
	MPMTL_EVIDENCE=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

test-anywhere: $(READY) ## The tests under other processors' arithmetic and other seeds, nine times over: hours
	BIN=$(BIN) WORKERS=$(WORKERS) tests/anywhere.sh

mutants: $(READY) ## Mistakes that would break a guarantee, one by one: does a test notice?
	$(BIN)/python tests/mutation.py

attack: $(READY) ## Attacks on what is called proved, with the counts on docs/security_testing.md: an hour at most, every week
	$(BIN)/python tests/attacks/run.py --json docs/results/attacks.json
	$(BIN)/python tests/attacks/page.py

$(BIN)/.flower: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[flower]'
	@touch $@

federated: $(BIN)/.flower ## The Flower app by processes on this machine: over TLS, with nodes that are killed: minutes
	MPMTL_EVIDENCE=1 $(BIN)/python -m pytest tests/federated/test_federated_flower.py tests/federated/test_federated_sites.py

lint: $(READY) ## Formatting, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

notebooks: $(READY) ## Run every notebook top to bottom with small settings, two at a time, leaving the committed outputs alone
	MPMTL_FAST=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --nbmake --nbmake-timeout=600 notebooks

docs: $(READY) ## The documentation site, in docs/_build/html; a warning is an error. Its examples are run
	$(BIN)/sphinx-build -W --keep-going -q docs docs/_build/html
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal tests/test_docs.py::test_every_example_of_a_page_runs_and_prints_as_shown

package: $(READY) ## Build wheel and sdist, and import the wheel from an empty environment
	BIN=$(BIN) tests/package.sh

$(BIN)/.bench: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[bench]'
	@touch $@

# Timings want a quiet machine; BEFORE=checkout is timed beside this one; CUQI=python adds CUQIpy's sampler from an environment of its own.
bench: $(BIN)/.bench ## How fast it is, beside other people's code, with docs/benchmarks.md: a quarter of an hour
	$(BIN)/python studies/benchmarks/speed.py $(if $(BEFORE),--before $(BEFORE)) --json docs/benchmarks/speed.json
	$(BIN)/python studies/benchmarks/estimators.py --json docs/benchmarks/estimators.json
	$(BIN)/python studies/benchmarks/samplers.py $(if $(CUQI),--cuqi $(CUQI)) --json docs/benchmarks/samplers.json
	$(BIN)/python studies/benchmarks/public.py --json docs/benchmarks/public.json
	$(BIN)/python studies/benchmarks/first_answer.py $(if $(BEFORE),--before $(BEFORE)) --json docs/benchmarks/first_answer.json
	$(BIN)/python studies/benchmarks/scaling.py --json docs/benchmarks/scaling.json
	$(BIN)/python studies/benchmarks/federated.py --json docs/benchmarks/federated.json
	$(BIN)/python studies/benchmarks/page.py

bench-nodes: $(BIN)/.flower ## A table in shards over 1, 2 and 4 nodes of the Flower app on this machine: half an hour
	$(BIN)/python studies/benchmarks/nodes.py --m 32000 --json docs/benchmarks/nodes.json

evidence: $(addprefix evidence-,intervals calibration calibration_shared calibration_effects calibration_adaptation gap alone told shapes choices misfit own_message newcomers adaptation) ## Whether it is right: coverage and calibration at full length, with docs/benchmarks.md: hours
	$(BIN)/python studies/benchmarks/page.py

evidence-%: $(READY) ## One of them
	$(BIN)/python studies/benchmarks/$*.py --json docs/benchmarks/$*.json

ci: lint test notebooks docs package

clean:
	rm -rf .venv build dist out docs/_build docs/notebooks
