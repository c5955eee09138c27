"""Correct and wrong uses for mypy; checked by test_typing.py. Each wrong one has a `type: ignore` that must be needed.

Never run.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, MutableMapping, ValuesView
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional, Union

import kvstore
import kvstore.aio
import kvstore.recipes

if TYPE_CHECKING:
    from typing_extensions import assert_type


def right(path: Path) -> None:
    with kvstore.open(path, busy_timeout=timedelta(seconds=1), read_only=False, journal_mode="wal") as db:
        assert_type(db, kvstore.Store)
        mapping: MutableMapping[Union[str, bytes], bytes] = db  # either may be given; keys come back as bytes
        assert_type("otp" in db, bool)
        assert_type(b"otp" in db.keys(), bool)
        db["text"] = "text"
        db[b"bytes"] = bytearray(b"x")
        db.put("otp", b"1", ttl=30)
        db.put("otp", memoryview(b"1"), ttl=timedelta(minutes=1))
        assert_type(db["text"], bytes)
        assert_type(db.get("k"), Optional[bytes])
        assert_type(db.get("k", b"d"), bytes)
        assert_type(db.get("k", 1), Union[bytes, int])
        assert_type(db.pop("k"), bytes)
        assert_type(db.pop("k", None), Optional[bytes])
        assert_type(db.setdefault("k", "v"), bytes)
        assert_type(db.put("k", b"v", ttl=1.5, keep_ttl=True), bool)
        assert_type(db.put("k", b"v", expires_at=datetime.now(timezone.utc)), bool)
        assert_type(db.add("k", b"v", ttl=timedelta(days=1)), bool)
        assert_type(db.delete("k"), bool)
        assert_type(db.incr("n", 5), int)
        assert_type(db.decr("n"), int)
        assert_type(db.compare_and_swap("k", b"a", "b", ttl=5), bool)
        assert_type(db.compare_and_delete("k", b"a"), bool)
        assert_type(db.get_many(["a", "b"]), dict[str, bytes])
        assert_type(db.get_many([b"a"]), dict[bytes, bytes])
        db.put_many({"a": b"1", "b": "2"}, ttl=5)
        db.put_many([(b"a", "1")])
        db.update({"a": b"1"})
        db.update(a=b"1")
        assert_type(db.ttl("k"), Optional[float])
        assert_type(db.expires_at("k"), Optional[float])
        assert_type(db.expire("k", 5, gt=True), bool)
        assert_type(db.touch("k", 5), bool)
        assert_type(db.persist("k"), bool)
        assert_type(db.get_and_touch("k", 5), Optional[bytes])
        assert_type(db.next_expiry(), Optional[float])
        assert_type(db.purge_expired(), int)
        assert_type(db.count(expired=True), int)
        assert_type(db.sweep(timedelta(days=30)), int)
        keys: KeysView[bytes] = db.keys(prefix="a", start=b"b", stop="c", reverse=True, limit=5)
        values: ValuesView[bytes] = db.values()
        items: ItemsView[bytes, bytes] = db.items()
        for key, value in db.items(prefix=b"x"):
            assert_type(key, bytes)
            assert_type(value, bytes)
        for one in db:
            assert_type(one, bytes)
        expiring: Iterator[tuple[bytes, float]] = db.expiring(0, 5.5)
        family = db.family("f", create=True, default_ttl=3600)
        assert_type(family, kvstore.Family)
        assert_type(family, kvstore.Family[bytes, bytes])
        assert_type(db.delete_many(["a", b"b"]), int)
        assert_type(db.set_many({"a": "1"}), int)
        assert_type(db.pop_many(["a"]), dict[str, bytes])
        assert_type(db.has_key("a"), bool)
        assert_type(db.delete_range(prefix="a"), int)
        assert_type(db.stats().hits, int)
        assert_type(db.families(), list[str])
        with db.transaction(), db.batch() as batch:
            batch.put("k", b"v", ttl=5)
            batch.delete(b"k")
            assert_type(len(batch), int)
        with db.snapshot():
            pass
        db.backup(path, progress=lambda remaining, total: None)
        db.copy_to(db, progress=lambda done, total: None)
        frames, done = db.checkpoint("truncate")
        assert_type(frames, int)
        assert_type(db.stats(), kvstore.Stats)
        assert_type(db.stats().puts, int)
        db.set_clock(lambda: 1.5)
        db.set_clock(None)
        print(mapping, keys, values, items, expiring, done)
    try:
        family["k"]
    except kvstore.NotFoundError as error:
        assert_type(error.code, int)
        caught: KeyError = error
        print(caught)


class Person:
    name = "Ada"


class People:
    def dumps(self, value: Person) -> str:
        return value.name

    def loads(self, data: bytes) -> Person:
        return Person()


def coded(path: Path) -> None:
    text = kvstore.open(path, codec=kvstore.TEXT)
    assert_type(text, kvstore.Store[bytes, str])
    assert_type(text["k"], str)
    assert_type(text.get("k"), Optional[str])
    assert_type(text.get("k", 5), Union[str, int])
    assert_type(text.pop("k", None), Optional[str])
    assert_type(text.get_many(["k"]), dict[str, str])
    assert_type(text.get_with_ttl("k"), Optional[tuple[str, Optional[float]]])
    assert_type(list(text), list[bytes])
    assert_type(sorted(text), list[bytes])
    assert_type(dict(text), dict[bytes, str])
    for key in reversed(text):
        assert_type(key, bytes)
    both = kvstore.open(path, codec=People(), keys=str, busy_timeout=1)
    assert_type(both, kvstore.Store[str, Person])
    assert_type(list(both.items()), list[tuple[str, Person]])
    assert_type(list(both), list[str])
    assert_type(both["k"].name, str)
    both.put("k", Person(), ttl=5)
    both.put("k", Person(), ttl=5)
    assert_type(both.compare_and_swap("k", Person(), Person()), bool)
    keys = kvstore.open(path, keys=str)
    assert_type(keys, kvstore.Store[str, bytes])
    assert_type(list(keys.items()), list[tuple[str, bytes]])
    json = kvstore.open(path, codec=kvstore.JSON)
    json["k"] = {"a": [1, None]}
    assert_type(both.family("f"), kvstore.Family[str, Person])
    assert_type(both.family("f", codec=None), kvstore.Family[str, bytes])
    assert_type(both.family("f", codec=None, keys=bytes), kvstore.Family[bytes, bytes])
    assert_type(keys.family("f", codec=kvstore.TEXT), kvstore.Family[str, str])
    assert_type(text.family("f", True, keys=str, default_ttl=5), kvstore.Family[str, str])
    any_codec: kvstore.Codec[Person] = People()
    print(any_codec)


async def memoized_in_asyncio(db: kvstore.Store, other: kvstore.aio.Store) -> None:
    @kvstore.memoize(db, ttl=60)
    async def size(name: str) -> int:
        return len(name)

    class Thing:
        @kvstore.memoize(other, ttl=60, ignore="self")
        async def size(self, name: str) -> int:
            return len(name)

    assert_type(await size("a"), int)
    assert_type(await Thing().size("a"), int)
    assert_type(size.cache_key("a"), bytes)
    assert_type(await size.cache_clear(), int)
    assert_type((await Thing().size.cache_info()).hits, int)
    await size(5)  # type: ignore[arg-type]


def memoized(db: kvstore.Store) -> None:
    @kvstore.memoize(db, ttl=60)
    def area(width: int, height: float = 1.0) -> float:
        return width * height

    class Shop:
        @kvstore.memoize(db, ttl=60, ignore="self")
        def price(self, item: str, count: int = 1) -> float:
            return 1.5

    assert_type(Shop().price("pear", count=2), float)
    assert_type(Shop().price.cache_key("pear"), bytes)
    assert_type(Shop().price.cache_clear(), int)
    assert_type(Shop.price(Shop(), "pear"), float)
    Shop().price(5)  # type: ignore[arg-type]
    assert_type(area(2, 2.5), float)
    assert_type(area(2, height=2.5), float)
    assert_type(area.cache_clear(), int)
    area("2")  # type: ignore[arg-type]
    area(2, depth=1)  # type: ignore[call-arg]
    area.no_such_thing()  # type: ignore[attr-defined]


def wrong(db: kvstore.Store) -> None:
    db[1]  # type: ignore[index]
    db[None] = b"v"  # type: ignore[call-overload]
    db["k"] = 1  # type: ignore[call-overload]
    db["k", "30"] = b"v"  # type: ignore[call-overload]
    db["k", 1, 2] = b"v"  # type: ignore[call-overload]
    db.put("k")  # type: ignore[call-overload]
    db.put("k", None)  # type: ignore[call-overload]
    db.put("k", b"v", ttl="5")  # type: ignore[call-overload]
    db.put("k", b"v", expires_at=timedelta(1))  # type: ignore[call-overload]
    db.put("k", b"v", no_such=True)  # type: ignore[call-overload]
    db.put("k", b"v", None, None, True)  # type: ignore[call-overload]
    db.get(5)  # type: ignore[call-overload]
    db.get_many([1, 2])  # type: ignore[type-var]
    db.incr("n", "1")  # type: ignore[arg-type]
    db.keys(prefix=5)  # type: ignore[arg-type]
    db.items(limit="5")  # type: ignore[arg-type]
    db.family(b"f")  # type: ignore[call-overload]
    db.family("f", default_ttl="5")  # type: ignore[call-overload]
    db.family("f", codec=5)  # type: ignore[call-overload]
    db.keys("a")  # type: ignore[call-arg]
    db.set_clock(lambda: "now")  # type: ignore[arg-type, return-value]
    db.backup("x", progress=lambda: None)  # type: ignore[arg-type, misc]
    db.no_such_method()  # type: ignore[attr-defined]
    kvstore.open("x", no_such=1)  # type: ignore[call-overload]
    kvstore.open("x", busy_timeout="1")  # type: ignore[call-overload]
    kvstore.open("x", keys=int)  # type: ignore[type-var]
    kvstore.open("x", codec="json")  # type: ignore[call-overload]
    people = kvstore.open("x", codec=People())
    people["k"] = "text"  # type: ignore[assignment]
    people.put("k", b"bytes")  # type: ignore[arg-type]
    people.add("k", 5)  # type: ignore[arg-type]
    people.compare_and_delete("k", b"bytes")  # type: ignore[arg-type]
    number: int = kvstore.open("x", codec=kvstore.TEXT)["k"]  # type: ignore[assignment]
    value: str = db["k"]  # type: ignore[assignment]
    left: float = db.ttl("k")  # type: ignore[assignment]
    kvstore.memoize({})  # type: ignore[arg-type]
    print(value, left, number)


async def right_in_asyncio(path: Path) -> None:
    async with kvstore.aio.open(path, readers=2, busy_timeout=1) as db:
        assert_type(db, kvstore.aio.Store[bytes, bytes])
        assert_type(await db.get("k"), Optional[bytes])
        assert_type(await db.get("k", 5), Union[bytes, int])
        assert_type(await db.put("k", b"v", ttl=timedelta(days=1), if_absent=True), bool)
        assert_type(await db.incr("n"), int)
        assert_type(await db.get_many(["a"]), dict[str, bytes])
        async for key, value in db.items(prefix="a"):
            assert_type((key, value), tuple[bytes, bytes])
        async with db.transaction() as tx:
            assert_type(await tx.ttl("k"), Optional[float])
            assert_type(await tx.family("p", create=True, codec=kvstore.TEXT, keys=str), kvstore.aio.Family[str, str])
    documents = await kvstore.aio.open(path, codec=kvstore.TEXT, keys=str)
    assert_type(await documents.pop("k"), str)
    for store in (
        await kvstore.aio.open(path, codec=kvstore.JSON, keys=str),
        await kvstore.aio.open(path, codec=kvstore.PICKLE, keys=str),
    ):
        value_of_any: kvstore.aio.Store[str, Any] = store
        assert_type(await value_of_any.put("k", {"x": 1}, ttl=5, if_absent=True), bool)
        assert_type(await value_of_any.add("k", [1], ttl=5), bool)
        assert_type(await value_of_any.compare_and_swap("k", {"x": 1}, None), bool)
        assert_type(await value_of_any.compare_and_delete("k", {"x": 1}), bool)
    people = await kvstore.aio.open(path, codec=People())
    await people.put("k", Person(), ttl=5)
    await people.add("k", Person())
    await people.compare_and_swap("k", Person(), Person())


async def wrong_in_asyncio(db: kvstore.aio.Store) -> None:
    await db.put(5, b"v")  # type: ignore[call-overload]
    await db.put("k", b"v", ttl="60")  # type: ignore[call-overload]
    db.keys("prefix")  # type: ignore[call-arg]
    people = kvstore.aio.open("x", codec=People())
    await people.put("k", b"bytes")  # type: ignore[arg-type]
    await people.add("k", 5)  # type: ignore[arg-type]
    await people.compare_and_delete("k", b"bytes")  # type: ignore[arg-type]
    kvstore.aio.open(None, no_such=1)  # type: ignore[call-overload]


def recipes(store: kvstore.Store[str, str]) -> None:
    with kvstore.recipes.Lock(store, "l", ttl=timedelta(minutes=1)) as lock:
        assert_type(lock, kvstore.recipes.Lock)
        assert_type(lock.fencing_token, int)
    assert_type(kvstore.recipes.Queue(store, "q").get().value, str)
    assert_type(kvstore.recipes.Queue(store, "q", codec=None).get().value, bytes)
    assert_type(kvstore.recipes.Queue(kvstore.open("x"), "q").get().value, bytes)
    kvstore.recipes.Queue(store, "q", codec=kvstore.JSON).put({"a": 1})
    kvstore.recipes.Queue(store, "q").put({"a": 1})  # type: ignore[arg-type]
    kvstore.recipes.Lock("path", "l")  # type: ignore[arg-type]
    assert_type(kvstore.recipes.RateLimiter(store, "l", 5).hit("k").allowed, bool)

    @kvstore.recipes.memoize(store, ttl=60, early=1.0, stale=60)
    def double(x: int) -> int:
        return x * 2

    assert_type(double(3), int)
    double("3")  # type: ignore[arg-type]
