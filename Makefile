# The commands of the project. Each does all the set-up it needs (see .ci/setup); those for packagers
# (all, install, uninstall) install nothing on the machine that builds.

TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
# make has lists of words, and a folder with a space in its name would be two.
ifneq ($(words $(TARGET_DIR)),1)
$(error the folder to build in must have no spaces in its name, and CARGO_TARGET_DIR is $(TARGET_DIR))
endif
BUILT := $(TARGET_DIR)/release
CFLAGS ?= -O2
WARN := -Wall -Wextra -Wpedantic -Werror
DIR ?= /usr/include

.PHONY: help demo test test-full torture dist dist-test dist-check bench bench-quick bench-encryption bench-remote bench-python cross cross-quick windows clean all lib command install install-windows windows-lib install-windows-command install-command install-strip uninstall firmware docs

help:
	@echo 'make demo          load the files of $(DIR) into a store, some with a TTL; check everything'
	@echo 'make demo DIR=...  the same with the files of another directory'
	@echo 'make test          format, lints, all tests'
	@echo 'make test-full     these, and the heavier ones: sdist, valgrind, ASan, fuzzers, a soak of 10 minutes'
	@echo 'make torture       an hour of power cuts, faults, bad files, fuzzing; MINUTES=... for another time'
	@echo 'make bench         speed, against LMDB, redb, fjall, SQLite, SNKV; make bench-quick: a short look'
	@echo 'make bench-python  from Python, against other packages; BENCH_ARGS=--quick for a short look'
	@echo 'make cross         build and try it for other machines: 64-bit and 32-bit ARM, x86 of 32 bits, musl;'
	@echo '                   TARGETS=... for others (docs/contributing/platforms.md); make cross-quick: three of them, quickly'
	@echo 'make windows       build it for Windows by mingw-w64, and try it under wine'
	@echo 'make dist          what a release has, in dist/; make dist-test: installs and tries each of it in a minimal root;'
	@echo '                   make dist-check: builds it again elsewhere, and compares'
	@echo 'make all           the libraries and the command that make install installs'
	@echo 'make install       install below PREFIX ($(prefix)); also DESTDIR, LIBDIR, INCLUDEDIR, ...'
	@echo '                   COMMAND=no: without the command kvstore; ENCRYPTION=1: with encrypted stores;'
	@echo '                   REMOTE=1: with stores on a server; CROSS=...: for another machine (docs/how-to/cross-compile.md)'
	@echo 'make install-strip the same, without what only debuggers read'
	@echo 'make install-windows  for Windows by mingw-w64, below PREFIX; also COMMAND, ENCRYPTION'
	@echo 'make uninstall     remove what make install installed with the same variables'
	@echo 'make firmware TARGET=...  the libraries for a device with little flash; STD=small: smaller still'
	@echo 'make docs          the documentation site with the API references, in $(DOCS)'
	@echo 'make clean         remove what was built'

demo:
	@.ci/setup demo
	cargo build --release --locked --workspace
	$(CC) -std=c11 $(CFLAGS) $(WARN) -Iinclude examples/session_cache.c \
	    -L'$(BUILT)' -lkvstore -Wl,-rpath,'$(abspath $(BUILT))' -o '$(BUILT)/session_cache'
	@store=$$(mktemp -d) && trap 'rm -rf "$$store"' EXIT && set -e && \
	    '$(BUILT)/session_cache' '$(DIR)' "$$store/demo.db" && cd "$$store" && \
	    for arguments in 'info demo.db' 'expiring demo.db --chart' 'check demo.db'; do \
	        printf '\n$$ kvstore %s\n' "$$arguments"; '$(abspath $(BUILT))/kvstore' $$arguments; done

# What is installed here is built without link-time optimisation, which takes minutes; "make dist-test" tries what has it.
test: export CARGO_PROFILE_RELEASE_LTO := off
test: export CARGO_PROFILE_RELEASE_CODEGEN_UNITS := 16
test:
	@.ci/setup test
	@if cargo fmt --version >/dev/null 2>&1; then set -x; cargo fmt --all --check; \
	    else echo 'SKIPPED: cargo fmt --all --check (rustfmt is not installed)'; fi
	@if cargo clippy --version >/dev/null 2>&1; then set -x; cargo clippy --workspace --all-targets --locked -- -D warnings && \
	    cargo clippy --package kvstore-ttl --all-targets --locked --features remote -- -D warnings; \
	    else echo 'SKIPPED: cargo clippy (it is not installed)'; fi
	cargo check --locked --manifest-path fuzz/Cargo.toml --target-dir '$(TARGET_DIR)' # else nobody sees that it broke
	cargo test --locked --workspace --no-fail-fast
	KVSTORE_ENGINE=sql cargo test --locked --target-dir '$(TARGET_DIR)/sql-engine' --lib
	KVSTORE_ENGINE=sql tests/variant sql -- cargo test --locked --no-fail-fast --target-dir '$(TARGET_DIR)/sql-engine'
	cargo test $(COMPLETE) --lib
	tests/variant complete -- cargo test $(COMPLETE)
	KVSTORE_TEST_ENCRYPTED=1 tests/variant encrypted -- cargo test $(COMPLETE)
	KVSTORE_TEST_REMOTE=1 tests/variant remote -- cargo test $(COMPLETE)
	cargo test $(COMPLETE) --package kvstore-cli --bin kvstore --test encryption --test json --test on_a_server
	cargo check --locked --features encryption --target-dir '$(TARGET_DIR)/complete' --lib # without the other one
	bindings/python/run-tests

