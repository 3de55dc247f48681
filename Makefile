# `make demo` shows it, `make test` proves it. All that is made lies in .venv and .deputize, inside this folder
# (DEPUTIZE_HOME=… make demo where it is read-only).

BIN := .venv/bin
CODE := shared orchestrator worker
export DEPUTIZE_HOME ?= $(CURDIR)/.deputize
# Test processes would each compile all tests anew.
unexport PYTHONDONTWRITEBYTECODE
# Test processes at once: two per core, as most tests wait. `make test JOBS=0` runs all in one.
JOBS := $(shell expr $$(nproc 2>/dev/null || echo 1) \* 2)

.PHONY: setup demo test coverage lint check bench chaos up lock clean

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

demo: setup
	@$(BIN)/deputize demo

test: .venv/.dev-installed .venv/.npm-installed .venv/.pythons-installed .venv/.browser-installed
	@$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

lint: .venv/.dev-installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright
	$(BIN)/basedpyright -p tests
	$(BIN)/lint-imports
	$(BIN)/docker-compose config --quiet
	$(BIN)/hadolint orchestrator/Dockerfile worker/Dockerfile

# Quick tests that run in this process: tracing all tests would double their time. A floor is never lowered.
COVERING := tests/shared tests/contracts/store tests/contracts/service/test_disk.py $(wildcard tests/worker/test_*.py) \
	$(addprefix tests/worker/,adapters models permission policy promises search toolkit workspace xml_calls) \
	$(addprefix tests/worker/text/test_,display.py merge.py seams.py tolerance.py) tests/worker/fleet/test_janitor.py \
	$(addprefix tests/orchestrator/test_,client.py continuation.py problems.py python_client.py retry_from_turn.py) \
	$(addprefix tests/orchestrator/test_,spend_caps.py sync.py) \
	$(addprefix tests/orchestrator/cli/test_,cost.py doctor_promises.py look.py output.py) \
	tests/orchestrator/cli/test_policy_replay.py tests/orchestrator/routes \
	$(addprefix tests/orchestrator/mcp/test_,calls.py tools.py) tests/wire/test_help.py
COMPLETE := shared/*,worker/loop.py,worker/tool_calls.py,worker/limits.py,worker/policy/*
FLOOR := 75

coverage: .venv/.dev-installed
	@$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal -m "not system and not hypothesis" $(COVERING) \
		--cov --cov-report= || [ $$? = 1 ]  # `make test` says whether they pass; tracing slows those that take the time
	@$(BIN)/coverage report --include='$(COMPLETE)' --fail-under=100
	@$(BIN)/coverage report --format=total --fail-under=$(FLOOR)

check: lint coverage test

bench: .venv/.dev-installed
	@$(BIN)/python -m tests.benchmarks

chaos: .venv/.dev-installed
	@$(BIN)/python -m tests.system.storm --minutes 10

up: setup
	@$(BIN)/deputize up

lock:
	@.ci/lock

clean:
	rm -rf .venv .deputize .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find $(CODE) tests -name __pycache__ -type d -exec rm -rf {} +
