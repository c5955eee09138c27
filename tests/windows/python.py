"""Tests the Python package for Windows: builds a wheel and inspects it. Runs the tests of
bindings/python under wine if KVSTORE_WINDOWS_PYTHON names the folder of a Python for Windows (3.10
or later, with its python.exe), which Debian does not have.

bindings/python/tests/on_windows.py lists the tests that are left out on Windows.
"""

import collections
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import kit
from build import Failed
from kit import ROOT, WORK, run

PACKAGE = ROOT / "bindings/python"
HERE = WORK / "python"
# Time limit for a test file. Files that start many processes take a quarter of an hour on a busy
# machine.
SECONDS = 3600
TOOLS = {"setuptools", "wheel", "build", "cffi"}
WANTED = {"pytest", "pytest-timeout", "hypothesis", "cffi", "typing_extensions"}
# Packages that pytest needs on Windows only. pip decides by the system on which it runs.
BESIDE = ("colorama",)
# Libraries of the system and of any Python 3.
SYSTEM = re.compile(r"(?i)(kernel32|msvcrt|ntdll|userenv|ws2_32|advapi32|bcryptprimitives|python3|api-ms-win-[\w-]+)\.dll")


def requirements(names):
    """Returns the lines of requirements-test.txt for some packages."""
    lines = (PACKAGE / "requirements-test.txt").read_text().splitlines()
    return [line for line in lines if re.split(r"[=\[;]", line)[0].strip() in names]


def tools():
    """Returns the Python that builds the wheel."""
    python = HERE / "tools/bin/python"
    wanted = "\n".join(requirements(TOOLS))
    marker = HERE / "tools/wanted"
    if not marker.exists() or marker.read_text() != wanted:
        shutil.rmtree(HERE / "tools", ignore_errors=True)
        run([sys.executable, "-m", "venv", HERE / "tools"])
        run([python, "-m", "pip", "install", "-q", *requirements(TOOLS)])
        marker.write_text(wanted)
    return python


def wheel(prefix):
    """Builds the wheel with an installed library."""
    for folder in ("build", "egg", "dist"):
        shutil.rmtree(HERE / folder, ignore_errors=True)
    (HERE / "build").mkdir(parents=True)
    (HERE / "egg").mkdir()
    settings = HERE / "setup.cfg"
    settings.write_text(f"[build]\nbuild_base = {HERE}/build\n[egg_info]\negg_base = {HERE}/egg\n")
    environment = {
        **os.environ, "DIST_EXTRA_CONFIG": str(settings), "KVSTORE_TARGET": kit.TRIPLE,
        f"CC_{kit.TRIPLE.replace('-', '_')}": kit.GCC, "KVSTORE_STATIC_LIB": str(prefix / "lib/libkvstore.a"),
    }  # fmt: skip
    command = prefix / "bin/kvstore.exe"
    if command.exists():
        environment["KVSTORE_COMMAND"] = str(command)
    run([tools(), "-m", "build", "--wheel", "--no-isolation", "-o", HERE / "dist", PACKAGE], env=environment)
    (built,) = (HERE / "dist").glob("*.whl")
    return built


def look_into(built):
    """Checks the wheel, and returns the length of its extension. Raises Failed if something is
    wrong."""
    if not re.fullmatch(r"kvstore_ttl-[\d.]+-cp39-abi3-win_amd64\.whl", built.name):
        raise Failed(f"the wheel is {built.name}")
    with zipfile.ZipFile(built) as archive:
        extensions = [name for name in archive.namelist() if name.endswith((".pyd", ".so", ".dll"))]
        if extensions != ["kvstore/_kvstore.pyd"]:
            raise Failed(f"the wheel has {extensions}")
        extension = pathlib.Path(archive.extract(extensions[0], HERE / "looked_into"))
    said = run(["x86_64-w64-mingw32-objdump", "-p", extension], text=True)
    exported = re.findall(r"^\s*\[\s*\d+\](?: \+base\[\s*\d+\]\s+[0-9a-f]+)? (\w*[A-Za-z_]\w*)$", said, re.MULTILINE)
    if exported != ["PyInit__kvstore"]:
        raise Failed(f"the extension exports {exported}")
    strange = [name for name in re.findall(r"DLL Name: (\S+)", said) if not SYSTEM.fullmatch(name)]
    if strange or "DLL Name: python3.dll" not in said:
        raise Failed(f"the extension needs {strange}, or not python3.dll")
    if re.search(r"\.debug_", run(["x86_64-w64-mingw32-objdump", "-h", extension], text=True)):
        raise Failed("the extension is not stripped")
    return extension.stat().st_size