# One build for encrypted stores and for stores on a server, as releases have it.
COMPLETE := --locked --no-fail-fast --features encryption,remote --target-dir '$(TARGET_DIR)/complete'

test-full: test
	@.ci/setup full
	KVSTORE_TEST_REMOTE=1 tests/variant remote-full -- cargo test $(COMPLETE)
	KVSTORE_CONNECTION_LOSS=all cargo test $(COMPLETE) --test postgres connection_loss::
	KVSTORE_COPY_ROWS=200000 cargo test $(COMPLETE) -p kvstore-cli --test on_a_server copy_to_a_server_and_back
	KVSTORE_TEST_ENCRYPTED=1 tests/variant encrypted-full -- cargo test $(COMPLETE)
	bindings/python/run-tests --full
	bindings/python/run-contrib-tests
	tests/asan
	fuzz/run 60
	tests/soak/run 600

torture:
	tests/torture $(or $(MINUTES),60)

# Other machines, of those that tests/cross/targets.py lists.
TARGETS ?=

cross:
	@.ci/setup cross $(TARGETS)
	tests/cross/run $(TARGETS)
	$(if $(TARGETS),,tests/cross/check)

# Windows, by mingw-w64 and wine: PARTS="neighbours" and the like for some of it.
PARTS ?=

windows:
	@.ci/setup windows
	tests/windows/run $(PARTS)

cross-quick:
	@.ci/setup cross --quick $(TARGETS)
	tests/cross/run --quick $(TARGETS)

# What a release has, in dist/: PARTS='source linux wheels debian sbom', TARGETS='x86_64-linux-gnu ...'.
dist:
	@.ci/setup dist
	TARGETS='$(TARGETS)' packaging/dist/build $(PARTS)

# PARTS='source linux wheels debian'.
dist-test:
	DIST='$(abspath dist)' tests/fresh packaging/dist/try /root/dist $(PARTS)

# Whether another build makes the same bytes as dist/ has.
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

clean:
	cargo clean

# ---- What is to be installed ----------------------------------------------------------------------------
#
# They are built apart from target/release, which has no SONAME: a program linked there runs with the
# library of its rpath, not with one of the system.

CARGO ?= cargo
CARGOFLAGS ?= --locked

# For another machine: CARGO_BUILD_TARGET, and CROSS=aarch64-linux-gnu-, which is put before the names of the tools. One that
# is named by itself is taken. (LD and AR have names that make knows: those are the default.)
CROSS ?=
FOR := $(patsubst %.json,%,$(notdir $(CARGO_BUILD_TARGET)))
FOR_LOWER := $(subst -,_,$(FOR))
FOR_UPPER := $(if $(FOR),$(shell echo '$(FOR_LOWER)' | tr '[:lower:]' '[:upper:]'))
unless_given = $(if $(filter undefined default,$(origin $(1))),$(eval $(2) $(1) := $(CROSS)$(3)))

ifneq ($(CROSS),)
$(call unless_given,LD,,ld)
$(call unless_given,AR,,ar)
$(call unless_given,NM,,nm)
$(call unless_given,OBJCOPY,,objcopy)
$(call unless_given,STRIP,,strip)
ifneq ($(FOR),)
$(call unless_given,CC_$(FOR_LOWER),export,gcc)
$(call unless_given,AR_$(FOR_LOWER),export,ar)
$(call unless_given,CARGO_TARGET_$(FOR_UPPER)_LINKER,export,gcc)
endif
endif

# For musl Rust makes no shared libraries unless it is told to. The flag has to be among those of the whole build: cargo asks
# with them what can be made. It takes the flags of the first of these variables that is set, and of no other.
LIB_ENV :=
LIB_FLAGS :=
ifneq ($(findstring -musl,$(FOR)),)
FLAGS_FROM := $(firstword $(foreach name,CARGO_ENCODED_RUSTFLAGS RUSTFLAGS CARGO_TARGET_$(FOR_UPPER)_RUSTFLAGS,\
    $(if $(filter undefined,$(origin $(name))),,$(name))))
ifeq ($(findstring -crt-static,$($(FLAGS_FROM))),)
MAKES_SHARED := -Ctarget-feature=-crt-static
ifeq ($(FLAGS_FROM),CARGO_ENCODED_RUSTFLAGS)
LIB_ENV := CARGO_ENCODED_RUSTFLAGS="$${CARGO_ENCODED_RUSTFLAGS:+$$CARGO_ENCODED_RUSTFLAGS$$(printf '\037')}$(MAKES_SHARED)"
else ifeq ($(FLAGS_FROM),RUSTFLAGS)
LIB_ENV := RUSTFLAGS="$$RUSTFLAGS $(MAKES_SHARED)"
else
LIB_FLAGS := --config 'target.$(FOR).rustflags=["$(MAKES_SHARED)"]'
endif
endif
endif

OBJCOPY ?= objcopy
NM ?= nm
STRIP ?= strip
INSTALL ?= install
INSTALL_PROGRAM ?= $(INSTALL)
INSTALL_DATA ?= $(INSTALL) -m 644

# The version is in Cargo.toml. src/ffi/codes.rs repeats it for the header, and tests/c_api/header.rs compares the two.
# The number of the SONAME is the major version; see docs/reference/abi.md for what that promises.
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
NUMBER := $(firstword $(subst -, ,$(subst +, ,$(VERSION))))
MAJOR := $(firstword $(subst ., ,$(NUMBER)))

