# Every target does its own set-up. `make demo` and `make test` are all that a new machine needs.
VENV := .venv
PYTHON ?= python3
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SOURCES := memory_core tasks flows deployments tests benchmarks

# Other splitters, to measure against: an environment of its own, so that ours stays what the product needs.
PEERS := $(VENV)/peers
PEERS_STAMP := $(PEERS)/.installed

.PHONY: demo test fuzz lint check format lock clean eval bench-chunk bench-chunk-quality bench-embed bench-persist bench-crash

demo: $(STAMP)
	@MEMORY_HOME=$(CURDIR)/.memory $(BIN)/python -m deployments.demo

# Two processes, each with services of its own: half of the suite waits for other processes.
test: $(STAMP)
	$(BIN)/pytest -n 2 --dist loadfile $(ARGS)

# The promises of the chunker on 5,000 generated texts of each type, other ones in each run: about fifteen minutes.
# What it finds is pinned in test_invariants.py. ARGS narrow it: make fuzz ARGS="-k html".
fuzz: $(STAMP)
	HYPOTHESIS_CHUNK_PROFILE=chunk-fuzz $(BIN)/pytest --timeout=0 tests/unit/chunk/test_invariants.py \
		tests/unit/chunk/test_whole_blocks.py $(ARGS)

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports --no-logo

check: lint test

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# How well questions find their answers on the shared corpora (MEMORY_CORPORA), by the product as it comes: about seven
# minutes, most of them embedding. One set: make eval ARGS="--only chunking-eval".
eval: $(STAMP)
	@PYTHONPATH=$(CURDIR) $(BIN)/python benchmarks/evaluate.py $(ARGS)

# How fast, how light and how well found the chunks are, against other splitters. ARGS go to the command, as --help says.
bench-chunk: $(PEERS_STAMP)
	@PYTHONPATH=$(CURDIR) $(PEERS)/bin/python benchmarks/chunk.py $(ARGS)

bench-chunk-quality: $(PEERS_STAMP)
	@PYTHONPATH=$(CURDIR) $(PEERS)/bin/python benchmarks/chunk_quality.py $(ARGS)

# How fast texts are embedded, and how few of them after an edit (MEMORY_CORPORA): about two minutes.
bench-embed: $(STAMP)
	@PYTHONPATH=$(CURDIR) $(BIN)/python benchmarks/embed.py $(ARGS)

# What storing and listing cost on MongoDB, against a bare insert and a small memory (MEMORY_CORPORA): a few minutes.
bench-persist: $(STAMP)
	@PYTHONPATH=$(CURDIR) $(BIN)/python benchmarks/persist.py $(ARGS)

# What a memory loses when its writers and its MongoDB are killed: make bench-crash ARGS="--kills 200 --mode stand-alone".
bench-crash: $(STAMP)
	@PYTHONPATH=$(CURDIR) $(BIN)/python benchmarks/crash.py $(ARGS)

# Write the locks anew after a change of pyproject.toml. What both name has one version.
COMPILE := $(BIN)/uv pip compile --universal --generate-hashes --no-emit-index-url --no-header --python-version 3.11
lock: $(STAMP)
	$(COMPILE) --extra local --extra embedded --extra code --group dev pyproject.toml -o requirements.lock
	$(COMPILE) --constraint requirements.lock --extra code --group peers pyproject.toml -o benchmarks/requirements.lock

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

$(PEERS_STAMP): benchmarks/requirements.lock $(STAMP)
	@test -x $(PEERS)/bin/python || $(BIN)/python -m venv --without-pip $(PEERS)
	@$(BIN)/uv pip install --quiet --python $(PEERS)/bin/python --require-hashes -r benchmarks/requirements.lock
	@touch $(PEERS_STAMP)
