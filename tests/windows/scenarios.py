"""The C scenarios of tests/c on Windows: which ones run, which are left out, and why."""

import functools
import pathlib
import re

from kit import ROOT, Failed

# Programs about features that Windows, or this build, does not have.
PROGRAMS_LEFT_OUT = {
    "abuse_fork": "forks",
    "abuse_full": "a limit on the size of files (RLIMIT_FSIZE)",
    "abuse_reuse": "seccomp and membarrier of Linux",
    "api_encryption": "needs the feature encryption: part encryption",
    "api_remote": "needs the feature remote",
}
PYTHON = "has Python's sqlite3 change or read the store"
SCENARIOS_LEFT_OUT = {
    "api_backup refuses": "makes symbolic links, which takes a right of its own",
    "api_cleaner purges": "counts threads in /proc",
    "api_cleaner started_by_many": "counts threads in /proc",
    "api_families drop": PYTHON,
    "api_maintenance integrity": PYTHON,
    "api_maintenance repair": PYTHON,
    "api_store in_memory": "looks into its folder by a shell of Unix",
    "api_store other_files": "opens a FIFO",
    "api_store zero_is_the_default": "counts syncs in the place of fsync",
}


def sources():
    """Returns the programs that have scenarios."""
    found = sorted((ROOT / "tests/c").glob("a*_*.c"))
    return [path for path in found if re.search(r"^SCENARIOS\(|\brun_named\(", path.read_text(), re.MULTILINE)]


def names(path):
    """Returns the scenarios of a program that cannot be compiled here."""
    return re.findall(r'\{"(\w+)",', path.read_text())


def run(compiler, in_parallel, say, only=None):
    """Runs all scenarios, or those of one program. Returns the number passed, the failures, and the
    number left out."""
    passed, failures, left_out = 0, [], 0
    for path in sources():
        if only not in (None, path.stem):
            continue
        if only is None and (reason := PROGRAMS_LEFT_OUT.get(path.stem)):
            count = len(names(path))
            left_out += count
            say(f"{path.stem}: left out, {count}: {reason}")
            continue
        try:
            program = compiler.build(path)
            listed = compiler.run_in_empty_folder(program).decode().split()
        except Failed as why:
            failures.append(f"{path.stem}: {why}")
            say(f"{path.stem}: FAILED to build")
            continue
        label = f"{path.stem} {{}}".format
        out = {name: SCENARIOS_LEFT_OUT[label(name)] for name in listed if label(name) in SCENARIOS_LEFT_OUT}
        wanted = [name for name in listed if name not in out]
        tasks = [(label(name), functools.partial(compiler.run_in_empty_folder, program, name)) for name in wanted]
        failed = in_parallel(tasks)
        failures += failed
        passed += len(wanted) - len(failed)
        left_out += len(out)
        reasons = "".join(f"; {name}: {reason}" for name, reason in out.items())
        say(f"{path.stem}: {len(wanted) - len(failed)} passed, {len(failed)} failed, {len(out)} left out{reasons}")
    return passed, failures, left_out
