# Podium's tasks. `make` alone lists them.
#
# One profile (dev) and one feature set (all of the workspace, llama.cpp included) for demo, test and check, so that
# they share their build: a dependency is compiled once.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

CACHE := $(HOME)/.cache/podium
export CARGO_TARGET_DIR ?= $(CACHE)/target
export PATH := $(CACHE)/tools/bin:$(CACHE)/uv/bin:$(HOME)/.local/bin:$(HOME)/.cargo/bin:$(PATH)

# With --workspace the features of a dependency are the same whatever is built; --bin picks what is.
WORKSPACE := --workspace --features podium/llama,podium-planner/llama,podium-local-cluster/llama
# With llama.cpp's modules that are loaded at run time. `make check` compiles it, so that each feature is compiled.
DYNAMIC := --workspace --features podium/llama-dynamic,podium-planner/llama-dynamic,podium-local-cluster/llama
NEXTEST_PROFILE ?= default
# Two more tests at once than processors, because many wait for timeouts and for processes.
export NEXTEST_TEST_THREADS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 2)
FUZZ_SECONDS ?= 60
PODIUM := $(CARGO_TARGET_DIR)/debug/podium

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## build what the demo needs, ask a question, check the answer
	@scripts/setup build llama
	@scripts/claim-target
	cargo build $(WORKSPACE) --bin podium
	@$(PODIUM) demo
	@printf '  podium is %s\n' '$(PODIUM)'

.PHONY: build
build: ## build everything but llama.cpp (no cmake, no clang)
	@scripts/setup build
	@scripts/claim-target
	cargo build

.PHONY: binaries
binaries: ## build podium with llama.cpp, and vendor-sim
	@scripts/setup build llama
	@scripts/claim-target
	cargo build $(WORKSPACE) --bins

.PHONY: planner-cuda
planner-cuda: ## build a planner for GPUs and processors into ~/.cache/podium/planner-cuda/dist (no GPU needed; hours on few cores)
	@scripts/setup build llama python
	@scripts/claim-target
	@scripts/planner-cuda

.PHONY: test
test: ## run every test, and say how long each part took
	@# test-rust after test-nats: both write target/nextest/ci/junit.xml, and that of all tests is wanted.
	@took=""; for part in test-nats test-rust test-clients test-training; do \
	    begun=$$SECONDS; $(MAKE) $$part; took="$$took $$part $$((SECONDS - begun)) s,"; \
	done; printf 'make test:%s\n' "$${took%,}"

.PHONY: test-rust
test-rust: ## run the Rust tests, llama.cpp included (without it: cargo nextest run)
	@scripts/setup build llama test
	@scripts/claim-target
	cargo nextest run $(WORKSPACE) --profile $(NEXTEST_PROFILE)

.PHONY: test-nats
test-nats: ## run the queue's tests on nats-server 2.10 and the newest, and the chaos that concerns NATS on that (fetched from Debian if not there)
	@scripts/setup build llama test
	@scripts/claim-target
	other="$$(scripts/setup-nats --of 2.10 trixie)" && PODIUM_TEST_NATS_SERVER="$$other" \
	    cargo nextest run $(WORKSPACE) --profile $(NEXTEST_PROFILE) -E 'package(podium-queue-nats)'
	@# Of the faults, only those of the server and of the processes whose messages it must deliver again: test-rust has them all.
	newest="$$(scripts/setup-nats --newest)" && PODIUM_TEST_NATS_SERVER="$$newest" CHAOS_SEED=$${CHAOS_SEED:-8} \
	    CHAOS_ONLY="$${CHAOS_ONLY:-NATS,an executor,a planner}" \
	    cargo nextest run $(WORKSPACE) --profile $(NEXTEST_PROFILE) \
	    -E 'package(podium-queue-nats) or (package(podium-local-cluster) and test(/^chaos::no_run/))'

