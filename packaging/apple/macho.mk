# The part of the Makefile for Apple's systems: names, the static library, strip, signatures. It uses only tools of Xcode and
# BSD. On another system: CARGO_BUILD_TARGET=aarch64-apple-darwin, and LLVM's tools under these names.

COMMA := ,
LIBTOOL ?= libtool
LIPO ?= lipo
INSTALL_NAME_TOOL ?= install_name_tool
CODESIGN ?= $(if $(filter Darwin,$(SYSTEM)),codesign)

LINK_NAME := libkvstore.dylib
SONAME := libkvstore.$(MAJOR).dylib
SHARED := libkvstore.$(NUMBER).dylib

# The library contains the path under which programs look for it; the linker copies it into them. For a tree that will be
# moved, or an application that contains the library, set INSTALL_NAME_DIR=@rpath.
INSTALL_NAME_DIR ?= $(libdir)
IMPORTED_NAME = $(INSTALL_NAME_DIR)/$(SONAME)

# Versions with the same major number only add functions: a program needs the minor version it was linked with, or a later one.
COMPATIBLE := $(MAJOR).$(word 2,$(subst ., ,$(NUMBER)))
NAME_FLAGS := $(addprefix -Clink-arg=-Wl$(COMMA),-install_name$(COMMA)@rpath/$(SONAME) -current_version$(COMMA)$(NUMBER) \
    -compatibility_version$(COMMA)$(COMPATIBLE) -headerpad_max_install_names)

STRIP_SHARED := -x
STRIP_STATIC := -S
# A changed library needs a new signature, or arm64 refuses it. Apple's own tools renew it; after other tools codesign does.
NAME_INSTALLED = $(if $(filter @rpath,$(INSTALL_NAME_DIR)),,$(INSTALL_NAME_TOOL) -id '$(IMPORTED_NAME)' '$(DESTDIR)$(libdir)/$(SHARED)' &&) \
    $(if $(CODESIGN),$(CODESIGN) --force --sign - '$(DESTDIR)$(libdir)/$(SHARED)',:)

# By the first byte of the magic number: 0xcefaedfe with 32 bits, 0xcffaedfe with 64.
POINTER_SIZE = od -An -tu1 -N1 '$(STAGE)/$(SHARED)' | awk '{ print $$1 == 206 ? 4 : 8 }'

# The system libraries that the static library needs: rustc --print native-static-libs
# On a Mac ENCRYPTION=1 uses the system's CommonCrypto, unless an OpenSSL is named, now or when the library was built.
KEPT = $(if $(filter no,$(SETTINGS_STAY)),,$(shell cat '$(STAGE)/built' 2>/dev/null))
named = $(or $($(FOR_UPPER)_$(1)),$($(1)),$(filter $(1)=% $(FOR_UPPER)_$(1)=%,$(KEPT)))
NAMED_OPENSSL = $(or $(call named,OPENSSL_DIR),$(and $(call named,OPENSSL_LIB_DIR),$(call named,OPENSSL_INCLUDE_DIR)))
OWN_CRYPTO = $(if $(and $(filter encryption,$(FEATURE)),$(filter Darwin,$(SYSTEM))),$(if $(NAMED_OPENSSL),,yes))
NEEDS_CRYPTO = $(if $(OWN_CRYPTO),,$(filter encryption,$(FEATURE)))
FRAMEWORKS = $(if $(filter remote,$(FEATURE))$(OWN_CRYPTO),Security CoreFoundation)
NATIVE = $(strip -liconv -lSystem -lc -lm $(foreach name,$(FRAMEWORKS),-framework $(name)))
NATIVE_TARGETS = Threads::Threads;iconv;m$(subst $(nothing) ;,;,$(foreach name,$(FRAMEWORKS),;-framework $(name)))

# As on ELF: one object with everything that the C functions need, in which only these functions are global. "ld -r" makes all
# other symbols local. It cannot remove unused code; the linker of a program does, with -dead_strip. "cmp" checks the result:
# a global symbol of SQLite would be confused with that of another SQLite in the program.
$(STAGE)/libkvstore.a: $(STAGE)/built packaging/apple/macho.mk
	$(NM) -gU '$(CARGO_OUT)/$(LINK_NAME)' | sed 's/.* //' | sort >'$(STAGE)/symbols'
	$(LD) -r -arch $$($(LIPO) -archs '$(CARGO_OUT)/$(LINK_NAME)') -exported_symbols_list '$(STAGE)/symbols' \
	    $$(sed 's/^/-u /' '$(STAGE)/symbols') -o '$(STAGE)/kvstore.o' '$(CARGO_OUT)/libkvstore.a'
	$(NM) -gU '$(STAGE)/kvstore.o' | sed 's/.* //' | sort | cmp - '$(STAGE)/symbols'
	rm -f '$@.tmp'
	$(LIBTOOL) -static -D -o '$@.tmp' '$(STAGE)/kvstore.o'
	mv '$@.tmp' '$@'
