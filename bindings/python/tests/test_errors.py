"""Failures raise the right exception, with a message that names the problem and never a key or a value."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import os
import pickle
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import assert_clean, run_python

import kvstore
import kvstore.aio
import kvstore.recipes
from kvstore._hints import ADVICE, OPEN_IN_ANOTHER_THREAD

CLASSES = [
    "NotFoundError", "BusyError", "LockedError", "ReadOnlyError", "CorruptError",
    "AuthError", "FullError", "StoreIOError", "MisuseError",
]  # fmt: skip


#: Wrong arguments: a call, and the message of its exception.
WRONG_ARGUMENTS: list[tuple[Callable[[kvstore.Store], object], type[Exception], str]] = [
    (lambda db: db.get_many(None), TypeError, "keys of get_many() must be an iterable of keys, not NoneType"),
    (lambda db: db.delete_many(None), TypeError, "keys of delete_many() must be an iterable of keys, not NoneType"),
    (lambda db: db.pop_many(5), TypeError, "keys of pop_many() must be an iterable of keys, not int: give a list"),
    (lambda db: db.put_many(None), TypeError, "items must be a mapping or an iterable of (key, value) pairs, not None"),
    (lambda db: db.put_many(list), TypeError, "items must be a mapping or an iterable of (key, value) pairs, not type"),
    (lambda db: db.keys(limit=int), TypeError, "limit must be an int or None, not the type int"),
    (lambda db: db.limit(int), TypeError, "max_bytes must be an int, not the type int"),
    (lambda db: db.incr("k", int), TypeError, "delta must be an int, not the type int"),
    (lambda db: db.decr("k", None), TypeError, "delta must be an int, not NoneType"),
    (lambda db: db.backup("b.db", 5), TypeError, "progress must be a function of two numbers, or None, not int"),
    (lambda db: db.copy_to(db, 5), TypeError, "progress must be a function of two numbers, or None, not int"),
    (lambda db: db.backup("\ud800"), ValueError, "path contains surrogates and cannot be encoded: give bytes"),
    (lambda db: kvstore.open("\ud800"), ValueError, "path contains surrogates and cannot be encoded: give bytes"),
    (lambda db: kvstore.open(None, cache_size=int), TypeError, "cache_size must be an int, not the type int"),
    (lambda db: db.family("\ud800"), ValueError, "name contains surrogates and cannot be encoded as UTF-8: leave"),
    (lambda db: db.drop_family("\ud800"), ValueError, "name contains surrogates and cannot be encoded as UTF-8"),
    (lambda db: kvstore.recipes.Lock(db, "\ud800", ttl=5), ValueError, "name contains surrogates and"),
    (lambda db: kvstore.recipes.Queue(db, "q").put("\ud800"), ValueError, "value contains surrogates and cannot be"),
    (lambda db: kvstore.recipes.Tags(db).put("k", b"v", ["\ud800"]), ValueError, "a tag contains surrogates"),
    (lambda db: kvstore.recipes.Tags(db).keys("\ud800"), ValueError, "tag contains surrogates and cannot be encoded"),
    (lambda db: kvstore.memoize(db, name="\ud800")(len), ValueError, "name contains surrogates and cannot be"),
    (
        lambda db: kvstore.recipes.RateLimiter(db, "r", 5, 60, algorithm=[]),
        ValueError,
        "algorithm must be one of fixed_window, sliding_window, token_bucket, not []",
    ),
]  # fmt: skip


@pytest.mark.parametrize("call, error, message", WRONG_ARGUMENTS)
def test_message_names_wrong_argument(
    db: kvstore.Store, call: Callable[[kvstore.Store], object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=f"^{re.escape(message)}") as raised:
        call(db)
    assert not isinstance(raised.value, UnicodeError)  # its message contains the argument


def test_limit_may_be_any_large_number(db: kvstore.Store) -> None:
    db["a"] = b"1"
    assert list(db.keys(limit=1 << 70)) == [b"a"] and list(db.rows(b"x", limit=1 << 70)) == []
    assert kvstore.recipes.Queue(db, "q").redrive(limit=1 << 70) == 0


def test_aio_message_names_wrong_argument(path: Path) -> None:
    async def main() -> None:
        async with kvstore.aio.open(path) as db:
            calls = [
                (lambda: db.get_many(None), "keys of get_many() must be an iterable of keys, not NoneType"),
                (lambda: db.delete_many(5), "keys of delete_many() must be an iterable of keys, not int"),
                (lambda: db.put_many(None), "items must be a mapping or an iterable of (key, value) pairs, not None"),
                (lambda: db.backup("b.db", 5), "progress must be a function of two numbers, or None, not int"),
                (lambda: db.copy_to(db, 5), "progress must be a function of two numbers, or None, not int"),
            ]  # fmt: skip
            for call, message in calls:
                with pytest.raises(TypeError, match=f"^{re.escape(message)}"):
                    await call()

    asyncio.run(main())


@pytest.mark.parametrize("name", CLASSES)
def test_every_exception_is_an_error_with_a_code(name: str) -> None:
    cls = getattr(kvstore, name)
    assert issubclass(cls, kvstore.Error)
    assert isinstance(cls("text").code, int)
    assert str(cls("text")) == "text"


def test_exception_classes_are_unrelated(path: Path) -> None:
    for one in CLASSES:
        for other in CLASSES:
            if one != other:
                assert not issubclass(getattr(kvstore, one), getattr(kvstore, other)), (one, other)
    assert issubclass(kvstore.Error, Exception)
    assert not issubclass(kvstore.Error, (ValueError, TypeError, OSError))


def test_not_found_is_key_error_and_codes_differ() -> None:
    assert issubclass(kvstore.NotFoundError, KeyError)
    codes = [getattr(kvstore, name)("x").code for name in CLASSES]
    assert len(set(codes)) == len(codes)
    assert kvstore.NotFoundError("x").code == 12
    assert kvstore.MisuseError("x").code == 21


TWO_GIB = """
import kvstore
try:
    long = bytes(2**31)  # the system allocates its memory only on access
