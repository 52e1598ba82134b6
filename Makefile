# Everything that a person or CI runs. The first target that needs it makes .venv; a second run starts at once.
#
#   make demo PYTHON=python3.12      another interpreter (3.11 or newer)
#
# The first run takes 2 to 15 minutes, most of it for torch. CPU-only torch is a tenth of the download, before that run:
#   python3.11 -m venv .venv && .venv/bin/pip install torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help install demo lab types front-end screenshots moving-picture test test-long test-all ready labs check format bench chaos chaos-fleet chaos-hosts chaos-postgres chaos-search chaos-server chaos-serving docs reference constraints clean core-events

BIN := .venv/bin
STAMP := .venv/.installed
BENCHMARKS := scaling throughput rescale failure first_step scheduler decision take_over server_load pictures monitors self_check isolation search_core serving
# What people call, and what that gives them.
REFERENCE := edt_sdk edt_sdk.display.readings edt_sdk.display.log_text edt_sdk.display.cluster_view edt_sdk.display.picture edt_sdk.client.plan edt_sdk.schemas.job \
  edt_sdk.schemas.plan edt_sdk.schemas.events edt_sdk.testing edt_server.core
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input -qq

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' Makefile

install: $(STAMP) ## .venv with the package (editable), its tools and everything the demo needs

demo: $(STAMP) ## two trainings share four slots, in a notebook on a real Jupyter Server
	@$(BIN)/python demo/run.py

# Without the front end Lab works all the same: no panel, and cards as they are on GitHub.
lab: $(STAMP) ## JupyterLab on my-notebooks/, a copy of notebooks/, with the extension and four slots (ARGS=--no-browser)
	@$(BIN)/python hatch_build.py || echo "JupyterLab starts without it."
	@$(BIN)/python demo/lab.py $(ARGS)

types: $(STAMP) ## the front end's types, from the OpenAPI description
	@$(BIN)/python jupyter_ext/lab/make_types.py

front-end: $(STAMP) ## the JupyterLab extension, built when its sources are newer; Node comes from a wheel
	@$(BIN)/python hatch_build.py

screenshots: $(STAMP) ## pictures of every page for the guides, into docs/images/screens/, some minutes; look at them
	@EDT_SCREENSHOTS=docs/images/screens $(BIN)/python -m pytest -q tests/browser/test_screenshots.py $(ARGS)
	@mkdir -p .venv/shots; EDT_SCREENSHOTS=.venv/shots $(BIN)/python -m pytest -q tests/browser/test_deployments.py tests/browser/test_experiments.py tests/browser/test_hosts.py
	@cp .venv/shots/deployment.png .venv/shots/experiments.png .venv/shots/hosts.png docs/images/screens/

moving-picture: $(STAMP) ## the README's moving picture from a real run, docs/images/slots-moving.gif; look at it
	@EDT_SCREENSHOTS=docs/images $(BIN)/python -m pytest -q tests/browser/test_moving_picture.py $(ARGS)

# A file's tests stay in one process, which share the servers they start; the long ones (e2e) begin first, as they are listed.
# What one process has compiled the next need not: a test starts a dozen, whatever the environment says about bytecode.
PYTEST = env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -n $(or $(WORKERS),auto) --dist loadfile --no-loadscope-reorder

test: ready ## everything CI runs, in as many processes as there are cores (WORKERS=, 0 for none; ARGS=)
	@$(PYTEST) -m "not long" $(ARGS)

test-long: $(STAMP) ## what is too long for `make test`, and has a shorter sibling there
	@$(PYTEST) -m long $(ARGS)

test-all: ready ## both at once
	@$(PYTEST) $(ARGS)

# Each needs one core. Where the front end cannot be built, the browser tests say so; a slow build in there would count
# against the time limit of a test.
ready: $(STAMP)
	@$(BIN)/python -c 'import hatch_build; hatch_build.build()' 2>.venv/front-end.log & building=$$!; status=0; \
	$(MAKE) --no-print-directory check || status=$$?; wait $$building || tail -n 1 .venv/front-end.log; exit $$status

labs: $(STAMP) ## each JupyterLab and Notebook that is supported, opened and tried, minutes each (ARGS="4.2 4.6")
	@$(BIN)/python -m tests.labs $(ARGS)

check: $(STAMP) ## ruff and mypy, without the tests
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet . || { $(BIN)/ruff format --check . || true; echo "run: make format"; exit 1; }
	@$(BIN)/mypy

format: $(STAMP) ## let ruff put the code into shape
	@$(BIN)/ruff check --fix --quiet .
	@$(BIN)/ruff format .