# Encrypted stores: ENCRYPTION=1 with the OpenSSL of the system (on Debian, libssl-dev), ENCRYPTION=vendored with one of
# its own, of which only what is needed is in the library.
ENCRYPTION ?= no
# Stores on a server: REMOTE=1.
REMOTE ?= no

one_of = $(if $(filter-out $(2),$($(1))),$(error $(1)=$($(1)): it has to be one of $(2)))
$(call one_of,ENCRYPTION,0 no 1 yes vendored)
$(call one_of,REMOTE,0 no 1 yes)

FEATURE := $(if $(filter-out 0 no,$(ENCRYPTION)),encryption$(if $(filter vendored,$(ENCRYPTION)),-vendored-openssl)) \
    $(if $(filter-out 0 no,$(REMOTE)),remote)
FEATURES := $(addprefix --features=,$(FEATURE))
NEEDS_CRYPTO := $(filter encryption,$(FEATURE))

nothing :=
CARGO_DIR := $(TARGET_DIR)/install$(subst $(nothing) $(nothing),,$(addprefix -,$(FEATURE)))
STAGE := $(CARGO_DIR)$(addprefix /,$(CARGO_BUILD_TARGET))
CARGO_OUT := $(STAGE)/release
SOURCES := $(shell find src -name '*.rs') build.rs Cargo.toml Cargo.lock cbindgen.toml .cargo/config.toml

# Mach-O or ELF: by the target, or else by the system that builds.
SYSTEM := $(shell uname -s)
APPLE := $(if $(CARGO_BUILD_TARGET),$(findstring -apple-,$(CARGO_BUILD_TARGET)),$(filter Darwin,$(SYSTEM)))

ifeq ($(APPLE),)
LINK_NAME := libkvstore.so
SONAME := libkvstore.so.$(MAJOR)
SHARED := libkvstore.so.$(NUMBER)
NAME_FLAGS := -Clink-arg=-Wl,-soname,$(SONAME)
IMPORTED_NAME := $(SONAME)
STRIP_SHARED := --strip-unneeded
STRIP_STATIC := --strip-debug
POINTER_SIZE = od -An -tu1 -j4 -N1 '$(STAGE)/$(SHARED)' | awk '{ print $$1 * 4 }'
NATIVE := -lpthread -ldl -lm
NATIVE_TARGETS := Threads::Threads;$${CMAKE_DL_LIBS};m
else
include packaging/apple/macho.mk
endif

# The command can be left out: COMMAND=no.
COMMAND ?= yes
$(if $(filter-out environment,$(origin COMMAND)),$(call one_of,COMMAND,0 no 1 yes)) # (there, others have it for other things)
WITH_COMMAND := $(filter-out 0 no,$(COMMAND))

all: lib $(if $(WITH_COMMAND),command)

lib: $(STAGE)/$(SHARED) $(STAGE)/libkvstore.a

# What cargo asks of the environment is built anew if it is another than that of the last build; what is not given may be as it
# was, because "make all CFLAGS=-Os && sudo make install" has it once only. With SETTINGS_STAY=no it may not. One setting is one
# word here, with \_ for a space; what was built keeps them in a file.
from_outside = $(filter environment command,$(origin $(1)))
SETTINGS := CARGOFLAGS CFLAGS CPPFLAGS LDFLAGS TARGET_CFLAGS KVSTORE_ENGINE LIBSQLITE3_FLAGS RUSTFLAGS \
    CARGO_ENCODED_RUSTFLAGS CARGO_BUILD_RUSTFLAGS $(sort $(filter CFLAGS_% CARGO_TARGET_%_RUSTFLAGS \
    RUSTC RUSTC_BOOTSTRAP CC_% CARGO_TARGET_%_LINKER %OPENSSL_DIR %OPENSSL_LIB_DIR %OPENSSL_INCLUDE_DIR,$(.VARIABLES)))
SETTINGS_STAY ?= yes
define newline


endef
space := $(nothing) $(nothing)
tab := $(nothing)	$(nothing)
as_word = $(1)=$(subst $(newline),\n,$(subst $(tab),\t,$(subst $(space),\_,$(subst \,\\,$(value $(1))))))
GIVEN := $(foreach name,$(SETTINGS),$(if $(call from_outside,$(name)),$(name)))
GIVEN_WORDS := $(foreach name,$(GIVEN),$(if $(value $(name)),$(call as_word,$(name))))
keep_settings = @printf '%s\n' '$(subst ','\'',$(GIVEN_WORDS))' >'$(1)'
differs_from = $(if $(filter no,$(SETTINGS_STAY)),$(subst <$(GIVEN_WORDS)>,,<$(1)>),$(foreach name,$(GIVEN),$(if $(value $(name)),\
    $(if $(findstring $(space)$(call as_word,$(name))$(space),$(space)$(1)$(space)),,$(name)),\
    $(findstring $(space)$(name)=,$(space)$(1)))))
anew = $(if $(strip $(call differs_from,$(shell cat '$(1)' 2>/dev/null))),settings-have-changed)
.PHONY: settings-have-changed

