"""Builds the Rust library as a static one and links it into the extension: one file, nothing beside it. And the
command ``kvstore``, a program of its own, which goes where a wheel has its scripts.

Environment:
  KVSTORE_STATIC_LIB   use this libkvstore.a instead of building one (packagers)
  KVSTORE_COMMAND      use this program as the command; with KVSTORE_STATIC_LIB alone, the wheel has no command
  KVSTORE_ENCRYPTION   "vendored" (default): with encrypted stores, and an OpenSSL inside, which is built with perl and
                       make; "system": with the OpenSSL of the system; "no": without
  KVSTORE_REMOTE       "yes" (default): with stores on PostgreSQL servers; "no" (default for Windows): without
  KVSTORE_TARGET       "x86_64-pc-windows-gnu" on another system: a wheel for Windows, by mingw-w64 (see build_windows.py)
  CARGO                the cargo to use
  CARGO_TARGET_DIR     as for cargo itself

The extension is stripped, unless the build is one for debugging (``build_ext --debug``).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Mapping

from setuptools import Command, Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))  # PEP 517 builds do not have this directory on the path

import build_apple  # noqa: E402
import build_native  # noqa: E402
import build_windows  # noqa: E402

#: What of the crate its build needs. Cargo looks for the file of each [[bench]], also when it builds none.
CRATE_FILES = [
    "Cargo.toml", "Cargo.lock", "build.rs", "cbindgen.toml", ".cargo/config.toml", "README.md", "LICENSE*",
    "src/**/*.rs", "src/**/*.sql", "src/**/*.c", "src/**/*.h", "include/*", "benches/*.rs",
    "command/Cargo.toml", "command/src/**/*.rs",
]  # fmt: skip

#: The stable ABI of CPython 3.9: one wheel for all later versions. Free-threaded builds do not have it.
STABLE_ABI = not sysconfig.get_config_var("Py_GIL_DISABLED")


def crate_version(crate: Path) -> str:
    package = (crate / "Cargo.toml").read_text(encoding="utf-8").split("[package]", 1)[1].split("\n[", 1)[0]
    found = re.search(r'^version\s*=\s*"([^"]+)"', package, flags=re.MULTILINE)
    if found is None:
        raise SystemExit(f"kvstore: {crate / 'Cargo.toml'} has no version")
    return found[1]


def description() -> str:
    """The README as package indexes show it, where links to files of the repository would lead nowhere."""
    text = (HERE / "README.md").read_text(encoding="utf-8")
    return re.sub(r"\[([^][]+)\]\(\.\./[^()]*\)", r"`\1`", text)


#: How the library encrypts, and the feature of the crates that says so.
ENCRYPTION = os.environ.get("KVSTORE_ENCRYPTION") or "vendored"
FEATURES = {"vendored": ["--features=encryption-vendored-openssl"], "system": ["--features=encryption"], "no": []}
#: Whether stores can be on a server, and the feature that says so. For Windows that part of the library does not build.
REMOTE = os.environ.get("KVSTORE_REMOTE") or ("no" if build_windows.for_windows() else "yes")
REMOTE_FEATURES = {"yes": ["--features=remote"], "no": []}


def given(variable: str) -> Path | None:
    """The file that a variable of the environment names."""
    name = os.environ.get(variable)
    if not name:
        return None
    path = Path(name)
    if not path.is_file():
        raise SystemExit(f"kvstore: {variable} is {name}, which is no file")
    return path.resolve()


def static_library(crate: Path) -> Path:
    """The path of libkvstore.a, which is built if none is given."""
    path = given("KVSTORE_STATIC_LIB")
    if path:
        return path
    for artifact in built(crate, "--package", "kvstore-ttl", "--lib"):
        if artifact.suffix in (".a", ".lib") and ".dll" not in artifact.suffixes:  # no import library
            return artifact
    raise SystemExit("kvstore: cargo named no static library among what it built")


#: Whether the wheel has the command: not if the library was built elsewhere, and the command was not.
WITH_COMMAND = bool(os.environ.get("KVSTORE_COMMAND")) or not os.environ.get("KVSTORE_STATIC_LIB")


def command(crate: Path) -> Path:
    """The path of the program kvstore, which is built if none is given."""
    path = given("KVSTORE_COMMAND")
    if path:
        return path
    for artifact in built(crate, "--package", "kvstore-cli", "--bin", "kvstore"):
        if artifact.stem == "kvstore" and artifact.suffix in ("", ".exe"):
            return artifact
    raise SystemExit("kvstore: cargo named no program among what it built")


def runs(command: list[str]) -> bool:
    try:
        return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0
    except OSError:
        return False


def without_lto(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables with flags for C that ask for link-time optimisation, changed: rustc cannot list what is in GCC's bytecode."""
    flags = {
        name: text
        for name, text in environment.items()
        if name in ("CFLAGS", "TARGET_CFLAGS", "HOST_CFLAGS") or name.startswith("CFLAGS_")
    }
    return {name: f"{text} -fno-lto" for name, text in flags.items() if "-flto" in text}


