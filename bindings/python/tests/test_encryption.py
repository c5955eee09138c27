"""Encrypted stores in Python: passwords and keys, conversion in place, threads, forks, pickles, asyncio, SQLCipher.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import pytest
from helpers import run_python

import kvstore
import kvstore.aio
from kvstore.contrib._storage import Storage

KEY = bytes(range(32))

pytestmark = pytest.mark.skipif(
    not kvstore.encryption_available and not os.environ.get("CI"), reason="the library has no encryption"
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "app.db"


def leaks(folder: Path, *words: bytes) -> list[str]:
    return [file.name for file in folder.iterdir() if any(word in file.read_bytes() for word in words)]


@pytest.fixture(params=[{"password": "correct horse"}, {"raw_key": KEY}], ids=["password", "key"])
def secret(request: pytest.FixtureRequest) -> dict[str, Any]:
    given: dict[str, Any] = request.param
    return given


def test_store_opens_only_with_its_password(path: Path, secret: dict[str, Any]) -> None:
    with kvstore.open(path, **secret) as db:
        db.put("sentinel-key", "sentinel-value", ttl=1000)
        assert db.is_encrypted
        db.family("sentinel-family", create=True)["a"] = "1"
        db.backup(path.with_name("backup.db"))
        assert leaks(path.parent, b"sentinel", b"SQLite") == []
    for wrong in ({}, {"password": "correct hors"}, {"raw_key": bytes(32)}):
        with pytest.raises(kvstore.AuthError) as caught:
            kvstore.open(path, **wrong)
        assert "hors" not in str(caught.value)
    with kvstore.open(path.with_name("backup.db"), **secret) as backup:
        assert backup["sentinel-key"] == b"sentinel-value"
        left = backup.ttl("sentinel-key")
        assert left is not None and 0 < left <= 1000


def test_invalid_password_is_refused_without_creating_file(path: Path) -> None:
    bad: list[tuple[type[Exception], dict[str, Any]]] = [
        (ValueError, {"password": ""}),
        (ValueError, {"password": b""}),
        (TypeError, {"password": 5}),
        (ValueError, {"raw_key": KEY[:31]}),
        (TypeError, {"raw_key": KEY.hex()}),
        (ValueError, {"password": "secret word", "raw_key": KEY}),
    ]
    for kind, given in bad:
        with pytest.raises(kind) as caught:
            kvstore.open(path, **given)
        assert "secret word" not in str(caught.value)
    with pytest.raises(ValueError, match="memory"):
        kvstore.open(":memory:", password="p")
    assert not path.exists()
    with kvstore.open(path) as db:
        for call in (db.encrypt, db.rekey):
            with pytest.raises(TypeError):
                call()
        for refused in (db.decrypt, lambda: db.rekey(password="p")):
            with pytest.raises(kvstore.InvalidError, match="not encrypted"):
                refused()
        assert not db.is_encrypted
    with kvstore.open(None) as memory, pytest.raises(kvstore.InvalidError):
        memory.encrypt(password="p")


def test_plain_store_is_encrypted_by_open_if_asked(path: Path) -> None:
    with kvstore.open(path) as plain:
        plain["sentinel"] = "1"
        with pytest.raises(kvstore.BusyError):
            kvstore.open(path, raw_key=KEY, encrypt=True, busy_timeout=0)
        assert plain["sentinel"] == b"1"
    with kvstore.open(path, raw_key=KEY, encrypt=True) as db:
        assert db["sentinel"] == b"1" and db.is_encrypted
        assert leaks(path.parent, b"sentinel") == []
    with kvstore.open(path, raw_key=KEY, encrypt=True) as again:
        assert again["sentinel"] == b"1"


@pytest.mark.parametrize("settings", [{}, {"exclusive": True}, {"journal_mode": "delete"}, {"read_only": True}])
def test_plain_store_with_password_is_refused_and_unchanged(
    path: Path, secret: dict[str, Any], settings: dict[str, Any]
) -> None:
    with kvstore.open(path, journal_mode=settings.get("journal_mode", "wal")) as plain:
        plain["a"] = "1"
    before = path.read_bytes()
    with pytest.raises(kvstore.AuthError, match=r"app\.db: .* not encrypted: .*without password=.*encrypt=True") as caught:
        kvstore.open(path, **secret, **settings)
    assert caught.value.hint is kvstore.Hint.OMIT_PASSWORD
    assert [file.name for file in path.parent.iterdir()] == ["app.db"] and path.read_bytes() == before
    with kvstore.open(path) as db:
        assert db["a"] == b"1" and not db.is_encrypted


def test_plain_store_with_password_is_refused_while_it_is_open(path: Path) -> None:
    with kvstore.open(path) as plain:
        plain["a"] = "1"
        with pytest.raises(kvstore.AuthError, match="not encrypted"):
            kvstore.open(path, password="p", busy_timeout=0)
        plain["b"] = "2"
        assert dict(plain) == {b"a": b"1", b"b": b"2"}
    with kvstore.open(path, exclusive=True) as alone:
        with pytest.raises((kvstore.BusyError, kvstore.AuthError)):
            kvstore.open(path, password="p", busy_timeout=0)
        assert not alone.is_encrypted


DIE_IN_TRANSACTION = """
import os, sys, kvstore
db = kvstore.open(sys.argv[1], journal_mode="delete", cache_size=10)
db.put_many({f"{n}": b"a" * 3000 for n in range(200)})
with db.transaction():
    for n in range(200):
        db[f"{n}"] = b"b" * 3000
    os._exit(9)
