# Every target does its own set-up. `make demo` and `make test` are all that a new machine needs.
VENV := .venv
PYTHON ?= python3
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SOURCES := memory_core tasks flows deployments tests benchmarks

.PHONY: demo test lint check format lock clean

demo: $(STAMP)
	@MEMORY_HOME=$(CURDIR)/.memory $(BIN)/python -m deployments.demo

test: $(STAMP)
	$(BIN)/pytest

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports --no-logo

check: lint test

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Write the lock anew after a change of pyproject.toml.
lock: $(STAMP)
	$(BIN)/uv pip compile --universal --generate-hashes --no-emit-index-url --no-header --python-version 3.11 \
		--extra local --extra embedded --group dev pyproject.toml -o requirements.lock

clean:
	rm -rf $(VENV) .memory .pytest_cache .ruff_cache .hypothesis .import_linter_cache build *.egg-info

# uv is installed by pip from the lock, hash-checked, and then installs the rest of the lock ten times as fast.
$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
		{ echo "A virtual environment could not be made. On Debian: apt-get install python3-venv"; exit 1; }
	@sed -n '/^uv==/,/^    # via/p' requirements.lock > $(VENV)/uv.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(VENV)/uv.lock
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	@touch $(STAMP)
