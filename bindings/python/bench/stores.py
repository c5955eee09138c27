"""The stores to compare, each with the same small interface.

The timed code is written as a user of each package would write it, in its fastest form: methods of a package are called
directly wherever possible. No store does an fsync per commit. Settings that differ from the defaults are documented.
"""

from __future__ import annotations

import itertools
import sqlite3
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any, Callable, Iterable, Optional

import diskcache
import kvstore
import kvstore.snkv
import lmdb
import snkv
import sqlitedict

Pair = tuple[bytes, bytes]

TTL_SECONDS = 3600


class Store:
    """The base of the adapters. The bound methods ``get``, ``put`` and ``put_ttl`` are set by each."""

    name: str
    #: The name of the distribution, if it differs from the store's name.
    distribution: Optional[str] = None
    #: The fraction 1/share of the operations that this store performs: for stores that would take most of the time otherwise.
    share = 1
    #: The maximum number of rows of a scan.
    scan_limit: Optional[int] = None
    #: Whether a scan returns keys in order.
    ordered = True

    get: Callable[[bytes], Optional[bytes]]
    put: Callable[[bytes, bytes], Any]
    #: None if the store has no TTLs; otherwise the third argument is the TTL in seconds.
    put_ttl: Optional[Callable[[bytes, bytes, int], Any]] = None

    @classmethod
    def version(cls) -> str:
        return version(cls.distribution or cls.name)

    def gets(self, keys: Iterable[bytes]) -> list[Optional[bytes]]:
        get = self.get
        return [get(key) for key in keys]

    def gets_ttl(self, keys: Iterable[bytes]) -> list[Optional[bytes]]:
        return self.gets(keys)

    def batch(self, pairs: list[Pair]) -> None:
        """Write all pairs in one transaction."""
        raise NotImplementedError

    def scan(self) -> list[Pair]:
        raise NotImplementedError

    def ready(self) -> None:
        """Called when all keys are loaded."""

    def close(self) -> None:
        raise NotImplementedError


class Kvstore(Store):
    name = "kvstore"
    distribution = "kvstore-ttl"

    def __init__(self, folder: Path) -> None:
        self.db = kvstore.open(folder / "kvstore.db")
        self.get = self.db.get
        self.put = self.put_ttl = self.db.put
        self.batch = self.db.put_many  # type: ignore[method-assign]
        self.close = self.db.close  # type: ignore[method-assign]

    def scan(self) -> list[Pair]:
        return list(self.db.items())


class _SnkvInterface(Store):
    module: Any

    def __init__(self, folder: Path) -> None:
        self.db = self.module.KVStore(str(folder / f"{self.name}.db"))
        self.get = self.db.get
        self.put = self.put_ttl = self.db.put
        self.close = self.db.close  # type: ignore[method-assign]

    def batch(self, pairs: list[Pair]) -> None:
        db = self.db
        put = db.put
        db.begin(write=True)
        for key, value in pairs:
            put(key, value)
        db.commit()

    def scan(self) -> list[Pair]:
        return list(self.db)


class KvstoreSnkv(_SnkvInterface):
    name = "kvstore.snkv"
    distribution = "kvstore-ttl"
    module = kvstore.snkv


class Snkv(_SnkvInterface):
    """Its defaults: it never checkpoints, so what checkpoints cost is not in its writes."""

    name = "snkv"
    module = snkv


class Lmdb(Store):
    """``sync=False``: no fsync per commit. A transaction per operation, as there is no other way."""

    name = "lmdb"

    def __init__(self, folder: Path) -> None:
        self.env = lmdb.open(str(folder / "lmdb"), map_size=2 << 30, sync=False)
        self.close = self.env.close  # type: ignore[method-assign]

    def gets(self, keys: Iterable[bytes]) -> list[Optional[bytes]]:
        begin = self.env.begin
        values = []
        for key in keys:
            with begin() as transaction:
                values.append(transaction.get(key))
        return values

    def put(self, key: bytes, value: bytes) -> None:  # type: ignore[override]
        with self.env.begin(write=True) as transaction:
            transaction.put(key, value)

    def batch(self, pairs: list[Pair]) -> None:
        with self.env.begin(write=True) as transaction:
            put = transaction.put
            for key, value in pairs:
                put(key, value)  # faster than putmulti

    def scan(self) -> list[Pair]:
        with self.env.begin() as transaction, transaction.cursor() as cursor:
            return list(cursor)


