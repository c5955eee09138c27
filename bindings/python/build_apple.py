"""What an extension for macOS is linked with, beside Rust's library. Nothing that other systems need belongs here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Optional

#: What Rust's library wants of the system: `rustc --print native-static-libs`. packaging/apple/macho.mk has the same lists.
LIBRARIES = ["iconv", "System", "c", "m"]
#: What it wants beside for stores on a server, and to encrypt by what the system has.
FRAMEWORKS = ["Security", "CoreFoundation"]


def openssl() -> Optional[list[Path]]:
    """The folders of the OpenSSL that a build with the system's encryption takes. None: there is none in macOS, and
    without these variables libsqlite3-sys takes the system's own CommonCrypto."""
    folder, libraries = os.environ.get("OPENSSL_DIR"), os.environ.get("OPENSSL_LIB_DIR")
    if libraries and (folder or os.environ.get("OPENSSL_INCLUDE_DIR")):
        return [Path(libraries)]
    return [path for path in (Path(folder, "lib64"), Path(folder, "lib")) if path.is_dir()] if folder else None


def prepare(ext: Any, encryption: str, remote: bool) -> None:
    """Has build_ext link as macOS wants it."""
    ext.libraries = list(LIBRARIES)
    ext.extra_link_args = ["-Wl,-exported_symbol,_PyInit__kvstore", "-Wl,-dead_strip"]
    folders = openssl() if encryption == "system" else None
    if folders is not None:
        ext.libraries.append("crypto")
        ext.library_dirs = [str(folder) for folder in folders]
    if remote or (encryption == "system" and folders is None):
        for framework in FRAMEWORKS:
            ext.extra_link_args += ["-framework", framework]
