################################################################################
#
# kvstore
#
################################################################################

KVSTORE_VERSION = 0.1.0
KVSTORE_SOURCE = kvstore-$(KVSTORE_VERSION).tar.gz
# Made by "make dist": the source with all crates. Put it into the download
# folder (BR2_DL_DIR), or set KVSTORE_SITE to its folder.
KVSTORE_SITE = $(BR2_EXTERNAL_KVSTORE_PATH)/dist
KVSTORE_SITE_METHOD = file
KVSTORE_LICENSE = MIT or Apache-2.0, vendored dependencies licenses probably not listed
KVSTORE_LICENSE_FILES = LICENSE LICENSE-APACHE LICENSE-MIT
KVSTORE_INSTALL_STAGING = YES
KVSTORE_DEPENDENCIES = host-rustc

# On musl, make adds the flags for shared libraries to those of PKG_CARGO_ENV.
KVSTORE_TRIPLE = $(subst -,_,$(RUSTC_TARGET_NAME))
KVSTORE_ENV = \
	$(TARGET_MAKE_ENV) \
	$(TARGET_CONFIGURE_OPTS) \
	$(PKG_CARGO_ENV) \
	CARGO_BUILD_TARGET=$(RUSTC_TARGET_NAME) \
	CC_$(KVSTORE_TRIPLE)="$(TARGET_CC)" \
	AR_$(KVSTORE_TRIPLE)="$(TARGET_AR)"
KVSTORE_OPTS = \
	COMMAND=no PREFIX=/usr \
	CARGOFLAGS="--locked --offline --config packaging/firmware/profile.toml" \
	LD="$(TARGET_LD)" AR="$(TARGET_AR)" NM="$(TARGET_NM)" \
	OBJCOPY="$(TARGET_OBJCOPY)" STRIP="$(TARGET_STRIP)"

define KVSTORE_BUILD_CMDS
	$(KVSTORE_ENV) $(MAKE) -C $(@D) $(KVSTORE_OPTS) lib
endef

define KVSTORE_INSTALL_STAGING_CMDS
	$(KVSTORE_ENV) $(MAKE) -C $(@D) $(KVSTORE_OPTS) DESTDIR=$(STAGING_DIR) install
endef

define KVSTORE_INSTALL_TARGET_CMDS
	$(KVSTORE_ENV) $(MAKE) -C $(@D) $(KVSTORE_OPTS) DESTDIR=$(TARGET_DIR) install
endef

$(eval $(generic-package))
