"""No program crashes the interpreter through the package.

The programs are in crashers.py. Each runs in its own process, with faulthandler, in an empty directory.
KVSTORE_FUZZ_SEED and KVSTORE_FUZZ_ROUNDS control the fuzz loop.
"""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest
from helpers import assert_clean, run_python

CRASHERS = Path(__file__).with_name("crashers.py")
FIRST_SEED = int(os.environ.get("KVSTORE_FUZZ_SEED", "1"))
ROUNDS = int(os.environ.get("KVSTORE_FUZZ_ROUNDS", "4"))

CASES = [
    node.name
    for node in ast.parse(CRASHERS.read_text()).body
    if isinstance(node, ast.FunctionDef)
    and any(isinstance(decorator, ast.Name) and decorator.id == "case" for decorator in node.decorator_list)
]


@pytest.mark.parametrize("case", [name for name in CASES if name != "fuzz"])
def test_misuse_does_not_crash_interpreter(case: str, tmp_path: Path) -> None:
    assert_clean(run_python(CRASHERS, case, str(FIRST_SEED), cwd=tmp_path))


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + ROUNDS))
def test_random_calls_do_not_crash_interpreter(seed: int, tmp_path: Path) -> None:
    assert_clean(run_python(CRASHERS, "fuzz", str(seed), cwd=tmp_path))
