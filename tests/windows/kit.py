"""Builds the library and programs for Windows with Debian's mingw-w64, and runs them with wine."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from build import Failed

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORK = ROOT / "target/windows"
HERE = ROOT / "tests/windows"
TRIPLE = "x86_64-pc-windows-gnu"
GCC = "x86_64-w64-mingw32-gcc-posix"
GXX = "x86_64-w64-mingw32-g++-posix"
# Time limit for a process.
SECONDS = 120
# Libraries of the compiler, which are copied next to each program.
RUNTIME = ("libgcc_s_seh-1.dll", "libstdc++-6.dll", "libwinpthread-1.dll")
# As `rustc --print native-static-libs` says for this target.
NATIVE = ("-lkernel32", "-lntdll", "-luserenv", "-lws2_32", "-ldbghelp", "-ladvapi32")


def how_to_start():
    """Returns the words before a program for Windows. At random addresses, one process in some
    thousands fails to start: wine maps a page at a fixed one."""
    fixed = ["setarch", "-R"]
    can_fix = shutil.which(fixed[0]) and subprocess.run([*fixed, "true"], capture_output=True).returncode == 0
    return [*fixed, "wine"] if can_fix else ["wine"]


WINE = how_to_start()


def said(done):
    return (done.stdout + done.stderr)[-3000:].decode(errors="replace")


def run(command, **options):
    done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, **options)
    if done.returncode != 0:
        raise Failed(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{said(done)}")
    return done.stdout


def environment():
    """Returns wine's environment: its own drive, no windows, no messages of wine itself."""
    wanted = {"WINEPREFIX": str(WORK / "prefix"), "WINEARCH": "win64", "WINEDEBUG": "-all", "WINEDLLOVERRIDES": "mscoree,mshtml="}
    environment = {name: value for name, value in os.environ.items() if name != "DISPLAY"}
    return environment | wanted


def prepare():
    """Creates wine's drive if it does not exist, with what wine lacks."""
    (WORK / "programs").mkdir(parents=True, exist_ok=True)
    run([GCC, "-shared", "-o", WORK / "programs/bcryptprimitives.dll", HERE / "bcryptprimitives.c", "-ladvapi32"])
    for library in RUNTIME:
        found = run([GXX, f"-print-file-name={library}"], text=True).strip()
        if not pathlib.Path(found).is_absolute():
            found = f"/usr/x86_64-w64-mingw32/lib/{library}"
        shutil.copy(found, WORK / "programs")
    if not (WORK / "prefix/system.reg").exists():
        run(["wineboot", "--init"], env=environment())


def build_environment(engine):
    """Returns cargo's environment."""
    said = {name: value for name, value in environment().items() if name not in ("KVSTORE_ENGINE", "MAKEFLAGS", "MAKELEVEL")}
    name = TRIPLE.replace("-", "_")
    said |= {f"CC_{name}": GCC, f"CARGO_TARGET_{name.upper()}_LINKER": GCC, f"CARGO_TARGET_{name.upper()}_RUNNER": " ".join(WINE)}
    return said | ({"KVSTORE_ENGINE": "sql"} if engine == "sql" else {})


def library(engine, name=None, **more):
    """Builds and installs the library with an engine and further settings of `make`. Returns the
    folder in which it is installed."""
    prefix = WORK / "installed" / (name or engine)
    settings = {
        "PREFIX": prefix, "WINDOWS_CC": GCC, "CARGO_TARGET_DIR": WORK / "cargo", "COMMAND": "no",
        "CARGOFLAGS": "--locked --config tests/cross/quick.toml",
    } | more  # fmt: skip
    arguments = [f"{name}={value}" for name, value in settings.items()]
    run(["make", "-C", ROOT, "install-windows", *arguments], env=build_environment(engine))
    return prefix


def encrypting_library():
    """Like `library`, with encrypted stores: with the OpenSSL of $OPENSSL_DIR, a DLL; otherwise
    with a compiled-in one, which takes long to build."""
    openssl = os.environ.get("OPENSSL_DIR")
    prefix = library("btree", "encryption", ENCRYPTION="1" if openssl else "vendored")
    for dll in pathlib.Path(openssl).glob("bin/*.dll") if openssl else ():
        shutil.copy(dll, prefix / "bin")
    return prefix