def unix(path):
    """Returns the path by which wine knows a file of this machine."""
    return "Z:" + str(path).replace("/", "\\")


class Windows:
    """A Python for Windows, with the wheel and the packages that its tests need."""

    def __init__(self, folder, built):
        self.python = pathlib.Path(folder).resolve() / "python.exe"
        if not self.python.is_file():
            raise Failed(f"KVSTORE_WINDOWS_PYTHON: there is no {self.python}")
        self.packages = HERE / "packages"
        shutil.rmtree(self.packages, ignore_errors=True)
        version = self.run("-c", "import sys; print('%d.%d' % sys.version_info[:2])").stdout.decode().strip()
        self.version = version
        run([
            tools(), "-m", "pip", "install", "-q", "--target", self.packages, "--only-binary=:all:", "--platform=win_amd64",
            f"--python-version={version}", "--no-warn-conflicts", *requirements(WANTED), *BESIDE,
        ])  # fmt: skip
        with zipfile.ZipFile(built) as archive:
            archive.extractall(self.packages)
        self.run("-m", "compileall", "-q", unix(self.packages))
        # wine 8 lacks it. It is found in the folder of the extension.
        shutil.copy(WORK / "programs/bcryptprimitives.dll", self.packages / "kvstore")

    def run(self, *arguments):
        (HERE / "run").mkdir(parents=True, exist_ok=True)
        environment = {
            **kit.environment(), "PYTHONPATH": unix(self.packages), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUTF8": "1",
        }  # fmt: skip
        # With these variables, tests that need a server or encrypted stores would fail instead of
        # being skipped.
        for name in ("CI", "KVSTORE_TEST_REMOTE"):
            environment.pop(name, None)
        return subprocess.run(
            [*kit.WINE, self.python, *arguments], cwd=HERE / "run", env=environment, stdin=subprocess.DEVNULL,
            capture_output=True, timeout=SECONDS,
        )  # fmt: skip

    def test(self, file):
        """Runs a test file. Returns pytest's output, and the number of tests by result."""
        log = HERE / "logs" / f"{file.stem}.txt"
        log.parent.mkdir(exist_ok=True)
        try:
            done = self.run(
                "-m", "pytest", "-q", "-rfEs", "-o", "timeout=900", "--tb=short", "--color=no", "-c", unix(PACKAGE / "tests/pytest.ini"),
                "--rootdir", unix(PACKAGE), unix(file),
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return {}, [f"{file.name}: not done after {SECONDS} s"]
        said = (done.stdout + done.stderr).decode(errors="replace")
        log.write_text(said)
        lines = said.replace("\r", "").splitlines()
        counts = {}
        for number, what in re.findall(r"(\d+) (passed|failed|skipped|error)s?\b", lines[-1] if lines else ""):
            counts[what] = int(number)
        failures = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
        # 5: no tests were collected.
        if done.returncode not in (0, 5) and not failures:
            failures = [f"{file.name} ended with {done.returncode}: {log}"]
        return counts, failures


def run_tests(built, say):
    """Runs bindings/python/tests. Returns the number of tests by result, and the failures; None
    without a Python for Windows."""
    folder = os.environ.get("KVSTORE_WINDOWS_PYTHON")
    if not folder:
        return None
    # Otherwise each program would wait for its own server and services; tests/windows/run stops
    # them. They keep the stdout of the program that starts them open.
    for command in (["wineserver", "-p"], ["wine", "cmd", "/c", "exit"]):
        subprocess.run(
            command, env=kit.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            check=True,
        )  # fmt: skip
    windows = Windows(folder, built)
    say(f"Python {windows.version} for Windows")
    wanted = os.environ.get("KVSTORE_WINDOWS_TESTS", "*")
    files = sorted((PACKAGE / "tests").glob(f"test_{wanted}.py"))

    def one(file):
        counts, failures = windows.test(file)
        say(f"  {file.name}: {', '.join(f'{number} {what}' for what, number in counts.items())}")
        return counts, failures

    total, failures = collections.Counter(), []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for counts, failed in pool.map(one, files):
            total.update(counts)
            failures += failed
    return total, failures
