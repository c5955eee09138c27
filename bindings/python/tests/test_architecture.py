"""The source of the package: which file imports which."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src" / "kvstore"
FILES = {
    ".".join(("kvstore", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in SOURCE.rglob("*.py*")
    if path.suffix in (".py", ".pyi")
}


@functools.lru_cache(maxsize=None)
def imports(module: str) -> set[str]:
    """Return the modules of the package that a module imports, also for type checkers only."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(FILES[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                found.add(name if name in FILES else node.module)
    return found & set(FILES) - {module}


def reachable(module: str) -> set[str]:
    found: set[str] = set()
    new = imports(module)
    while new:
        found |= new
        new = {name for known in new for name in imports(known)} - found
    return found


def test_import_rings_have_at_most_two_files() -> None:
    reached = {module: reachable(module) for module in FILES}
    rings = {frozenset(b for b in reached[a] if a in reached[b]) for a in FILES}
    assert max(map(len, rings)) <= 2, rings
    assert {"kvstore.aio._store", "kvstore.aio._transaction"} in rings  # rings are found at all


def test_only_lowest_modules_import_the_extension() -> None:
    assert {module for module in FILES if "kvstore._kvstore" in imports(module)} == {
        "kvstore._errors",
        "kvstore._hints",
        "kvstore._native",
    }