.PHONY: test-clients
test-clients: export UV_PROJECT_ENVIRONMENT := $(CACHE)/venv/clients
test-clients: binaries ## run the APIs and the simulated vendor with the real clients
	@scripts/setup test
	cd tests/clients && uv run --frozen --group node npm ci --prefix ../../clients/typescript --ignore-scripts --no-audit --no-fund --loglevel=error
	cd tests/clients && uv run --frozen --group node npm run build --prefix ../../clients/typescript
	cd tests/clients && uv run --frozen pytest
	cd clients/typescript && uv run --project ../../tests/clients --frozen --group node node --test test/*.test.js
	cd tests/clients && uv run --frozen --group node npm ci --prefix node --ignore-scripts --no-audit --no-fund --loglevel=error
	cd tests/clients && VENDOR_SIM_BIN=$(CARGO_TARGET_DIR)/debug/vendor-sim uv run --frozen --group node node --test node/*.test.js

.PHONY: test-emulators
test-emulators: export UV_PROJECT_ENVIRONMENT := $(CACHE)/venv/clients
test-emulators: binaries ## test our adapters and limits with third-party emulators of vendors; MOCKLIMIT_SECONDS (180)
	@scripts/setup test
	cargo build $(WORKSPACE) --example tool_loop
	cd tests/clients && uv run --frozen --group node npm ci --prefix emulators --ignore-scripts --no-audit --no-fund --loglevel=error
	cd tests/clients && uv run --frozen --group node --group emulators pytest emulators -s

.PHONY: test-conformance
test-conformance: export UV_PROJECT_ENVIRONMENT := $(CACHE)/venv/clients
test-conformance: export BFCL := $(CACHE)/bfcl
test-conformance: binaries ## run coding agents (1 GB from npm), expected calls of BFCL and hostile requests against the APIs: docs/conformance.md
	@scripts/setup test
	uv pip install --quiet --no-deps --target $(BFCL) bfcl-eval==2026.3.23
	cd tests/clients && uv run --frozen --group node npm install --no-save --prefix agents --no-audit --no-fund --loglevel=error
	cd tests/clients && uv run --frozen --group node --group conformance pytest agents conformance -v --durations=0

.PHONY: test-vllm
test-vllm: export UV_PROJECT_ENVIRONMENT := $(CACHE)/venv/clients
test-vllm: binaries ## test the remote conductor with a real vLLM; VLLM_PYTHON names the Python of an environment with vllm and gguf
	@scripts/setup test
	cd tests/clients && uv run --frozen pytest vllm -v

.PHONY: test-phoenix
test-phoenix: export UV_PROJECT_ENVIRONMENT := $(CACHE)/venv/clients
test-phoenix: binaries ## test traces with Arize Phoenix (1 GB from PyPI)
	@scripts/setup test
	cd tests/clients && uv run --frozen pytest phoenix -v

.PHONY: test-training
test-training: ## lint training/, check its types, and run its light tests
	@scripts/setup test
	cd training && export UV_PROJECT_ENVIRONMENT=$(CACHE)/venv/training-test && \
	    uv sync --quiet --frozen --group test --group lint && \
	    uv run --no-sync ruff check . && uv run --no-sync ruff format --check . && uv run --no-sync mypy && uv run --no-sync pytest

.PHONY: test-training-torch
test-training-torch: binaries ## run all tests of training/, those that train models over podium rollout too (fetches PyTorch: 5 GB)
	@scripts/setup test
	cd training && UV_PROJECT_ENVIRONMENT=$(CACHE)/venv/training PODIUM=$(PODIUM) uv run --frozen --group test --group train --group llm pytest

.PHONY: quick
quick: ## check format, lints and unit tests of the packages that changed since the last commit (BASE names another)
	@scripts/setup build test check
	@scripts/claim-target
	@scripts/quick $(BASE)

.PHONY: check
check: ## check lock file, format, lints, layers, documents, spelling, SQL and proto files, dependencies, licences
	@scripts/setup build llama servers check
	@scripts/claim-target
	cargo metadata --locked --format-version 1 >/dev/null
	cargo fmt --check
	cargo clippy --workspace --all-targets -- -D warnings
	cargo clippy $(WORKSPACE) --all-targets -- -D warnings
	PODIUM_LLAMA_CPU_MODULES=one cargo clippy $(DYNAMIC) --all-targets -- -D warnings
	@scripts/sqlx-metadata --check
	RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" cargo doc --workspace --no-deps --document-private-items
	cargo xtask tidy
	typos
	buf lint proto
	buf format proto --diff --exit-code
	@scripts/proto-breaking
	cargo machete
	@# Not advisories: they need a git database from the network, which a build machine may not reach.
	cargo deny --log-level error check licenses bans sources

.PHONY: check-deploy
check-deploy: binaries ## check the Helm chart, images, dashboards and alerts, without a cluster (fetches Prometheus and validators)
	@scripts/setup python
	cd deploy/observability && export UV_PROJECT_ENVIRONMENT=$(CACHE)/venv/observability && \
	    uv sync --quiet --frozen --group test && \
	    uv run --no-sync ruff check . && uv run --no-sync ruff format --check . && uv run --no-sync pytest
	cd k8s/tests && UV_PROJECT_ENVIRONMENT=$(CACHE)/venv/k8s PODIUM_BINARIES=$(CARGO_TARGET_DIR)/debug uv run --frozen pytest

.PHONY: record-alerts
record-alerts: binaries ## record how faults of real processes make each alert fire (22 minutes); SCENARIO for one of the clusters
	@scripts/setup python servers
	cd deploy/observability && UV_PROJECT_ENVIRONMENT=$(CACHE)/venv/observability uv run --frozen --group test \
	    python -m podium_observability provoke --binaries $(CARGO_TARGET_DIR)/debug --work $(CACHE)/alerts $(if $(SCENARIO),--only $(SCENARIO))

.PHONY: record-panels
record-panels: binaries ## record the metrics of a cluster under load and faults for the dashboards (6 minutes)
	@scripts/setup python servers
	cd deploy/observability && UV_PROJECT_ENVIRONMENT=$(CACHE)/venv/observability uv run --frozen --group test \
	    python -m podium_observability record --binaries $(CARGO_TARGET_DIR)/debug --work $(CACHE)/panels

.PHONY: nano
nano: ## train models/nano again, on a CPU in about an hour, and keep the result if it plans as well (fetches PyTorch: 5 GB)
	@scripts/setup test
	cd training && export UV_PROJECT_ENVIRONMENT=$(CACHE)/venv/training && uv sync --frozen --group train --group check && \
	    uv run --no-sync podium-training train --out $(CACHE)/nano && \
	    uv run --no-sync podium-training evaluate --checkpoint $(CACHE)/nano --n 100 && \
	    rm -rf $(CACHE)/nano/bundle && cp -r ../models/nano $(CACHE)/nano/bundle && \
	    uv run --no-sync podium-training export --checkpoint $(CACHE)/nano --bundle $(CACHE)/nano/bundle && \
	    uv run --no-sync podium-training check-export --checkpoint $(CACHE)/nano --bundle $(CACHE)/nano/bundle && \
	    uv run --no-sync podium-training replace --candidate $(CACHE)/nano/bundle --bundle ../models/nano
	@printf 'models/nano has new weights: run make nano-head to train its mini head for them\n'

.PHONY: nano-head
nano-head: binaries ## train nano's mini head again, from the simulated workers' answers to 1,500 questions (minutes)
	@scripts/setup test
	mkdir -p $(CACHE)/nano-head
	cd training && UV_PROJECT_ENVIRONMENT=$(CACHE)/venv/training-test uv run --frozen --group test \
	    podium-training generate-eval --n 1500 --seed 11 --split train >$(CACHE)/nano-head/questions.jsonl
	$(PODIUM) eval $(CACHE)/nano-head/questions.jsonl --pool demo --outcomes $(CACHE)/nano-head/outcomes.jsonl
	$(PODIUM) head features --bundle models/nano --outcomes $(CACHE)/nano-head/outcomes.jsonl \
	    --output $(CACHE)/nano-head/features.safetensors
	$(PODIUM) head train --pool demo --outcomes $(CACHE)/nano-head/outcomes.jsonl \
	    --features $(CACHE)/nano-head/features.safetensors --output models/nano/head.safetensors
	$(PODIUM) bundle pack models/nano --pool demo

.PHONY: cluster
cluster: ## start a cluster on this machine: Postgres, NATS, Redis, simulated workers, our processes; `make cluster-stop` ends it
	@scripts/setup build llama servers
	@scripts/claim-target
	cargo build $(WORKSPACE) --bin podium --bin podium-local-cluster
	@scripts/cluster start $(CARGO_TARGET_DIR)/debug/podium-local-cluster --conductor llama:$(CURDIR)/models/nano
	@printf 'cluster: podium is %s\n' '$(PODIUM)'

.PHONY: cluster-stop
cluster-stop: ## end the cluster that `make cluster` started
	@scripts/cluster stop

.PHONY: chaos
chaos: ## kill, freeze, wipe, fill and cut off everything under load, then change the version; CHAOS_ROUNDS (4), CHAOS_CLIENTS (100), CHAOS_SEED (7)
	@scripts/setup build test
	CHAOS_ROUNDS=$${CHAOS_ROUNDS:-4} CHAOS_REDIS_AWAY_S=$${CHAOS_REDIS_AWAY_S:-20} CHAOS_NATS_AWAY_S=$${CHAOS_NATS_AWAY_S:-60} \
	    CHAOS_POSTGRES_SLOW_S=$${CHAOS_POSTGRES_SLOW_S:-20} CHAOS_HELD_S=$${CHAOS_HELD_S:-10} \
	    cargo nextest run -p podium-local-cluster --no-capture --profile chaos -E 'test(/^(chaos::no_run|failover)/)'
	@$(MAKE) test-versions

.PHONY: test-versions
test-versions: ## replace a cluster of an earlier commit's processes under load, and go back; VERSIONS_OLD (the last release, or HEAD's parent)
	@scripts/setup build test
	@scripts/claim-target
	old="$$(scripts/versions build $(VERSIONS_OLD))" && \
	    PODIUM_TEST_OLD_BINARY="$$old" cargo nextest run -p podium-local-cluster --no-capture --profile chaos --run-ignored only -E 'test(/^versions/)'

# For CI: an hour to build the earlier version is too long, so its binary is kept from an earlier build.
.PHONY: test-versions-kept
test-versions-kept: ## the same with the newest kept binary of an earlier commit, if there is one; keeps this one
	@scripts/setup build llama test
	@scripts/claim-target
	@if old="$$(scripts/versions newest)"; then \
	    PODIUM_TEST_OLD_BINARY="$$old" cargo nextest run $(WORKSPACE) --profile $(NEXTEST_PROFILE) --run-ignored only \
	        -E 'package(podium-local-cluster) and test(/^versions/)'; \
	else printf 'LEFT OUT: two versions at once\n'; fi
	cargo build $(WORKSPACE) --bin podium-local-cluster
	@scripts/versions keep $(CARGO_TARGET_DIR)/debug/podium-local-cluster

.PHONY: bench-store
bench-store: ## time a new run's store operations next to a million finished runs; BENCH_ARGS for others
	@scripts/setup build servers
	@scripts/claim-target
	cargo run --profile bench-fast -p podium-bench-store -- $(BENCH_ARGS)

.PHONY: bench-early
bench-early: ## measure the time saved by starting steps while the plan is being written; BENCH_ARGS="--rates 50 --worker-ms 3000"
	@scripts/setup build
	@scripts/claim-target
	cargo run --profile bench-fast -p podium-bench-early -- $(BENCH_ARGS)

.PHONY: bench-llama
bench-llama: ## compare the local conductor with bare llama.cpp on random weights; BENCH_ARGS="--rounds 1 --tokens 16 --threads 1"
	@scripts/setup build llama test
	@scripts/claim-target
	cargo build $(WORKSPACE) --bin podium-bench-llama
	@mkdir -p $(CACHE)/bench
	@# Half a gigabyte, made once.
	@[ -f $(CACHE)/bench/random.gguf ] || uv run --no-project --with gguf==0.19.0 --with tokenizers==0.23.3 --with numpy \
	    benches/llama/make_model.py $(CACHE)/bench/random.gguf
	$(CARGO_TARGET_DIR)/debug/podium-bench-llama all --weights $(CACHE)/bench/random.gguf $(BENCH_ARGS)

.PHONY: bench-limits
bench-limits: ## run 32 executors against a vendor's limits for three minutes; BENCH_ARGS="--seconds 60 --prompt-words 200"
	@scripts/setup build servers
	@scripts/claim-target
	cargo run -p podium-bench-limits -- $(BENCH_ARGS)

.PHONY: bench-load
bench-load: ## load a cluster of 14 processes with calls of seconds and 1,000 tenants; BENCH_ARGS="--in-flight 5000", "--compare"
	@scripts/setup build test
	@scripts/claim-target
	cargo run --profile bench-fast -p podium-bench-load -- $(BENCH_ARGS)

.PHONY: bench-gateways
bench-gateways: ## what one call costs through Podium, Switchyard and LiteLLM; BENCH_ARGS="--clients 16 --rounds 1"
	@scripts/setup build test
	@scripts/claim-target
	@mkdir -p $(CACHE)/bench
	@[ -d $(CACHE)/bench/switchyard ] || uv venv --quiet $(CACHE)/bench/switchyard
	@uv pip install --quiet --python $(CACHE)/bench/switchyard/bin/python nemo-switchyard==0.3.0
	@[ -d $(CACHE)/bench/litellm ] || uv venv --quiet $(CACHE)/bench/litellm
	@uv pip install --quiet --python $(CACHE)/bench/litellm/bin/python 'litellm[proxy]==1.106.2'
	cargo run --profile bench-fast -p podium-bench-gateways -- \
	    --switchyard $(CACHE)/bench/switchyard --litellm $(CACHE)/bench/litellm $(BENCH_ARGS)

.PHONY: bench-engines
bench-engines: ## compare Podium with other durable engines, in turn; BENCH_ARGS="--rounds 3 --in-flight 16"
	@scripts/setup build test
	@scripts/claim-target
	@# Without Podium's own driver, its line is left out.
	@if [ -d benches/engine ]; then cargo build --release -p podium-bench-engine; fi
	python3 benches/engines/run.py $(BENCH_ARGS)

.PHONY: eval
eval: binaries ## ask 300 held-out questions of nano over the skill workers, of its mini head, then of the generalist alone
	@$(PODIUM) eval training/eval/heldout.jsonl
	@$(PODIUM) eval training/eval/heldout.jsonl --tier mini
	@$(PODIUM) eval training/eval/heldout.jsonl --conductor direct:sim-generalist

.PHONY: fuzz
fuzz: ## fuzz the plan parser for FUZZ_SECONDS (60)
	@scripts/setup build fuzz
	CARGO_TARGET_DIR=$(CACHE)/fuzz cargo +nightly fuzz run plan_parse -- -max_total_time=$(FUZZ_SECONDS) -timeout=10

.PHONY: book
book: ## build the book of docs/ into ~/.cache/podium/book and check its links
	@scripts/setup build book
	@scripts/book $(CACHE)/book

.PHONY: fmt
fmt: ## format the Rust code
	cargo fmt
