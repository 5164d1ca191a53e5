# make tables       the environment if need be, then every table and figure, reduced
# make tables-full  the same at full size
# make site         a site to publish, site/index.html: a lesson to be moved by hand, the
#                   documentation, and a page of all that was recorded; ADDRESS=https://...
#                   is where the project is published, for links and notebooks
# make test         the environment if need be, then the tests that are not marked slow
# make test-core    those of them that ask for the mathematics, drafters and models
# make test-slow    those that are: whole rows, timings, notebooks, other engines;
#                   PART=2/3, the second third of their files
# make test-parity  all that transformers has too, against it (gigabytes of downloads)
# make test-data    the paper's tasks against seqio and TensorFlow Datasets (the same)
# make test-speculators  EAGLE-3 heads against the package speculators (the same)
# make test-aot     what the kernels compile to for GPUs and TPUs (400 MB of downloads)
# make lint         ruff: check and format; mypy: the types of specjax
# make wheel-test   builds the wheel and runs it in an environment of its own
# make docs         these pages and the API reference, into docs/_build/index.html
# make notebooks    runs the notebooks and stores what they say; NOTEBOOKS='NAME ...'
# make bench        specjax beside other engines, as ratios; QUESTIONS=FILE and SPEECH=
#                   FOLDER add real weights; stopped, it goes on with the next call;
#                   QUICK=1 takes four minutes, into results/quick; before it, for
#                   llama.cpp and OpenVINO: make bench-llama-cpp bench-openvino (ten
#                   minutes)
# make zoo          trains the bundled code models again (hours)
# make zoo-llama DIALOGUES=FOLDER  trains a pair of Llama's kind on data of your own
# make clean        removes what the others made, runs and full results excepted
#
# Another interpreter: make test PYTHON=python3.12 VENV=.venv-312

PYTHON ?= python3
VENV ?= .venv
TORCH ?= torch>=2.6
PART ?= 1/1
ADDRESS ?=
RUN = $(VENV)/bin/python
# Modules are compiled as they are imported, once for all processes: most of what is
# installed never is.
export PYTHONDONTWRITEBYTECODE =
INSTALL = $(RUN) -m pip install --quiet --disable-pip-version-check --no-compile
PARALLEL = --numprocesses logical --maxprocesses 8 --dist loadfile
CORE = tests/test_*.py tests/theory tests/verifiers tests/drafters tests/models \
  tests/exactness/test_certify.py
TEST = $(VENV)/.installed-test
TABLES = $(VENV)/.installed-tables
BENCH = $(VENV)/.installed-bench

.PHONY: tables tables-full site bench bench-llama-cpp bench-openvino docs notebooks zoo zoo-llama lint wheel-test clean
.PHONY: test test-core test-slow test-parity test-speculators test-data test-aot

tables: $(TABLES)
	$(RUN) -m experiments.reproduce --quick

tables-full: $(TABLES)
	$(RUN) -m experiments.reproduce --full

site: docs
	$(RUN) -m experiments.report.lesson results
	$(RUN) -m experiments.report.site results site $(if $(ADDRESS),--address "$(ADDRESS)")

# With real weights where they are: specjax fetch smollm2 and whisper-base, then
# make bench QUESTIONS=FILE SPEECH='FOLDER ...'. Each engine that is missing is a line.
bench: $(BENCH)
	$(RUN) -m experiments.rivals $(if $(QUICK),--quick)
	$(RUN) -m experiments.rivals.real $(if $(QUESTIONS),--questions "$(QUESTIONS)") \
	  $(if $(SPEECH),--speech $(SPEECH)) $(if $(QUICK),--quick)
	$(if $(QUICK),,$(RUN) -m experiments.report.page)

# What `make bench` does without them: each compiles or downloads for minutes.
bench-llama-cpp: $(BENCH)
	$(INSTALL) --editable '.[llama-cpp]'

bench-openvino: .venv-openvino/bin/optimum-cli

.venv-openvino/bin/optimum-cli:
	$(PYTHON) -m venv .venv-openvino
	.venv-openvino/bin/python -m pip install --quiet '$(TORCH)' '.[openvino]'
	.venv-openvino/bin/python -m pip uninstall --quiet --yes torchvision

zoo: $(TABLES)
	$(RUN) -m experiments.training.zoo_code

# No part of `zoo`: FOLDER holds DialogSum and SAMSum, which only the user may have.
zoo-llama: $(TABLES)
	@test -n "$(DIALOGUES)" || \
	  { echo "name the folder of the dialogues: make zoo-llama DIALOGUES=FOLDER"; exit 1; }
	$(RUN) -m experiments.training.zoo_llama --dialogues "$(DIALOGUES)"

test: $(TEST)
	$(RUN) -m pytest $(PARALLEL) -m "not slow" --compile-quickly

test-core: $(TEST)
	$(RUN) -m pytest $(PARALLEL) -m "not slow" --compile-quickly $(CORE)

test-slow: $(TEST)
	$(RUN) -m pytest $(PARALLEL) -m slow --compile-quickly --part $(PART)

test-parity: $(TEST)
	$(INSTALL) '$(TORCH)'
	$(INSTALL) --editable '.[test,parity]'
	$(RUN) -m pytest $(PARALLEL) tests/test_parity_*.py \
	  tests/beam/test_parity_*.py tests/checkpoints/test_parity_*.py \
	  tests/speech/test_parity_*.py

# An environment of its own: it asks for an older transformers than `test-parity` has.
# There nothing may be skipped for want of the package.
test-speculators:
	$(MAKE) VENV=.venv-speculators .venv-speculators/.installed-speculators
	.venv-speculators/bin/python -c "import speculators, torch"
	JAX_PLATFORMS=cpu .venv-speculators/bin/python -m pytest \
	  tests/training/test_parity_speculators.py

