# `make demo` shows it, `make test` proves it. All that is made lies in .venv and .deputize, inside this folder
# (DEPUTIZE_HOME=… make demo where it is read-only).

BIN := .venv/bin
CODE := shared orchestrator worker
export DEPUTIZE_HOME ?= $(CURDIR)/.deputize
# Test processes would each compile all tests anew.
unexport PYTHONDONTWRITEBYTECODE
# Test processes at once: six for two cores, as most tests wait. `make test JOBS=0` runs all in one.
JOBS := $(shell expr $$(nproc 2>/dev/null || echo 1) \* 3)

.PHONY: setup demo test verdicts coverage lint check bench containers chaos up lock clean

setup: .venv/.installed

# The stamp makes every run after the first one work without a network.
.venv/.installed: requirements.lock pyproject.toml .ci/setup
	@PYTHON="$(PYTHON)" .ci/setup

# A demo needs none of this.
.venv/.dev-installed: .venv/.installed
	@PYTHON="$(PYTHON)" .ci/setup dev

.venv/.npm-installed: .ci/setup | .venv/.dev-installed
	@.ci/setup npm

.venv/.pythons-installed: .ci/setup requirements.lock | .venv/.dev-installed
	@.ci/setup pythons

.venv/.browser-installed: .ci/setup | .venv/.dev-installed
	@.ci/setup browser

.venv/.programs-installed: .ci/setup | .venv/.dev-installed
	@.ci/setup programs

demo: setup
	@$(BIN)/deputize demo

PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist worksteal

# Of the longest tables a sample is tried, but by `make coverage SAMPLED=`, which the nightly workflow runs: it tries all
# rows, or a larger sample (tests/sampling.py). One test in a hundred takes over a second of CPU, together nearly as much
# as all others: `make coverage`, which CI and `make check` run, executes these, too. TRACED=… is what `coverage` adds.
SAMPLED := -m "not thorough and not costly"
test: .venv/.dev-installed .venv/.npm-installed .venv/.pythons-installed .venv/.browser-installed \
		.venv/.programs-installed
	@$(PYTEST) $(SAMPLED) $(TRACED)

# All lies and honest runs.
verdicts: .venv/.dev-installed
	@$(PYTEST) tests/verdict

lint: .venv/.dev-installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright
	$(BIN)/basedpyright -p tests
	$(BIN)/lint-imports
	$(BIN)/docker-compose config --quiet
	$(BIN)/hadolint orchestrator/Dockerfile worker/Dockerfile

# The tests, traced but for those that `UNTRACED` names (tests/conftest.py).
COMPLETE := shared/*,worker/core/loop.py,worker/core/tool_calls.py,worker/core/execution.py,worker/core/limits.py,worker/policy/*
FLOOR := 88

coverage: SAMPLED := -m "not thorough"
coverage: TRACED := --cov --cov-report=
coverage: test
	@$(BIN)/coverage report --include='$(COMPLETE)' --fail-under=100
	@$(BIN)/coverage report --format=total --fail-under=$(FLOOR)

# Also the tests: `coverage` runs them.
check: lint coverage

bench: .venv/.dev-installed
	@$(BIN)/python -m tests.benchmarks

# A delegation by the commands that docker-compose.yml prints, on a real engine: the one that answers here, else as root on
# Debian one that is there as long as this runs (4 to 12 minutes). Without either it prints why, and does not fail.
containers: .venv/.dev-installed
	@$(BIN)/python -m tests.containers

chaos: .venv/.dev-installed
	@$(BIN)/python -m tests.system.storm --minutes 10

up: setup
	@$(BIN)/deputize up

lock:
	@.ci/lock

clean:
	rm -rf .venv .deputize .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find $(CODE) tests -name __pycache__ -type d -exec rm -rf {} +
