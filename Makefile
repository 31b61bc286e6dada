# make atari    install what is missing into .venv, train RDN on Qbert for minutes, evaluate, draw
# make test     install what is missing into .venv, run the tests
# make test-machines  run the tests as each kind of machine does (one: make test ON=avx2)
# make test-faults   let every accident happen, those of `make test` and those that take their time
# make test-gpu check the CUDA kernels: all architectures, each barrier (no GPU needed), then what needs a GPU
# make check    format, lint, tests (layering is one of them); CI also runs make test ON=bare
# make docs     build the documentation site into build/docs (no network but for the installation)
# make test-docs  run the notebooks and the commands that the pages quote, check links and ONNX files
# make audit    ask for known vulnerabilities of what is installed in .venv (needs the network)

PYTHONS := python3 python3.13 python3.12 python3.11
SUPPORTED := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
PYTHON ?= $(shell for p in $(PYTHONS); do $$p -c '$(SUPPORTED)' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
# A worker gets whole files, in their order, and makes once what their tests share.
WHOLE_FILES := --dist loadfile --no-loadscope-reorder
ARGS ?=
# Kinds of machine for `make test ON=avx2`, set by the variables that decide outside tests as well.
AVX2 := ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2
KIND_bfloat16 := FASTWEIGHTS_PRECISION=bfloat16
KIND_avx2 := $(AVX2)
KIND_no-compiler := CXX=no-compiler
KIND_bare := $(AVX2) CXX=no-compiler FASTWEIGHTS_CPUS=1
KINDS := bfloat16 avx2 no-compiler bare
ON ?=

.PHONY: help atari test test-machines test-faults test-gpu docs test-docs check audit format install clean

help:
	@sed -n 's/^# make /make /p' Makefile

atari: .venv/installed
	@$(BIN)/python launch/atari.py --preset quick $(ARGS)

test: .venv/installed-dev
	@test -z "$(filter-out $(KINDS),$(ON))$(word 2,$(ON))" || { echo "error: ON=$(ON) must be one of $(KINDS)"; exit 2; }
	@env $(KIND_$(ON)) $(BIN)/python -m pytest -n auto --maxprocesses 4 $(WHOLE_FILES) $(ARGS)
	@test ! -e /dev/nvidiactl || $(BIN)/python -m pytest -m gpu -rs $(ARGS) || test $$? -eq 5  # 5: no such test

test-machines:
	@for kind in "" $(KINDS); do echo "make test ON=$$kind"; $(MAKE) --no-print-directory test ON=$$kind || exit; done

test-faults: .venv/installed-dev
	@$(BIN)/python -m pytest -m "faults or accidents" -n 2 $(WHOLE_FILES) $(ARGS)

test-gpu: .venv/installed-gpu
	@FASTWEIGHTS_ALL_TESTS=1 $(BIN)/python -m pytest -n 2 -k "compile or barrier" tests/kernels_cuda $(ARGS)
	@FASTWEIGHTS_ALL_TESTS=1 $(BIN)/python -m pytest -m gpu -rs $(ARGS)

docs: .venv/installed-docs
	@$(BIN)/python docs/build.py $(ARGS)

test-docs: .venv/installed-docs
	@$(BIN)/python -m pytest -m docs -n 2 $(WHOLE_FILES) $(ARGS)

check: .venv/installed-dev
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(MAKE) --no-print-directory test

audit: .venv/installed-audit
	@$(BIN)/python .ci/audit.py

format: .venv/installed-dev
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

install: .venv/installed-dev

clean:
	rm -rf .venv build *.egg-info

.venv/installed: requirements.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "error: Python 3.11, 3.12 or 3.13 is needed and none of them was found; install one, or name it: make PYTHON=/path/to/python"; exit 2; }
	@$(PYTHON) -c '$(SUPPORTED)' || { echo "error: $(PYTHON) is not Python 3.11, 3.12 or 3.13; name another: make PYTHON=/path/to/python"; exit 2; }
	@echo "installing into .venv (torch is a large download; this happens once)"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet --progress-bar on -r requirements.txt
	@touch $@

.venv/installed-dev: .venv/installed
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet --progress-bar on --editable '.[dev]'
	@touch $@

.venv/installed-gpu: .venv/installed-dev
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet --progress-bar on --editable '.[cuda]'
	@touch $@

.venv/installed-docs: .venv/installed-dev
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet --progress-bar on --editable '.[docs,onnx]'
	@touch $@

.venv/installed-audit: .venv/installed
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet --progress-bar on --editable '.[audit]'
	@touch $@
