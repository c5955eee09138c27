"""Settings for linking the extension on macOS. Nothing for other systems belongs here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Optional

#: The system libraries that the Rust library needs: `rustc --print native-static-libs`.
#: packaging/native-libraries has the same lists.
LIBRARIES = ["iconv", "System", "c", "m"]
#: Frameworks for stores on a server, and for encryption with the system's library.
FRAMEWORKS = ["Security", "CoreFoundation"]


def openssl() -> Optional[list[Path]]:
    """Return the library directories of the OpenSSL to use for encryption with the system's library.

    None: macOS has no OpenSSL, and without these variables libsqlite3-sys uses the system's CommonCrypto.
    """
    folder, libraries = os.environ.get("OPENSSL_DIR"), os.environ.get("OPENSSL_LIB_DIR")
    if libraries and (folder or os.environ.get("OPENSSL_INCLUDE_DIR")):
        return [Path(libraries)]
    return [path for path in (Path(folder, "lib64"), Path(folder, "lib")) if path.is_dir()] if folder else None


def prepare(ext: Any, encryption: str, remote: bool) -> None:
    """Set the linker options for macOS."""
    ext.libraries = list(LIBRARIES)
    ext.extra_link_args = ["-Wl,-exported_symbol,_PyInit__kvstore", "-Wl,-dead_strip"]
    folders = openssl() if encryption == "system" else None
    if folders is not None:
        ext.libraries.append("crypto")
        ext.library_dirs = [str(folder) for folder in folders]
    if remote or (encryption == "system" and folders is None):
        for framework in FRAMEWORKS:
            ext.extra_link_args += ["-framework", framework]