test-data: $(TEST)
	$(INSTALL) --editable '.[test,data]'
	$(RUN) -m pytest tests/experiments/tasks/test_paper.py

# An environment of its own: its compilers would look for a GPU in every other run.
# There nothing may be skipped for want of a compiler.
test-aot:
	$(MAKE) VENV=.venv-aot .venv-aot/.installed-aot
	.venv-aot/bin/python -c "import sys; from experiments.gpu.aot import compilers; \
	  sys.exit(compilers.missing_reason('gpu') or compilers.missing_reason('tpu'))"
	JAX_PLATFORMS=cpu .venv-aot/bin/python -m pytest tests/experiments/gpu/aot

lint: $(TEST)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

docs: $(TEST)
	$(INSTALL) --editable '.[test,docs]'
	SPECJAX_ADDRESS="$(ADDRESS)" $(RUN) -m sphinx --quiet --fail-on-warning --keep-going -b html docs docs/_build
	@! grep -rl --include=*.html "Alias for field number" docs/_build
	@echo "docs/_build/index.html"

notebooks: $(TEST)
	$(RUN) -m experiments.report.notebooks $(NOTEBOOKS)

# Nothing is taken from this environment but the builder: the wheel is built from the
# source distribution, and its own dependencies are downloaded.
wheel-test: $(TEST)
	@set -eu; work=$$(mktemp -d); trap 'rm -rf "$$work"' EXIT; \
	echo "building the wheel, from the source distribution"; \
	$(RUN) -m build --outdir "$$work/dist" . >"$$work/log" 2>&1 || \
	  { cat "$$work/log"; exit 1; }; \
	echo "installing it in $$work"; \
	$(RUN) -m venv "$$work/venv"; \
	"$$work/venv/bin/pip" install --quiet --disable-pip-version-check \
	  "$$(ls "$$work"/dist/*.whl)[gin]"; \
	first="$$PWD/notebooks/first_cell.py"; cd "$$work"; unset PYTHONPATH; \
	venv/bin/specjax --version; \
	venv/bin/specjax demo --n_tokens_to_generate 8; \
	echo '{"prompt": "def f("}' >prompts.jsonl; \
	venv/bin/specjax measure --data prompts.jsonl --gammas 2 --tokens 8 --texts 2 \
	  --rounds 1 --out a.jsonl; \
	venv/bin/specjax compare a.jsonl a.jsonl; \
	printf "include 'gin_configs/%s.gin'\n" runs/alpha checkpoints/target \
	  checkpoints/draft tasks/prompts >pair.gin; \
	printf "%s\n" "TARGET_NAME = 'code_small'" "DRAFT_NAME = 'code_small'" \
	  "TASK = 'prompts.jsonl'" 'TEMPERATURE = 1.0' 'GAMMA = 2' 'TOKENS = 8' \
	  'NEW_TOKENS = 4' 'BATCH = 2' \
	  "ROWS = {'token': {}, 'block': {'VERIFIER': 'block'}}" >>pair.gin; \
	venv/bin/specjax run pair.gin --rows block; \
	venv/bin/specjax run pair.gin; \
	test -s "runs/results/$$(basename "$$work").jsonl"; \
	if venv/bin/specjax run pair.gin --gin.TOKNS=9; then exit 1; fi; \
	if venv/bin/specjax run pair.gin --gin_file gin_configs/tasks/examples.gin 2>said; \
	  then exit 1; fi; \
	grep -q 'only a checkout of specjax has' said; \
	venv/bin/python -c "from importlib.resources import files; \
	from pathlib import Path; import specjax; site = Path(specjax.__file__).parents[1]; \
	outside = {'experiments', 'notebooks', 'tests', 'gin_configs'}; \
	assert site.name == 'site-packages', site; \
	assert not outside & {path.name for path in site.iterdir()}, site; \
	print(len(list((files('specjax') / 'gin_configs').rglob('*.gin'))), 'gin files')"; \
	echo "installing it by the notebooks' first cell"; \
	venv/bin/python -m venv fresh; \
	SPECJAX_SOURCE="$$(ls "$$work"/dist/*.whl)" fresh/bin/python -c \
	  "exec(open('$$first').read()); import specjax, gin, matplotlib; \
	  assert specjax.load('code_small')"; \
	echo "wheel-test passed"

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "specjax needs Python 3.11 or newer, and $(PYTHON) is" \
	    "$$($(PYTHON) --version 2>&1): make PYTHON=python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(TABLES): setup.py pyproject.toml | $(VENV)/bin/python
	$(INSTALL) --editable '.[experiments]'
	@touch $@

$(TEST): setup.py pyproject.toml | $(VENV)/bin/python
	$(INSTALL) --editable '.[test]'
	@touch $@ $(TABLES)

$(BENCH): setup.py pyproject.toml | $(VENV)/bin/python
	$(INSTALL) --editable '.[experiments,engines]'
	@touch $@ $(TABLES)

# The package asks for torchvision and torchaudio and uses neither; transformers imports
# what it finds, and they may be of another PyTorch.
$(VENV)/.installed-speculators: setup.py pyproject.toml | $(VENV)/bin/python
	$(INSTALL) --editable '.[test,speculators]'
	$(VENV)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio
	@touch $@

$(VENV)/.installed-aot: setup.py pyproject.toml | $(VENV)/bin/python
	$(INSTALL) --editable '.[test,aot]'
	@touch $@

clean:
	rm -f results/*.html results/*.csv
	rm -rf $(VENV) .venv-312 .venv-aot .venv-speculators build dist docs/_build docs/notebooks docs/jupyter_execute *.egg-info results/quick site
	rm -rf results/lesson results/tables
	rm -rf .jax_cache .pytest_cache .ruff_cache .mypy_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