except (MemoryError, OverflowError):
    raise SystemExit(0)
for keys in bytes, str:
    db = kvstore.open(":memory:", keys=keys)
    calls = {
        "key": [
            lambda: db.get(long), lambda: db[long], lambda: long in db, lambda: db.put(long, "v"), lambda: db.put(long, "v", 60),
            lambda: db.put(long, "v", if_absent=True), lambda: db.__setitem__(long, "v"), lambda: db.delete(long),
            lambda: db.add(long, "v"), lambda: db.pop(long), lambda: db.ttl(long), lambda: db.get_many([long]),
        ],
        "value": [
            lambda: db.put("k", long), lambda: db.put("k", long, expires_at=1e10), lambda: db.put("k", long, keep_ttl=True),
            lambda: db.__setitem__("k", long), lambda: db.put("k", long, 60), lambda: db.add("k", long),
        ],
    }
    for what in calls:
        for number, call in enumerate(calls[what]):
            try:
                call()
                print(keys, what, number, "nothing")
            except Exception as error:
                if type(error) is not ValueError or str(error) != what + " has 2147483648 bytes, more than 2 GiB":
                    print(keys, what, number, type(error), str(error)[:200])
    assert len(db) == 0 and db.put("k", "v") and db.get("k") == b"v"
"""


def test_bytes_longer_than_c_length_raise_value_error(tmp_path: Path) -> None:
    # In its own process: a report of pytest would show the bytes.
    assert_clean(run_python(TWO_GIB, cwd=tmp_path), "")


def test_invalid_error_is_value_error(db: kvstore.Store) -> None:
    db["text"] = b"x"
    with pytest.raises(kvstore.InvalidError) as caught:
        db.incr("text")
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, kvstore.Error)
    assert caught.value.code == kvstore.Error("x").code


def test_errors_can_be_pickled() -> None:
    """multiprocessing, for example, passes exceptions between processes."""
    for name in ["Error", "InvalidError", *CLASSES]:
        error = getattr(kvstore, name)("text", hint=kvstore.Hint.RETRY)
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error)
        assert (str(again), again.code, again.hint) == (str(error), error.code, kvstore.Hint.RETRY)


SECRET = "s3cr3t"


@pytest.mark.parametrize(
    "call",
    [
        lambda db: db[SECRET],
        lambda db: db.__delitem__(SECRET),
        lambda db: db.pop(SECRET),
        lambda db: db.ttl(SECRET),
        lambda db: db.expires_at(SECRET),
        lambda db: db.put(SECRET * 20000, b""),
        lambda db: db.put("k", [SECRET]),
        lambda db: db.put([SECRET], b""),
        lambda db: db.put((SECRET,), b""),
        lambda db: db.incr("text"),
        lambda db: db.put("k", "\ud800" + SECRET),
        lambda db: db.put("\ud800" + SECRET, ""),
        lambda db: db.put_many({SECRET: 1}),
        lambda db: db.put_many([(SECRET,)]),
        lambda db: db.put_many([SECRET]),
        lambda db: db.get_many([SECRET, 1]),
        lambda db: db.update({SECRET: 5}),
        lambda db: db.__setitem__((SECRET, "x"), b""),
        lambda db: db.__setitem__((SECRET, 1, 2), b""),
        lambda db: db.__setitem__("k", [SECRET]),
        lambda db: list(db.keys(prefix=[SECRET])),
        lambda db: db.batch().put(SECRET * 20000, b""),
        lambda db: db.expire(SECRET, "x"),
    ],
)
def test_messages_contain_no_key_or_value(db: kvstore.Store, call: Callable[[Any], Any]) -> None:
    db["text"] = SECRET
    with pytest.raises(Exception) as caught:
        call(db)
    seen: BaseException | None = caught.value
    while seen is not None:
        assert SECRET not in str(seen) and SECRET not in repr(seen), type(seen)
        assert SECRET not in repr(getattr(seen, "args", ())), type(seen)
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)


def test_message_names_wrong_type(db: kvstore.Store) -> None:
    with pytest.raises(TypeError, match="complex"):
        db[1j] = b""  # type: ignore[index, unused-ignore]
    with pytest.raises(TypeError, match="complex"):
        db["k"] = 1j  # type: ignore[assignment, unused-ignore]
    with pytest.raises(TypeError, match="complex"):
        db.put("k", b"", ttl=1j)  # type: ignore[arg-type, unused-ignore]


def everything_closed(store: Any) -> list[Callable[[], Any]]:
    return [
        lambda: store["k"],
        lambda: store.__setitem__("k", b""),
        lambda: store.__delitem__("k"),
        lambda: "k" in store,
        lambda: len(store),
        lambda: list(store),
        lambda: list(store.items()),
        lambda: list(store.keys(prefix="k")),
        lambda: list(store.values(reverse=True)),
        lambda: store.get("k"),
        lambda: store.pop("k", None),
        lambda: store.setdefault("k", b""),
        lambda: store.update({"k": b""}),
        lambda: store.clear(),
        lambda: store.put("k", b""),
        lambda: store.put("k", b"", ttl=5),
        lambda: store.put("k", b"", if_absent=True),
        lambda: store.add("k", b""),
        lambda: store.get_many(["k"]),
        lambda: store.put_many({"k": b""}),
        lambda: store.delete("k"),
        lambda: store.incr("k"),
        lambda: store.decr("k"),
        lambda: store.compare_and_swap("k", b"", b""),
        lambda: store.compare_and_delete("k", b""),
        lambda: store.ttl("k"),
        lambda: store.expires_at("k"),
        lambda: store.expire("k", 1),
        lambda: store.touch("k", 1),
        lambda: store.persist("k"),
        lambda: store.get_and_touch("k", 1),
        lambda: list(store.expiring(0, 9e9)),
        lambda: store.next_expiry(),
        lambda: store.purge_expired(),
        lambda: store.count(),
        lambda: store.count(expired=True),
        lambda: store.sweep(1),
    ]


def store_only(store: Any) -> list[Callable[[], Any]]:
    return [
        lambda: store.family("f"),
        lambda: store.family("f", create=True),
        lambda: store.families(),
        lambda: store.drop_family("f"),
        lambda: store.transaction().__enter__(),
        lambda: store.snapshot().__enter__(),
        lambda: store.batch().commit(),
        lambda: store.backup("x.db"),
        lambda: store.checkpoint(),
        lambda: store.vacuum(),
        lambda: store.integrity_check(),
        lambda: store.repair(),
        lambda: store.stats(),
        lambda: store.sync(),
        lambda: store.set_clock(None),
        lambda: store.start_cleaner(1),
        lambda: store.stop_cleaner(),
    ]


def test_every_method_of_a_closed_store_raises_misuse_error(path: Path) -> None:
    store = kvstore.open(path)
    store.close()
    for number, call in enumerate(everything_closed(store) + store_only(store)):
        with pytest.raises(kvstore.MisuseError):
            call()
            pytest.fail(f"call {number} answered")


def test_family_methods_of_closed_store_raise_misuse_error(path: Path) -> None:
    store = kvstore.open(path)
    family = store.family("f", create=True)
    store.close()
    for number, call in enumerate(everything_closed(family)):
        with pytest.raises(kvstore.MisuseError):
            call()
            pytest.fail(f"call {number} answered")


def test_closed_store_error_says_closed(path: Path) -> None:
    store = kvstore.open(path)
    store.close()
    with pytest.raises(kvstore.MisuseError, match="closed"):
        store["k"]
    repr(store)


@pytest.mark.parametrize("way", ["keys", "items", "values", "reverse", "many small"])
@pytest.mark.files
def test_damaged_file_never_ends_iteration_silently(path: Path, way: str) -> None:
    """A scan that fails in the middle must raise, and not look complete."""
    rows = 4000
    with kvstore.open(path) as store:
        store.put_many({f"{n:05}": os.urandom(20 if way == "many small" else 900) for n in range(rows)})
        store.checkpoint("truncate")
    pages = path.stat().st_size // 4096
    with path.open("r+b") as file:
        for page in range(pages // 2, pages // 2 + 8):
            file.seek(page * 4096)
            file.write(b"\xa5" * 4096)
    with pytest.raises(kvstore.CorruptError):
        with kvstore.open(path) as store:
            if way == "reverse":
                list(store.items(reverse=True))
            elif way in ("keys", "values"):
                list(getattr(store, way)())
                store.integrity_check()  # keys alone may lie elsewhere
            else:
                list(store.items())


def test_full_disk_raises_error_and_store_stays_usable(tmp_path: Path) -> None:
    """RLIMIT_FSIZE simulates a small disk (the write fails either way)."""
    import resource
    import signal

    path = tmp_path / "full.db"
    store = kvstore.open(path)
    store["before"] = b"v"
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, old[1]))
        with pytest.raises((kvstore.FullError, kvstore.StoreIOError)):
            for number in range(10):
                store[f"{number}"] = b"x" * 500_000
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, handler)
    assert store["before"] == b"v"
    store["after"] = b"v"
    store.integrity_check()
    store.close()


# --- hints

ROOT = Path(__file__).resolve().parents[3]
#: Names of the C and Rust APIs, which no message in Python may contain.
FOREIGN = re.compile(
    r"\b(?:readOnly|cacheSize|pageSize|busyTimeout|walSizeLimit|maxValueSize|mmapSize|holdReads|walPages|secureDelete|purgePerWrite|onlyEncrypted|syncLevel"
    r"|journalMode|checkpoint_every|KVStoreConfig|kvstore_\w+|KVSTORE_\w+)\b|\b(?:Config|Store|Family)::"
)


def hints_of_the_header() -> dict[str, int]:
    header = (ROOT / "include" / "kvstore.h").read_text(encoding="utf-8")
    return {name: int(number) for name, number in re.findall(r"#define KVSTORE_HINT_(\w+) (\d+)", header)}


def test_every_hint_of_header_has_member_and_text() -> None:
    numbers = hints_of_the_header()
    assert numbers.pop("NONE") == 0 and len(numbers) > 30
    assert {hint.name: hint.value for hint in kvstore.Hint} == numbers
    assert set(ADVICE) == set(kvstore.Hint)


def test_hint_texts_name_only_existing_python_names() -> None:
    known = {*dir(kvstore.Store), *dir(kvstore.Transaction), *dir(kvstore), *inspect.signature(kvstore.open).parameters}
    for text in (*ADVICE.values(), OPEN_IN_ANOTHER_THREAD):
        assert not FOREIGN.search(text), text
        names = re.findall(r"(\w+)\(", text) + re.findall(r"(\w+)=", text)
        assert set(names) <= {*known, "create"}, text


def test_package_never_parses_error_messages() -> None:
    for file in Path(kvstore.__file__).parent.rglob("*.py"):
        code = file.read_text(encoding="utf-8")
        assert not re.search(r"\b(?:in|==|!=) str\(|str\(\w+\)\.(?:startswith|endswith|find|replace|split)", code), file


def failure(call: Callable[[], Any]) -> kvstore.Error:
    with pytest.raises(kvstore.Error) as caught:
        call()
    error = caught.value
    assert not FOREIGN.search(str(error)), error
    if error.hint is not None:
        assert isinstance(error.hint, kvstore.Hint) and str(error).endswith(f": {error.hint.advice}"), error
    return error


def hint_of(call: Callable[[], Any]) -> Any:
    return failure(call).hint


@pytest.mark.files
def test_errors_carry_hints(path: Path) -> None:
    with kvstore.open(path, busy_timeout=0) as db, kvstore.open(path, busy_timeout=0) as other:
        with db.transaction():
            assert hint_of(lambda: other.put("k", b"v")) is kvstore.Hint.RAISE_BUSY_TIMEOUT
            assert hint_of(db.checkpoint) is kvstore.Hint.END_TRANSACTION
        with db.snapshot():
            assert hint_of(lambda: db.put("k", b"v")) is kvstore.Hint.USE_WRITE_TRANSACTION
        assert hint_of(lambda: db.put("k", bytes(11 << 20))) is kvstore.Hint.RAISE_MAX_VALUE_SIZE
        db["k"] = b"v"
        assert hint_of(lambda: db.write_time("k")) is kvstore.Hint.TRACK_WRITES
        assert hint_of(lambda: db.drop_family("default")) is kvstore.Hint.CLEAR_FAMILY
        family, same = db.family("f", create=True), other.family("f")
        db.drop_family("f")
        assert hint_of(lambda: same.get("k")) is kvstore.Hint.CREATE_FAMILY
        assert failure(lambda: family.get("k")).hint is None  # closed: the package says so itself
        assert hint_of(lambda: db["missing"]) is None
    with kvstore.open(path, read_only=True) as db:
        assert hint_of(lambda: db.put("k", b"v")) is kvstore.Hint.OPEN_FOR_WRITING
    with kvstore.open(None) as db:
        assert hint_of(db.start_cleaner) is kvstore.Hint.PURGE_YOURSELF


@pytest.mark.files
def test_full_store_error_has_raise_limit_hint(path: Path) -> None:
    with kvstore.open(path) as db:
        db.limit(200_000, "none")
        error = failure(lambda: db.put_many({f"{n}": bytes(10_000) for n in range(40)}))
        assert isinstance(error, kvstore.FullError) and error.hint is kvstore.Hint.RAISE_SIZE_LIMIT


@pytest.mark.files
def test_damaged_file_error_has_repair_hint(path: Path) -> None:
    with kvstore.open(path) as db:
        db.put_many({f"{n:05}": bytes(900) for n in range(4000)})
        db.checkpoint("truncate")
    pages = path.stat().st_size // 4096
    with path.open("r+b") as file:
        file.seek(pages // 2 * 4096)
        file.write(b"\xa5" * 4096 * 8)
    with kvstore.open(path) as db:
        for call in (db.integrity_check, lambda: list(db.items())):
            error = failure(call)
            assert isinstance(error, kvstore.CorruptError)
            assert error.hint in (kvstore.Hint.CHECK_INTEGRITY, kvstore.Hint.REPAIR, kvstore.Hint.RECOVER), error


@pytest.mark.files
@pytest.mark.skipif(not kvstore.encryption_available, reason="the library has no encryption")
def test_missing_password_error_has_password_hint(path: Path) -> None:
    kvstore.open(path, raw_key=b"k" * 32).close()
    error = failure(lambda: kvstore.open(path))
    assert isinstance(error, (kvstore.AuthError, kvstore.CorruptError)) and error.hint is kvstore.Hint.GIVE_PASSWORD
    wrong = failure(lambda: kvstore.open(path, raw_key=b"w" * 32))
    assert isinstance(wrong, kvstore.AuthError) and wrong.hint in (None, kvstore.Hint.GIVE_PASSWORD)


@pytest.mark.parametrize(
    "settings, name",
    [
        ({"page_size": 1000}, "the page size of 1000 bytes"),
        ({"page_size": -1}, "^page_size must be 0 or more, not -1$"),
        ({"cache_size": -1}, "^cache_size must be 0 or more, not -1$"),
        ({"cache_size": 2**40}, "cache_size=1099511627776"),
        ({"wal_pages": 1}, "the WAL size of 1 pages"),
        ({"wal_size_limit": -1}, "^wal_size_limit must be 0 or more, not -1$"),
        ({"max_value_size": 2**30}, "the maximum value size of 1073741824 bytes"),
        ({"mmap_size": 2**70}, "mmap_size="),
        ({"read_only": True, "exclusive": True}, "a read-only store cannot be exclusive"),
    ],
)
@pytest.mark.files
def test_refused_setting_is_named(path: Path, settings: Any, name: str) -> None:
    with pytest.raises(ValueError, match=name) as caught:
        kvstore.open(path, **settings)
    assert not FOREIGN.search(str(caught.value))


@pytest.mark.files
def test_error_names_transaction_of_other_thread(path: Path) -> None:
    def told(call: Any) -> str:
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            return str(thread.submit(call).exception())

    stores = (kvstore.open(None), kvstore.open(path, exclusive=True))
    for db in stores:
        family = db.family("f", create=True)
        with db.snapshot():
            calls: list[Any] = [
                lambda db=db: db.put("k", b"v"), lambda db=db: db.put_many({"k": b"v"}), lambda db=db: db.incr("n"),
                lambda family=family: family.delete("k"), lambda db=db: db.family("g", create=True),
            ]  # fmt: skip
            for call in calls:
                assert told(call).endswith(f": {OPEN_IN_ANOTHER_THREAD}")
                assert hint_of(call) is kvstore.Hint.USE_WRITE_TRANSACTION
        with db.transaction():
            assert told(db.checkpoint).endswith(f": {OPEN_IN_ANOTHER_THREAD}")
        db["k"] = b"v"
        db.close()


@pytest.mark.parametrize("path", ["", b""])
def test_empty_path_is_refused(path: Any) -> None:
    for opened in (kvstore.open, kvstore.aio.open):
        with pytest.raises(ValueError, match="path is empty: give a file name, or None or ':memory:' for a store in memory"):
            opened(path)


def test_type_error_distinguishes_key_and_value(db: kvstore.Store) -> None:
    anything: Any = db
    calls = (
        lambda: anything.__setitem__("a", 5), lambda: anything.put("a", 5), lambda: anything.add("a", 5),
        lambda: anything.put_many({"a": 5}), lambda: db.family("default", keys=str).put("a", 5),  # type: ignore[call-overload]
    )  # fmt: skip
    for call in calls:
        with pytest.raises(TypeError, match="^value must be str or bytes-like, not int: open the store or family with a codec"):
            call()
    for call in (lambda: anything.__setitem__(1, "x"), lambda: anything.get(1), lambda: anything.delete_many([1])):
        with pytest.raises(TypeError, match="^key must be str or bytes-like, not int$"):
            call()


def test_recipe_given_family_says_how_to_pass_it(db: kvstore.Store) -> None:
    family: Any = db.family("f", create=True)
    with pytest.raises(TypeError, match="pass the store, and family='name'"):
        kvstore.recipes.Lock(family, "l", ttl=5)


def test_python_messages_name_public_classes(db: kvstore.Store) -> None:
    for method, name in (
        (db.keys, "Family.keys"), (db.delete_range, "Family.delete_range"), (db.stats, "Store.stats"),
        (db.get_many, "Family.get_many"), (db.ttl, "Family.ttl"),
    ):  # fmt: skip
        with pytest.raises(TypeError) as caught:
            method(1, 2, 3, 4, 5)  # type: ignore[operator]
        if sys.version_info >= (3, 10):
            assert str(caught.value).startswith(f"{name}()")
