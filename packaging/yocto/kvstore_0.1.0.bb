SUMMARY = "Embedded, ordered key-value store with native per-key expiry, in one SQLite file"
HOMEPAGE = "file://README.md"
LICENSE = "MIT | Apache-2.0"
LIC_FILES_CHKSUM = "file://LICENSE-MIT;md5=4f531e83fc4670c13cab140f00dabe8a file://LICENSE-APACHE;md5=1836efb2eb779966696f473ee8540542"

# The source with the crates it needs, of "make dist", beside this recipe in a folder called "files".
SRC_URI = "file://kvstore-${PV}.tar.gz"
S = "${WORKDIR}/kvstore-${PV}"

inherit cargo_common pkgconfig
DEPENDS += "virtual/${TARGET_PREFIX}rust"

TRIPLE = "${@d.getVar('RUST_TARGET_SYS').replace('-', '_')}"
EXTRA_OEMAKE = " \
    COMMAND=no PREFIX=${prefix} LIBDIR=${libdir} INCLUDEDIR=${includedir} DATADIR=${datadir} \
    'CARGOFLAGS=--locked --offline --config packaging/firmware/profile.toml' \
    'LD=${LD}' 'AR=${AR}' 'NM=${NM}' 'OBJCOPY=${OBJCOPY}' 'STRIP=true' \
"

oe_makes() {
    export CARGO_BUILD_TARGET="${RUST_TARGET_SYS}"
    export CC_${TRIPLE}="${CC}" AR_${TRIPLE}="${AR}" CFLAGS_${TRIPLE}="${CFLAGS}"
    oe_runmake "$@"
}

do_compile() {
    oe_makes lib
}

do_install() {
    oe_makes install DESTDIR=${D}
}
