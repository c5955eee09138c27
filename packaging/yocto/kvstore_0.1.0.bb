# Recipe for a layer. Yocto has Rust 1.90 from whinlatter (5.3) on. docs/how-to/firmware.md describes its use.
SUMMARY = "Embedded, ordered key-value store with per-key TTL, in one SQLite file"
LICENSE = "MIT | Apache-2.0"
LIC_FILES_CHKSUM = "file://LICENSE-MIT;md5=4f531e83fc4670c13cab140f00dabe8a file://LICENSE-APACHE;md5=1836efb2eb779966696f473ee8540542"

# Made by "make dist": the source with all crates. It belongs in the folder "files" next to this recipe.
SRC_URI = "file://kvstore-${PV}.tar.gz"

inherit cargo pkgconfig

# The crates are in the source tarball; its .cargo/config.toml refers to them.
CARGO_DISABLE_BITBAKE_VENDORING = "1"

# make builds in the source tree, with the compilers that the class has configured for cargo. It first builds xtask, which
# runs on the building machine.
B = "${S}"
EXTRA_OEMAKE = " \
    COMMAND=no PREFIX=${prefix} LIBDIR=${libdir} INCLUDEDIR=${includedir} DATADIR=${datadir} docdir=${docdir}/${BPN} \
    CARGO_BUILD_TARGET=${RUST_HOST_SYS} \
    'CARGOFLAGS=--locked --offline --config packaging/firmware/profile.toml' \
    'LD=${LD}' 'AR=${AR}' 'NM=${NM}' 'OBJCOPY=${OBJCOPY}' STRIP=true \
"

# The class (cargo_common, before do_compile) selects the system's SQLite; kvstore compiles its own in.
do_compile() {
    export RUSTFLAGS="${RUSTFLAGS}"
    export LIBSQLITE3_SYS_USE_PKG_CONFIG=0
    oe_runmake lib
}

do_install() {
    export RUSTFLAGS="${RUSTFLAGS}"
    export LIBSQLITE3_SYS_USE_PKG_CONFIG=0
    oe_runmake install DESTDIR=${D}
}