bench: $(STAMP) ## all benchmarks, most of an hour on a quiet machine; one of them: make bench-rescale ARGS=--quick
	@missed=; for name in $(BENCHMARKS); do \
	  echo "benchmarks/$$name.py"; $(BIN)/python benchmarks/$$name.py || missed="$$missed $$name"; \
	done; test -z "$$missed" || { echo "not every target was reached:$$missed" >&2; exit 1; }

bench-%: $(STAMP)
	@$(BIN)/python benchmarks/$(subst -,_,$*).py $(ARGS)

core-events: $(STAMP) ## a million random events: the scheduler's invariants after each, 15 minutes or more (EVENTS=)
	@EDT_CORE_EVENTS=$(or $(EVENTS),1000000) EDT_RULE_EVENTS=$(or $(EVENTS),1000000) $(BIN)/python -m pytest -q --timeout=0 \
	  tests/server/core/test_properties.py tests/server/core/test_rule_history.py

chaos: $(STAMP) ## 200 random kills, resizes and suspensions; equal bits every time (EVENTS=, SEED=)
	@$(BIN)/python -m tests.chaos --events $(or $(EVENTS),200) $(if $(SEED),--seed $(SEED))

chaos-search: $(STAMP) ## equal searches on 1, 2 and 4 slots, and with 20 kills of everything: equal bits (KILLS=, SEED=, ARGS=--quick)
	@$(BIN)/python -m tests.chaos.searches $(if $(KILLS),--kills $(KILLS)) $(if $(SEED),--seed $(SEED)) $(ARGS)

chaos-serving: $(STAMP) ## a deployment under load while all around it is killed: every answer right (SEED=, ARGS="--quick --only edge")
	@$(BIN)/python -m tests.chaos.serving $(if $(SEED),--seed $(SEED)) $(ARGS)

chaos-server: $(STAMP) ## the server killed 50 times under load: no job lost, none twice, no update lost (KILLS=, SEED=)
	@$(BIN)/python -m tests.chaos.server_kills --kills $(or $(KILLS),50) $(if $(SEED),--seed $(SEED))

chaos-postgres: $(STAMP) ## PostgreSQL killed 20 times under load: no job lost, none twice, equal bits, a short log (KILLS=, SEED=)
	@$(BIN)/python -m tests.chaos.server_kills --victim postgres --kills $(or $(KILLS),20) $(if $(SEED),--seed $(SEED))

chaos-fleet: $(STAMP) ## four machines killed, cut off, stopped, drained, slowed and filled under six jobs: equal bits (EVENTS=, SEED=, ARGS=--quick)
	@$(BIN)/python -m tests.chaos.fleet --events $(or $(EVENTS),200) $(if $(SEED),--seed $(SEED)) $(ARGS)

chaos-hosts: $(STAMP) ## a host is lost with everything on it, 20 times (LOSSES=); the other goes on, equal bits
	@EDT_HOST_LOSSES=$(or $(LOSSES),20) $(BIN)/python -m pytest -q tests/e2e/test_hosts.py -k lost_and_ends

docs: $(STAMP) ## links, examples and the table of settings in the documentation are right
	@$(BIN)/python -m pytest -q tests/repo/test_docs.py

reference: $(STAMP) ## the API as HTML, from the docstrings, in docs/reference/
	@$(BIN)/pdoc --docformat google --no-show-source -o docs/reference $(REFERENCE)
	@echo "docs/reference/index.html"

constraints: $(STAMP) ## write constraints.txt from .venv, after a deliberate upgrade
	@{ sed '/^[^#]/,$$d' constraints.txt; $(BIN)/python -m pip freeze --exclude-editable | sed 's/^\(torch==[0-9.]*\)+.*/\1/'; } > .venv/constraints.txt
	@mv .venv/constraints.txt constraints.txt

clean: ## remove what demo, lab, tests and builds left behind, but not .venv
	@rm -rf .demo .lab .labs .bench .chaos build dist jupyter_ext/lab/lib jupyter_ext/lab/node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . -name .venv -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

# pip is quiet; its errors are not. hatchling first: without build isolation the editable install needs
# no second download and repeats exactly. --no-build-isolation also works with the pip that Python 3.11 brings (23.2).
$(STAMP): pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing torch into .venv (the largest part, 1 to 10 minutes; without a GPU see the head of Makefile) …"
	@$(PIP) install -c constraints.txt hatchling editables torch
	@echo "Installing jupyter-edt, JupyterLab and the tools (1 to 5 minutes) …"
	@$(PIP) install -c constraints.txt --no-build-isolation -e ".[demo,test,lint]"
	@touch $@

$(BIN)/python:
	@python="$(PYTHON)"; \
	for candidate in $${python:-python3.11 python3.12 python3.13 python3}; do \
	  if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    exec "$$candidate" -m venv .venv; \
	  fi; \
	done; \
	echo "No Python 3.11 or newer found. Install one, or name it: make $(MAKECMDGOALS) PYTHON=/path/to/python" >&2; exit 1
