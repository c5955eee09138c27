"""The Python programs in the documents run as printed, in an empty directory."""

from __future__ import annotations

import importlib.metadata
import os
from pathlib import Path

import pytest
from helpers import assert_clean, programs, run_python

import kvstore

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("name, program", programs(), ids=[name for name, _ in programs()])
def test_python_programs_of_documents_run(name: str, program: str, tmp_path: Path) -> None:
    if name == "docs/how-to/encrypt.md" and not kvstore.encryption_available and not os.environ.get("CI"):
        pytest.skip("the library has no encryption")
    if ">>>" in program:
        (tmp_path / "session.txt").write_text(program)
        code = "import doctest, sys; sys.exit(doctest.testfile('session.txt', module_relative=False).failed > 0)"
        result = run_python(code, cwd=tmp_path)
    else:
        (tmp_path / "program.py").write_text(program)
        result = run_python(tmp_path / "program.py", cwd=tmp_path)
    assert_clean(result)


def test_package_readme_contains_program() -> None:
    assert any(name.endswith("bindings/python/README.md") for name, _ in programs())


def test_package_description_is_readme_without_repository_links() -> None:
    metadata = importlib.metadata.metadata("kvstore-ttl")
    text = metadata["Description"] or metadata.get_payload()
    assert "# kvstore for Python" in text
    assert "](../" not in text
    assert "`docs/reference/ttl.md`" in text


def test_quickstart_prints_same_output_as_other_languages(tmp_path: Path) -> None:
    for _ in range(2):  # the second time it finds the store of the first
        result = run_python(ROOT / "examples" / "quickstart.py", cwd=tmp_path)
        assert_clean(result)
        assert result.stdout == "user:1 is Ada\nuser:1 = Ada\nuser:2 = Bob\n"
