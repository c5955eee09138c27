"""The command line of the package: ``python -m kvstore`` runs the ``kvstore`` program of the wheel,
or the command ``import``.

``import`` is written in Python because it reads the files of other packages with those packages'
own code.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

import kvstore
from kvstore import _import

#: Environment variable: the Python that the command runs for the subcommands written in Python.
_PYTHON = "KVSTORE_PYTHON"


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run a command of ``python -m kvstore`` and return its exit status.

    On POSIX, all commands but ``import`` replace this process.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    program = None if arguments[:1] == ["import"] else _program()
    if program is not None:
        sys.stdout.flush()
        sys.stderr.flush()
        os.environ.setdefault(_PYTHON, sys.executable)
        command = ["kvstore", *arguments]
        if os.name == "nt":  # execv starts a second process on Windows, and the parent of this one would continue at once
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command handles Ctrl-C
            return subprocess.run(command, executable=program, check=False).returncode
        os.execv(program, command)
    parser = argparse.ArgumentParser(
        prog="python -m kvstore",
        description=kvstore.__doc__.splitlines()[0],
        epilog="The other commands need the kvstore program, which is not part of this installation.",
    )
    parser.add_argument("--version", action="version", version=f"kvstore {kvstore.__version__}")
    commands = parser.add_subparsers(title="commands", dest="command", required=True)
    _import.add_command(commands)
    chosen = parser.parse_args(arguments)
    code: int = chosen.run(chosen)
    return code


def _program() -> Optional[str]:
    """Return the path of the ``kvstore`` program that was installed with this package, or None.

    Looks in the script directories of the environment and of the user, and, for ``pip install
    --target``, in ``bin`` next to the package.
    """
    schemes = [None, sysconfig.get_preferred_scheme("user")] if hasattr(sysconfig, "get_preferred_scheme") else [None]
    folders = [sysconfig.get_path("scripts", scheme) if scheme else sysconfig.get_path("scripts") for scheme in schemes]
    folders.append(str(Path(__file__).resolve().parent.parent / "bin"))
    for folder in folders:
        program = Path(folder) / ("kvstore" + (sysconfig.get_config_var("EXE") or ""))
        if os.access(program, os.X_OK):
            return str(program)
    return None


if __name__ == "__main__":
    sys.exit(main())
