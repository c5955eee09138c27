"""Builds and installs the library for a target with make, as a user who cross-compiles
does."""

import os
import subprocess

from targets import ROOT, TOOLCHAIN, WORK

QUICK = "tests/cross/quick.toml"


class Failed(Exception):
    """Raised with the command that failed and the end of its output."""


def run(command, log, **options):
    """Runs a command with its output in a file. Raises Failed, with the end of the output, if it
    fails."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "w") as out:
        done = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, **options)
    if done.returncode != 0:
        end = "".join(log.read_text(errors="replace").splitlines(keepends=True)[-30:])
        raise Failed(f"{' '.join(map(str, command[:4]))} ... ended with {done.returncode}, see {log}:\n{end}")


def environment(target, is_quick):
    """Returns the environment variables for cargo and for the compilation of SQLite.

    On 32 bits, glibc has two versions of `struct stat`, and SQLite is compiled with both: the
    release with the compiler's default, quick builds with 64-bit times, which are the default of
    newer Debian compilers.
    """
    name = target.triple.replace("-", "_")
    said = dict(os.environ)
    for variable in ("CARGO_TARGET_DIR", "MAKEFLAGS", "MFLAGS", "MAKELEVEL", "RUSTFLAGS", "LIBSQLITE3_FLAGS", "TARGETS"):
        said.pop(variable, None)
    said |= {
        "RUSTC": str(TOOLCHAIN / "rustc-web/rustc"),
        "RUSTC_BOOTSTRAP": "1",
        "CARGO_BUILD_TARGET": target.triple,
    }
    if target.is_host:
        # A different linker for build scripts would make cargo compile all of them again.
        return said
    said |= {
        f"CC_{name}": target.cc,
        f"AR_{name}": target.tool("ar"),
        f"CARGO_TARGET_{name.upper()}_LINKER": target.cc,
    }
    if is_quick and target.bits == 32 and not target.musl:
        flags = [ROOT / "packaging/sqlite-flags", "-D_TIME_BITS=64"]
        said["LIBSQLITE3_FLAGS"] = subprocess.run(flags, check=True, capture_output=True, text=True).stdout.strip()
    if target.musl:
        # The shared library uses the libc of its program, and the compiler's start files.
        said[f"CARGO_TARGET_{name.upper()}_RUSTFLAGS"] = "-Ctarget-feature=-crt-static -Clink-self-contained=no"
    return said


def cargo_flags(target, is_quick):
    flags = ["--locked"] if target.is_host else ["--locked", "-Zbuild-std=std,panic_abort"]
    return flags + (["--config", QUICK] if is_quick else [])


def folder(is_quick):
    """Returns cargo's build folder. All targets share it, so that build scripts are compiled once."""
    return WORK / ("quick" if is_quick else "release")


def installed(target, is_quick, engine):
    """Returns the folder in which a library is installed, if it was built."""
    return WORK / "installed" / f"{target.name}-{'quick' if is_quick else 'release'}-{engine}"


def library(target, is_quick, engine):
    """Builds the library. Returns the folder in which it is installed."""
    said = environment(target, is_quick)
    said["KVSTORE_ENGINE"] = engine  # make keeps what is there if it is not told
    prefix = installed(target, is_quick, engine)
    tools = {name.upper(): target.tool(name) for name in ("ld", "nm", "ar", "objcopy", "strip")}
    settings = {
        "COMMAND": "no",
        "INSTALL_STRIP": "1",
        "PREFIX": prefix,
        "CARGO_TARGET_DIR": folder(is_quick),
        "CARGOFLAGS": " ".join(cargo_flags(target, is_quick)),
    }
    arguments = [f"{name}={value}" for name, value in (tools | settings).items()]
    run(["make", "-C", ROOT, "install", *arguments], WORK / "logs" / f"{prefix.name}.build", env=said)
    return prefix


def sizes(prefix):
    """Returns the sizes of the stripped shared and static libraries."""
    return tuple((prefix / "lib" / name).stat().st_size for name in ("libkvstore.so", "libkvstore.a"))