# cargo's C is compiled to machine code, whatever the CFLAGS of a distribution say: bytecode of GCC's LTO means nothing to
# "ld -r" below, nor to a linker of LLVM's. The crate cc takes flags from all of these variables, but not from CPPFLAGS, which
# come before those of CFLAGS, as make itself has them.
RUNS_CARGO := $(STAGE)/built $(STAGE)/kvstore windows-lib install-windows-command
# (With one modifier a line: Apple's make 3.81 knows no more. What comes from outside is exported by itself, and a value that
# one target has of it if that is said.)
cppflags = $(if $(filter CFLAGS,$(1)),$(if $(call from_outside,CPPFLAGS),$$(value CPPFLAGS) ))
define after_outside
$(RUNS_CARGO): override $(1) := $(cppflags)$$(value $(1)) -fno-lto
export $(1)
endef
define alone
$(RUNS_CARGO): export $(1) := $(cppflags)-fno-lto
endef
without_lto = $(if $(call from_outside,$(1)),$(call after_outside,$(1)),$(call alone,$(1)))
$(foreach name,CFLAGS $(filter TARGET_CFLAGS HOST_CFLAGS CFLAGS_%,$(.VARIABLES)),$(eval $(call without_lto,$(name))))

# The crate libsqlite3-sys takes an SQLite of the system's if this variable is set, whatever else is asked for.
own_sqlite = $(if $(filter undefined,$(origin LIBSQLITE3_SYS_USE_PKG_CONFIG)),,$(if \
    $(filter 0,$(LIBSQLITE3_SYS_USE_PKG_CONFIG)),,$(error LIBSQLITE3_SYS_USE_PKG_CONFIG=$(LIBSQLITE3_SYS_USE_PKG_CONFIG): \
    it has to be 0, or not to be set: with the SQLite of the system only the slower engine can be built, and libkvstore.a \
    would lack it)))

# For the linker of the shared library and of the command, and of nothing that is built to run while it is built. What kind of
# file it makes, cargo says.
LINK_FLAGS = $(addprefix -Clink-arg=,$(filter-out -static --static -static-pie -pie -no-pie -shared,$(LDFLAGS)))

# The OpenSSL of ENCRYPTION=vendored has a make of its own, to which what was given to this one is not meant: by DESTDIR it
# would be installed into the packager's. What stays is where "make -j" says who else compiles; by pipes, as before make 4.4, it
# tells only makes of its own.
# (By env, because a shell loses variables such as CFLAGS_x86_64-unknown-linux-gnu.)
ALONE = env -u MFLAGS -u MAKEOVERRIDES MAKEFLAGS='$(filter --jobserver-auth=fifo:%,$(MAKEFLAGS))'

# One run of cargo makes both. cargo leaves a file alone that would not change, so this one has the time.
$(STAGE)/built: $(SOURCES) $(call anew,$(STAGE)/built)
	$(own_sqlite)
	$(ALONE) $(if $(LIB_ENV),$(LIB_ENV) )$(CARGO) rustc --release $(CARGOFLAGS) $(if $(LIB_FLAGS),$(LIB_FLAGS) )$(FEATURES) --lib --crate-type cdylib,staticlib --target-dir '$(CARGO_DIR)' \
	    -- $(NAME_FLAGS) $(LINK_FLAGS)
	$(call keep_settings,$@)

$(STAGE)/$(SHARED): $(STAGE)/built
	cp '$(CARGO_OUT)/$(LINK_NAME)' '$@.tmp'
	mv '$@.tmp' '$@'

# An object that the linker cannot read, as of a compiler that makes bytecode, it passes over in silence.
has_sqlite = @! grep -E '^(sqlite3|sqlcipher)' '$(1)' || { echo 'libkvstore.a would lack these functions of SQLite:' \
    'was it compiled to bytecode (-flto in CC or in a wrapper of it)?' >&2; exit 1; }

ifeq ($(APPLE),)
# cargo's static library shows all of SQLite and of Rust's library to the linker. Here its members become
# one object, of what the C functions need, and only those stay global: a program may bring an SQLite of
# its own, or another library written in Rust. --force-group-allocation, because the linker would merge
# COMDAT groups of that library with ours, whose symbols are local now. On RISC-V nothing is left out here: ld would spoil
# .eh_frame, and a panic would end the program (-Wl,--gc-sections leaves it out of the program). What only the parts that
# are left out have asked of the system is still in ld's list of symbols, and no longer weak: it is taken out, or another
# library in Rust could not be linked beside.
#
# What is built is for the compiler's own processor, unless another is named: a kernel of 64 bits may run a system of 32.
OWN_TRIPLE = $(shell $(or $(RUSTC),rustc) -vV 2>/dev/null | sed -n 's/^host: //p')
PROCESSOR = $(or $(FOR),$(OWN_TRIPLE),$(OWN_KERNEL))
OWN_KERNEL := $(shell uname -m)
GC_MEMBERS = $(if $(findstring riscv,$(PROCESSOR)),,--gc-sections)
# On ARM functions of one name stay in sections of their own: where one of them is left out, ld would give the unwinding
# entries of the others offsets before the section's beginning, at which the linker of the program crashes.
APART = $(if $(filter arm% thumb%,$(PROCESSOR)),--unique='.text.*' --unique='.ARM.ex*')

# On MIPS the linker takes calls of functions that were made local for calls of global ones: there it is cargo's own library.
ifneq ($(filter mips%,$(or $(FOR),$(OWN_KERNEL))),)
$(STAGE)/libkvstore.a: $(STAGE)/built
	cp '$(CARGO_OUT)/libkvstore.a' '$@.tmp'
	mv '$@.tmp' '$@'
