"""Compiles the C programs of tests/c and the examples with an installed library, and runs them."""

import concurrent.futures
import functools
import os
import pathlib
import re
import subprocess
import tempfile

from build import Failed
from targets import ROOT, WORK

# Programs for features that are not built here.
OTHER_FEATURES = {"api_encryption", "api_remote"}
# Programs without scenarios, which just succeed or fail.
PLAIN = ("tests/c/header_kvstore.c", "tests/c/header_snkv.c", "tests/c/snkv_program.c")
EXAMPLES = ("quickstart", "otp_service", "renewed_cache", "secrets_sweep", "sliding_sessions", "session_cache")
# QEMU's user mode refuses seccomp: "to prevent the target disabling syscalls we need" (its linux-user/syscall.c).
NOT_UNDER_QEMU = {"abuse_reuse without_membarrier", "abuse_reuse membarrier_is_revoked"}
# Checks that a panic in the library reaches its guard, which depends on how the library is linked.
UNWINDING = "tests/packaging/install/unwinding.c"
SECONDS = 300


class Compiler:
    """Compiles programs for a target with the library below `prefix`, shared or static."""

    def __init__(self, target, prefix, is_static):
        is_static = is_static and target.links_static
        self.target, self.prefix, self.is_static = target, prefix, is_static
        self.folder = WORK / "programs" / f"{prefix.name}-{'static' if is_static else 'shared'}"
        self.folder.mkdir(parents=True, exist_ok=True)

    def libraries(self):
        lib = self.prefix / "lib"
        target = self.target
        if self.is_static:
            # The flags that pkg-config --static prints for the static library.
            return [lib / "libkvstore.a", "-lpthread", "-ldl", "-lm", *(["-static"] if target.musl else [])]
        found = ["-L", lib, "-lkvstore", f"-Wl,-rpath,{lib}"]
        if target.musl:
            found += [f"-Wl,--dynamic-linker={target.libc}/libc.so"]
        return found

    def build(self, source, *, standard="c11", flags=()):
        """Returns the program of a C source (a path from the root)."""
        program = self.folder / pathlib.Path(source).stem
        command = [
            self.target.cc, f"-std={standard}", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g", "-pthread",
            "-D_GNU_SOURCE", *flags, "-I", self.prefix / "include", "-o", program, ROOT / source, *self.libraries(),
        ]  # fmt: skip
        if not self.target.musl:
            # The clock of the tests has 64 bits, for which some processors need libatomic.
            command += ["-Wl,--as-needed", "-latomic"]
        if self.target.loader:
            libc = self.target.libc
            command += [f"-Wl,--dynamic-linker={libc}/{self.target.loader}", f"-Wl,-rpath,{libc}", "-Wl,--disable-new-dtags"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise Failed(f"{source} does not compile for {self.target.name}:\n{done.stderr[-3000:]}")
        return program

    def run(self, program, *arguments, cwd=None):
        """Returns the program's output. Raises Failed if it fails or takes too long."""
        command = [*self.target.runner(), program, *arguments]
        try:
            done = subprocess.run(
                command, cwd=cwd, capture_output=True, timeout=SECONDS, stdin=subprocess.DEVNULL,
                env=os.environ | {"KVSTORE_CROSS": self.target.name},
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise Failed(f"{' '.join(map(str, command))}: not done after {SECONDS} s") from None
        if done.returncode != 0:
            said = (done.stdout + done.stderr)[-3000:].decode(errors="replace")
            raise Failed(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{said}")
        return done.stdout

    def run_in_empty_folder(self, program, *arguments):
        with tempfile.TemporaryDirectory(prefix="kvstore-cross-") as folder:
            return self.run(program, *arguments, cwd=folder)


def sources():
    """Returns the programs that have scenarios."""
    found = sorted((ROOT / "tests/c").glob("a*_*.c"))
    with_scenarios = [path for path in found if re.search(r"^SCENARIOS\(|\brun_named\(", path.read_text(), re.MULTILINE)]
    return [str(path.relative_to(ROOT)) for path in with_scenarios if path.stem not in OTHER_FEATURES]


def in_parallel(tasks):
    """Runs (label, function) pairs in parallel and returns the failures. Uses more threads than
    processors, because many of them wait."""
    failures = []
    with concurrent.futures.ThreadPoolExecutor(2 * os.cpu_count()) as pool:
        running = {pool.submit(function): label for label, function in tasks}
        for done in concurrent.futures.as_completed(running):
            if isinstance(done.exception(), Failed):
                failures.append(f"{running[done]}: {done.exception()}")
            elif done.exception():
                raise done.exception()
    return failures


def scenarios(compiler):
    """Runs all scenarios, and the unwinding test. Returns their number, the failures, and the
    scenarios left out."""
    left_out = []

    def unwind():
        # On ARM, C code has unwind tables only with this option.
        program = compiler.build(UNWINDING, flags=["-funwind-tables"])
        compiler.run_in_empty_folder(program, "a.db", "b.db")

    wanted = [("unwinding", unwind)]

    def build(source):
        program = compiler.build(source)
        # Without arguments, the program prints its scenarios.
        for name in compiler.run(program).decode().split():
            label = f"{pathlib.Path(source).stem} {name}"
            if compiler.target.qemu and label in NOT_UNDER_QEMU:
                left_out.append(label)
            else:
                wanted.append((label, functools.partial(compiler.run_in_empty_folder, program, name)))

    failures = in_parallel([(source, functools.partial(build, source)) for source in sources()])
    failures += in_parallel(wanted)
    return len(wanted) + len(left_out), failures, left_out


def examples(compiler):
    """Runs the C examples and the programs without scenarios. Returns their number and the
    failures."""

    def plain(source):
        compiler.run_in_empty_folder(compiler.build(source))

    def example(name):
        program = compiler.build(f"examples/{name}.c")
        with tempfile.TemporaryDirectory(prefix="kvstore-cross-") as folder:
            arguments = [ROOT / "src", "demo.db"] if name == "session_cache" else []
            said = compiler.run(program, *arguments, cwd=folder)
            if not said.strip():
                raise Failed(f"the example {name} prints nothing")

    tasks = [(source, functools.partial(plain, source)) for source in PLAIN]
    tasks += [(name, functools.partial(example, name)) for name in EXAMPLES]
    return len(tasks), in_parallel(tasks)
