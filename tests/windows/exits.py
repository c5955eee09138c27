"""Programs that end while a store is open (`tests/c/exits.c`), on Windows. `KVSTORE_EXITS` sets the
number of runs of each kind."""

import functools
import os
import pathlib
import shutil
import tempfile

from programs import in_parallel

RUNS = int(os.environ.get("KVSTORE_EXITS", "5"))
# "openssl_first" is about the OpenSSL of the system, which Windows does not have.
KINDS = ("closed_by_handler", "left_open", "cleaner", "threads", "used_by_handler", "unloaded")
KEY = "x'" + "07" * 32 + "'"


def ends(compiler, program, kind, password):
    """Runs a program that ends with the store open, and checks the store, `RUNS` times."""
    with tempfile.TemporaryDirectory(prefix="kvstore-windows-") as folder:
        library = []
        if kind == "unloaded":
            # The program is linked with the DLL itself, so it loads a copy.
            shutil.copy(compiler.folder / "kvstore.dll", pathlib.Path(folder) / "copy.dll")
            library = ["copy.dll"]
        for _ in range(RUNS):
            compiler.run(program, kind, "a.db", password, *library, cwd=folder)
            compiler.run(program, "check", "a.db", password, cwd=folder)


def run(compiler, is_encrypted):
    """Returns the number of runs that ended well, and the failures."""
    program = compiler.build("tests/c/exits.c")
    tasks = [
        (f"exit {kind}{', encrypted' if password else ''}", functools.partial(ends, compiler, program, kind, password))
        for kind in KINDS
        for password in (("", KEY) if is_encrypted else ("",))
    ]
    failures = in_parallel(tasks)
    return RUNS * (len(tasks) - len(failures)), failures