def cargo_test(*arguments):
    """Runs Rust tests. Returns the number passed."""
    deps = WORK / "cargo/unit" / TRIPLE / "debug/deps"
    deps.mkdir(parents=True, exist_ok=True)
    for folder in (deps, deps.parent):  # of the tests, and of the command that they start
        shutil.copy(WORK / "programs/bcryptprimitives.dll", folder)
    command = ["cargo", "test", "--locked", "--target", TRIPLE, "--target-dir", WORK / "cargo/unit", *arguments]
    said = run(command, cwd=ROOT, env=build_environment("btree")).decode()
    return sum(map(int, re.findall(r"test result: ok\. (\d+) passed", said)))


def sqlite():
    """Returns the folder with the original SQLite sources, which are those of libsqlite3-sys, to be
    built without our flags."""
    listed = json.loads(run(["cargo", "metadata", "--locked", "--format-version", "1"], cwd=ROOT))
    manifest = next(package["manifest_path"] for package in listed["packages"] if package["name"] == "libsqlite3-sys")
    return pathlib.Path(manifest).parent / "sqlite3"


class Compiler:
    """Compiles programs with the library installed in a folder, shared or static."""

    def __init__(self, prefix, is_static):
        self.prefix, self.is_static = prefix, is_static
        self.folder = WORK / "programs" / f"{prefix.name}-{'static' if is_static else 'shared'}"
        self.folder.mkdir(parents=True, exist_ok=True)
        for library in (*RUNTIME, "bcryptprimitives.dll"):
            shutil.copy(WORK / "programs" / library, self.folder)
        if not is_static:
            for library in (prefix / "bin").glob("*.dll"):
                shutil.copy(library, self.folder)

    def build(self, source, *, standard="c11"):
        """Returns the program of a C or C++ source (a path from the root)."""
        source = ROOT / source
        program = self.folder / f"{source.stem}.exe"
        lib = self.prefix / "lib"
        linked = [lib / "libkvstore.a", *NATIVE] if self.is_static else [lib / "libkvstore.dll.a"]
        run([
            GXX if source.suffix == ".cpp" else GCC, f"-std={standard}", "-Wall", "-Wextra", "-Werror", "-g", "-pthread",
            "-D_GNU_SOURCE", "-D__USE_MINGW_ANSI_STDIO=1", "-I", HERE / "posix", "-include", "posix.h",
            "-I", self.prefix / "include", "-o", program, source, *linked,
        ])  # fmt: skip
        return program

    def other(self):
        """Returns another program, with the original SQLite."""
        program = self.folder / "other.exe"
        source = HERE / "other.c"
        if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
            run([GCC, "-O1", "-w", "-I", sqlite(), "-o", program, source, sqlite() / "sqlite3.c"])
        return program

    def start(self, program, *arguments, cwd):
        """Starts a process, whose end the caller must wait for."""
        return subprocess.Popen(
            [*WINE, program, *map(str, arguments)], cwd=cwd, env=environment(), stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def run(self, program, *arguments, cwd=None):
        """Returns the program's output. Raises Failed if it fails or takes too long."""
        process = self.start(program, *arguments, cwd=cwd)
        label = f"{pathlib.Path(program).stem} {' '.join(map(str, arguments))}"
        try:
            out, err = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise Failed(f"{label}: not done after {SECONDS} s") from None
        if process.returncode != 0:
            raise Failed(f"{label} ended with {process.returncode}:\n{(out + err)[-2000:].decode(errors='replace')}")
        return out

    def run_in_empty_folder(self, program, *arguments):
        with tempfile.TemporaryDirectory(prefix="kvstore-windows-") as folder:
            return self.run(program, *arguments, cwd=folder)


def stop():
    """Ends the processes of this wine drive only."""
    subprocess.run(["wineserver", "-k"], env=environment(), capture_output=True)


def need():
    missing = [tool for tool in (GCC, GXX, "wine", "wineboot", "wineserver") if shutil.which(tool) is None]
    if missing:
        sys.exit(f"windows: missing: {' '.join(missing)}: run .ci/setup windows")
