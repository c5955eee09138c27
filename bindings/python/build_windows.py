"""Settings for building the wheel for Windows.

setup.py uses this module on Windows (MSVC, or the GNU toolchain of Rust), and on other systems if KVSTORE_TARGET selects
Windows. Then mingw-w64 compiles with the headers of the running Python, and no Python for Windows is needed; this is
possible only with the stable ABI. Nothing for other systems belongs here.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any, Optional

#: The supported value of KVSTORE_TARGET.
TARGET = "x86_64-pc-windows-gnu"
#: The system libraries that the Rust library needs: `rustc --print native-static-libs`.
#: packaging/native-libraries has the same lists.
LIBRARIES = ["kernel32", "ntdll", "userenv", "ws2_32", "dbghelp", "advapi32"]
#: Further system libraries for a bundled OpenSSL.
ENCRYPTION_LIBRARIES = ["crypt32", "user32"]
#: The processors supported by Python for Windows, with their names in Rust.
_PROCESSORS = {"win-amd64": "x86_64", "win32": "i686", "win-arm64": "aarch64"}

#: The pyconfig.h of a 64-bit Python for Windows, as far as the headers of the stable ABI need it.
_PYCONFIG = """\
#define MS_WIN32
#define MS_WIN64
#define MS_WINDOWS
#define NT_THREADS
#define WITH_THREAD
#define Py_ENABLE_SHARED 1
#define HAVE_DECLSPEC_DLL
#define HAVE_SSIZE_T 1
#define HAVE_STDARG_PROTOTYPES 1
#define HAVE_STDDEF_H 1
#define HAVE_STDINT_H 1
#define HAVE_INTTYPES_H 1
#define HAVE_SYS_TYPES_H 1
#define HAVE_SYS_STAT_H 1
#define HAVE_WCHAR_H 1
#define STDC_HEADERS 1
#define SIZEOF_SHORT 2
#define SIZEOF_INT 4
#define SIZEOF_LONG 4
#define SIZEOF_LONG_LONG 8
#define SIZEOF_DOUBLE 8
#define SIZEOF_FLOAT 4
#define SIZEOF_OFF_T 4
#define SIZEOF_SIZE_T 8
#define SIZEOF_TIME_T 8
#define SIZEOF_UINTPTR_T 8
#define SIZEOF_VOID_P 8
#define SIZEOF_WCHAR_T 2
#define ALIGNOF_SIZE_T 8
"""


def cross() -> bool:
    """Return whether this is a build for Windows on another system."""
    target = os.environ.get("KVSTORE_TARGET")
    if not target:
        return False
    if target != TARGET or sys.platform == "win32":
        raise SystemExit(f"kvstore: KVSTORE_TARGET must be {TARGET} on other systems and unset on Windows, not {target!r}")
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise SystemExit("kvstore: a free-threaded Python has no stable ABI and cannot cross-compile for Windows: use a Python with the GIL")
    return True


def for_windows() -> bool:
    return sys.platform == "win32" or cross()


def cargo_target() -> Optional[str]:
    """Return the target for cargo, or None for its default."""
    if cross():
        return TARGET
    if sys.platform != "win32" or os.environ.get("CARGO_BUILD_TARGET"):
        return None
    processor = _PROCESSORS.get(sysconfig.get_platform())
    host = _host()
    if processor is None or host is None or host.startswith(processor):
        return None
    return f"{processor}-{host.partition('-')[2]}"


def is_gnu() -> bool:
    """Return whether the Rust library is for the GNU linker and MinGW's compiler, and not for MSVC."""
    if cross():
        return True
    if os.environ.get("KVSTORE_STATIC_LIB"):
        return os.environ["KVSTORE_STATIC_LIB"].endswith(".a")
    target = os.environ.get("CARGO_BUILD_TARGET") or _host() or ""
    return "-windows-gnu" in target


