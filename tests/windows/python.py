"""The Python package for Windows: a wheel, built and looked into; and the tests of bindings/python under wine, if
KVSTORE_WINDOWS_PYTHON names the folder of a Python for Windows (3.10 or later, with its python.exe), which Debian has not.

What the tests leave out on Windows stands in bindings/python/tests/on_windows.py.
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
# A file of tests that takes longer hangs. Those that start many processes take a quarter of an hour on a busy machine.
SECONDS = 3600
TOOLS = {"setuptools", "wheel", "build", "cffi"}
WANTED = {"pytest", "pytest-timeout", "hypothesis", "cffi", "typing_extensions"}
# What pytest wants on Windows only: pip asks about the system it runs on.
BESIDE = ("colorama",)
# The libraries of the system, and of any Python 3.
SYSTEM = re.compile(r"(?i)(kernel32|msvcrt|ntdll|userenv|ws2_32|advapi32|bcryptprimitives|python3|api-ms-win-[\w-]+)\.dll")


def requirements(names):
    """The lines of requirements-test.txt about some packages."""
    lines = (PACKAGE / "requirements-test.txt").read_text().splitlines()
    return [line for line in lines if re.split(r"[=\[;]", line)[0].strip() in names]


def tools():
    """The Python that builds the wheel."""
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
    """Builds the wheel around a library that is installed."""
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
    """Failed if the wheel is not what it should be; how long the extension is."""
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
    """A path of this machine, as wine has it."""
    return "Z:" + str(path).replace("/", "\\")


class Windows:
    """A Python for Windows, with the wheel and what its tests need beside it."""

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
        # wine 8 lacks it; where the extension is, it is found.
        shutil.copy(WORK / "programs/bcryptprimitives.dll", self.packages / "kvstore")

    def run(self, *arguments):
        (HERE / "run").mkdir(parents=True, exist_ok=True)
        environment = {
            **kit.environment(), "PYTHONPATH": unix(self.packages), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUTF8": "1",
        }  # fmt: skip
        # In CI a test fails that wants what is not there: a server, encrypted stores.
        for name in ("CI", "KVSTORE_TEST_REMOTE"):
            environment.pop(name, None)
        return subprocess.run(
            ["wine", self.python, *arguments], cwd=HERE / "run", env=environment, stdin=subprocess.DEVNULL,
            capture_output=True, timeout=SECONDS,
        )  # fmt: skip

    def test(self, file):
        """Runs a file of tests: what pytest says, and how many tests ended how."""
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
    """Runs bindings/python/tests; counts by what became of the tests, and failures. None: there is no Python for it."""
    folder = os.environ.get("KVSTORE_WINDOWS_PYTHON")
    if not folder:
        return None
    # Else each program waits for a server and services of its own; tests/windows/run stops them. They keep open what the
    # program that starts them has as stdout.
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
