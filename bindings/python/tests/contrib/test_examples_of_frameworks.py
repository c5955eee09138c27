"""The programs of examples/python for frameworks, started as documented there or by the framework's test client.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[4] / "examples" / "python"
pytestmark = pytest.mark.filterwarnings("default")


def example(name: str, folder: Path) -> Path:
    return Path(shutil.copy(EXAMPLES / name, folder))


@contextmanager
def server(command: list[str], folder: Path, ready: str) -> Iterator[str]:
    """Run a server in its own process, on a free port that it prints; yield its address."""
    with open(folder / "log", "w+") as log:
        process = subprocess.Popen(
            [sys.executable, *command], cwd=folder, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
        )
        try:
            deadline = time.monotonic() + 60
            while True:
                found = re.search(ready, (folder / "log").read_text())
                if found:
                    yield f"http://127.0.0.1:{found[1]}/"
                    break
                assert process.poll() is None and time.monotonic() < deadline, (folder / "log").read_text()
                time.sleep(0.05)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as response:
        text: str = response.read().decode()
        return text


def test_preloaded_in_gunicorn(tmp_path: Path) -> None:
    pytest.importorskip("gunicorn")
    example("preloaded.py", tmp_path)
    command = ["-m", "gunicorn", "--preload", "--workers", "3", "--bind", "127.0.0.1:0", "preloaded:application"]
    with server(command, tmp_path, r"Listening at: http://127.0.0.1:(\d+)") as address:
        answers = [get(address) for _ in range(60)]
    assert [int(re.findall(r"\d+", answer)[0]) for answer in answers] == list(range(1, 61))
    assert "Error" not in (tmp_path / "log").read_text()


def test_flask_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("flask", "flask_caching", "flask_session"):
        pytest.importorskip(name)
    monkeypatch.chdir(tmp_path)
    app = load(example("flask_site.py", tmp_path)).app
    ada, bob = app.test_client(), app.test_client()
    assert [ada.get("/").text, ada.get("/").text, bob.get("/").text] == ["visit 1", "visit 2", "visit 1"]
    assert ada.get("/report").text == bob.get("/report").text
    assert (tmp_path / "site.db").exists()


def test_django_site(tmp_path: Path) -> None:
    pytest.importorskip("django")
    program = example("django_site.py", tmp_path)
    check = (
        "import django_site\n"
        "import django; django.setup()\n"
        "from django.test import Client\n"
        "ada, bob = Client(), Client()\n"
        "print([ada.get('/').content.decode(), ada.get('/').content.decode(), bob.get('/').content.decode()])\n"
        "print(ada.get('/report').content == bob.get('/report').content)\n"
    )
    done = subprocess.run([sys.executable, "-c", check], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.stdout == "['visit 1 of 1', 'visit 2 of 2', 'visit 1 of 3']\nTrue\n", done.stderr
    check_only = subprocess.run([sys.executable, program.name, "check"], cwd=tmp_path, capture_output=True, text=True)
    assert check_only.returncode == 0, check_only.stderr


def test_fastapi_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fastapi")
    pytest.importorskip("httpx")
    from fastapi.testclient import TestClient

    monkeypatch.chdir(tmp_path)
    program = load(example("fastapi_app.py", tmp_path))
    with TestClient(program.app) as client:
        for refused in ("Bearer wrong", "Bearer ", "Bearer", ""):
            assert client.get("/me", headers={"Authorization": refused}).status_code == 401
        assert client.get("/me").status_code == 401
        assert client.post("/login", params={"user": ""}).status_code == 422
        token = client.post("/login", params={"user": "ada"}).json()["token"]
        headers = {"Authorization": f"Bearer {token}"}
        assert client.get("/me", headers=headers).json() == {"user": "ada"}
        answers = [client.get("/me", headers=headers) for _ in range(110)]
        assert [answer.status_code for answer in answers] == [200] * 99 + [429] * 11
        assert 0 < int(answers[-1].headers["Retry-After"]) <= 60
    with TestClient(program.app) as client:  # started again, with the same file
        assert client.get("/me", headers=headers).status_code == 429


def load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


