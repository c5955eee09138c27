"""The examples in the package's docstrings are correct."""

from __future__ import annotations

import doctest
import importlib
import os
import pkgutil
from pathlib import Path

import pytest

import kvstore
from kvstore import aio, recipes, snkv

MODULES = [
    "kvstore",
    *(f"kvstore.{m.name}" for m in pkgutil.iter_modules(kvstore.__path__) if m.name != "_kvstore"),
    *(m.name for part in (recipes, aio, snkv) for m in pkgutil.iter_modules(part.__path__, f"{part.__name__}.")),
]


@pytest.mark.parametrize("name", MODULES)
def test_module_examples_are_correct(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(name)
    result = doctest.testmod(module, extraglobs={"kvstore": kvstore})
    assert result.failed == 0
    assert os.listdir(tmp_path) == [] or name == "kvstore.snkv"


def test_examples_exist() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    assert sum(len(test.examples) for name in MODULES for test in finder.find(importlib.import_module(name))) > 10
