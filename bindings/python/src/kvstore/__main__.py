"""The command line of the package: ``python -m kvstore`` runs the ``kvstore`` program.

The program has all commands. For the files of other Python packages, its command ``import`` runs
``python -m kvstore._import`` in turn.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

#: Environment variable: the Python that the program runs.
_PYTHON = "KVSTORE_PYTHON"


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the ``kvstore`` program and return its exit status. On POSIX it replaces this process."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    program = find_program()
    if program is None:
        print(
            "kvstore: this installation of the Python package has no program kvstore: install a wheel that has it, "
            "or install the program in a directory of the PATH",
            file=sys.stderr,
        )
        return 2
    sys.stdout.flush()
    sys.stderr.flush()
    os.environ.setdefault(_PYTHON, sys.executable)
    command = ["kvstore", *arguments]
    if os.name == "nt":  # execv starts a second process on Windows, and the parent of this one would continue at once
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the program handles Ctrl-C
        return subprocess.run(command, executable=program, check=False).returncode
    os.execv(program, command)


def find_program() -> Optional[str]:
    """Return the path of the ``kvstore`` program, or None.

    Looks in the script directories of the environment and of the user, for ``pip install --target``
    in ``bin`` next to the package, and in the PATH.
    """
    schemes = [None, sysconfig.get_preferred_scheme("user")] if hasattr(sysconfig, "get_preferred_scheme") else [None]
    folders = [sysconfig.get_path("scripts", scheme) if scheme else sysconfig.get_path("scripts") for scheme in schemes]
    folders.append(str(Path(__file__).resolve().parent.parent / "bin"))
    for folder in folders:
        program = Path(folder) / ("kvstore" + (sysconfig.get_config_var("EXE") or ""))
        if os.access(program, os.X_OK):
            return str(program)
    return shutil.which("kvstore")


if __name__ == "__main__":
    sys.exit(main())
