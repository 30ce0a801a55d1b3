# nnpipe: `make demo` and `make test` do all the set-up on a machine with only Python and make.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# Proven versions where there is a list for this Python; newer ones elsewhere.
PINS   := $(shell $(PYTHON) -c 'import os, sys; p = "constraints/python%d.%d.txt" % sys.version_info[:2]; print("-c " + p if os.path.exists(p) else "")')
# Unpinned, PyPI's torch for Linux brings gigabytes of CUDA libraries.
TORCH  := torch==2.13.0
PIP    := $(BIN)/python -m pip install --disable-pip-version-check $(PINS)
# One thread a process: several test processes share the cores.  Hundreds of them start: none is to compile Python anew.
TEST   := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 TF_NUM_INTRAOP_THREADS=1 TF_NUM_INTEROP_THREADS=1 $(BIN)/python -m pytest

# The tests of torchvision, and of what needs it.
VISION := tests/training/sequences/test_library_transforms.py tests/modelwrappers/files/test_torch_hub.py \
	tests/onnxconverters/test_conversions.py::test_pytorch_imports_with_onnx2torch

.PHONY: help demo test test-all check docs site gallery release-check clean
help:
	@echo "make demo      train, compile, benchmark and report a real model on this machine"
	@echo "make test      the tests, in an environment made for them"
	@echo "make test-all  the tests and the slow ones"
	@echo "make check     format, lint, types, tests"
	@echo "make docs      write the parts of the documentation that come from the code"
	@echo "make site      build the documentation's site in docs/_build/html"
	@echo "make gallery   run the example notebooks anew, and keep their outputs"
	@echo "make release-check  build the wheel, and install each extra alone"
	@echo "make clean     remove the environment and what was built"

$(BIN)/python:
	@echo "making a virtual environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml $(wildcard constraints/*.txt) | $(BIN)/python
	@echo "installing nnpipe with TensorFlow, ONNX Runtime and LiteRT (half a minute, 1.9 GB)"
	@$(PIP) -e '.[tensorflow,onnx,litert,report]'
	@touch $@

$(VENV)/.test: pyproject.toml $(wildcard constraints/*.txt) | $(BIN)/python
	@echo "installing nnpipe with all frameworks and the test tools (two to three minutes, 6 GB)"
	@$(PIP) '$(TORCH)' -e '.[dev]'
	@touch $@

$(VENV)/.integrations: $(VENV)/.test
	@echo "installing the tools that trainings work with: MLflow's server, Weights & Biases, torchvision (a minute, 0.3 GB)"
	@$(PIP) '$(TORCH)' -e '.[integrations]'
	@$(PIP) --no-deps --upgrade --target $(VENV)/vision torchvision timm onnx2torch
	@touch $@

demo: $(VENV)/.demo
	@$(BIN)/nnpipe run examples/digits.yaml

# Three processes on two cores: tests of jobs, servers and measurements wait for a third of the time.
test: $(VENV)/.test
	@$(TEST) -m "not slow" -n 3 --dist worksteal

# Beside PyTorch for CPUs, PyPI's torchvision breaks torchmetrics and others that import it: only its own tests see it.
test-all: $(VENV)/.integrations
	@NNPIPE_TESTS=all $(TEST) -n 2 --dist worksteal
	@PYTHONPATH=$(abspath $(VENV))/vision $(TEST) $(VISION)

check: $(VENV)/.test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	@$(MAKE) --no-print-directory test

docs: $(VENV)/.test
	@$(BIN)/python docs/refresh.py

site: $(VENV)/.test
	@$(BIN)/python -m sphinx -q -W -n --keep-going -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

gallery: $(VENV)/.test
	@OMP_NUM_THREADS=1 $(BIN)/python docs/site/gallery.py

release-check:
	@$(PYTHON) tools/release.py

clean:
	@rm -rf $(VENV) build dist docs/_build docs/api docs/changes.md .pytest_cache .mypy_cache .ruff_cache .hypothesis