else
$(STAGE)/libkvstore.a: $(STAGE)/built packaging/localise.ld
	$(NM) -D --defined-only '$(CARGO_OUT)/libkvstore.so' >'$(STAGE)/names'
	sed 's/.* //' '$(STAGE)/names' >'$(STAGE)/symbols'
	sed 's/^/-u /' '$(STAGE)/symbols' >'$(STAGE)/roots'
	$(LD) -r -d $(GC_MEMBERS) $(APART) --force-group-allocation -T packaging/localise.ld '@$(STAGE)/roots' \
	    -o '$(STAGE)/members.o' '$(CARGO_OUT)/libkvstore.a'
	$(NM) -u '$(STAGE)/members.o' >'$(STAGE)/names'
	sed 's/.* //' '$(STAGE)/names' >'$(STAGE)/undefined'
	$(call has_sqlite,$(STAGE)/undefined)
	$(OBJCOPY) --keep-global-symbols='$(STAGE)/symbols' --strip-unneeded-symbols='$(STAGE)/undefined' \
	    '$(STAGE)/members.o' '$(STAGE)/kvstore.o'
	rm -f '$(STAGE)/members.o' '$(STAGE)/names' '$@.tmp'
	$(AR) rcsD '$@.tmp' '$(STAGE)/kvstore.o'
	mv '$@.tmp' '$@'
endif
endif

command: $(STAGE)/kvstore $(STAGE)/manual/kvstore.1

$(STAGE)/kvstore: $(SOURCES) $(shell find command/src -name '*.rs') command/Cargo.toml $(call anew,$(STAGE)/kvstore.settings)
	$(own_sqlite)
	$(ALONE) $(CARGO) rustc --release $(CARGOFLAGS) $(FEATURES) --package kvstore-cli --bin kvstore --target-dir '$(CARGO_DIR)' \
	    $(if $(LINK_FLAGS),-- $(LINK_FLAGS))
	cp '$(CARGO_OUT)/kvstore' '$@.tmp'
	mv '$@.tmp' '$@'
	$(call keep_settings,$@.settings)

# What the command says about itself. Who builds for another machine names a kvstore that runs on this one.
RUN_COMMAND ?= $(STAGE)/kvstore

$(STAGE)/manual/kvstore.1: $(STAGE)/kvstore
	rm -rf '$(STAGE)/manual'
	mkdir -p '$(STAGE)/manual.tmp'
	'$(RUN_COMMAND)' man '$(STAGE)/manual.tmp'
	for shell in bash zsh fish; do \
	    '$(RUN_COMMAND)' completions $$shell >"$(STAGE)/manual.tmp/completions.$$shell" || exit; done
	mv '$(STAGE)/manual.tmp' '$(STAGE)/manual'

# ---- Installation, by the conventions of GNU ----------------------------------------------------------
#
# Each folder may be given in upper or in lower case. DESTDIR is put before all of them.

PREFIX ?= /usr/local
prefix ?= $(PREFIX)
exec_prefix ?= $(prefix)
BINDIR ?= $(exec_prefix)/bin
bindir ?= $(BINDIR)
LIBDIR ?= $(exec_prefix)/lib
libdir ?= $(LIBDIR)
INCLUDEDIR ?= $(prefix)/include
includedir ?= $(INCLUDEDIR)
DATADIR ?= $(prefix)/share
datarootdir ?= $(DATADIR)
MANDIR ?= $(datarootdir)/man
mandir ?= $(MANDIR)
DOCDIR ?= $(datarootdir)/doc/kvstore
docdir ?= $(DOCDIR)
# bitbake exports the folder that all packages share. What is below ours is ours, for uninstall too.
ifeq ($(notdir $(patsubst %/,%,$(docdir))),doc)
override docdir := $(patsubst %/,%,$(docdir))/kvstore
endif
PKGCONFIGDIR ?= $(libdir)/pkgconfig
pkgconfigdir ?= $(PKGCONFIGDIR)
CMAKEDIR ?= $(libdir)/cmake/kvstore
cmakedir ?= $(CMAKEDIR)

# As for TARGET_DIR.
ifneq ($(words $(DESTDIR)$(bindir)$(libdir)$(includedir)$(datarootdir)$(mandir)$(docdir)$(pkgconfigdir)$(cmakedir)),1)
$(error the folders to install to must be given, without spaces in their names)
endif

# What is copied, as it is in the tree: below includedir, and below docdir.
C_HEADERS := kvstore.h snkv.h
CPP_HEADERS := $(sort $(patsubst bindings/cpp/include/%,%,\
    $(shell find bindings/cpp/include -name '*.h' -o -name '*.hpp' 2>/dev/null)))
DOCUMENTS := README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md LICENSE LICENSE-APACHE LICENSE-MIT \
    $(sort $(wildcard bindings/python/README.md bindings/python/CONTRIBUTING.md benches/peers/README.md tests/vm/README.md) \
    $(shell find docs -name '*.md' -o -name '*.json' -o -name '*.svg' -o -name '*.png'; \
    find examples -name '*.[ch]' -o -name '*.[ch]pp' -o -name '*.py'))

