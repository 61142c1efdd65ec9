# Everything lives in .venv of this checkout. A target sets up what it needs, once.
PYTHON ?= python3
BIN := .venv/bin
QUICK := $(BIN)/python -m pytest --quiet --no-header -p no:cacheprovider -m 'not real_model and not slow and not browser'
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt

.DEFAULT_GOAL := help
.PHONY: help eval test quick quick-runs quick-others browser check gate recordings study licences picture torture format lab notebooks docs \
	bench languages live dist clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "%-10s %s\n", $$1, $$2}'

eval: .venv/.installed ## compare the three document flows on the embedded model (about 5 minutes)
	@$(BIN)/agentlab pull default
	@$(BIN)/agentlab run evals/flows.yaml

test: .venv/.dev check gate ## run all checks and all tests, the real model included
	@$(BIN)/agentlab pull default
	@$(BIN)/python -m pytest --nbval-lax tests notebooks
	@if command -v chromium >/dev/null; then $(MAKE) --no-print-directory browser; \
		else echo "no Chromium here: make browser installs it on Debian and tests pages and notebooks in it"; fi
	@if [ -n "$$GEMINI_API_KEY" ]; then $(BIN)/python evals/live_gemini.py; fi

quick: .venv/.dev ## lint, types and the tests that need neither a model nor seconds: two minutes on two cores
	@$(MAKE) --no-print-directory --jobs 2 check quick-runs quick-others

quick-runs: .venv/.dev
	@$(QUICK) tests/runs tests/unit/evals

quick-others: .venv/.dev
	@$(QUICK) tests --ignore tests/runs --ignore tests/unit/evals

browser: .venv/.browser ## test the page of a run and the notebook chat in Chromium, installed where it is missing (Debian, as root)
	@command -v chromium >/dev/null || apt-get install --yes chromium
	@$(BIN)/python -m pytest --quiet --no-header -p no:cacheprovider -m browser tests/browser

check: .venv/.dev ## lint, formatting and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy

# Of the study what is recorded whole, and so has a baseline.
GATES := $(patsubst evals/recorded/%.yaml,gate-%,$(wildcard evals/recorded/*.yaml)) \
	$(patsubst evals/baselines/%.jsonl,gate-%,$(wildcard evals/baselines/study_*.jsonl))

gate: .venv/.installed ## replay the recorded conversations, hold them against baselines and golden files: no model, no network
	@$(MAKE) --no-print-directory --jobs 2 $(GATES)
	@$(BIN)/python tests/support/golden.py 2>results/gate/golden.txt

gate-%: SPEC = $(if $(filter study_%,$*),evals/study/$(*:study_%=%),evals/recorded/$*).yaml
gate-%:
	@mkdir -p results/gate && rm -rf results/gate/$*
	@$(BIN)/agentlab run $(SPEC) --mode replay --out results/gate/$* >results/gate/$*.txt 2>&1 || \
		{ cat results/gate/$*.txt; exit 1; }
	@$(BIN)/agentlab gate results/gate/$* --baseline evals/baselines/$*.jsonl >results/gate/$*.txt; \
		code=$$?; cat results/gate/$*.txt; exit $$code

recordings: .venv/.installed ## ask the model for every call of evals/recorded that is not recorded yet (can be interrupted)
	@for spec in evals/recorded/*.yaml; do $(BIN)/agentlab run $$spec --mode auto || exit $$?; done

STUDY = AGENTLAB_PROMPT_CACHE=3000 $(BIN)/agentlab run evals/study/$(1).yaml --mode auto --resume --out results/study/$(1)

study: .venv/.installed ## make the tables of the reference study, SETS=FOLDER those of public sets too (a day; can be interrupted)
	@$(if $(SETS),$(BIN)/agentlab pull default qwen2.5-coder-1.5b)
	@for set in laws assistant research memory; do $(call STUDY,$$set) || exit $$?; done
	@for set in $(if $(SETS),squad2 pyfaq mtrag_human); do \
		$(call STUDY,$$set) --dataset $(SETS)/$$set --recordings results/study/recordings || exit $$?; done
	@$(BIN)/python evals/publish.py --study results/study.md results/study/*/
	@$(BIN)/python evals/picture.py results/study.md >results/study.svg
	@echo results/study.md

picture: .venv/.browser ## make the pictures of README and docs from a replay of today's code and from results/study.md
	@rm -rf results/laws && $(BIN)/agentlab run evals/recorded/laws.yaml --mode replay --out results/laws >/dev/null
	@$(BIN)/agentlab report results/laws -o results/laws.html
	@PATH="$(CURDIR)/$(BIN):$$PATH" PYTHONPATH=tests $(BIN)/python evals/screenshots.py results/laws.html
	@$(BIN)/python evals/picture.py results/study.md >results/study.svg

licences: .venv/.dev ## list the licences of all dependencies; fail on one that is unknown or copyleft
	@$(BIN)/python tests/support/licences.py

torture: .venv/.dev ## kill, starve, deceive, edit and feed garbage to runs for half an hour: results/survival.md
	@PYTHONPATH=tests $(BIN)/python tests/hostile/torture.py

format: .venv/.dev ## mend what the linter can mend
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

lab notebooks: .venv/.dev ## open the notebooks in JupyterLab, where !agentlab and its terminal find this checkout's
	@PATH="$(CURDIR)/$(BIN):$$PATH" jupyter lab $(if $(filter 0,$(shell id -u)),--allow-root) notebooks

docs: .venv/.dev ## build the documentation into results/site (open index.html; no server, no network)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo results/site/index.html

bench: .venv/.dev ## measure speed against bare loops and write results/speed.md (minutes)
	@$(BIN)/python evals/bench/all.py

languages: .venv/.dev ## test refusals in other languages with the extra `languages`, which is installed here
	@$(PIP) --editable '.[languages]'
	@$(BIN)/python -m pytest --quiet --no-header -p no:cacheprovider tests/runs/test_refusals.py

live: .venv/.dev ## try servers that others wrote, and sentence-transformers, in folders of results/live: twelve minutes at most
	@$(BIN)/agentlab pull default
	@$(BIN)/python evals/live/all.py
	@$(BIN)/python -m venv results/live/sentence-transformers
	@results/live/sentence-transformers/bin/python -m pip --disable-pip-version-check install --quiet \
		--constraint constraints.txt --editable '.[sentence-transformers]'
	@results/live/sentence-transformers/bin/python evals/live_sentence_transformers.py

dist: .venv/.dev ## build wheel and sdist, check them, and run a new project in an empty environment
	@rm -rf results/dist
	@$(BIN)/python -m build --outdir results/dist >results/dist.log 2>&1 || { cat results/dist.log; exit 1; }
	@$(BIN)/python -m twine check --strict results/dist/*
	@$(BIN)/python tests/support/dist.py results/dist

clean: ## remove the environment and what tests left behind
	@rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "agentlab needs Python 3.11 or newer; name one: make PYTHON=python3.12 ..."; exit 1; }
	@echo "setting up .venv (once, a minute or two)"
	@$(PYTHON) -m venv .venv

.venv/.installed: pyproject.toml constraints.txt | .venv/bin/python
	@$(PIP) --editable '.[chroma,documents,gemini,mcp,mongo,notebook,parquet,web]'
	@touch $@

.venv/.dev: .venv/.installed
	@$(PIP) --editable '.[dev]'
	@touch $@

.venv/.browser: .venv/.dev
	@$(PIP) --editable '.[browser]'
	@touch $@
