"""Every public name of snkv 0.8 exists, with the same parameters and numbers. derive_api.py created the list.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
from pathlib import Path
from typing import Any

import pytest

import kvstore.snkv as snkv

HERE = Path(__file__).resolve().parent
EXPECTED: dict[str, Any] = json.loads((HERE / "api_0_8.json").read_text())


def described() -> dict[str, Any]:
    spec = importlib.util.spec_from_file_location("derive_api", HERE / "derive_api.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    result: dict[str, Any] = module.describe(snkv)
    return result


ACTUAL = described()


def test_api_list_is_not_empty() -> None:
    assert len(EXPECTED["classes"]["KVStore"]) > 40
    assert len(EXPECTED["all"]) == 20


@pytest.mark.parametrize("part", ["all", "constants", "exceptions", "stats"])
def test_names_constants_and_base_classes_match_snkv(part: str) -> None:
    assert ACTUAL[part] == EXPECTED[part]


@pytest.mark.parametrize("name", EXPECTED["classes"])
def test_classes_have_members_and_parameters_of_snkv(name: str) -> None:
    assert ACTUAL["classes"][name] == EXPECTED["classes"][name]


@pytest.mark.parametrize("name", EXPECTED["all"])
def test_every_name_is_an_attribute_of_the_module(name: str) -> None:
    assert name in dir(snkv)


@pytest.mark.parametrize("cls", [snkv.KVStore, snkv.ColumnFamily, snkv.Iterator])
def test_every_public_method_has_a_docstring(cls: type) -> None:
    for name, member in inspect.getmembers(cls):
        if not name.startswith("_"):
            assert inspect.getdoc(member), name


@pytest.mark.parametrize("name", EXPECTED["exceptions"])
def test_exceptions_are_caught_by_the_names_of_kvstore_too(name: str) -> None:
    from kvstore import _errors

    assert issubclass(getattr(snkv, name), getattr(_errors, name))
    assert issubclass(getattr(snkv, name), _errors.Error)
