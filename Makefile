# make run         build, validate, benchmark and record the Split-K attention kernel
# make test        every test, the linters, the type checker, every CUDA source for every kind of card
# make test-quick  the linters, the type checker, and the tests that need no compiler and no browser
# make coverage    the tests, and which lines of kbtool they run
# make test-gpu    the tests that need a card, alone; make test skips them where there is none
# make bench       the tool's own speed, as ratios and medians
# make soak        hostile values, every file operation broken, 20 writers: hours on two cores
# make site        the site, in site/
# make serve       the site, at an address of this machine
# make pythons     the tests that need no torch, on each Python that is here, oldest and newest versions
# make dist        the wheel and the source distribution, in dist/: the same bytes each time
# make advisories  known vulnerabilities of the pinned versions, by pip-audit; needs PyPI's advisories
# make otava       Apache Otava, with which kbtool history finds change points
# make focus       FOCUS's own validator, for the tests of its export; needs Python 3.12
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
FOCUS := .venv-focus
OTAVA := .venv-otava
AUDIT := .venv-audit
FOCUS_PYTHON ?= python3.12
# One more than cores, at most eight: tests of the browser mostly wait.
PROCESSES ?= $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$((n < 8 ? n + 1 : 8)))
export NO_MKDOCS_2_WARNING := 1
# Hundreds of processes import the same modules: without byte code each would compile them.
unexport PYTHONDONTWRITEBYTECODE

# What a branch adds; of main itself, or where there is no main, all commits that are here.
define HISTORY
if git rev-parse --quiet --verify HEAD >/dev/null 2>&1; then \
	since=$$(git merge-base HEAD origin/main 2>/dev/null || git merge-base HEAD main 2>/dev/null); \
	test "$$since" != "$$(git rev-parse HEAD)" || since=; \
	echo kbtool check --history="$$since"; $(BIN)/python -m kbtool check --history="$$since"; \
else \
	echo "no git history here: what commits did to run records is not checked" >&2; \
fi
endef

.PHONY: run test test-quick lint unit coverage cuda test-gpu bench soak site serve pythons dist advisories focus otava clean
.DEFAULT_GOAL := help

help:
	@sed -n '/^[^#]/q; s/^# //p' Makefile

# Half of the samples that the recipe takes by default: a first look, in half of the time.
run: $(VENV)/.runs
	$(BIN)/kbtool run-recipe split-k --set samples=10

test: lint unit cuda

# The mark slow is what is left out; pyproject.toml says which tests have it. None waits for a browser,
# so one process a core: each more would only collect all tests once more.
test-quick: lint
	$(BIN)/python -m pytest -n auto --maxprocesses 8 -m "not slow and not gpu"

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m kbtool check
	@$(HISTORY)
	$(BIN)/python -m kbtool audit --grade inconsistent --grade decision >/dev/null
	$(BIN)/python -m kbtool schema --check

unit: $(VENV)/.ready
	$(BIN)/python -m pytest -n $(PROCESSES)

coverage: $(VENV)/.ready
	$(BIN)/python -m pytest -n $(PROCESSES) --cov --cov-report=term

# Needs nvcc and no card; says so where there is none. Without sm_86, for which the sources compile
# what they do for sm_80.
cuda: $(VENV)/.ready
	$(BIN)/python -m kbtool kernel compile --quick --skip-without-nvcc \
		$(addprefix --architecture ,sm_80 sm_89 sm_90a sm_100) >/dev/null

test-gpu: $(VENV)/.ready
	$(BIN)/python -m pytest -m gpu

bench: $(VENV)/.ready
	$(BIN)/python -m benchmarks

soak: $(VENV)/.ready
	$(BIN)/python -m soak.fields
	$(BIN)/python -m soak.crashes
	$(BIN)/python -m soak.writers
	$(BIN)/python -m soak.sweeps

site: $(VENV)/.site
	$(BIN)/python -m kbtool site build

serve: $(VENV)/.site
	$(BIN)/python -m kbtool site serve

pythons:
	.ci/pythons

# With the pinned hatchling, whose version a wheel states.
dist: $(VENV)/.ready
	$(BIN)/python -m hatchling build -d dist

# --strict: without it a package whose advisories cannot be had counts as one that has none.
advisories:
	$(PYTHON) -m venv $(AUDIT)
	$(AUDIT)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade pip-audit
	$(AUDIT)/bin/pip-audit --strict --no-deps --disable-pip --progress-spinner off \
		--requirement constraints.txt

focus: $(FOCUS)/.ready

otava: $(OTAVA)/.ready

clean:
	rm -rf $(VENV) $(FOCUS) $(OTAVA) $(AUDIT) .venv-pythons .kbtool site dist .mypy_cache .ruff_cache .pytest_cache

# Made again whenever what they install has changed.
PIP_INSTALL = $(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt

# What make run needs, and most of the README's commands; the others name the command that installs
# what they need. Byte code is left to the first import: compiling all of torch takes longer than
# installing it.
$(VENV)/.runs: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "kbtool needs Python 3.11 or newer; set one with: make PYTHON=python3.12 ..." >&2; exit 3; }
	$(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) --no-compile --editable '.[kernels]'
	@touch $@

$(VENV)/.site: $(VENV)/.runs
	$(PIP_INSTALL) --no-compile --editable '.[site]'
	@touch $@

$(VENV)/.ready: $(VENV)/.runs
	$(PIP_INSTALL) --quiet --editable '.[kernels,mcp,mlflow,site,sweep,transformers,zensical,dev]'
	@touch $@

# An environment of its own: the validator takes no NumPy 2, and NumPy 1 no Python after 3.12, which
# pyenv hides unless it is asked for.
$(FOCUS)/.ready: export PYENV_VERSION := 3.12
$(FOCUS)/.ready: tests/ledger/focus-validator.txt
	@$(FOCUS_PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 12))' || \
		{ echo "the FOCUS validator needs Python 3.12; set one with: make FOCUS_PYTHON=... focus" >&2; exit 3; }
	$(FOCUS_PYTHON) -m venv --clear $(FOCUS)
	$(FOCUS)/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	@touch $@

# An environment of its own: Otava takes NumPy 2.2 alone, and brings the clients of five databases.
$(OTAVA)/.ready: constraints-otava.txt
	$(PYTHON) -m venv --clear $(OTAVA)
	$(OTAVA)/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	@touch $@
