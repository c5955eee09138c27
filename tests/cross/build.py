"""Builds and installs the library of a target, by the Makefile, as somebody who cross-compiles does."""

import os
import subprocess

from targets import ROOT, TOOLCHAIN, WORK

QUICK = "tests/cross/quick.toml"


class Failed(Exception):
    """What was tried, and the end of what it said."""


def run(command, log, **options):
    """Runs a command with its output in a file; Failed with the end of it."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "w") as out:
        done = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, **options)
    if done.returncode != 0:
        end = "".join(log.read_text(errors="replace").splitlines(keepends=True)[-30:])
        raise Failed(f"{' '.join(map(str, command[:4]))} ... ended with {done.returncode}, see {log}:\n{end}")


def environment(target, is_quick):
    """What cargo, and the compilation of SQLite, are told of a target.

    SQLite is compiled with both sorts of a `struct stat` that glibc has on 32 bits: in the release with the compiler's own,
    in quick builds with times of 64 bits, which newer compilers of Debian have by themselves.
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
        # Another linker would be another for all build scripts, and they would be built once more.
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
        # A shared library that uses the libc of its program, and the start files of the compiler.
        said[f"CARGO_TARGET_{name.upper()}_RUSTFLAGS"] = "-Ctarget-feature=-crt-static -Clink-self-contained=no"
    return said


def cargo_flags(target, is_quick):
    flags = ["--locked"] if target.is_host else ["--locked", "-Zbuild-std=std,panic_abort"]
    return flags + (["--config", QUICK] if is_quick else [])


def folder(is_quick):
    """Where cargo builds: targets share what runs on this machine."""
    return WORK / ("quick" if is_quick else "release")


def installed(target, is_quick, engine):
    """The folder a library is installed in, if it was built."""
    return WORK / "installed" / f"{target.name}-{'quick' if is_quick else 'release'}-{engine}"


def library(target, is_quick, engine):
    """Builds the library, and gives the folder it is installed in."""
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
    """Of the shared and of the static library, stripped."""
    return tuple((prefix / "lib" / name).stat().st_size for name in ("libkvstore.so", "libkvstore.a"))