INSTALLED = $(libdir)/$(SHARED) $(libdir)/$(SONAME) $(libdir)/$(LINK_NAME) $(libdir)/libkvstore.a \
    $(pkgconfigdir)/kvstore.pc \
    $(cmakedir)/kvstoreConfig.cmake $(cmakedir)/kvstoreConfigVersion.cmake \
    $(addprefix $(includedir)/,$(C_HEADERS) $(CPP_HEADERS)) \
    $(mandir)/man3/kvstore.3 \
    $(addprefix $(docdir)/,$(DOCUMENTS)) $(if $(WITH_COMMAND),$(INSTALLED_COMMAND))

# Where each shell looks for the completions of what is installed.
BASH_COMPLETION = $(datarootdir)/bash-completion/completions/kvstore
ZSH_COMPLETION = $(datarootdir)/zsh/site-functions/_kvstore
FISH_COMPLETION = $(datarootdir)/fish/vendor_completions.d/kvstore.fish
INSTALLED_COMMAND = $(bindir)/kvstore $(BASH_COMPLETION) $(ZSH_COMPLETION) $(FISH_COMPLETION) \
    $(mandir)/man1/kvstore.1 $(PAGES:%=$(mandir)/man1/kvstore-%.1)
# What has a page: the commands (command/src/cli.rs), and those below one of them.
PAGES := backup cas check checkpoint clean compact completions copy count decrypt del dump encrypt exists expire expiring \
    families families-create families-drop families-set get import incr info limit load ls next persist purge put recover \
    rekey repair scan shell sweep sync touch ttl watch

# The folders that are ours alone, the inner ones first.
OWN_FOLDERS = $(cmakedir) $(addprefix $(includedir)/,$(filter-out ./,$(call inner_first,$(CPP_HEADERS)))) \
    $(addprefix $(docdir)/,$(filter-out ./,$(call inner_first,$(DOCUMENTS)))) $(docdir)
inner_first = $(shell printf '%s\n' $(dir $(1)) | awk -F/ '{ p = ""; for (i = 1; i < NF; i++) print p = p $$i "/" }' | sort -ru)

# In the .pc file, a folder below another variable is written by that variable, as packagers expect (and
# as "pkg-config --define-prefix" needs).
below = $(patsubst $(1)/%,$(2)/%,$(3))
FILL = sed \
    -e 's|@prefix@|$(prefix)|' \
    -e 's|@exec_prefix@|$(patsubst $(prefix),$${prefix},$(exec_prefix))|' \
    -e 's|@libdir@|$(call below,$(prefix),$${prefix},$(call below,$(exec_prefix),$${exec_prefix},$(libdir)))|' \
    -e 's|@includedir@|$(call below,$(prefix),$${prefix},$(includedir))|' \
    -e "s|@includedir_from_here@|$$(packaging/relative-path '$(cmakedir)' '$(includedir)')|" \
    -e "s|@libdir_from_here@|$$(packaging/relative-path '$(cmakedir)' '$(libdir)')|" \
    -e "s|@pointer_size@|$$($(POINTER_SIZE))|" \
    -e 's|@native@|$(NATIVE)|' -e 's|@native_targets@|$(NATIVE_TARGETS)|' \
    -e 's|@version@|$(VERSION)|' -e 's|@version_number@|$(NUMBER)|' -e 's|@major@|$(MAJOR)|' \
    -e 's|@crypto@|$(if $(NEEDS_CRYPTO), -lcrypto)|' -e 's|@crypto_target@|$(if $(NEEDS_CRYPTO),;crypto)|' \
    -e 's|@soname@|$(IMPORTED_NAME)|' -e 's|@shared_library@|$(SHARED)|'

# Makes folders to install into. One that is there keeps its mode, which "install -d" would change.
make_folders = for folder in $(foreach folder,$(1),'$(DESTDIR)$(folder)'); do \
    [ -d "$$folder" ] || $(INSTALL) -d "$$folder" || exit; done
# The same for the folder of a file: BSD's install has no -D.
make_folder_of = folder=$$(dirname $(1)) && { [ -d "$$folder" ] || $(INSTALL) -d "$$folder"; }

install: lib $(if $(WITH_COMMAND),install-command)
	$(call make_folders,$(libdir) $(pkgconfigdir) $(cmakedir) $(includedir) $(mandir)/man3 $(docdir))
	$(INSTALL_PROGRAM) '$(STAGE)/$(SHARED)' '$(DESTDIR)$(libdir)/$(SHARED)'
	ln -sf $(SHARED) '$(DESTDIR)$(libdir)/$(SONAME)'
	ln -sf $(SONAME) '$(DESTDIR)$(libdir)/$(LINK_NAME)'
	$(INSTALL_DATA) '$(STAGE)/libkvstore.a' '$(DESTDIR)$(libdir)/libkvstore.a'
ifneq ($(filter-out 0 no,$(INSTALL_STRIP)),)
	$(STRIP) $(STRIP_SHARED) '$(DESTDIR)$(libdir)/$(SHARED)'
	$(STRIP) $(STRIP_STATIC) '$(DESTDIR)$(libdir)/libkvstore.a'
