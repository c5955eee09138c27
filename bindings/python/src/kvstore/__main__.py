"""``python -m kvstore``: the command ``kvstore``, which the wheel brings, and ``import``, which is written in Python
because other packages' files are read with their own code."""

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

#: Tells the program which Python to run for what is written in it.
_PYTHON = "KVSTORE_PYTHON"


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Runs a command; returns its exit code, if it returns."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    program = None if arguments[:1] == ["import"] else _program()
    if program is not None:
        sys.stdout.flush()
        sys.stderr.flush()
        os.environ.setdefault(_PYTHON, sys.executable)
        command = ["kvstore", *arguments]
        if os.name == "nt":  # there execv starts a second process, and who waits for this one goes on at once
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the program's
            return subprocess.run(command, executable=program, check=False).returncode
        os.execv(program, command)
    parser = argparse.ArgumentParser(
        prog="python -m kvstore",
        description=kvstore.__doc__.splitlines()[0],
        epilog="The other commands are the program kvstore's, which this installation does not have.",
    )
    parser.add_argument("--version", action="version", version=f"kvstore {kvstore.__version__}")
    commands = parser.add_subparsers(title="commands", dest="command", required=True)
    _import.add_command(commands)
    chosen = parser.parse_args(arguments)
    code: int = chosen.run(chosen)
    return code


def _program() -> Optional[str]:
    """Where the program was installed with this package: among the scripts of the environment or of the user, or, by
    ``pip install --target``, beside the package."""
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
