"""The list of tests skipped on Windows names existing tests."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from on_windows import LEFT_OUT, UNDER_WINE

REASONS = {**LEFT_OUT, **UNDER_WINE}

TESTS = Path(__file__).resolve().parent


@pytest.mark.parametrize("name", REASONS)
def test_excluded_tests_exist_and_have_reasons(name: str) -> None:
    file, _, test = name.partition("::")
    assert (TESTS / file).is_file()
    functions = {node.name for node in ast.parse((TESTS / file).read_text("utf-8")).body if isinstance(node, ast.FunctionDef)}
    assert not test or test.partition("[")[0] in functions
    assert len(REASONS[name].split()) > 2
