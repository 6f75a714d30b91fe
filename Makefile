# Two commands do everything on a machine with Python 3.11, pip and make:  make demo  and  make test.
PYTHON ?= python3
BIN := .venv/bin

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[test,bench]'
	touch $@

demo: .venv/ready
	$(BIN)/dpmcmc demo

test: .venv/ready
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

test-slow: .venv/ready
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m slow

# An environment of its own: Spark and Dask bring many packages. Spark is skipped where there is no Java.
.venv-engines/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-engines
	.venv-engines/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[test,dask,spark]'
	touch $@

test-engines: .venv-engines/ready
	OPENBLAS_NUM_THREADS=1 .venv-engines/bin/python -m pytest -m engines

bench-engines: .venv-engines/ready
	.venv-engines/bin/python benchmarks/engines.py

lint: .venv/ready
	$(BIN)/ruff check src tests benchmarks docs/figures docs/reference.py
	$(BIN)/ruff format --check src tests benchmarks docs/figures docs/reference.py
	$(BIN)/mypy

.venv/docs-ready: .venv/ready
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	touch $@

docs: .venv/docs-ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

bench: .venv/ready
	$(BIN)/python benchmarks/one_pass.py
	$(BIN)/python benchmarks/steps.py
	$(BIN)/python benchmarks/minibatch.py
	$(BIN)/python benchmarks/device.py

.rivals/ready: .venv/ready
	$(PYTHON) -m venv .rivals
	.rivals/bin/python -m pip install --quiet diffprivlib==0.6.6 scikit-learn==1.5.2
	touch $@

rivals: .rivals/ready
	OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/rivals.py --python .rivals/bin/python

clean:
	rm -rf .venv .venv-engines .rivals build

.PHONY: demo test test-slow test-engines bench-engines lint docs bench rivals clean
