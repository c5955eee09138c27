"""Tests the command kvstore on Windows: its own tests, and the files that `make install-windows`
installs."""

import pathlib
import re
import subprocess
import tempfile

from kit import ROOT, WINE, WORK, Failed, cargo_test, environment, library, run
from symbols import imports

# DLLs of every Windows. (api-ms-... are names for parts of them.)
OF_WINDOWS = {
    "advapi32", "bcrypt", "bcryptprimitives", "combase", "crypt32", "gdi32", "kernel32", "msvcrt", "ntdll", "ole32", "shell32",
    "user32", "userenv", "ws2_32",
}  # fmt: skip


def left_out():
    """Returns the tests of the command that are for Unix only: their number by reason."""
    reasons = {}
    for path in sorted((ROOT / "command/tests/cli").glob("*.rs")):
        text = path.read_text()
        if whole := re.search(r"^#!\[cfg\(unix\)\] // (.+)$", text, re.MULTILINE):
            reasons[whole[1]] = reasons.get(whole[1], 0) + len(re.findall(r"^ *#\[test\]$", text, re.MULTILINE))
        for reason in re.findall(r"^ *#\[test\]\n *#\[cfg\(unix\)\] // (.+)$", text, re.MULTILINE):
            reasons[reason] = reasons.get(reason, 0) + 1
    return reasons


def tests():
    """Returns the number of tests passed."""
    return cargo_test("--package", "kvstore-cli")


def installed():
    """Installs the command and uses it. Raises Failed if something is wrong."""
    prefix = library("btree", "command", COMMAND="yes")
    command = prefix / "bin/kvstore.exe"
    strange = {name for name in imports(command) if name not in OF_WINDOWS and not name.startswith("api-ms-win-")}
    if strange:
        raise Failed(f"kvstore.exe needs {', '.join(sorted(strange))}, which not every Windows has")
    run(["cp", WORK / "programs/bcryptprimitives.dll", prefix / "bin"])

    def kvstore(*words, code=0, given=b""):
        done = subprocess.run([*WINE, command, *words], input=given, capture_output=True, cwd=folder, env=environment())
        if done.returncode != code:
            raise Failed(f"kvstore {' '.join(words)} ended with {done.returncode}: {done.stderr.decode()}")
        return done.stdout

    with tempfile.TemporaryDirectory(prefix="kvstore-windows-") as folder:
        value = bytes(range(256))
        kvstore("put", "a.db", "k", "-", "--ttl", "1h", given=value)
        if kvstore("get", "a.db", "k") != value:
            raise Failed("bytes do not come out as they went in")
        kvstore("get", "a.db", "none", code=1)
        kvstore("get", "none.db", "k", code=3)
        kvstore("nonsense", code=2)
        kvstore("dump", "a.db", "-o", "a.jsonl")
        kvstore("load", "b.db", "a.jsonl")
        if kvstore("shell", "b.db", given=b"put k 1\r\nincr k\r\nget k\r\n") != b"2\n2":
            raise Failed(f"the shell: {kvstore('get', 'b.db', 'k')}")
        if b"Register-ArgumentCompleter" not in kvstore("completions", "powershell"):
            raise Failed("there are no completions for PowerShell")
        if sorted(path.name for path in pathlib.Path(folder).iterdir()) != ["a.db", "a.jsonl", "b.db"]:
            raise Failed("files are left")
