"""Helpers of several test files: the clock, and running Python in another process. No fixtures, no tests."""

from __future__ import annotations

import os
import pickle
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable

import pytest

import kvstore
from kvstore.__main__ import find_program

PYTHON = Path(__file__).resolve().parents[1]
ROOT = PYTHON.parents[1]
#: Documents that contain Python programs.
DOCUMENTS = [PYTHON / "README.md", ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

#: Ends a process at once, with the exit status KILLED.
KILL = getattr(signal, "SIGKILL", signal.SIGTERM)
KILLED = -KILL if os.name == "posix" else 1
#: Acts like Ctrl-C. On Windows, where it cannot be sent to a single process, it ends the process.
INTERRUPT = signal.SIGINT if os.name == "posix" else signal.SIGTERM

START_S = 1_700_000_000.0


class Bomb:
    """Counts how often an object of this class was unpickled."""

    exploded = 0

    def __reduce__(self) -> Any:
        return _explode, ()


def _explode() -> None:
    Bomb.exploded += 1


#: A pickle of a Bomb in each protocol.
BOMBS = [pickle.dumps(Bomb(), protocol) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]


class Clock:
    """A clock that moves only on request, in seconds since the epoch, as time.time returns."""

    def __init__(self, now_s: float = START_S) -> None:
        self._told: list[Callable[[float], object]] = []
        self._now_s = now_s

    @property
    def now_s(self) -> float:
        return self._now_s

    @now_s.setter
    def now_s(self, now_s: float) -> None:
        self._now_s = now_s
        for told in self._told:
            told(now_s)

    def __call__(self) -> float:
        return self._now_s

    def advance(self, seconds: float) -> None:
        self.now_s += seconds

    def tell(self, whom: Callable[[float], object]) -> None:
        """Call a function with the time now and after each change."""
        self._told.append(whom)
        whom(self._now_s)


def run_python(
    code: str | Path, *args: str, cwd: Path | None = None, timeout: float = 120, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run code (or a file) in a fresh interpreter that reports crashes and all warnings."""
    head = [sys.executable, "-X", "faulthandler", "-W", "error"]
    source = [str(code)] if isinstance(code, Path) else ["-c", code]
    return subprocess.run(
        head + source + list(args),
        cwd=cwd,
        timeout=timeout,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def assert_clean(result: subprocess.CompletedProcess[str], stdout: str | None = None) -> None:
    """Assert exit status 0, nothing on stderr, and (if given) this text on stdout."""
    report = f"exit code {result.returncode}\n--- stdout\n{result.stdout}\n--- stderr\n{result.stderr}"
    assert result.returncode == 0, report
    assert result.stderr == "", report
    if stdout is not None:
        assert result.stdout.strip() == stdout, report


def open_files_of(path: Path) -> int:
    """Return the number of open descriptors of the store's WAL. On Windows, 1 stands for any number.

    Descriptors of the other files may stay open for reuse by the next open.
    """
    if os.name == "nt":
        log = Path(f"{path}-wal")
        try:
            os.rename(log.rename(f"{path}-moved"), log)
        except OSError:  # it is open, or not there
            return int(log.exists())
        return 0
    folder = Path("/proc/self/fd")
    if not folder.exists():
        pytest.skip("no /proc here")
    found = 0
    for link in folder.iterdir():
        try:
            found += os.readlink(link).startswith(f"{path}-wal")
        except OSError:
            pass
    return found


def increment(path: str, times: int) -> None:
    """Increment a counter; run by multiprocessing, which must be able to import it."""
    with kvstore.open(path, busy_timeout=60) as store:
        for _ in range(times):
            store.incr("n")


def name_of(value: object) -> str:
    """Return the repr without addresses, as a test ID: all workers of pytest-xdist need the same IDs."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value), flags=re.IGNORECASE)


class Prefixed:
    """A user-defined codec for text."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    def dumps(self, value: str) -> str:
        return self.prefix + value

    def loads(self, data: bytes) -> str:
        text = data.decode()
        if not text.startswith(self.prefix):
            raise ValueError("not one of ours")
        return text[len(self.prefix) :]


def use_store(store: kvstore.Store, family: kvstore.Family, number: int) -> object:
    """Use a store and a family that were passed to a process of a pool."""
    store.incr("n")
    family[f"{number}"] = number
    return store["shared"]


def programs() -> list[tuple[str, str]]:
    """Return the Python blocks of each document as one program: later blocks build on earlier ones."""
    found = []
    for document in DOCUMENTS:
        text = document.read_text() if document.exists() else ""
        blocks = re.findall(r"^```(?:python|py)\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
        if blocks:
            found.append((document.relative_to(ROOT).as_posix(), "\n".join(blocks)))
    return found


def carried_recipes(lock: Any, again: Any, slots: Any, limiter: Any, jobs: Any, tags: Any) -> None:
    """Use recipe objects in another process, while the parent holds the lock and a slot."""
    assert not lock.owned() and not lock.acquire(blocking=False)
    assert again.acquire(blocking=False) and again.acquire()
    assert slots.acquire(blocking=False) and slots.slot == 1
    assert limiter.hit("k").remaining == 4
    with jobs.get(block=False) as message:
        assert message.value == b"x"
    tags.put("key", b"v", ["t"])


def run_import(source: Any, target: Any, *options: Any, python: Any = sys.executable) -> int:
    """Run ``kvstore import`` with an interpreter, print what it prints, and return its exit status."""
    program = find_program()
    if program is None:
        pytest.skip("installed without the program kvstore")
    environment = {**os.environ, "KVSTORE_PYTHON": str(python)}
    command = [program, "import", str(target), str(source), *map(str, options)]
    done = subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", timeout=120)
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    return done.returncode


def content(target: Path, family: str = "default") -> dict[bytes, bytes]:
    """Return the content of a family of a closed store."""
    with kvstore.open(target, read_only=True) as store:
        return dict(store.family(family).items())


def make_damaged_store(path: Path) -> None:
    """Create a store with a readable header and no other valid byte."""
    kvstore.open(path).close()
    data = path.read_bytes()
    path.write_bytes(data[:100] + bytes(len(data) - 100))