"""


def test_plain_store_with_hot_journal_is_refused(path: Path) -> None:
    killed = run_python(DIE_IN_TRANSACTION, os.fspath(path))
    assert killed.returncode == 9 and path.with_name("app.db-journal").exists(), killed.stderr
    with pytest.raises(kvstore.AuthError, match="encrypt=True"):
        kvstore.open(path, password="p")
    with kvstore.open(path) as db:
        assert not db.is_encrypted and set(db.values()) == {b"a" * 3000}


@pytest.mark.parametrize("encrypt", [False, True])
def test_new_and_empty_files_are_encrypted(path: Path, encrypt: bool) -> None:
    path.with_name("empty.db").touch()
    for new in (path, path.with_name("empty.db")):
        for _ in range(2):
            with kvstore.open(new, password="p", encrypt=encrypt) as db:
                assert db.is_encrypted


def test_encrypt_without_secret_is_refused(path: Path) -> None:
    with pytest.raises(ValueError, match="password= or raw_key="):
        kvstore.open(path, encrypt=True)
    with pytest.raises(ValueError, match="password= or raw_key="):
        Storage(path, "family", {"encrypt": True})
    assert not path.exists()


def test_plain_store_is_refused_or_encrypted_by_aio_and_storage(path: Path) -> None:
    kvstore.open(path).close()

    async def run() -> None:
        with pytest.raises(kvstore.AuthError, match="encrypt=True"):
            await kvstore.aio.open(path, raw_key=KEY)
        with pytest.raises(kvstore.AuthError, match="encrypt=True"):
            Storage(path, "family", {"raw_key": KEY}).family()
        async with kvstore.aio.open(path, raw_key=KEY, encrypt=True) as db:
            assert await db.is_encrypted()
            await db.decrypt()
            assert not await db.is_encrypted()
            await db.put("a", "1")
            assert await db.get("a") == b"1"

    asyncio.run(run())
    storage = Storage(path, "family", {"raw_key": KEY, "encrypt": True})
    assert storage.store().is_encrypted
    storage.close()


def test_store_decrypted_elsewhere_is_not_encrypted_again(path: Path) -> None:
    with kvstore.open(path) as db:
        db.encrypt(raw_key=KEY)
    with kvstore.open(path, raw_key=KEY) as db:
        pickled = pickle.dumps(db)
    with kvstore.open(path, raw_key=KEY) as db:
        db.decrypt()
    with pytest.raises(kvstore.AuthError, match="not encrypted"):
        pickle.loads(pickled)


@pytest.mark.parametrize("settings", [{}, {"exclusive": True}, {"journal_mode": "delete"}])
def test_conversion_in_place_keeps_threads_working(path: Path, settings: dict[str, Any]) -> None:
    db = kvstore.open(path, codec=kvstore.JSON, keys=str, **settings)
    family = db.family("family", create=True)
    db["a"], family["b"] = 1, [2]
    steps = [
        lambda: db.encrypt(password="first"),
        lambda: db.rekey(raw_key=KEY),
        lambda: db.rekey(password=b"\0\xff"),
        db.decrypt,
    ]
    go, done = [threading.Event() for _ in steps], [threading.Event() for _ in steps]
    seen: list[Any] = [(db["a"], family["b"])]

    def other() -> None:
        for before, after in zip(go, done):
            assert before.wait(60)
            seen.append((db["a"], family["b"]))
            after.set()

    thread = threading.Thread(target=other)
    thread.start()
    for number, step in enumerate(steps):
        step()  # type: ignore[no-untyped-call, unused-ignore]
        assert db.is_encrypted == (number < 3)
        go[number].set()
        assert done[number].wait(60)
        db["n"] = number
    thread.join()
    assert seen == [(1, [2])] * 5 and db["n"] == 3
    db.close()
    with kvstore.open(path, codec=kvstore.JSON, keys=str) as plain:
        assert dict(plain) == {"a": 1, "n": 3}


def test_busy_threads_are_not_disturbed_by_conversion(path: Path) -> None:
    db = kvstore.open(path, sync="off", busy_timeout=30)
    family = db.family("family", create=True)
    db.put_many({f"key {n}": b"value" for n in range(300)})
    end = threading.Event()
    errors: list[BaseException] = []

    def get() -> None:
        assert db["key 7"] == b"value"

    def put() -> None:
        family["put"] = b"1"

    def iterate() -> None:
        assert len(list(db.items())) == 300

    def count() -> None:
        with db.transaction():
            family["n"] = str(int(family.get("n", b"0")) + 1)
        counted.append(None)

    def batch() -> None:
        with db.batch() as batch:
            batch.put("batch", b"1", family=family)

    def look() -> None:
        db.stats()
        db.family("family").close()

    def come_and_go() -> None:
        thread = threading.Thread(target=caught, args=[get])
        thread.start()
        thread.join()

    def caught(call: Callable[[], None]) -> None:
        try:
            call()
        except BaseException as error:
            errors.append(error)

    def repeat(call: Callable[[], None]) -> None:
        while not end.wait(0.001) and not errors:
            caught(call)

    counted: list[None] = []
    calls = get, put, iterate, count, batch, look, come_and_go
    threads = [threading.Thread(target=repeat, args=[call]) for call in calls]
    for thread in threads:
        thread.start()
    try:
        for n in range(8):
            db.encrypt(raw_key=KEY)
            db.rekey(raw_key=bytes([n]) * 32)
            db.decrypt()
    finally:
        end.set()
        for thread in threads:
            thread.join()
    assert errors == []
    assert int(family.get("n", b"0")) == len(counted)
    db.integrity_check()
    db.close()


def test_iteration_or_batch_blocks_encryption_and_continues(path: Path) -> None:
    with kvstore.open(path, busy_timeout=0.02) as db:
        db.put_many({f"key {n:03}": b"value" for n in range(500)})
        begun: list[Any] = []

        def begin() -> None:
            begun.extend((iter(db.keys()), db.batch()))
            begun[1].put("z", b"from the batch")
            begun.append(next(begun[0]))

        thread = threading.Thread(target=begin)
        thread.start()
        thread.join()
        with pytest.raises(kvstore.BusyError, match="iteration"):
            db.encrypt(raw_key=KEY)
        rows, batch = begun[:2]
        assert len(list(rows)) == 499
        del rows, begun[0]
        with pytest.raises(kvstore.BusyError, match="batch"):
            db.encrypt(raw_key=KEY)
        batch.commit()
        batch.close()
        db.encrypt(raw_key=KEY)
        assert db.is_encrypted and db["z"] == b"from the batch"
        rows = iter(db.keys())
        assert next(rows) == b"key 000"
        db.rekey(password="p")  # what this thread has begun goes on
        assert len(list(rows)) == 500


def test_unencodable_password_is_not_shown_in_error(path: Path) -> None:
    with pytest.raises(ValueError) as caught:
        kvstore.open(path, password="secret \udc80 word")
    assert "secret" not in str(caught.value) and "udc80" not in str(caught.value)
    assert not isinstance(caught.value, UnicodeError) and caught.value.__cause__ is None


def test_framework_places_accept_password(path: Path, secret: dict[str, Any]) -> None:
    place = Storage(path, "cache", secret)
    place.family()["a"] = b"1"
    assert place.store().is_encrypted
    place.store().close()
    with pytest.raises(ValueError, match="32 bytes"):
        Storage(path, "cache", {"raw_key": KEY[:5]})


def test_pickles_from_before_and_after_rekey(path: Path) -> None:
    with kvstore.open(path, raw_key=KEY) as db:
        db["a"] = b"1"
        before = pickle.dumps(db)
    one = pickle.loads(before)
    one.rekey(password="p")
    assert pickle.loads(pickle.dumps(one)) is one
    with pytest.raises(kvstore.AuthError):
        pickle.loads(before)
    one.close()


def test_transaction_or_cleaner_blocks_encryption(path: Path) -> None:
    db = kvstore.open(path, busy_timeout=0.05)
    begun, end = threading.Event(), threading.Event()

    def other() -> None:
        with db.transaction():
            db["a"] = "1"
            begun.set()
            end.wait(60)

    thread = threading.Thread(target=other)
    thread.start()
    assert begun.wait(60)
    with pytest.raises(kvstore.BusyError, match="another thread"):
        db.encrypt(raw_key=KEY)
    end.set()
    thread.join()
    with db.transaction(), pytest.raises(kvstore.BusyError):
        db.encrypt(raw_key=KEY)
    db.start_cleaner(100)
    with pytest.raises(kvstore.BusyError, match="stop_cleaner"):
        db.encrypt(raw_key=KEY)
    db.stop_cleaner()
    db.encrypt(raw_key=KEY)
    assert db["a"] == b"1"
    db.start_cleaner(100)
    db.rekey(password="p")
    with pytest.raises(kvstore.Error):
        db.start_cleaner(100)  # it runs on
    with kvstore.open(path, password="p"):
        with pytest.raises(kvstore.BusyError):
            db.decrypt()
        assert db["a"] == b"1" and db.is_encrypted
    db.close()


def test_failed_encryption_leaves_store_unchanged(path: Path) -> None:
    db = kvstore.open(path, busy_timeout=0)
    db["a"] = "1"
    with kvstore.open(path) as second:
        with pytest.raises(kvstore.BusyError):
            db.encrypt(raw_key=KEY)
        assert second["a"] == b"1"
    assert db["a"] == b"1" and not db.is_encrypted
    db.close()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_encrypted_store_is_passed_to_other_processes(path: Path, secret: dict[str, Any], method: str) -> None:
    with kvstore.open(path) as db:
        db["a"] = "value"
        db.encrypt(**secret)
        with contextlib.closing(multiprocessing.get_context(method).Pool(1)) as pool:
            pool.apply(kvstore.Store.put, (db, method, "1"))
            assert pool.apply(kvstore.Store.get, (db, "a")) == b"value"
        assert db[method] == b"1"
        again = pickle.loads(pickle.dumps(db))
        assert again.is_encrypted and again["a"] == b"value"
        assert "correct" not in repr(db) + repr(again) + str(db._settings)
        again.close()


def test_encryption_works_with_asyncio(path: Path) -> None:
    async def work() -> None:
        async with kvstore.aio.open(path) as db:
            await db.put("a", "1")
            assert await db.get("a") == b"1" and not await db.is_encrypted()
            await db.encrypt(raw_key=KEY)
            assert await asyncio.gather(*(db.get("a") for _ in range(8))) == [b"1"] * 8
            await db.rekey(password="p")
            assert await db.is_encrypted()
            async with db.transaction():
                with pytest.raises(kvstore.BusyError):
                    await db.decrypt()
            with kvstore.open(path, password="p"), pytest.raises(kvstore.BusyError):
                await db.decrypt()
            await db.put("b", "2")
            await db.decrypt()
            assert await db.get("b") == b"2"
        async with kvstore.aio.open(path, raw_key=KEY, encrypt=True) as db:
            assert await db.is_encrypted()

    asyncio.run(work())


def test_busy_tasks_are_not_disturbed_by_conversion(path: Path) -> None:
    async def work() -> None:
        async with kvstore.aio.open(path, busy_timeout=30) as db:
            await db.put_many({f"key {n}": b"value" for n in range(300)})
            ended: list[None] = []

            async def get() -> None:
                while not ended:
                    assert await db.get("key 7") == b"value"

            async def count() -> None:
                while not ended:
                    async with db.transaction() as tx:
                        await tx.incr("n")
                    counted.append(None)

            async def iterate() -> None:
                while not ended:
                    assert len([key async for key in db.keys(prefix="key")]) == 300

            counted: list[None] = []
            tasks = [asyncio.create_task(call()) for call in (get, get, count, iterate)]
            for n in range(5):
                await db.encrypt(raw_key=KEY)
                await db.rekey(raw_key=bytes([n]) * 32)
                await db.decrypt()
            ended.append(None)
            await asyncio.gather(*tasks)
            assert await db.get("n") == str(len(counted)).encode()

    asyncio.run(work())


def test_cleaner_or_transaction_blocks_encryption_in_asyncio(path: Path) -> None:
    async def work() -> None:
        async with kvstore.aio.open(path, busy_timeout=0.05) as db:
            await db.start_cleaner(100)
            with pytest.raises(kvstore.BusyError, match="stop_cleaner"):
                await db.encrypt(raw_key=KEY)
            await db.stop_cleaner()
            begun, go_on = asyncio.Event(), asyncio.Event()

            async def transaction() -> None:
                async with db.transaction() as tx:
                    await tx.put("a", "1")
                    begun.set()
                    await go_on.wait()

            other = asyncio.create_task(transaction())
            await begun.wait()
            with pytest.raises(kvstore.BusyError, match="another task"):
                await db.encrypt(raw_key=KEY)
            assert await db.get("a") is None
            go_on.set()
            await other
            assert await db.get("a") == b"1" and not await db.is_encrypted()
            given = await asyncio.gather(
                db.encrypt(raw_key=KEY), db.encrypt(raw_key=KEY), return_exceptions=True
            )
            assert [type(one) for one in given] == [type(None), kvstore.BusyError]
            under_way = asyncio.create_task(db.rekey(raw_key=bytes(32)))
            while db._converting is None:
                await asyncio.sleep(0)
        # Closed: the conversion is complete.
        with kvstore.open(path, raw_key=bytes(32)) as store:
            assert store["a"] == b"1"
        await under_way

    asyncio.run(work())


@pytest.fixture
def sqlcipher() -> Iterator[Any]:
    yield pytest.importorskip("sqlcipher3.dbapi2") if not os.environ.get("CI") else __import__("sqlcipher3.dbapi2").dbapi2


def test_sqlcipher_and_kvstore_read_files_of_each_other(path: Path, sqlcipher: Any) -> None:
    with kvstore.open(path, password="correct horse") as db:
        db["a"] = "1"
        db.put("b", "2", ttl=1000)
        con = sqlcipher.connect(str(path), isolation_level=None)
        con.execute("PRAGMA key = 'correct horse'")
        assert con.execute('SELECT key, value FROM "live:default" ORDER BY key').fetchall() == [(b"a", b"1"), (b"b", b"2")]
        assert con.execute("PRAGMA cipher_integrity_check").fetchall() == []
        made = path.with_name("made.db")
        con.execute(f"ATTACH '{made}' AS made KEY 'another'")
        con.execute("SELECT sqlcipher_export('made')").fetchall()
        con.execute("PRAGMA made.application_id = 0x4B565331")
        con.execute("PRAGMA made.user_version = 1")
        con.close()
    with kvstore.open(made, password="another") as copy:
        copy.integrity_check()
        left = copy.ttl("b")
        assert copy["a"] == b"1" and left is not None and 0 < left <= 1000