endif
	$(NAME_INSTALLED)
	@echo 'filling in kvstore.pc, kvstoreConfig.cmake and kvstoreConfigVersion.cmake'
	@$(FILL) packaging/kvstore.pc.in >'$(DESTDIR)$(pkgconfigdir)/kvstore.pc'
	@$(FILL) packaging/kvstoreConfig.cmake.in >'$(DESTDIR)$(cmakedir)/kvstoreConfig.cmake'
	@$(FILL) packaging/kvstoreConfigVersion.cmake.in >'$(DESTDIR)$(cmakedir)/kvstoreConfigVersion.cmake'
	chmod 644 '$(DESTDIR)$(pkgconfigdir)/kvstore.pc' '$(DESTDIR)$(cmakedir)'/kvstoreConfig*.cmake
	for header in $(C_HEADERS); do \
	    $(INSTALL_DATA) "include/$$header" '$(DESTDIR)$(includedir)' || exit; done
	for header in $(CPP_HEADERS); do to='$(DESTDIR)$(includedir)'/"$$header" && $(call make_folder_of,"$$to") && \
	    $(INSTALL_DATA) "bindings/cpp/include/$$header" "$$to" || exit; done
	sed 's/@version@/$(VERSION)/' docs/man/kvstore.3 >'$(DESTDIR)$(mandir)/man3/kvstore.3'
	chmod 644 '$(DESTDIR)$(mandir)/man3/kvstore.3'
	for document in $(DOCUMENTS); do to='$(DESTDIR)$(docdir)'/"$$document" && $(call make_folder_of,"$$to") && \
	    $(INSTALL_DATA) "$$document" "$$to" || exit; done

