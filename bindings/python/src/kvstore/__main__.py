"""``python -m kvstore``: commands on stores. Each is a function of its own module; here is only the choice."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Optional

import kvstore
from kvstore import _import


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Runs a command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m kvstore", description=kvstore.__doc__.splitlines()[0])
    parser.add_argument("--version", action="version", version=f"kvstore {kvstore.__version__}")
    commands = parser.add_subparsers(title="commands", dest="command", required=True)
    _import.add_command(commands)
    chosen = parser.parse_args(arguments)
    code: int = chosen.run(chosen)
    return code


if __name__ == "__main__":
    sys.exit(main())
