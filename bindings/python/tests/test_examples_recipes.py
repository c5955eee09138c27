"""The programs of examples/python about recipes and asyncio print what they should, in an empty directory."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import INTERRUPT, KILL, assert_clean, run_python

import kvstore

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "python"


def start(name: str, *arguments: str, cwd: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", str(EXAMPLES / name), *arguments]
    return subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_lock_example_lets_one_process_make_report(tmp_path: Path) -> None:
    first = start("lock.py", "60", cwd=tmp_path)
    assert first.stdout is not None
    assert first.stdout.readline() == "making the report\n"
    second = run_python(EXAMPLES / "lock.py", "0", cwd=tmp_path)
    assert (second.returncode, second.stdout, second.stderr) == (1, "another process makes the report\n", "")
    first.send_signal(INTERRUPT)
    first.communicate()
    with kvstore.open(tmp_path / "jobs.db") as db:
        db.family("recipes.locks").clear()  # a minute later
    assert_clean(run_python(EXAMPLES / "lock.py", "0", cwd=tmp_path), "making the report\ndone")
    with kvstore.open(tmp_path / "jobs.db") as db:
        assert db["report"].startswith(b"made under number ")


def test_job_queue_example_processes_all_jobs(tmp_path: Path) -> None:
    put = run_python(EXAMPLES / "job_queue.py", "put", "ada", "nobody", "bob", cwd=tmp_path)
    assert_clean(put, "QueueSizes(ready=3, delayed=0, taken=0, dead=0)")
    worked = run_python(EXAMPLES / "job_queue.py", "work", cwd=tmp_path)
    assert_clean(worked)
    assert worked.stdout.splitlines() == [
        "sending to ada",
        *(f"attempt {number}: there is no such address" for number in (1, 2, 3)),
        "sending to bob",
        "QueueSizes(ready=0, delayed=0, taken=0, dead=1)",
        "gave up: nobody",
    ]


def test_rate_limit_example_refuses_sixth_try_in_minute(tmp_path: Path) -> None:
    def log_in(password: str) -> tuple[int, str]:
        done = run_python(EXAMPLES / "rate_limit.py", "ada", password, cwd=tmp_path)
        return done.returncode, (done.stdout + done.stderr).strip()

    assert run_python(EXAMPLES / "rate_limit.py", cwd=tmp_path).stderr == "usage: python rate_limit.py USER PASSWORD\n"
    for left in (4, 3, 2, 1, 0):
        assert log_in("guess") == (1, f"wrong password; {left} tries left")
    code, text = log_in("secret")
    assert code == 1 and text.startswith("too many tries")
    with kvstore.open(tmp_path / "logins.db") as db:
        db.family("recipes.rates").clear()
    assert log_in("secret") == (0, "welcome, ada")


def test_cache_example_computes_once_until_forgotten(tmp_path: Path) -> None:
    program = EXAMPLES / "cache_decorator.py"
    assert_clean(run_python(program, "Oslo", "Oslo", cwd=tmp_path), "computing for Oslo\nsunny in Oslo\nsunny in Oslo")
    assert_clean(run_python(program, "Oslo", "Rome", cwd=tmp_path), "sunny in Oslo\ncomputing for Rome\nsunny in Rome")
    assert_clean(run_python(program, "--forget", "Rome", cwd=tmp_path), "forgot 2\ncomputing for Rome\nsunny in Rome")


@pytest.mark.parametrize("end", [INTERRUPT, KILL])
def test_asyncio_service_example_keeps_sessions(tmp_path: Path, end: int) -> None:
    for number in (1, 2):
        service = start("asyncio_service.py", cwd=tmp_path)
        assert service.stdout is not None
        port = int(service.stdout.readline().split()[-1])
        with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            lines = connection.makefile("rw")

            def ask(line: str, lines: object = lines) -> str:
                lines.write(line + "\n")  # type: ignore[attr-defined]
                lines.flush()  # type: ignore[attr-defined]
                return str(lines.readline().strip())  # type: ignore[attr-defined]

            assert ask("get ada") == ("none" if number == 1 else "1")
            assert ask(f"put ada {number}") == f"login {number}"
            assert (ask("get ada"), ask("list"), ask("x")) == (str(number), "ada", "what?")
            lines.close()
        service.send_signal(end)
        _, error = service.communicate(timeout=60)
        assert error == ""
