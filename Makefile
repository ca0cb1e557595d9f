# Two commands do everything: `make demo` and `make test`.
CARGO ?= cargo
ARGS ?=
TARGET = $(or $(CARGO_TARGET_DIR),target)

.PHONY: demo test check fmt show bench audit setup

# Builds, starts three engines of different speed and the gateway, runs six policies over the same load, prints a table, and stays up.
demo: setup
	$(CARGO) run --release --quiet -p tidegate -- demo $(ARGS)

# Everything that must hold: format, lints, the workspace's own rules, all tests, doc tests, and real clients.
test: setup check
	tools/run-tests
	$(CARGO) build --quiet -p tidegate
	tools/openai-client $(TARGET)/debug/tidegate

# What needs no test run.
check:
	$(CARGO) fmt --all -- --check
	$(CARGO) clippy --workspace --all-targets --quiet -- -D warnings
	$(CARGO) run --quiet -p xtask -- tidy

fmt:
	$(CARGO) fmt --all

# 2,000 streams over 20 reloads of the config and 3 hand-overs between processes; takes minutes and thousands of sockets.
show:
	SHOW_STREAMS=2000 SHOW_RELOADS=20 SHOW_HAND_OVERS=3 SHOW_SECONDS=40 \
		$(CARGO) test --release -p tidegate --test lifecycle_show -- --nocapture

# Half an hour of mixed load with faults and a reload every 10 s: flat memory, everything back to zero.
soak:
	$(CARGO) build --release --quiet -p tidegate
	tools/soak.py $(TARGET)/release/tidegate $(or $(ARGS),30)

# One decision for every policy and size of fleet; then, where ../shared/bench is there, proxies side by side.
bench:
	$(CARGO) bench -p tidegate-core --bench decision -- $(ARGS)
	tools/compare

# Licences, advisories and duplicate crates. Needs cargo-deny and its database, so it is no part of `make test`.
audit:
	$(CARGO) deny check

# What a bare Debian machine lacks.
setup:
	tools/setup
