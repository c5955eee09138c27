"""docs/reference/options.md names every option of every language, and no other."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
MARK = "<!-- table: read by bindings/python/tests/test_options_page.py -->"
LANGUAGES = {1: "C", 2: "Rust", 3: "C++", 4: "Python"}


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def named_on_the_page(column: int) -> set[str]:
    table = text("docs/reference/options.md").split(MARK)[1].strip().split("\n\n")[0]
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines()[2:]]
    assert all(len(row) == 5 for row in rows), rows
    return {name for row in rows for name in re.findall(r"`(\w+)`", row[column])}


def of_c() -> set[str]:
    struct = re.search(r"typedef struct \{([^}]*)\} KVStoreConfig;", text("include/kvstore.h"))
    assert struct
    code = re.sub(r"/\*.*?\*/", "", struct[1], flags=re.DOTALL)
    return set(re.findall(r"(\w+)(?:\[\d+\])?;", code))


def of_rust() -> set[str]:
    methods = text("src/config.rs").split("impl Config {")[1].split("\n}\n")[0]
    hidden = set(re.findall(r"#\[doc\(hidden\)\]\s+(?:#\[.*\]\s+)*pub fn (\w+)", methods))
    return set(re.findall(r"^    pub fn (\w+)", methods, flags=re.MULTILINE)) - hidden


def of_cpp() -> set[str]:
    header = text("bindings/cpp/include/kvstore/config.hpp")
    struct = re.search(r"^struct config \{\n(.*?)^\};", header, flags=re.DOTALL | re.MULTILINE)
    assert struct
    return set(re.findall(r"^    [\w:<>]+ (\w+)(?: =|\{).*;$", struct[1], flags=re.MULTILINE))


def of_python() -> set[str]:
    settings = text("bindings/python/src/kvstore/_options.py").split("class Settings(")[1].split("\n\n\n")[0]
    return set(re.findall(r"^    (\w+): ", settings, flags=re.MULTILINE))


@pytest.mark.parametrize("column, options_of", list(enumerate([of_c, of_rust, of_cpp, of_python], 1)))
def test_options_page_names_every_option_and_no_other(column: int, options_of: Callable[[], set[str]]) -> None:
    options = options_of()
    assert len(options) > 10, f"few options of {LANGUAGES[column]} were found: {options}"
    assert named_on_the_page(column) == options
