"""The package uses every function of the C header, and repeats none of its constants."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

PYTHON = Path(__file__).resolve().parents[1]
HEADER = PYTHON.parents[1] / "include" / "kvstore.h"
MODULES = sorted((PYTHON / "src" / "kvstore").rglob("*.py"))
BUILDER = PYTHON / "build_native.py"

LIST = PYTHON / "unreached.txt"
NOT_USED = dict(
    line.split(": ", 1) for line in LIST.read_text().splitlines() if line.strip() and not line.startswith("#")
)
"""Functions that the package does not use, each with the reason."""


def without_comments(header: str) -> str:
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", header, flags=re.DOTALL)


def declared() -> set[str]:
    return set(re.findall(r"\b(kvstore_\w+)\s*\(", without_comments(HEADER.read_text())))


def used_in_python() -> set[str]:
    names = set()
    for module in MODULES:
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.Attribute) and node.attr.startswith("kvstore_"):
                names.add(node.attr)
    return names


def used_in_c() -> set[str]:
    """Return the calls in the C source that build_native.py passes to the compiler (its string constants)."""
    names = set()
    for node in ast.walk(ast.parse(BUILDER.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            names |= set(re.findall(r"\b(kvstore_\w+)\s*\(", without_comments(node.value)))
    for file in PYTHON.glob("*.c"):
        names |= set(re.findall(r"\b(kvstore_\w+)\s*\(", without_comments(file.read_text())))
    return names


def test_header_declarations_are_found() -> None:
    assert {"kvstore_open", "kvstore_cf_get_many", "kvstore_backup"} <= declared()
    assert len(declared()) > 90


def test_every_header_function_is_used_or_listed_as_unused() -> None:
    assert declared() - used_in_python() - used_in_c() - set(NOT_USED) == set()


def test_unused_list_has_no_used_or_unknown_function() -> None:
    assert set(NOT_USED) & (used_in_python() | used_in_c()) == set()
    assert set(NOT_USED) - declared() == set()


@pytest.mark.parametrize("name", sorted(NOT_USED))
def test_every_reason_is_a_sentence(name: str) -> None:
    assert len(NOT_USED[name].split()) >= 4


def test_header_constants_are_not_copied_by_hand() -> None:
    wrong = []
    for module in MODULES:
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, ast.Constant):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    name = getattr(target, "id", getattr(target, "attr", ""))
                    if name.upper().startswith("KVSTORE_") and isinstance(node.value.value, int):
                        wrong.append(f"{module.name}:{node.lineno} {name}")
    constants = re.findall(r"#define (KVSTORE_\w+)", HEADER.read_text())
    for module in [*MODULES, BUILDER]:
        for number, line in enumerate(module.read_text().splitlines(), 1):
            for name in constants:
                if re.search(rf"\b{name}\b\s*[:=]?\s*(int\s*=\s*)?\(?-?\d", line) and "==" not in line:
                    wrong.append(f"{module.name}:{number} {name}")
    assert wrong == []


def test_header_declarations_are_not_copied_into_package() -> None:
    """A prototype in the package (as opposed to a call) would be a copy that can become outdated."""
    names = "|".join(sorted(declared()))
    prototype = re.compile(rf"^\s*(?:int|void|const char \*|int64_t|void \*)\s*\*?({names})\s*\([^;{{]*\)\s*;", re.MULTILINE)
    for file in [*MODULES, BUILDER]:
        assert prototype.findall(file.read_text()) == [], file.name
