# The commands of the project; "make help" describes them. Building, installing and testing is done by xtask/, a Rust program
# that this file builds first. It takes the variables (PREFIX, DESTDIR, CC, CFLAGS, ...) of make's command line and of the
# environment; docs/reference/abi.md lists those for packagers. Apple's GNU make 3.81 reads this file, too.

CARGO ?= cargo
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
$(if $(findstring ',$(CURDIR)$(TARGET_DIR)),$(error the path of the tree, or TARGET_DIR, has a quote ('): use another path))
XTASK ?= $(TARGET_DIR)/xtask/debug/xtask

BUILD := all lib shared command program install install-command install-strip uninstall \
    install-windows windows-lib install-windows-command firmware

.PHONY: help demo test test-full torture cross cross-quick windows docs clean dist dist-test dist-check \
    bench bench-quick bench-encryption bench-remote bench-python $(BUILD)

# Goals share files, so "make -j" runs one after the other.
.NOTPARALLEL:

help:
	@cat xtask/help.txt

# ---- xtask ----------------------------------------------------------------------------------------------

# A name of a file, for make: with a backslash before each space.
nothing :=
XTASK_FILE := $(subst $(nothing) $(nothing),\ ,$(XTASK))

# make exports variables of its command line, but of those with a "-" in their names (CFLAGS_x86_64-unknown-linux-gnu) only
# the ones that are named. xtask runs without a shell, which would drop them.
export $(filter CFLAGS_% CC_% AR_% CARGO_TARGET_%,$(.VARIABLES))
RUN_XTASK = '$(XTASK)' 'TARGET_DIR=$(TARGET_DIR)' 'COMMAND_ORIGIN=$(origin COMMAND)'

# Built for this machine, whatever the libraries are built for, and only if it is older than its sources: root needs no Rust
# for "make install" after "make all".
$(XTASK_FILE): $(wildcard xtask/Cargo.toml xtask/src/*.rs)
	env -u CARGO_BUILD_TARGET -u RUSTFLAGS -u CARGO_ENCODED_RUSTFLAGS -u CARGO_BUILD_RUSTFLAGS -u CARGO_UNSTABLE_BUILD_STD \
	    MAKEFLAGS= $(CARGO) build --quiet --locked --package xtask --target-dir '$(TARGET_DIR)/xtask'
	@touch -c '$(XTASK)'

$(BUILD): $(XTASK_FILE)
	@$(RUN_XTASK) $@

# .ci/setup installs missing tools, those of xtask among them.
demo test:
	@.ci/setup $@
	@$(MAKE) --no-print-directory '$(XTASK)'
	@$(RUN_XTASK) $@

test-full: test
	@.ci/setup full
	@$(RUN_XTASK) $@

# ---- Scripts --------------------------------------------------------------------------------------------

torture:
	tests/torture $(or $(MINUTES),60)

# TARGETS: some of those in tests/cross/targets.py.
cross:
	@.ci/setup cross $(TARGETS)
	tests/cross/run $(TARGETS)
	$(if $(TARGETS),,tests/cross/check)

cross-quick:
	@.ci/setup cross --quick $(TARGETS)
	tests/cross/run --quick $(TARGETS)

# PARTS="neighbours" and the like: some of the tests.
windows:
	@.ci/setup windows
	tests/windows/run $(PARTS)

docs:
	DOCS='$(or $(DOCS),$(TARGET_DIR)/docs)' TARGET_DIR='$(TARGET_DIR)' CARGO='$(CARGO)' CARGOFLAGS='$(or $(CARGOFLAGS),--locked)' \
	    docs/build

clean:
	$(CARGO) clean --target-dir '$(TARGET_DIR)'

# PARTS='source linux wheels debian sbom', TARGETS='x86_64-linux-gnu ...': some of a release.
dist:
	@.ci/setup dist
	TARGETS='$(TARGETS)' packaging/dist/build $(PARTS)

dist-test:
	DIST='$(abspath dist)' tests/fresh packaging/dist/try /root/dist $(PARTS)

dist-check:
	@.ci/setup dist
	TARGETS='$(TARGETS)' packaging/dist/check $(PARTS)

bench:
	@benches/run

bench-quick:
	@benches/run --quick

bench-encryption:
	benches/encryption/run

bench-remote:
	benches/remote/run

bench-python:
	bindings/python/bench/run $(BENCH_ARGS)
