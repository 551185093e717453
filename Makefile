# Two commands do everything: `make demo` runs the main job, `make test` passes the tests.
# Each makes .venv and installs into it when that is missing or pyproject.toml is newer.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# Small networks on few cores: more threads than one make every step slower.
export OMP_NUM_THREADS ?= 1
# Some hundred processes of the tests would compile all modules anew, each of them.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test nightly lint docs bench mutants test-matrix clean

demo: $(INSTALLED)
	$(BIN)/nacdrive demo

test: $(INSTALLED)
	$(BIN)/python -m pytest -n auto --dist loadfile

# All of the tests above, and those that cost too much for every change.
nightly: $(INSTALLED)
	$(BIN)/python -m pytest -n auto --dist loadfile -m "not soak"

# Of scripts that no test runs whole: whether what they name and call is there.
UNASKED := arg-type assignment func-returns-value index misc operator typeddict-item union-attr var-annotated
lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --config-file= --ignore-missing-imports --follow-imports=silent --explicit-package-bases $(UNASKED:%=--disable-error-code=%) tools benchmarks
	$(BIN)/deno lint --quiet server/www/js nacdrive/extras/*/page
	$(BIN)/deno check --quiet server/www/js nacdrive/extras/*/page
	$(BIN)/python tools/hygiene.py

# The site comes to lie in build/site; warnings are errors.
docs: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[docs]"
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build
	@echo "The pages are in build/site: open build/site/index.html, or serve them with '$(BIN)/python -m http.server -d build/site'."

bench: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[bench]"
	failed=; for script in benchmarks/*.py; do echo "== $$script"; $(BIN)/python $$script || failed="$$failed $$script"; done; \
	[ -z "$$failed" ] || { echo "failed:$$failed"; exit 1; }

# Does a test notice when the code is changed? Hours; stopped by Ctrl-C it goes on with the next call.
mutants: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[mutants]"
	$(BIN)/python tools/mutants.py

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' \
		|| { echo "nacdrive needs Python 3.11, 3.12 or 3.13: give one with 'make PYTHON=python3.12 ...'"; exit 2; }
	@echo "Installing into $(VENV) (a few minutes the first time)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	@touch $@

# The oldest and the newest versions of the dependencies, on each Python that is at hand; nightly rather than daily.
test-matrix: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/python tools/dependency_matrix.py

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
