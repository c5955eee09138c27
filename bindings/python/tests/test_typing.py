"""Type annotations: the package passes mypy --strict, correct use (also the documents' code) passes mypy and pyright, and
wrong use is reported.
"""

from __future__ import annotations

import doctest
import pydoc
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import programs

import kvstore

TESTS = Path(__file__).resolve().parent
PYTHON = TESTS.parent


def mypy(*arguments: str, cwd: Path) -> str:
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(cwd / "cache"), *arguments]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300)
    return done.stdout + done.stderr


pytestmark = pytest.mark.skipif(sys.version_info < (3, 10), reason="the last mypy for Python 3.9 judges otherwise")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mypy")


def test_package_passes_mypy_strict(folder: Path) -> None:
    report = mypy("--config-file", str(PYTHON / "pyproject.toml"), "-p", "kvstore", cwd=folder)
    assert report.startswith("Success"), report


def test_mypy_accepts_sample_and_finds_each_expected_error(folder: Path) -> None:
    """Each wrong use in it carries a `type: ignore[...]`, which mypy reports if there is no such error."""
    report = mypy("--config-file", "", "--warn-unused-ignores", str(TESTS / "typing_sample.py"), cwd=folder)
    assert report.startswith("Success"), report


def pyright(*arguments: str, cwd: Path) -> str:
    command = [sys.executable, "-m", "pyright", "--level", "error", "--pythonpath", sys.executable, *arguments]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300)
    return done.stdout + done.stderr


def test_pyright_accepts_the_sample_program(folder: Path) -> None:
    report = pyright(str(TESTS / "typing_sample.py"), cwd=folder)
    assert "0 errors" in report, report


def test_pyright_reports_wrong_use(folder: Path) -> None:
    (folder / "wrong.py").write_text("import kvstore\n\nnumber: int = kvstore.open('x', codec=kvstore.TEXT)['k']\n")
    assert "1 error" in pyright("wrong.py", cwd=folder)


@pytest.mark.parametrize("name, program", programs(), ids=[name for name, _ in programs()])
def test_document_programs_pass_mypy_strict_and_pyright(name: str, program: str, tmp_path: Path) -> None:
    if ">>>" in program:
        program = "".join(example.source for example in doctest.DocTestParser().get_examples(program))
    (tmp_path / "program.py").write_text(program)
    report = mypy("--config-file", "", "program.py", cwd=tmp_path)
    assert report.startswith("Success"), report
    report = pyright("program.py", cwd=tmp_path)
    assert "0 errors" in report, report


def test_help_lists_most_needed_items_first() -> None:
    def places(thing: object, *words: str) -> list[int]:
        text = pydoc.render_doc(thing, renderer=pydoc.plaintext)
        return [text.index(word) for word in words]

    orders = [
        places(kvstore, "kvstore.open(", "db[", "ttl", "prefix=", "codec=", "transaction", "Store", "CLASSES"),
        places(kvstore.Store, "kvstore.open", "db[key]", "get(", "ttl(", "items", "transaction", "Method resolution"),
        places(kvstore.Family, "mapping", "str (stored as UTF-8)", "A TTL is a duration: seconds", ">>>", "Method resolution"),
    ]
    assert [sorted(order) for order in orders] == orders


def test_every_public_name_is_documented_and_exported() -> None:
    for name in kvstore.__all__:
        thing = getattr(kvstore, name)
        if isinstance(thing, type) or callable(thing):
            assert thing.__doc__, name


@pytest.mark.parametrize("cls", [kvstore.Store, kvstore.Family])
def test_every_public_method_is_documented(cls: type) -> None:
    for name in dir(cls):
        if not name.startswith("_"):
            assert getattr(cls, name).__doc__, f"{cls.__name__}.{name}"
