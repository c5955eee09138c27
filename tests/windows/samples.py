"""Tests the examples, the C++ headers and a CMake project on Windows, and exchanges stores with
this machine."""

import functools
import pathlib
import shutil
import tempfile

import exchange as crossing
from kit import GCC, GXX, ROOT, RUNTIME, WORK, Failed, environment, run

C = ("quickstart", "otp_service", "renewed_cache", "secrets_sweep", "sliding_sessions")
CPP = ("quickstart", "standard_library")
# The programs that use the whole C++ API, and how they are compiled. (They run on Linux.)
HEADERS = {"everything.cpp": (), "without_exceptions.cpp": ("-fno-exceptions", "-fno-rtti")}
WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Wsign-conversion", "-Wold-style-cast", "-Werror")
# Programs without scenarios, which just succeed or fail.
PLAIN = ("tests/c/header_kvstore.c", "tests/c/header_snkv.c", "tests/c/snkv_program.c")


def headers(program, standard):
    """Compiles a program that uses all C++ headers."""
    include = ("-I", ROOT / "include", "-I", ROOT / "bindings/cpp/include")
    run([GXX, f"-std={standard}", *WARNINGS, *HEADERS[program], *include, "-fsyntax-only", ROOT / "tests/cpp" / program])


def examples(compiler, in_parallel):
    """Returns the number of programs and the failures."""

    def example(source, standard, prints=True):
        said = compiler.run_in_empty_folder(compiler.build(source, standard=standard))
        if prints and not said.strip():
            raise Failed(f"{source} prints nothing")

    tasks = [(source, functools.partial(example, source, "c11", prints=False)) for source in PLAIN]
    tasks += [(f"{name}.c", functools.partial(example, f"examples/{name}.c", "c11")) for name in C]
    tasks += [
        (f"{program} {standard}", functools.partial(headers, program, standard))
        for program in HEADERS for standard in ("c++17", "c++20", "c++23")
    ]
    failures = in_parallel(tasks)
    # One after another, because programs of the same name would use the same file.
    more = [(f"{name}.cpp", functools.partial(example, f"examples/{name}.cpp", "c++17")) for name in CPP]
    failures += in_parallel(more)
    return len(tasks) + len(more), failures


def cmake(prefix):
    """Builds the project of tests/packaging/install with the installed package, and runs its tests under wine."""
    build = WORK / "cmake"
    shutil.rmtree(build, ignore_errors=True)
    run([
        "cmake", "-S", ROOT / "tests/packaging/install", "-B", build, "-DCMAKE_SYSTEM_NAME=Windows", f"-DCMAKE_C_COMPILER={GCC}",
        f"-DCMAKE_CXX_COMPILER={GXX}", f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_CROSSCOMPILING_EMULATOR=wine", "-DWITH_CPP=ON",
        "-DCMAKE_FIND_ROOT_PATH_MODE_PACKAGE=BOTH",
    ])  # fmt: skip
    run(["cmake", "--build", build])
    for library in (*RUNTIME, "bcryptprimitives.dll"):
        shutil.copy(WORK / "programs" / library, build)
    shutil.copy(prefix / "bin/kvstore.dll", build)
    said = run(["ctest", "--output-on-failure"], cwd=build, env=environment()).decode()
    if "100% tests passed, 0 tests failed out of 4" not in said:
        raise Failed(said)


class Here:
    """Compiler of this machine, with the interface that `exchange` needs."""

    class target:
        name = "linux"

    def build(self, source):
        """Uses cargo's library, built quickly."""
        target = WORK / "cargo"
        run([
            "cargo", "rustc", "--release", "--locked", "--lib", "--crate-type", "staticlib",
            "--config", "tests/cross/quick.toml", "--target-dir", target,
        ], cwd=ROOT)  # fmt: skip
        program = WORK / "programs" / pathlib.Path(source).stem
        run([
            "gcc", "-std=c11", "-D_GNU_SOURCE", "-I", ROOT / "include", "-o", program, ROOT / source,
            target / "release/libkvstore.a", "-lpthread", "-ldl", "-lm",
        ])  # fmt: skip
        return program

    def run(self, program, *arguments):
        return run([program, *arguments])


class There:
    """Compiler for Windows, with the same interface."""

    class target:
        name = "windows"

    def __init__(self, compiler):
        self.compiler = compiler

    def build(self, source):
        return self.compiler.build(source)

    def run(self, program, *arguments):
        with tempfile.TemporaryDirectory() as folder:  # on drive Z:, from which "/" is this machine's
            said = self.compiler.run(program, *arguments, cwd=folder)
        return said.replace(b"\r\n", b"\n")


def exchange(compiler):
    """Writes stores on each system and reads them on the other. Returns the number of pairs and the
    failures."""
    return crossing.exchange([Here(), There(compiler)])
