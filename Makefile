# make demo   set up in .venv, fetch a small model, and watch it write    (PROMPT="..." to ask something else)
# make test   set up in .venv, and run every test                         (TESTS=tests/test_cli.py for some)
# make lint   style and types      make clean   remove what these made, but not the model
#
# A second run does again only what has changed. The model is kept in the user's cache folder, or in CERA_HOME.

# The first Python on this machine that is new enough.
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
VENV := .venv
RUN := $(VENV)/bin/python
INSTALL := $(RUN) -m pip install --quiet --disable-pip-version-check
WORKERS ?= 2
TESTS ?= tests
PROMPT ?= Explain in two sentences why the sky is blue.
export PROMPT

.PHONY: demo test lint clean adapter

demo: $(VENV)/run.done
	@$(RUN) -m cera_py generate --chat --max-tokens 200 -- "$$PROMPT"

test: $(VENV)/test.done adapter
	@$(RUN) -c 'from cera_py.pull import default_model; default_model()'
	$(RUN) -m pytest -n $(WORKERS) $(TESTS)

lint: $(VENV)/lint.done
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	@# Types are checked over the package as it installs: kernels/ and models/ inside cera_py/.
	@rm -rf .typecheck && mkdir -p .typecheck/cera_py
	@cd .typecheck/cera_py && ln -s ../../cera_py/* ../../kernels ../../models .
	cd .typecheck && MYPYPATH=. ../$(RUN) -m mypy --config-file ../pyproject.toml --cache-dir ../.mypy_cache -p cera_py

clean:
	rm -rf $(VENV) .typecheck build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(RUN):
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed: install it, or name it with PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		echo "A virtual environment could not be made (Debian, Ubuntu: apt-get install python3-venv)" >&2; exit 1; }

$(VENV)/run.done: pyproject.toml | $(RUN)
	@echo "installing into $(VENV)" >&2
	@$(INSTALL) -e .
	@touch $@

$(VENV)/test.done $(VENV)/lint.done: $(VENV)/%.done: pyproject.toml | $(RUN)
	@echo "installing into $(VENV), with what '$*' needs" >&2
	@$(INSTALL) -e '.[$*]'
	@touch $@

# The GPU tests run on any adapter. Where there is none, Mesa's lavapipe does the same on the CPU.
HAS_ADAPTER := $(RUN) -c 'from cera_py.gpu import list_devices as l; exit(all("OpenGL" in d.backend for d in l()))'
adapter: $(VENV)/test.done
	@$(HAS_ADAPTER) || if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
		echo "no GPU adapter: installing software Vulkan" >&2; \
		apt-get update -q >/dev/null; \
		DEBIAN_FRONTEND=noninteractive apt-get install -q -y mesa-vulkan-drivers libvulkan1 >/dev/null; \
	fi
	@$(HAS_ADAPTER) || { echo "The tests need a GPU adapter, and software Vulkan will do. Install it and try again:" >&2; \
		echo "  Debian, Ubuntu: sudo apt-get install mesa-vulkan-drivers" >&2; \
		echo "  Fedora:         sudo dnf install mesa-vulkan-drivers" >&2; \
		echo "  Arch:           sudo pacman -S vulkan-swrast" >&2; exit 1; }