def built(crate: Path, *what: str) -> list[Path]:
    """The files of a build by cargo."""
    cargo = os.environ.get("CARGO") or shutil.which("cargo")
    if not cargo:
        raise SystemExit(
            "kvstore: to build from source, cargo (Rust 1.90 or later) must be on the PATH: see https://rustup.rs.\n"
            "Or set KVSTORE_STATIC_LIB to a libkvstore.a that was built elsewhere."
        )
    # In the crate's directory: cargo looks from there for .cargo/config.toml, which has SQLite's flags.
    if ENCRYPTION not in FEATURES:
        raise SystemExit(f"kvstore: KVSTORE_ENCRYPTION is {ENCRYPTION!r}, and must be one of {', '.join(FEATURES)}")
    if REMOTE not in REMOTE_FEATURES:
        raise SystemExit(f"kvstore: KVSTORE_REMOTE is {REMOTE!r}, and must be one of {', '.join(REMOTE_FEATURES)}")
    # A part of Debian's perl is always there, which is not enough.
    tools = ["perl", "-MIPC::Cmd", "-MFindBin", "-e", "1"], ["make", "--version"]
    if ENCRYPTION == "vendored" and not all(map(runs, tools)):
        raise SystemExit(
            "kvstore: to build OpenSSL, perl and make must be on the PATH. Install them; or set KVSTORE_ENCRYPTION to "
            "'system' for the OpenSSL of the system (libssl-dev on Debian), or to 'no' for a build without encryption."
        )
    target = build_windows.cargo_target()
    what = (*what, *FEATURES[ENCRYPTION], *REMOTE_FEATURES[REMOTE], *(["--target", target] if target else []))
    build = [cargo, "build", "--release", "--locked", *what, "--message-format=json-render-diagnostics"]
    environment = {**os.environ, **build_windows.cargo_environment(), **without_lto(os.environ)}
    done = subprocess.run(build, cwd=crate, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"kvstore: {' '.join(build)} failed in {crate}")
    messages = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    artifacts = [message for message in messages if message.get("reason") == "compiler-artifact"]
    return [Path(name) for artifact in artifacts if artifact["target"]["name"] == "kvstore" for name in artifact["filenames"]]