def _host() -> Optional[str]:
    """Return the host triple of rustc, or None."""
    rustc = os.environ.get("RUSTC") or "rustc"
    try:
        said = subprocess.run([rustc, "-vV"], stdout=subprocess.PIPE, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    found = re.search(r"^host: (\S+)", said, flags=re.MULTILINE)
    return found[1] if found else None


def _compiler() -> str:
    """Return the cross compiler, by the name that cargo's C builds look for."""
    name = os.environ.get("CC_x86_64_pc_windows_gnu") or "x86_64-w64-mingw32-gcc"
    if not shutil.which(name):
        raise SystemExit(f"kvstore: building for Windows needs {name}: install mingw-w64 (gcc-mingw-w64-x86-64 on Debian)")
    return name


def cargo_environment() -> dict[str, str]:
    """Return additional environment variables for cargo."""
    if not cross():
        return {}
    linker = "CARGO_TARGET_X86_64_PC_WINDOWS_GNU_LINKER"
    return {"CC_x86_64_pc_windows_gnu": _compiler(), linker: os.environ.get(linker) or _compiler()}


def strip() -> Optional[str]:
    """Return the program that strips executables; None: nothing to strip, or no such program."""
    if cross():
        return shutil.which("x86_64-w64-mingw32-strip")
    return shutil.which("strip") if is_gnu() else None


def prepare(command: Any, ext: Any, encryption: bool) -> None:
    """Set the compiler and linker options for Windows. The compiler of ``command`` must be set already."""
    ext.libraries = [*LIBRARIES, *(ENCRYPTION_LIBRARIES if encryption else [])]
    if not is_gnu():
        ext.extra_compile_args = []
        ext.extra_link_args = ["/OPT:REF", "/OPT:ICF"]
        return
    # Links all libraries of the compiler statically. Only symbols with __declspec(dllexport) are exported.
    ext.extra_link_args = ["-static", "-static-libgcc", "-Wl,--gc-sections", "-Wl,--exclude-all-symbols"]
    if not command.debug:
        ext.extra_link_args.append("-Wl,--strip-all")
    if cross():
        _cross(command, ext)


def _cross(command: Any, ext: Any) -> None:
    work = Path(command.build_temp)
    headers = work / "windows-include"
    shutil.rmtree(headers, ignore_errors=True)
    for folder in {sysconfig.get_path("include"), sysconfig.get_path("platinclude")}:
        shutil.copytree(folder, headers, dirs_exist_ok=True)
    (headers / "pyconfig.h").write_text(_PYCONFIG, encoding="ascii")
    _import_library(headers, work)
    compiler = _compiler()
    command.compiler.set_executables(
        compiler=[compiler], compiler_so=[compiler, "-O2", "-DNDEBUG"], linker_so=[compiler, "-shared"], linker_exe=[compiler]
    )
    command.compiler.set_include_dirs([str(headers)])
    command.compiler.set_library_dirs([str(work)])
    command.compiler.set_runtime_library_dirs([])
    ext.libraries = ["python3", *ext.libraries]


def _import_library(headers: Path, folder: Path) -> None:
    """Create libpython3.a, the import library of python3.dll.

    It contains everything that the headers declare. The stable ABI has fewer symbols, but only the used ones are looked up.
    """
    declared = re.compile(r"PyAPI_(FUNC|DATA)\([^;{}]*?\)\s*(\w+)\s*[(;\[]")
    names = {}
    for header in headers.glob("*.h"):
        for kind, name in declared.findall(header.read_text(encoding="utf-8")):
            names[name] = " DATA" if kind == "DATA" else ""
    definition = folder / "python3.def"
    lines = ["LIBRARY python3.dll", "EXPORTS", *(f"    {name}{kind}" for name, kind in sorted(names.items()))]
    definition.write_text("\n".join(lines) + "\n", encoding="ascii")
    subprocess.run(
        ["x86_64-w64-mingw32-dlltool", "-d", str(definition), "-l", str(folder / "libpython3.a")], check=True
    )
