"""Build the Rust library as a static library and link it into the extension, so that the package is one file. Also build the
command ``kvstore``, a separate program, which is installed among the scripts.

Environment:
  KVSTORE_STATIC_LIB   use this libkvstore.a instead of building one (for packagers)
  KVSTORE_COMMAND      use this program as the command; with KVSTORE_STATIC_LIB alone, the wheel has no command
  KVSTORE_ENCRYPTION   "vendored" (default): encrypted stores with a bundled OpenSSL, which is built with perl and make;
                       "system": with the system's OpenSSL; "no": without encrypted stores
  KVSTORE_REMOTE       "yes" (default): stores on PostgreSQL servers; "no" (default for Windows): without them
  KVSTORE_TARGET       "x86_64-pc-windows-gnu" on another system: build a wheel for Windows with mingw-w64 (see
                       build_windows.py)
  CARGO                the cargo to use
  CARGO_TARGET_DIR     as for cargo itself

The extension is stripped, except in debug builds (``build_ext --debug``).
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

#: The files of the crate that its build needs. Cargo requires the file of each [[bench]], even if it builds none.
CRATE_FILES = [
    "Cargo.toml", "Cargo.lock", "build.rs", ".cargo/config.toml", "README.md", "LICENSE*",
    "src/**/*.rs", "src/**/*.sql", "src/**/*.c", "src/**/*.h", "include/*", "benches/*.rs",
    "command/Cargo.toml", "command/src/**/*.rs", "xtask/Cargo.toml", "xtask/src/*.rs",
]  # fmt: skip

#: The stable ABI of CPython 3.9: one wheel for all later versions. Free-threaded builds do not support it.
STABLE_ABI = not sysconfig.get_config_var("Py_GIL_DISABLED")


def crate_version(crate: Path) -> str:
    package = (crate / "Cargo.toml").read_text(encoding="utf-8").split("[package]", 1)[1].split("\n[", 1)[0]
    found = re.search(r'^version\s*=\s*"([^"]+)"', package, flags=re.MULTILINE)
    if found is None:
        raise SystemExit(f"kvstore: {crate / 'Cargo.toml'} has no version")
    return found[1]


def description() -> str:
    """Return the README for package indexes, where relative links would not work: their paths become text."""
    text = (HERE / "README.md").read_text(encoding="utf-8")
    return re.sub(r"\[([^][]+)\]\((?:\.\./)+([^()#]*)[^()]*\)", r"\1 (`\2`)", text)


#: How stores are encrypted, and the corresponding cargo features.
ENCRYPTION = os.environ.get("KVSTORE_ENCRYPTION") or "vendored"
FEATURES = {"vendored": ["--features=encryption-vendored-openssl"], "system": ["--features=encryption"], "no": []}
#: Whether stores on a server are supported, and the cargo feature. That part does not build for Windows.
REMOTE = os.environ.get("KVSTORE_REMOTE") or ("no" if build_windows.for_windows() else "yes")
REMOTE_FEATURES = {"yes": ["--features=remote"], "no": []}


def given(variable: str) -> Path | None:
    """Return the file that an environment variable names, or None."""
    name = os.environ.get(variable)
    if not name:
        return None
    path = Path(name)
    if not path.is_file():
        raise SystemExit(f"kvstore: {variable} is {name}, which is not a file: give the path of an existing file")
    return path.resolve()


def static_library(crate: Path) -> Path:
    """Return the path of libkvstore.a, and build it if none is given."""
    path = given("KVSTORE_STATIC_LIB")
    if path:
        return path
    for artifact in built(crate, "rustc", "--package", "kvstore-ttl", "--lib", "--crate-type", "staticlib"):
        if artifact.suffix in (".a", ".lib") and ".dll" not in artifact.suffixes:  # not an import library
            return artifact
    raise SystemExit("kvstore: cargo built no static library")


#: Whether the wheel contains the command: not if the library was built elsewhere and no command is given.
WITH_COMMAND = bool(os.environ.get("KVSTORE_COMMAND")) or not os.environ.get("KVSTORE_STATIC_LIB")


def command(crate: Path) -> Path:
    """Return the path of the program kvstore, and build it if none is given."""
    path = given("KVSTORE_COMMAND")
    if path:
        return path
    for artifact in built(crate, "build", "--package", "kvstore-cli", "--bin", "kvstore"):
        if artifact.stem == "kvstore" and artifact.suffix in ("", ".exe"):
            return artifact
    raise SystemExit("kvstore: cargo built no program named kvstore: check the package kvstore-cli")


def runs(command: list[str]) -> bool:
    try:
        return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0
    except OSError:
        return False


def without_lto(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the CFLAGS variables that ask for link-time optimisation, with it turned off.

    rustc cannot read the symbols of GCC's LTO bytecode.
    """
    flags = {
        name: text
        for name, text in environment.items()
        if name in ("CFLAGS", "TARGET_CFLAGS", "HOST_CFLAGS") or name.startswith("CFLAGS_")
    }
    return {name: f"{text} -fno-lto" for name, text in flags.items() if "-flto" in text}


