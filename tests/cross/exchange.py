"""Stores that are written on each target, and read and changed on each other."""

import functools
import shutil
import tempfile
from pathlib import Path

from build import Failed
from programs import in_parallel

SOURCE = "tests/cross/exchange.c"


def copy(store, to):
    """A store of files: the log too, if there is one. (The -shm is of one machine.)"""
    shutil.copy(store, to)
    if Path(f"{store}-wal").exists():
        shutil.copy(f"{store}-wal", f"{to}-wal")


def exchange(compilers):
    """With a compiler of each target: (how many pairs, the failures)."""
    with tempfile.TemporaryDirectory(prefix="kvstore-exchange-") as folder:
        folder = Path(folder)
        programs = {compiler.target.name: (compiler, compiler.build(SOURCE)) for compiler in compilers}
        shown = {}

        def run(name, what, store):
            compiler, program = programs[name]
            return compiler.run(program, what, store)

        def write(name):
            for what in ("write", "leave"):
                run(name, what, folder / f"{name}-{what}.db")
            # That something is left in the log is what `leave` is for.
            if (folder / f"{name}-leave.db-wal").stat().st_size == 0:
                raise Failed("the log that was left is empty")

        def read(writer, reader, what):
            store = folder / f"{what}-{writer}-{reader}.db"
            copy(folder / f"{writer}-{what}.db", store)
            before = run(reader, "show", store)
            run(reader, "change", store)
            shown[writer, reader, what] = before, run(reader, "show", store)
            # What another has changed, the writer reads again.
            if run(writer, "show", store) != shown[writer, reader, what][1]:
                raise Failed(f"{writer} sees something else in what {reader} has changed")

        failures = in_parallel([(name, functools.partial(write, name)) for name in programs])
        if failures:
            return 0, failures
        pairs = [(writer, reader, what) for writer in programs for reader in programs for what in ("write", "leave")]
        label = "{2}: written on {0}, read on {1}".format
        failures = in_parallel([(label(*pair), functools.partial(read, *pair)) for pair in pairs])
        for pair, texts in shown.items():
            # One text for all: of the first.
            if texts != next(iter(shown.values())):
                failures.append(f"{label(*pair)}: another text than of the first pair")
        return len(pairs) // 2, failures
