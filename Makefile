# Two commands do everything: `make demo` and `make test`.
CARGO ?= cargo
ARGS ?=
TARGET = $(or $(CARGO_TARGET_DIR),target)

.PHONY: demo test check fmt show soak bench bench-peers bench-decision bench-prefix bench-contention audit setup fuzz attack smuggling clients-that-leave \
	real-engines live-vs-sim

# Builds, starts three engines of different speed and the gateway, runs six policies over the same load, prints a table, and stays up.
demo: setup
	$(CARGO) run --release --quiet -p tidegate -- demo $(ARGS)

# Everything that must hold: format, lints, the workspace's own rules, all tests, doc tests, and real clients.
test: setup check
	tools/run-tests
	$(CARGO) build --quiet -p tidegate
	tools/openai-client $(TARGET)/debug/tidegate
	tools/cache-events $(TARGET)/debug/tidegate
	tools/smuggling $(TARGET)/debug/tidegate
	$(CARGO) test --quiet --manifest-path bench/Cargo.toml --target-dir $(TARGET)/bench-build

# What needs no test run.
check:
	$(CARGO) fmt --all -- --check
	$(CARGO) fmt --manifest-path bench/Cargo.toml -- --check
	$(CARGO) clippy --workspace --all-targets --quiet -- -D warnings
	$(CARGO) run --quiet -p xtask -- tidy

fmt:
	$(CARGO) fmt --all
	$(CARGO) fmt --manifest-path bench/Cargo.toml

# 2,000 streams over 20 reloads of the config and 3 hand-overs between processes; takes minutes and thousands of sockets.
show:
	SHOW_STREAMS=2000 SHOW_RELOADS=20 SHOW_HAND_OVERS=3 SHOW_SECONDS=40 \
		$(CARGO) test --release -p tidegate --test lifecycle_show -- --nocapture

# Every fuzz target for a minute each, from its corpus; needs cargo-fuzz. `make test` replays the corpora.
fuzz:
	tools/fuzz 60 $(ARGS)

# Attacks of full size on a release build; prints what each costs memory and a client that behaves. `make test` runs small ones.
attack:
	tools/attack $(ARGS)

# Ambiguous requests through the gateway to nginx, HAProxy, Node and uvicorn, as far as they are installed, and past it.
smuggling:
	$(CARGO) build --quiet -p tidegate
	tools/smuggling $(TARGET)/debug/tidegate

# How soon an engine is told that its client has left, in every phase of a request.
clients-that-leave:
	$(CARGO) test --quiet -p tidegate-proxy --test disconnect -- --nocapture

# llama.cpp and an embedding model behind the gateway, and the simulator's engine fitted to them; docs/real-engines.md. Compiles llama.cpp once.
real-engines:
	$(CARGO) build --release --quiet -p tidegate
	tools/real-engines $(TARGET)/release/tidegate $(ARGS)

# The same slice of a trace live and simulated, and every decision of the live run taken again; eight minutes.
live-vs-sim:
	$(CARGO) build --release --quiet -p tidegate
	tools/live-vs-sim $(TARGET)/release/tidegate $(ARGS)

# Half an hour of mixed load with faults and a reload every 10 s: flat memory, everything back to zero.
soak:
	$(CARGO) build --release --quiet -p tidegate
	tools/soak.py $(TARGET)/release/tidegate $(or $(ARGS),30)

# Proxies side by side on this machine, into $(TARGET)/bench: see bench/README.md. `ARGS="--only 'nginx;tidegate'"` for some of them.
bench:
	tools/bench $(ARGS)

# What of the other proxies comes from PyPI, into virtual environments that `make bench` finds.
bench-peers:
	tools/bench-peers

# One decision for every policy and size of fleet.
bench-decision:
	$(CARGO) bench -p tidegate-core --bench decision -- $(ARGS)

# A million distinct prompts through the prefix index: cost of each, memory.
bench-prefix:
	$(CARGO) bench -p tidegate-core --bench prefix

# What the locks that threads share cost, by one thread and by two.
bench-contention:
	$(CARGO) run --release --quiet --manifest-path bench/Cargo.toml --target-dir $(TARGET)/bench-build -- contention $(ARGS)

# Licences, advisories and duplicate crates. Needs cargo-deny and its database, so it is no part of `make test`.
audit:
	$(CARGO) deny check

# What a bare Debian machine lacks.
setup:
	tools/setup