def built(crate: Path, command: str, *what: str) -> list[Path]:
    """Run cargo, and return the files it built."""
    cargo = os.environ.get("CARGO") or shutil.which("cargo")
    if not cargo:
        raise SystemExit(
            "kvstore: building from source needs cargo (Rust 1.90 or later) on the PATH: see https://rustup.rs.\n"
            "Or set KVSTORE_STATIC_LIB to a libkvstore.a that was built elsewhere."
        )
    # Runs in the crate's directory, where cargo finds .cargo/config.toml with the flags for SQLite.
    if ENCRYPTION not in FEATURES:
        raise SystemExit(f"kvstore: KVSTORE_ENCRYPTION must be one of {', '.join(FEATURES)}, not {ENCRYPTION!r}")
    if REMOTE not in REMOTE_FEATURES:
        raise SystemExit(f"kvstore: KVSTORE_REMOTE must be one of {', '.join(REMOTE_FEATURES)}, not {REMOTE!r}")
    # Debian always installs a minimal perl, which is not sufficient.
    tools = ["perl", "-MIPC::Cmd", "-MFindBin", "-e", "1"], ["make", "--version"]
    if ENCRYPTION == "vendored" and not all(map(runs, tools)):
        raise SystemExit(
            "kvstore: building OpenSSL needs perl and make on the PATH: install them, or set KVSTORE_ENCRYPTION to 'system' "
            "to use the system's OpenSSL (libssl-dev on Debian), or to 'no' to build without encryption."
        )
    target = build_windows.cargo_target()
    what = (*what, *FEATURES[ENCRYPTION], *REMOTE_FEATURES[REMOTE], *(["--target", target] if target else []))
    build = [cargo, command, "--release", "--locked", *what, "--message-format=json-render-diagnostics"]
    environment = {**os.environ, **build_windows.cargo_environment(), **without_lto(os.environ)}
    done = subprocess.run(build, cwd=crate, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"kvstore: {' '.join(build)} failed in {crate}")
    messages = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    artifacts = [message for message in messages if message.get("reason") == "compiler-artifact"]
    return [Path(name) for artifact in artifacts if artifact["target"]["name"] == "kvstore" for name in artifact["filenames"]]


class BuildExtension(build_ext):
    """Build the library, generate the C source, compile and link."""

    def finalize_options(self) -> None:
        if sys.platform == "win32" and self.compiler is None and build_windows.is_gnu():
            self.compiler = "mingw32"  # the default is MSVC
        super().finalize_options()

    def get_ext_filename(self, fullname: str) -> str:
        name: str = super().get_ext_filename(fullname)
        return str(Path(name).with_name("_kvstore.pyd")) if build_windows.cross() else name

    def get_libraries(self, ext: Extension) -> list[str]:
        if STABLE_ABI and sys.platform == "win32" and build_windows.is_gnu():
            return [*ext.libraries, "python3"]  # otherwise the extension would depend on one version, such as python39.dll
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
        ours = [str(HERE / name) for name in ("shim.h", "shim.c", "rows.c", "handles.c", "values.c", "waits.c", "blocks.c", "module.c")]
        ext.depends = [str(library), str(crate / "include" / "kvstore.h"), *ours]
        ext.extra_compile_args = ["-fvisibility=hidden"]
        # The symbols of the bundled SQLite must not be exported, nor bind to another copy of SQLite.
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
    """Copy the program to the scripts. (The build_scripts of setuptools only accepts text files.)"""

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
    """Add the crate under crate/."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        crate = build_native.crate_root()
        for pattern in CRATE_FILES:
            for source in crate.glob(pattern):
                if source.is_file():
                    target = Path(base_dir) / "crate" / source.relative_to(crate)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(source, target)
        for link in Path(base_dir).glob("LICENSE*"):  # symbolic links to the crate's files, in the repository
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
    # The name of the file that BuildCommand creates: setuptools installs no scripts without one.
    scripts=["kvstore"] if WITH_COMMAND else [],
    zip_safe=False,
)
