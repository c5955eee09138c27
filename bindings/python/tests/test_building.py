"""The linker settings of setup.py on systems that no test runs on. Nothing is built: the arguments for setuptools are checked.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers import PYTHON, ROOT, assert_clean, run_python

#: SYSTEM LIBRARY FOLDER: prints the settings of build_ext and the default of KVSTORE_REMOTE. Generates no C source.
PROGRAM = """
import json, runpy, sys
import setuptools, setuptools.command.build_ext
system, library, folder = sys.argv[1:]
told = {}
setuptools.setup = lambda **settings: None
setuptools.command.build_ext.build_ext.build_extension = lambda self, ext: told.update(vars(ext))
sys.platform = system
setup = runpy.run_path("setup.py")
import build_native, build_windows
build_native.ffibuilder = lambda crate: type("Builder", (), {"emit_c_code": lambda self, path: None})()
build = setup["BuildExtension"](setuptools.Distribution())
build.build_temp = folder
build.build_extension(setuptools.Extension("kvstore._kvstore", []))
print(json.dumps({"remote": setup["REMOTE"], **{n: told[n] for n in ("libraries", "library_dirs", "extra_link_args")}}))
"""


def told(system: str, folder: Path, library: str = "libkvstore.a", **environment: str) -> dict[str, Any]:
    pytest.importorskip("setuptools")
    (folder / library).touch()
    clean = dict.fromkeys(
        ["KVSTORE_TARGET", "KVSTORE_ENCRYPTION", "KVSTORE_REMOTE", "OPENSSL_DIR", "OPENSSL_LIB_DIR", "OPENSSL_INCLUDE_DIR"], ""
    )
    given = {**clean, "KVSTORE_STATIC_LIB": str(folder / library), "PYTHONDONTWRITEBYTECODE": "1", **environment}
    done = run_python(PROGRAM, system, library, str(folder), cwd=PYTHON, env=given)
    assert_clean(done)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def native_libraries(name: str) -> list[str]:
    """Return the system libraries of a line in packaging/native-libraries, which the installed files name."""
    lines = [line.split() for line in (ROOT / "packaging" / "native-libraries").read_text(encoding="utf-8").splitlines()]
    return next(line[1:] for line in lines if line[0] == name)


def frameworks(arguments: list[str]) -> list[str]:
    return [name for flag, name in zip(arguments, arguments[1:]) if flag == "-framework"]


@pytest.mark.parametrize("library", ["libkvstore.a", "kvstore.lib"])
@pytest.mark.parametrize("encryption, made", [("", "vendored"), ("vendored", "vendored"), ("no", "no")])
def test_windows_build_links_like_installed_library(library: str, encryption: str, made: str, tmp_path: Path) -> None:
    expected = native_libraries("windows") + (native_libraries("windows-encryption") if made == "vendored" else [])
    assert len(expected) >= 6
    assert told("win32", tmp_path, library, KVSTORE_ENCRYPTION=encryption)["libraries"] == expected


def test_windows_build_excludes_server_stores(tmp_path: Path) -> None:
    assert told("win32", tmp_path)["remote"] == "no"
    assert told("win32", tmp_path, KVSTORE_REMOTE="yes")["remote"] == "yes", "who asks for them is told by the compiler"
    assert told("darwin", tmp_path)["remote"] == "yes"


@pytest.mark.parametrize("remote, is_remote", [("", True), ("yes", True), ("no", False)])
def test_macos_build_links_like_installed_library(remote: str, is_remote: bool, tmp_path: Path) -> None:
    got = told("darwin", tmp_path, KVSTORE_REMOTE=remote)
    assert got["libraries"] == native_libraries("apple")
    assert frameworks(got["extra_link_args"]) == (native_libraries("apple-frameworks") if is_remote else [])
    assert "-Wl,-exported_symbol,_PyInit__kvstore" in got["extra_link_args"]


def test_macos_encryption_links_system_or_given_openssl(tmp_path: Path) -> None:
    (tmp_path / "openssl" / "lib").mkdir(parents=True)
    folder = str(tmp_path / "openssl")
    without = {"KVSTORE_ENCRYPTION": "system", "KVSTORE_REMOTE": "no"}
    own = told("darwin", tmp_path, **without)
    assert frameworks(own["extra_link_args"]) == ["Security", "CoreFoundation"]
    assert "crypto" not in own["libraries"]
    named = told("darwin", tmp_path, **without, OPENSSL_DIR=folder)
    assert frameworks(named["extra_link_args"]) == []
    assert (named["libraries"][-1], named["library_dirs"]) == ("crypto", [str(tmp_path / "openssl" / "lib")])
    named = told("darwin", tmp_path, **without, OPENSSL_LIB_DIR="/there/lib", OPENSSL_INCLUDE_DIR="/there/include")
    assert (named["libraries"][-1], named["library_dirs"]) == ("crypto", [str(Path("/there/lib"))])
    assert told("darwin", tmp_path, OPENSSL_DIR=folder)["library_dirs"] == [], "the default has one of its own inside"
