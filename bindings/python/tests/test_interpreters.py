"""Several interpreters in a process, as in mod_wsgi and uWSGI: with one GIL and one extension module."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from helpers import assert_clean, run_python

PROGRAM = """
import sys
try:
    import _interpreters
    make = lambda: _interpreters.create("legacy")
except ImportError:
    import _xxsubinterpreters as _interpreters
    make = lambda: _interpreters.create(isolated=False)

def run(interpreter, code):
    failed = _interpreters.run_string(interpreter, code)
    assert failed is None, failed  # before 3.13 it raises

SECOND = '''
import kvstore
db = kvstore.open("store")
with db.transaction():
    db["second"] = b"2"
assert (b"second", b"2") in list(db.items()), list(db.items())
assert getattr(db, "".join(["ge", "t"]))("second") == b"2"
'''
"""


@pytest.fixture(autouse=True)
def _interpreters() -> None:
    for name in ("_interpreters", "_xxsubinterpreters"):
        try:
            importlib.import_module(name)
        except ImportError:
            continue
        return
    pytest.skip("this Python has no module that makes interpreters")


def test_second_interpreter_works_and_first_stores_continue(tmp_path: Path) -> None:
    program = PROGRAM + (
        "import kvstore, gc\n"
        "db = kvstore.open('store')\n"
        "db['first'] = b'1'\n"
        "rows = iter(db.items())\n"
        "for _ in range(2):\n"
        "    second = make()\n"
        "    run(second, SECOND)\n"
        "    assert db['first'] == b'1' and db['second'] == b'2'\n"
        "    run(second, 'db[\"second\"]; db.close()')\n"
        "    _interpreters.destroy(second)\n"
        "    gc.collect()\n"
        "    [str(number) * 2 for number in range(10000)]  # in the memory that it has left\n"
        "    assert db['first'] == b'1' and db.pop('second') == b'2' and 'second' not in db\n"
        "    with db.transaction():\n"
        "        db['first'] = b'1'\n"
        "    family = db.family('other', create=True)\n"
        "    family['key'] = b'value'\n"
        "    assert list(family.items()) == [(b'key', b'value')]\n"
        "assert list(rows) == [(b'first', b'1')]\n"
        "db.close()\n"
    )
    assert_clean(run_python(program, cwd=tmp_path), "")


def test_main_interpreter_may_import_package_second(tmp_path: Path) -> None:
    program = PROGRAM + (
        "second = make()\n"
        "run(second, SECOND)\n"
        "import kvstore\n"
        "db = kvstore.open('store')\n"
        "assert db['second'] == b'2' and list(db) == [b'second']\n"
        "run(second, 'db[\"second\"] = b\"3\"; db.close()')\n"
        "_interpreters.destroy(second)\n"
        "assert db['second'] == b'3'\n"
        "db.close()\n"
    )
    assert_clean(run_python(program, cwd=tmp_path), "")


def test_each_interpreter_has_own_types(tmp_path: Path) -> None:
    program = PROGRAM + (
        "import kvstore._native as native\n"
        "second = make()\n"
        "same = 'import kvstore._native as n; assert {} not in [id(n.Rows), id(n.Handles)], n'\n"
        "run(second, same.format(id(native.Rows)))\n"
        "run(second, same.format(id(native.Handles)))\n"
        "_interpreters.destroy(second)\n"
    )
    assert_clean(run_python(program, cwd=tmp_path), "")
