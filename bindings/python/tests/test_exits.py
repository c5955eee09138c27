"""Interpreters that end while a store is open, plain and encrypted. exits.py has the programs.

KVSTORE_EXITS sets the number of runs of each kind.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from exits import HOW

import kvstore

PROGRAM = Path(__file__).with_name("exits.py")
RUNS = int(os.environ.get("KVSTORE_EXITS", "2"))
PASSWORDS = ["", "a password"] if kvstore.encryption_available else [""]


@pytest.mark.timeout(180 + 5 * RUNS)
@pytest.mark.parametrize("password", PASSWORDS, ids=["plain", "encrypted"][: len(PASSWORDS)])
@pytest.mark.parametrize("how", HOW)
def test_store_survives_the_end_of_its_interpreter(how: str, password: str, tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    status = -signal.SIGTERM if how == "killed" and os.name == "posix" else 0
    for _ in range(RUNS):
        command = [sys.executable, str(PROGRAM), how, str(path), password]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert (ended.returncode, ended.stderr) == (status, ""), ended.returncode
        with kvstore.open(path, password=password) if password else kvstore.open(path) as db:
            db.integrity_check()