class Sqlite(Store):
    """WAL, synchronous=NORMAL, one table without rowid; TTLs are a column with an index of the rows that
    have one. Statements are prepared: the module keeps them."""

    name = "sqlite3"

    PUT = (
        "INSERT INTO kv VALUES (?, ?, NULL) ON CONFLICT (k) DO UPDATE"
        " SET v = excluded.v, expire_ms = excluded.expire_ms"
    )
    PUT_TTL = PUT.replace("NULL", "?")

    @classmethod
    def version(cls) -> str:
        return sqlite3.sqlite_version

    def __init__(self, folder: Path) -> None:
        self.db = sqlite3.connect(str(folder / "sqlite3.db"), isolation_level=None)
        self.db.executescript(
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;"
            "CREATE TABLE kv (k BLOB PRIMARY KEY, v BLOB NOT NULL, expire_ms INTEGER) WITHOUT ROWID;"
            "CREATE INDEX expiry ON kv (expire_ms) WHERE expire_ms IS NOT NULL"
        )
        self.close = self.db.close  # type: ignore[method-assign]

    def gets(self, keys: Iterable[bytes]) -> list[Optional[bytes]]:
        execute = self.db.execute
        return [execute("SELECT v FROM kv WHERE k = ?", (key,)).fetchone()[0] for key in keys]

    def gets_ttl(self, keys: Iterable[bytes]) -> list[Optional[bytes]]:
        execute = self.db.execute
        now = time.time
        sql = "SELECT v FROM kv WHERE k = ? AND (expire_ms IS NULL OR expire_ms > ?)"
        return [execute(sql, (key, int(now() * 1000))).fetchone()[0] for key in keys]

    def put(self, key: bytes, value: bytes) -> None:  # type: ignore[override]
        self.db.execute(self.PUT, (key, value))

    def put_ttl(self, key: bytes, value: bytes, ttl: int) -> None:  # type: ignore[override]
        self.db.execute(self.PUT_TTL, (key, value, int((time.time() + ttl) * 1000)))

    def batch(self, pairs: list[Pair]) -> None:
        db = self.db
        db.execute("BEGIN IMMEDIATE")
        db.executemany(self.PUT, pairs)
        db.execute("COMMIT")

    def scan(self) -> list[Pair]:
        return self.db.execute("SELECT k, v FROM kv ORDER BY k").fetchall()


class Diskcache(Store):
    """Its defaults: WAL, synchronous=NORMAL."""

    name = "diskcache"
    share = 4
    scan_limit = 10_000
    ordered = False

    def __init__(self, folder: Path) -> None:
        self.db = diskcache.Cache(str(folder / "diskcache"))
        self.get = self.db.get
        self.put = self.put_ttl = self.db.set
        self.close = self.db.close  # type: ignore[method-assign]

    def batch(self, pairs: list[Pair]) -> None:
        db = self.db
        put = db.set
        with db.transact():
            for key, value in pairs:
                put(key, value)

    def scan(self) -> list[Pair]:
        db = self.db
        return [(key, db[key]) for key in itertools.islice(db, self.scan_limit)]


class Sqlitedict(Store):
    """autocommit (not during the load) and WAL; it sets synchronous=OFF itself. Values are pickled, its
    default, and a thread of its own does all work."""

    name = "sqlitedict"
    share = 4
    ordered = False

    def __init__(self, folder: Path) -> None:
        self.file = str(folder / "sqlitedict.db")
        self.db = sqlitedict.SqliteDict(self.file, journal_mode="WAL", outer_stack=False)

    def ready(self) -> None:
        self.db.close()
        self.db = sqlitedict.SqliteDict(self.file, journal_mode="WAL", outer_stack=False, autocommit=True)
        self.get = self.db.__getitem__
        self.put = self.db.__setitem__

    def batch(self, pairs: list[Pair]) -> None:
        self.db.update(pairs)
        self.db.commit()

    def scan(self) -> list[Pair]:
        return list(self.db.items())

    def close(self) -> None:
        self.db.close()


STORES: list[type[Store]] = [Kvstore, KvstoreSnkv, Snkv, Lmdb, Sqlite, Diskcache, Sqlitedict]
