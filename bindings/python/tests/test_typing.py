"""The annotations: the package is clean under mypy --strict, right use passes, and wrong use is found."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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


def test_the_package_is_clean_under_mypy_strict(folder: Path) -> None:
    report = mypy("--config-file", str(PYTHON / "pyproject.toml"), "-p", "kvstore", cwd=folder)
    assert report.startswith("Success"), report


def test_the_sample_program_is_clean_and_each_expected_error_is_one(folder: Path) -> None:
    """Each wrong use in it carries a `type: ignore[...]`, which mypy reports if there is no such error."""
    report = mypy("--config-file", "", "--warn-unused-ignores", str(TESTS / "typing_sample.py"), cwd=folder)
    assert report.startswith("Success"), report


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