install-command: command
	$(call make_folders,$(bindir) $(mandir)/man1)
	$(INSTALL_PROGRAM) '$(STAGE)/kvstore' '$(DESTDIR)$(bindir)/kvstore'
	$(INSTALL_DATA) '$(STAGE)'/manual/*.1 '$(DESTDIR)$(mandir)/man1'
	for to in $(BASH_COMPLETION) $(ZSH_COMPLETION) $(FISH_COMPLETION); do $(call make_folder_of,'$(DESTDIR)'"$$to") || exit; done
	$(INSTALL_DATA) '$(STAGE)/manual/completions.bash' '$(DESTDIR)$(BASH_COMPLETION)'
	$(INSTALL_DATA) '$(STAGE)/manual/completions.zsh' '$(DESTDIR)$(ZSH_COMPLETION)'
	$(INSTALL_DATA) '$(STAGE)/manual/completions.fish' '$(DESTDIR)$(FISH_COMPLETION)'

install-strip:
	$(MAKE) install INSTALL_STRIP=1

uninstall:
	rm -f $(foreach file,$(INSTALLED),'$(DESTDIR)$(file)')
	for folder in $(foreach folder,$(OWN_FOLDERS),'$(DESTDIR)$(folder)'); do \
	    if [ -d "$$folder" ] && [ -z "$$(ls -A "$$folder")" ]; then rmdir "$$folder"; fi; done

# ---- For Windows, from here (docs/how-to/cross-compile.md) ------------------------------------------------------------

ifneq ($(filter install-windows windows-lib install-windows-command,$(MAKECMDGOALS)),)
ifneq ($(filter remote,$(FEATURE)),)
$(error REMOTE=$(REMOTE): there are no stores on servers on Windows)
endif
endif

WINDOWS := x86_64-pc-windows-gnu
WINDOWS_TOOLS ?= x86_64-w64-mingw32-
WINDOWS_CC ?= $(WINDOWS_TOOLS)gcc
# What the static library needs of the system: rustc --print native-static-libs
WINDOWS_NATIVE := kernel32;ntdll;userenv;ws2_32;dbghelp;advapi32$(if $(findstring encryption,$(FEATURE)),;crypt32;user32)
WINDOWS_OUT = $(CARGO_DIR)/$(WINDOWS)/release
FILL_WINDOWS := sed -e 's|@native@|$(WINDOWS_NATIVE)|' -e 's|@pointer_size@|8|' -e 's|@version@|$(VERSION)|' \
    -e 's|@version_number@|$(NUMBER)|' -e 's|@major@|$(MAJOR)|'

WINDOWS_CARGO = $(ALONE) CC_x86_64_pc_windows_gnu='$(WINDOWS_CC)' CARGO_TARGET_X86_64_PC_WINDOWS_GNU_LINKER='$(WINDOWS_CC)' \
    $(CARGO) build --release $(CARGOFLAGS) $(FEATURES) --target $(WINDOWS) --target-dir '$(CARGO_DIR)'
WINDOWS_STATIC = $(CARGO_DIR)/$(WINDOWS)/static

# The DLL with its import library, the static library, the headers and the CMake package; the command, if it is wanted.
install-windows: windows-lib $(if $(WITH_COMMAND),install-windows-command)
	$(call make_folders,$(prefix)/bin $(prefix)/lib $(prefix)/lib/cmake/kvstore $(prefix)/include)
	$(INSTALL_PROGRAM) '$(WINDOWS_OUT)/kvstore.dll' '$(DESTDIR)$(prefix)/bin'
	$(INSTALL_DATA) '$(WINDOWS_OUT)/libkvstore.dll.a' '$(WINDOWS_STATIC)/libkvstore.a' '$(DESTDIR)$(prefix)/lib'
	$(FILL_WINDOWS) packaging/kvstoreConfig.windows.cmake.in >'$(DESTDIR)$(prefix)/lib/cmake/kvstore/kvstoreConfig.cmake'
	$(FILL_WINDOWS) packaging/kvstoreConfigVersion.cmake.in \
	    >'$(DESTDIR)$(prefix)/lib/cmake/kvstore/kvstoreConfigVersion.cmake'
	for header in $(C_HEADERS); do \
	    $(INSTALL_DATA) "include/$$header" '$(DESTDIR)$(prefix)/include' || exit; done
	for header in $(CPP_HEADERS); do \
	    $(INSTALL_DATA) -D "bindings/cpp/include/$$header" '$(DESTDIR)$(prefix)/include'/"$$header" || exit; done

# As for ELF, only the C functions stay global in the static library. There are differences: the members that import
# functions of DLLs stay members, because the linker sorts their sections by member; --gc-sections leaves names without
# sections; "_tls_used", of the C library, is one that "ld -r" wants to have here already, so it has another name
# meanwhile; and a COMDAT section of one symbol keeps its flag. --plugin: of an LLVM that cannot read Rust's bitcode.
windows-lib:
	$(own_sqlite)
	$(WINDOWS_CARGO) --lib
	rm -rf '$(WINDOWS_STATIC)'
	mkdir -p '$(WINDOWS_STATIC)'
	$(WINDOWS_TOOLS)nm '$(WINDOWS_OUT)/libkvstore.dll.a' >'$(WINDOWS_STATIC)/names'
	sed -n 's/.* I __imp_//p' '$(WINDOWS_STATIC)/names' >'$(WINDOWS_STATIC)/symbols'
	sed 's/^/-u /' '$(WINDOWS_STATIC)/symbols' >'$(WINDOWS_STATIC)/roots'
	cd '$(WINDOWS_STATIC)' && for kind in code imports; do cp '$(abspath $(WINDOWS_OUT))/libkvstore.a' $$kind.a || exit; done; \
	    $(WINDOWS_TOOLS)ar t code.a >members && imports='\.dll[hst][0-9]*\.o$$' && \
	    grep -e "$$imports" -e '\.dwo$$' members | xargs $(WINDOWS_TOOLS)ar --plugin=/dev/null d code.a && \
	    grep -v -e "$$imports" members | xargs $(WINDOWS_TOOLS)ar --plugin=/dev/null d imports.a
	$(WINDOWS_TOOLS)ld -r --force-group-allocation --wrap=_tls_used -T packaging/localise.ld '@$(WINDOWS_STATIC)/roots' \
	    -o '$(WINDOWS_STATIC)/members.o' '$(WINDOWS_STATIC)/code.a'
	$(WINDOWS_TOOLS)nm -u '$(WINDOWS_STATIC)/members.o' >'$(WINDOWS_STATIC)/names'
	sed 's/.* //' '$(WINDOWS_STATIC)/names' >'$(WINDOWS_STATIC)/undefined'
	$(call has_sqlite,$(WINDOWS_STATIC)/undefined)
	$(WINDOWS_TOOLS)objcopy --redefine-sym __wrap__tls_used=_tls_used --keep-global-symbols='$(WINDOWS_STATIC)/symbols' \
	    --set-section-flags '.rdata$$.refptr*=alloc,load,readonly,data,contents' \
	    '$(WINDOWS_STATIC)/members.o' '$(WINDOWS_STATIC)/kvstore.o'
	$(WINDOWS_TOOLS)ar --plugin=/dev/null q '$(WINDOWS_STATIC)/imports.a' '$(WINDOWS_STATIC)/kvstore.o'
	mv '$(WINDOWS_STATIC)/imports.a' '$(WINDOWS_STATIC)/libkvstore.a'
	cd '$(WINDOWS_STATIC)' && rm -f code.a members.o kvstore.o names

install-windows-command:
	$(WINDOWS_CARGO) --package kvstore-cli --bin kvstore
	$(call make_folders,$(prefix)/bin)
	$(INSTALL_PROGRAM) '$(WINDOWS_OUT)/kvstore.exe' '$(DESTDIR)$(prefix)/bin'

# ---- For devices with little flash (docs/how-to/firmware.md) ----------------------------------------------------

# Installed into $(FIRMWARE)/TARGET, with a static and a shared library. STD=small compiles Rust's library for size, too,
# which needs its source and a compiler that may (a nightly one, or RUSTC_BOOTSTRAP=1).
FIRMWARE ?= $(TARGET_DIR)/firmware
STD ?= prebuilt
$(call one_of,STD,prebuilt small)
SMALL_STD := -Zbuild-std=std,panic_abort -Zbuild-std-features=optimize_for_size

firmware:
	@[ -n '$(TARGET)' ] || { echo 'make firmware TARGET=...: for which machine, as Rust calls it ("rustc --print target-list")' >&2; exit 2; }
	CARGO_BUILD_TARGET='$(TARGET)' $(MAKE) install COMMAND=no INSTALL_STRIP=1 SETTINGS_STAY=no TARGET_DIR='$(FIRMWARE)/build' \
	    CARGOFLAGS='$(CARGOFLAGS) --config packaging/firmware/profile.toml $(if $(filter small,$(STD)),$(SMALL_STD))' \
	    PREFIX=/usr DESTDIR='$(abspath $(FIRMWARE))/$(TARGET)'
	@cd '$(FIRMWARE)/$(TARGET)/usr/lib' && ls -l libkvstore.a libkvstore.*$(NUMBER)*

# ---- Documentation ------------------------------------------------------------------------------------

DOCS := $(TARGET_DIR)/docs

# The site with the API references of all languages; "docs/build PART" builds a part of it.
docs:
	DOCS='$(DOCS)' TARGET_DIR='$(TARGET_DIR)' CARGO='$(CARGO)' CARGOFLAGS='$(CARGOFLAGS)' docs/build
