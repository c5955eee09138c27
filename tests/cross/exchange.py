"""Stores are written on each target, and read and changed on every other one."""

import functools
import shutil
import tempfile
from pathlib import Path

from build import Failed
from programs import in_parallel

SOURCE = "tests/cross/exchange.c"


def copy(store, to):
    """Returns the files of a store, including its log. (The -shm file belongs to one machine.)"""
    shutil.copy(store, to)
    if Path(f"{store}-wal").exists():
        shutil.copy(f"{store}-wal", f"{to}-wal")


def exchange(compilers):
    """Runs the exchange with a compiler for each target. Returns the number of pairs, and the
    failures."""
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
            # `leave` must leave something in the log.
            if (folder / f"{name}-leave.db-wal").stat().st_size == 0:
                raise Failed("the log that was left is empty")

        def read(writer, reader, what):
            store = folder / f"{what}-{writer}-{reader}.db"
            copy(folder / f"{writer}-{what}.db", store)
            before = run(reader, "show", store)
            run(reader, "change", store)
            shown[writer, reader, what] = before, run(reader, "show", store)
            # The writer reads the store that the other machine has changed.
            if run(writer, "show", store) != shown[writer, reader, what][1]:
                raise Failed(f"{writer} sees something else in what {reader} has changed")

        failures = in_parallel([(name, functools.partial(write, name)) for name in programs])
        if failures:
            return 0, failures
        pairs = [(writer, reader, what) for writer in programs for reader in programs for what in ("write", "leave")]
        label = "{2}: written on {0}, read on {1}".format
        failures = in_parallel([(label(*pair), functools.partial(read, *pair)) for pair in pairs])
        for pair, texts in shown.items():
            # All targets must show the text that the first one shows.
            if texts != next(iter(shown.values())):
                failures.append(f"{label(*pair)}: another text than of the first pair")
        return len(pairs) // 2, failures
