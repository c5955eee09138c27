# For a layer of yours; Rust 1.90 is in Yocto from whinlatter (5.3) on. docs/how-to/firmware.md says where the tarball belongs.
SUMMARY = "Embedded, ordered key-value store with native per-key expiry, in one SQLite file"
LICENSE = "MIT | Apache-2.0"
LIC_FILES_CHKSUM = "file://LICENSE-MIT;md5=4f531e83fc4670c13cab140f00dabe8a file://LICENSE-APACHE;md5=1836efb2eb779966696f473ee8540542"

# The source with the crates it needs, of "make dist", beside this recipe in a folder called "files".
SRC_URI = "file://kvstore-${PV}.tar.gz"

inherit cargo pkgconfig

# The crates come with the source, and its .cargo/config.toml says where they are.
CARGO_DISABLE_BITBAKE_VENDORING = "1"

# Its Makefile builds in the tree; the compilers are those that the class has told cargo of.
B = "${S}"
EXTRA_OEMAKE = " \
    COMMAND=no PREFIX=${prefix} LIBDIR=${libdir} INCLUDEDIR=${includedir} DATADIR=${datadir} docdir=${docdir}/${BPN} \
    CARGO_BUILD_TARGET=${RUST_HOST_SYS} \
    'CARGOFLAGS=--locked --offline --config packaging/firmware/profile.toml' \
    'LD=${LD}' 'AR=${AR}' 'NM=${NM}' 'OBJCOPY=${OBJCOPY}' STRIP=true \
"

# SQLite is compiled in, as the Makefile asks; the class (cargo_common, before do_compile) wants the system's.
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
