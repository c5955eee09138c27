"""Fixtures for all tests: a path, a fixed clock, a store that uses it, and a server. Helpers are in helpers.py.

With KVSTORE_TEST_REMOTE=1 the path is the URL of a store on the server, and only tests that use the path run, except those
marked as being about files.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import on_windows
import pytest
from helpers import Clock
from postgres import Server, programs

import kvstore
from kvstore._store_state import StoreState

REMOTE = os.environ.get("KVSTORE_TEST_REMOTE") == "1"

_schemas = itertools.count()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if os.name == "nt":
        for item in items:
            why = on_windows.reason(item.path.name, item.name)
            if why:
                item.add_marker(pytest.mark.skip(reason=why))
    if not REMOTE:
        return

    def uses_a_server(item: pytest.Item) -> bool:
        return bool({"path", "file"} & set(getattr(item, "fixturenames", ()))) and not item.get_closest_marker("files")

    left_out = [item for item in items if not uses_a_server(item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A PostgreSQL server."""
    found = programs()
    if found is None:
        if os.environ.get("CI") or REMOTE:
            pytest.fail("no PostgreSQL is installed: apt-get install postgresql")
        pytest.skip("no PostgreSQL is installed, and so nothing was tried on a server: apt-get install postgresql")
    if not kvstore.remote_available:
        if os.environ.get("CI") or REMOTE:
            pytest.fail("this build of kvstore has no stores on servers: KVSTORE_REMOTE=yes, or cargo's feature remote")
        pytest.skip("this build of kvstore has no stores on servers")
    running = Server(found)
    yield running
    running.close()


@pytest.fixture
def url(server: Server) -> Iterator[str]:
    """The URL of a store on the server that does not exist yet."""
    made = server.url(f"s{next(_schemas)}")
    yield made
    server.set_clock(made, None)


@pytest.fixture
def path(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A file that does not exist yet, or a URL."""
    if not REMOTE:
        return tmp_path / "test.db"
    _use_clocks_of(request.getfixturevalue("server"), monkeypatch)
    return request.getfixturevalue("url")


def _use_clocks_of(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make set_clock set the clock of the server, and let the store follow its jumps, which real servers do not make."""
    clocks: dict[str, Clock] = {}
    set_clock, now_ms = kvstore.Store.set_clock, StoreState.now_ms

    def set_servers_clock(self: Any, clock: Any) -> None:
        if self.path is None or not self._state.pool.remote:
            return set_clock(self, clock)
        self._state.handle()
        if clock is None:
            clocks.pop(self.path, None)
            return server.set_clock(self.path, None)
        if not isinstance(clock, Clock):
            pytest.skip("a clock of its own, which a store on a server has not")
        url = self.path
        clocks[url] = clock
        clock.tell(lambda now_s: server.set_clock(url, str(round(now_s * 1000))))

    def servers_now_ms(self: Any) -> int:
        clock = clocks.get(os.fsdecode(self.pool.path))
        return now_ms(self) if clock is None else round(clock() * 1000)

    monkeypatch.setattr(kvstore.Store, "set_clock", set_servers_clock)
    monkeypatch.setattr(StoreState, "now_ms", servers_now_ms)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def db(path: Path, clock: Clock) -> Iterator[kvstore.Store]:
    with kvstore.open(path, busy_timeout=0, sync="off") as store:
        store.set_clock(clock)
        yield store
