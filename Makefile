# Each task sets up what it needs in .venv, on a fresh clone too; what it does stands in tests/tasks.py.
# ARGS go to the task: make test ARGS="tests/test_zip.py -k cut". Without make: python3 tests/tasks.py test
PYTHON ?= python3
TASKS := test quick coverage durations compile lint docs bench

help:
	@$(PYTHON) tests/tasks.py || true

$(TASKS):
	@$(PYTHON) tests/tasks.py $@ $(ARGS)

.PHONY: help $(TASKS)