class BuildExtension(build_ext):
    """Builds the library, writes the C source, compiles and links."""

    def finalize_options(self) -> None:
        if sys.platform == "win32" and self.compiler is None and build_windows.is_gnu():
            self.compiler = "mingw32"  # else it would be MSVC
        super().finalize_options()

    def get_ext_filename(self, fullname: str) -> str:
        name: str = super().get_ext_filename(fullname)
        return str(Path(name).with_name("_kvstore.pyd")) if build_windows.cross() else name

    def get_libraries(self, ext: Extension) -> list[str]:
        if STABLE_ABI and sys.platform == "win32" and build_windows.is_gnu():
            return [*ext.libraries, "python3"]  # else it would be python39.dll's extension, and of no other
        libraries: list[str] = super().get_libraries(ext)
        return libraries

    def build_extension(self, ext: Extension) -> None:
        crate = build_native.crate_root()
        source = Path(self.build_temp) / "_kvstore.c"
        source.parent.mkdir(parents=True, exist_ok=True)
        builder = build_native.ffibuilder(crate)
        builder.emit_c_code(str(source))
        library = static_library(crate)
        ext.sources = [str(source)]
        ext.include_dirs = [str(crate / "include"), str(HERE)]
        ext.extra_objects = [str(library)]
        ours = [str(HERE / name) for name in ("shim.h", "shim.c", "rows.c", "handles.c", "blocks.c", "module.c")]
        ext.depends = [str(library), str(crate / "include" / "kvstore.h"), *ours]
        ext.extra_compile_args = ["-fvisibility=hidden"]
        # SQLite is inside: none of its names may be seen from outside, nor bind to another copy's.
        if build_windows.for_windows():
            build_windows.prepare(self, ext, ENCRYPTION != "no")
        elif sys.platform == "darwin":
            build_apple.prepare(ext, ENCRYPTION, REMOTE != "no")
        else:
            exported = source.with_suffix(".map")
            exported.write_text("{ global: PyInit__kvstore; local: *; };\n", encoding="utf-8")
            ext.extra_link_args = [f"-Wl,--version-script={exported}", "-Wl,-Bsymbolic", "-Wl,--gc-sections"]
            if not self.debug:
                ext.extra_link_args.append("-Wl,--strip-all")
            ext.libraries = ["pthread", "dl", "m", *(["crypto"] if ENCRYPTION == "system" else [])]
        super().build_extension(ext)


class BuildCommand(Command):
    """Puts the program among the scripts. (setuptools' own build_scripts takes only what is text.)"""

    user_options = [("build-dir=", "d", "directory to copy to"), ("build-temp=", "t", "ignored"),
                    ("executable=", "e", "ignored"), ("force", "f", "ignored")]  # fmt: skip

    def initialize_options(self) -> None:
        self.build_dir: str | None = None
        self.build_temp = self.executable = self.force = None

    def finalize_options(self) -> None:
        self.set_undefined_options("build", ("build_scripts", "build_dir"))

    def run(self) -> None:
        program = command(build_native.crate_root())
        assert self.build_dir is not None
        target = Path(self.build_dir) / program.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(program, target)
        if build_windows.for_windows():
            strip = build_windows.strip()
        else:
            strip = None if sys.platform == "darwin" else shutil.which(os.environ.get("STRIP", "strip"))
        if strip:
            subprocess.run([strip, "--strip-all", str(target)], check=False)
        target.chmod(0o755)

    def get_source_files(self) -> list[str]:
        return []

    def get_outputs(self) -> list[str]:
        return [str(file) for file in Path(self.build_dir or "").glob("kvstore*")]


class SourceDistribution(sdist):
    """Adds the crate, under crate/."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        crate = build_native.crate_root()
        for pattern in CRATE_FILES:
            for source in crate.glob(pattern):
                if source.is_file():
                    target = Path(base_dir) / "crate" / source.relative_to(crate)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(source, target)
        for link in Path(base_dir).glob("LICENSE*"):  # links to the crate's, in the repository
            link.unlink()
            shutil.copy2(crate / link.name, link)


setup(
    version=crate_version(build_native.crate_root()),
    long_description=description(),
    long_description_content_type="text/markdown",
    ext_modules=[
        Extension(
            build_native.MODULE,
            sources=[],
            py_limited_api=STABLE_ABI,
            define_macros=[("Py_LIMITED_API", "0x03090000")] if STABLE_ABI else [],
        )
    ],
    cmdclass={"build_ext": BuildExtension, "build_scripts": BuildCommand, "sdist": SourceDistribution},
    options={
        "bdist_wheel": {
            **({"py_limited_api": "cp39"} if STABLE_ABI else {}),
            **({"plat_name": "win_amd64"} if build_windows.cross() else {}),
        }
    },
    # The name of what BuildCommand makes: without one, setuptools installs no scripts.
    scripts=["kvstore"] if WITH_COMMAND else [],
    zip_safe=False,
)
