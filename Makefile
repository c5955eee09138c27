# The commands of the project. Each does all the set-up it needs (see .ci/setup).

BUILT := $(or $(CARGO_TARGET_DIR),target)/release
CFLAGS ?= -O2
WARN := -Wall -Wextra -Wpedantic -Werror
DIR ?= /usr/include

.PHONY: help demo test clean

help:
	@echo 'make demo          load the files of $(DIR) into a store, some with a TTL; check everything'
	@echo 'make demo DIR=...  the same with the files of another directory'
	@echo 'make test          format, lints, all tests'
	@echo 'make clean         remove what was built'

demo:
	@.ci/setup demo
	cargo build --release --locked
	$(CC) -std=c11 $(CFLAGS) $(WARN) -Iinclude examples/session_cache.c \
	    -L'$(BUILT)' -lkvstore -Wl,-rpath,'$(abspath $(BUILT))' -o '$(BUILT)/session_cache'
	@store=$$(mktemp -d) && trap 'rm -rf "$$store"' EXIT && \
	    '$(BUILT)/session_cache' '$(DIR)' "$$store/demo.db"

test:
	@.ci/setup test
	@if cargo fmt --version >/dev/null 2>&1; then set -x; cargo fmt --check; \
	    else echo 'SKIPPED: cargo fmt --check (rustfmt is not installed)'; fi
	@if cargo clippy --version >/dev/null 2>&1; then set -x; cargo clippy --all-targets --locked -- -D warnings; \
	    else echo 'SKIPPED: cargo clippy (it is not installed)'; fi
	cargo test --locked --no-fail-fast

clean:
	cargo clean
