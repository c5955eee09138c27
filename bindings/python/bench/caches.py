"""Compare the Django cache of kvstore with Django's own caches, and kvstore with redis-py.

    bindings/python/bench/run caches [--rounds N] [--calls N]

Every cache does the same calls in turns, round after round; the table has the median of the rounds,
in microseconds per call. Redis runs on a Unix socket without persistence (Debian: apt-get install
redis-server; without it, its columns are missing).
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Callable

SHORT, LONG = "v" * 100, "v" * 1_000_000
#: Calls with values of 1 MB per round, and rows that other calls find in the cache.
LONG_CALLS, ROWS = 20, 2_000
#: Seconds; longer than a run.
TTL = 86_400


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=2000, help="calls per round")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="caches-") as name:
        folder = Path(name)
        server, socket = start_redis(folder)
        try:
            compare("Django", django_caches(folder, socket), DJANGO_CALLS, given)
            compare("key-value interface", plain_stores(folder, socket), PLAIN_CALLS, given)
        finally:
            if server is not None:
                server.terminate()
                server.wait()


def start_redis(folder: Path) -> tuple[Any, str]:
    """Start a Redis server. Return its process, None if it is not installed, and its socket."""
    socket = str(folder / "redis.sock")
    if shutil.which("redis-server") is None:
        return None, socket
    command = ["redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no"]
    server = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
    while not Path(socket).exists():
        if server.poll() is not None:
            raise SystemExit("caches: redis-server ended")
        time.sleep(0.01)
    return server, socket


def django_caches(folder: Path, socket: str) -> dict[str, Any]:
    backends = {
        "kvstore": ("kvstore.contrib.django.cache.KVStoreCache", str(folder / "cache.db")),
        "file": ("django.core.cache.backends.filebased.FileBasedCache", str(folder / "files")),
        "database": ("django.core.cache.backends.db.DatabaseCache", "cache_table"),
    }
    if Path(socket).exists():
        backends["redis"] = ("django.core.cache.backends.redis.RedisCache", f"unix://{socket}")
    most = {"file": {"MAX_ENTRIES": 10**9}, "database": {"MAX_ENTRIES": 10**9}}
    import django
    from django.conf import settings

    settings.configure(
        SECRET_KEY="benchmark",
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(folder / "django.sqlite3")}},
        CACHES={
            "default" if name == "kvstore" else name: {
                "BACKEND": backend, "LOCATION": location, "OPTIONS": most.get(name, {}),
            }
            for name, (backend, location) in backends.items()
        },
    )  # fmt: skip
    django.setup()
    from django.core.cache import caches
    from django.core.management import call_command
    from django.db import connection

    connection.cursor().execute("PRAGMA journal_mode = WAL")
    connection.cursor().execute("PRAGMA synchronous = NORMAL")
    call_command("createcachetable", verbosity=0)
    return {name: caches["default" if name == "kvstore" else name] for name in backends}


DJANGO_CALLS: dict[str, Callable[[Any, int], object]] = {
    "get, 100 bytes": lambda cache, n: cache.get(f"row:{n * 7 % ROWS}"),
    "get, no such key": lambda cache, n: cache.get(f"none:{n}"),
    "get_many of 10": lambda cache, n: cache.get_many([f"row:{(n + i) % ROWS}" for i in range(10)]),
    "set, 100 bytes": lambda cache, n: cache.set(f"row:{n * 7 % ROWS}", SHORT, TTL),
    "set_many of 10": lambda cache, n: cache.set_many({f"row:{(n + i) % ROWS}": SHORT for i in range(10)}, TTL),
    "add of an existing key": lambda cache, n: cache.add(f"row:{n * 7 % ROWS}", SHORT, TTL),
    "incr": lambda cache, n: cache.incr("counter"),
    "touch": lambda cache, n: cache.touch(f"row:{n * 7 % ROWS}", TTL),
    "set, 1 MB": lambda cache, n: cache.set(f"long:{n % 10}", LONG, TTL),
    "get, 1 MB": lambda cache, n: cache.get(f"long:{n % 10}"),
    "delete and set": lambda cache, n: (cache.delete(f"row:{n % ROWS}"), cache.set(f"row:{n % ROWS}", SHORT, TTL)),
}


def plain_stores(folder: Path, socket: str) -> dict[str, Any]:
    import kvstore

    stores: dict[str, Any] = {"kvstore": Plain(kvstore.open(folder / "plain.db"))}
    if Path(socket).exists():
        import redis

        stores["redis-py"] = redis.Redis(unix_socket_path=socket, db=1)
    return stores


class Plain:
    """A store with the names and arguments of redis-py's client."""

    def __init__(self, db: Any) -> None:
        self.get = db.get
        self.mget = db.get_many
        self.set = lambda key, value, ex: db.put(key, value, ttl=ex)
        self.incr = db.incr


PLAIN_CALLS: dict[str, Callable[[Any, int], object]] = {
    "get, 100 bytes": lambda store, n: store.get(f"row:{n * 7 % ROWS}"),
    "get, no such key": lambda store, n: store.get(f"none:{n}"),
    "get of 10 keys": lambda store, n: store.mget([f"row:{(n + i) % ROWS}" for i in range(10)]),
    "put with a TTL, 100 bytes": lambda store, n: store.set(f"row:{n * 7 % ROWS}", SHORT, ex=TTL),
    "increment": lambda store, n: store.incr("counter"),
    "put, 1 MB": lambda store, n: store.set(f"long:{n % 10}", LONG, ex=TTL),
    "get, 1 MB": lambda store, n: store.get(f"long:{n % 10}"),
}


def compare(title: str, caches: dict[str, Any], calls: dict[str, Callable[[Any, int], object]], given: Any) -> None:
    for cache in caches.values():
        for number in range(ROWS):
            cache.set(f"row:{number}", SHORT, TTL)
        for number in range(10):
            cache.set(f"long:{number}", LONG, TTL)
        cache.set("counter", 1 if title == "Django" else "1", TTL)
    times: dict[tuple[str, str], list[float]] = {}
    for _ in range(given.rounds):
        for call, run in calls.items():
            count = LONG_CALLS if "1 MB" in call else given.calls
            for name, cache in caches.items():
                begun = time.perf_counter()
                for number in range(count):
                    run(cache, number)
                times.setdefault((call, name), []).append((time.perf_counter() - begun) / count * 1e6)
    print(f"\n| {title} | {' | '.join(caches)} |\n|---|{'--:|' * len(caches)}")
    for call in calls:
        print(f"| {call} | {' | '.join(f'{statistics.median(times[call, name]):.0f}' for name in caches)} |")


if __name__ == "__main__":
    main()
