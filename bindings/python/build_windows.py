"""What a build for Windows needs beside cargo and cffi. setup.py asks it on Windows itself (MSVC, or the GNU toolchain of
Rust), and on other systems where KVSTORE_TARGET says that the wheel is for Windows: then mingw-w64 compiles, with the
headers of the Python that builds, and no Python for Windows is needed. That is possible in the stable ABI only.

Nothing that other systems need belongs here.
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

#: What KVSTORE_TARGET may be.
TARGET = "x86_64-pc-windows-gnu"
#: What Rust's library wants of the system: `rustc --print native-static-libs`. The Makefile has the same lists.
LIBRARIES = ["kernel32", "ntdll", "userenv", "ws2_32", "dbghelp", "advapi32"]
#: What an OpenSSL inside wants beside.
ENCRYPTION_LIBRARIES = ["crypt32", "user32"]
#: The processors that Windows' Pythons are for, and what Rust calls them.
_PROCESSORS = {"win-amd64": "x86_64", "win32": "i686", "win-arm64": "aarch64"}

#: The pyconfig.h of a Python for Windows with 64 bits, as far as the stable ABI's headers ask it.
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
    """Whether this system builds for Windows, and is none."""
    target = os.environ.get("KVSTORE_TARGET")
    if not target:
        return False
    if target != TARGET or sys.platform == "win32":
        raise SystemExit(f"kvstore: KVSTORE_TARGET is {target!r}; it can be {TARGET}, and not on Windows itself")
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise SystemExit("kvstore: a free-threaded Python has no stable ABI, and so cannot build for Windows from here")
    return True


def for_windows() -> bool:
    return sys.platform == "win32" or cross()


def cargo_target() -> Optional[str]:
    """The target cargo is to be told, if its own is another one."""
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
    """Whether Rust's library is for the GNU linker, and so for MinGW's compiler; or for MSVC."""
    if cross():
        return True
    if os.environ.get("KVSTORE_STATIC_LIB"):
        return os.environ["KVSTORE_STATIC_LIB"].endswith(".a")
    target = os.environ.get("CARGO_BUILD_TARGET") or _host() or ""
    return "-windows-gnu" in target


def _host() -> Optional[str]:
    """The machine that rustc builds for."""
    rustc = os.environ.get("RUSTC") or "rustc"
    try:
        said = subprocess.run([rustc, "-vV"], stdout=subprocess.PIPE, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    found = re.search(r"^host: (\S+)", said, flags=re.MULTILINE)
    return found[1] if found else None


def _compiler() -> str:
    """The cross compiler, by the name that cargo's builds of C look for."""
    name = os.environ.get("CC_x86_64_pc_windows_gnu") or "x86_64-w64-mingw32-gcc"
    if not shutil.which(name):
        raise SystemExit(f"kvstore: {name} is missing: mingw-w64 builds for Windows (gcc-mingw-w64-x86-64 on Debian)")
    return name


def cargo_environment() -> dict[str, str]:
    """What cargo is told beside."""
    if not cross():
        return {}
    linker = "CARGO_TARGET_X86_64_PC_WINDOWS_GNU_LINKER"
    return {"CC_x86_64_pc_windows_gnu": _compiler(), linker: os.environ.get(linker) or _compiler()}


def strip() -> Optional[str]:
    """What strips a program; None: there is nothing to strip, or with nothing."""
    if cross():
        return shutil.which("x86_64-w64-mingw32-strip")
    return shutil.which("strip") if is_gnu() else None


def prepare(command: Any, ext: Any, encryption: bool) -> None:
    """Has build_ext compile and link as Windows wants it. ``command`` has its compiler."""
    ext.libraries = [*LIBRARIES, *(ENCRYPTION_LIBRARIES if encryption else [])]
    if not is_gnu():
        ext.extra_compile_args = []
        ext.extra_link_args = ["/OPT:REF", "/OPT:ICF"]
        return
    # All of the compiler's own libraries are inside. What has no __declspec(dllexport) is not seen from outside.
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
    """Makes libpython3.a, for python3.dll. It knows all that the headers declare: a stable ABI has less, and of that
    only what is used is looked for."""
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
