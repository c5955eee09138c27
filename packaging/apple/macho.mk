# What is different for Apple's systems (the Makefile has the rest): names, the static library, strip, signatures. Only tools
# of Xcode and of a BSD. From another system: CARGO_BUILD_TARGET=aarch64-apple-darwin, and LLVM's tools by these names.

COMMA := ,
LIBTOOL ?= libtool
LIPO ?= lipo
INSTALL_NAME_TOOL ?= install_name_tool
CODESIGN ?= $(if $(filter Darwin,$(SYSTEM)),codesign)

LINK_NAME := libkvstore.dylib
SONAME := libkvstore.$(MAJOR).dylib
SHARED := libkvstore.$(NUMBER).dylib

# Where programs look for the library is written into it, and copied into them. A tree that is to be moved, or an
# application that brings the library, wants INSTALL_NAME_DIR=@rpath.
INSTALL_NAME_DIR ?= $(libdir)
IMPORTED_NAME = $(INSTALL_NAME_DIR)/$(SONAME)

# Versions of one major number only add functions: a program runs with the minor version it was linked with, or a later one.
COMPATIBLE := $(MAJOR).$(word 2,$(subst ., ,$(NUMBER)))
NAME_FLAGS := $(addprefix -Clink-arg=-Wl$(COMMA),-install_name$(COMMA)@rpath/$(SONAME) -current_version$(COMMA)$(NUMBER) \
    -compatibility_version$(COMMA)$(COMPATIBLE) -headerpad_max_install_names)

STRIP_SHARED := -x
STRIP_STATIC := -S
# Its own tools renew the signature of a library that they change; that of others is void then, and arm64 refuses it.
NAME_INSTALLED = $(if $(filter @rpath,$(INSTALL_NAME_DIR)),,$(INSTALL_NAME_TOOL) -id '$(IMPORTED_NAME)' '$(DESTDIR)$(libdir)/$(SHARED)' &&) \
    $(if $(CODESIGN),$(CODESIGN) --force --sign - '$(DESTDIR)$(libdir)/$(SHARED)',:)

# By the first byte of the magic number: 0xcefaedfe with 32 bits, 0xcffaedfe with 64.
POINTER_SIZE = od -An -tu1 -N1 '$(STAGE)/$(SHARED)' | awk '{ print $$1 == 206 ? 4 : 8 }'

# What the static library needs of the system: rustc --print native-static-libs
# On a Mac ENCRYPTION=1 encrypts by its own CommonCrypto, unless an OpenSSL is named, now or when it was built.
KEPT = $(if $(filter no,$(SETTINGS_STAY)),,$(shell cat '$(STAGE)/built' 2>/dev/null))
named = $(or $($(FOR_UPPER)_$(1)),$($(1)),$(filter $(1)=% $(FOR_UPPER)_$(1)=%,$(KEPT)))
NAMED_OPENSSL = $(or $(call named,OPENSSL_DIR),$(and $(call named,OPENSSL_LIB_DIR),$(call named,OPENSSL_INCLUDE_DIR)))
OWN_CRYPTO = $(if $(and $(filter encryption,$(FEATURE)),$(filter Darwin,$(SYSTEM))),$(if $(NAMED_OPENSSL),,yes))
NEEDS_CRYPTO = $(if $(OWN_CRYPTO),,$(filter encryption,$(FEATURE)))
FRAMEWORKS = $(if $(filter remote,$(FEATURE))$(OWN_CRYPTO),Security CoreFoundation)
NATIVE = $(strip -liconv -lSystem -lc -lm $(foreach name,$(FRAMEWORKS),-framework $(name)))
NATIVE_TARGETS = Threads::Threads;iconv;m$(subst $(nothing) ;,;,$(foreach name,$(FRAMEWORKS),;-framework $(name)))

# As on ELF, one object of what the C functions need, in which only those are global. "ld -r" makes the others static, and
# cannot leave out what nobody calls: the linker of a program does, by -dead_strip. That it did is looked at: a second SQLite
# in a program would be taken for ours otherwise.
$(STAGE)/libkvstore.a: $(STAGE)/built packaging/apple/macho.mk
	$(NM) -gU '$(CARGO_OUT)/$(LINK_NAME)' | sed 's/.* //' | sort >'$(STAGE)/symbols'
	$(LD) -r -arch $$($(LIPO) -archs '$(CARGO_OUT)/$(LINK_NAME)') -exported_symbols_list '$(STAGE)/symbols' \
	    $$(sed 's/^/-u /' '$(STAGE)/symbols') -o '$(STAGE)/kvstore.o' '$(CARGO_OUT)/libkvstore.a'
	$(NM) -gU '$(STAGE)/kvstore.o' | sed 's/.* //' | sort | cmp - '$(STAGE)/symbols'
	rm -f '$@.tmp'
	$(LIBTOOL) -static -D -o '$@.tmp' '$(STAGE)/kvstore.o'
	mv '$@.tmp' '$@'
