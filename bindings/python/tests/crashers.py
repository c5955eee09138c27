"""Programs that try to crash the interpreter; test_no_crash.py runs each in its own process.

Exceptions are allowed. Failures are: a signal that kills the process, output on stderr, a hang, and a store that cannot be
opened or is damaged afterwards. Usage: python crashers.py NAME SEED (in an empty directory).
"""

from __future__ import annotations

import _thread
import copy
import ctypes
import datetime
import gc
import inspect
import itertools
import os
import pickle
import random
import signal
import sys
import threading
import weakref
from array import array
from collections.abc import Callable, Iterator
from typing import Any

import kvstore

CASES: dict[str, Callable[[], None]] = {}
RANDOM = random.Random(0)


def case(function: Callable[[], None]) -> Callable[[], None]:
    CASES[function.__name__] = function
    return function


def tolerate(call: Callable[[], Any]) -> Any:
    """Any result is correct, as long as the process survives."""
    try:
        return call()
    except (Exception, GeneratorExit) as error:
        str(error), repr(error)
        return None


def new(path: str = "crash.db") -> kvstore.Store:
    store = kvstore.open(path, busy_timeout=1)
    store.put_many({f"{n:04}": b"value" * 10 for n in range(300)})
    return store


def check(path: str = "crash.db") -> None:
    with kvstore.open(path) as store:
        store.integrity_check()
        store["alive"] = b"yes"
        assert store["alive"] == b"yes"


# --- closing at the worst moment


@case
def close_within_the_clock() -> None:
    store = new()
    armed: list[bool] = []
    store.set_clock(lambda: (armed and tolerate(store.close)) or 1.7e9)
    armed.append(True)
    tolerate(lambda: store.put("k", b"v", ttl=1))
    tolerate(lambda: store["k"])
    tolerate(store.close)
    check()


@case
def call_the_store_within_the_clock() -> None:
    store = new()

    def clock() -> float:
        for name in ("purge_expired", "sync", "families", "close", "stats", "vacuum"):
            tolerate(getattr(store, name))
        tolerate(lambda: store.put("x", b"y"))
        tolerate(lambda: list(store))
        tolerate(lambda: store.set_clock(None))
        tolerate(lambda: store.set_clock(clock))
        return 1.7e9

    tolerate(lambda: store.set_clock(clock))
    for _ in range(3):
        tolerate(lambda: store.put("k", b"v", ttl=1))
        tolerate(lambda: store.get("k"))
        tolerate(lambda: store.ttl("k"))
    tolerate(store.close)
    check()


@case
def clock_returns_nonsense() -> None:
    """A failure of the clock inside the library goes to sys.unraisablehook."""
    unraisable: list[Any] = []
    sys.unraisablehook = lambda args: unraisable.append(args.exc_type)
    store = new()
    calls = [0]

    def fails_later() -> float:
        calls[0] += 1
        if calls[0] > 1:
            raise LookupError("later")
        return 1.7e9

    store.put("t", b"v", expires_at=9e9)
    store.set_clock(fails_later)
    assert store.get("t") == b"v"
    assert unraisable[0] is LookupError, unraisable
    for answer in (None, "x", 2**200, -(2**200), float("nan"), float("inf"), -1, object(), b"", [], 1e300, True):
        tolerate(lambda a=answer: store.set_clock(lambda: a))
        tolerate(lambda: store.put("k", b"v", ttl=1))
        tolerate(lambda: store.ttl("k"))
        tolerate(lambda: store.purge_expired())
        tolerate(lambda: list(store.items()))
    for thing in (None, 1, "x", object(), lambda x: x, lambda: 1 / 0, print, time_bomb):
        try:
            tolerate(lambda t=thing: store.set_clock(t))
        except KeyboardInterrupt:
            pass
        tolerate(lambda: store.put("k", b"v", ttl=1))
        tolerate(lambda: store.get("k"))
    tolerate(lambda: store.set_clock(None))
    store.close()


def time_bomb() -> float:
    raise KeyboardInterrupt


@case
def clock_raises() -> None:
    """An exception of the clock must not only be printed to stderr and lost: it may be raised."""
    store = new()

    class Clock:
        def __call__(self) -> float:
            return 1.7e9

    clock = Clock()
    store.set_clock(clock)
    del clock
    gc.collect()
    store.put("k", b"v", ttl=1)
    assert store.ttl("k") == 1
    for _ in range(200):
        store.set_clock(lambda: 1.7e9)
        gc.collect(0)
        store.get("k")
    store.close()
    gc.collect()
    check()


@case
def close_within_the_backup() -> None:
    store = new()
    store.put_many({f"big{n}": os.urandom(4000) for n in range(2000)})
    calls = []

    def progress(*args: Any) -> None:
        calls.append(args)
        tolerate(store.close)
        tolerate(lambda: store["0001"])
        tolerate(lambda: store.backup("other.db"))

    tolerate(lambda: store.backup("copy.db", progress))
    assert calls
    tolerate(store.close)
    check()


@case
def raise_within_the_backup() -> None:
    store = new()
    store.put_many({f"big{n}": os.urandom(4000) for n in range(2000)})

    def progress(*args: Any) -> Any:
        raise ValueError("mine")

    try:
        store.backup("copy.db", progress)
    except ValueError as error:
        assert str(error) == "mine"
    else:
        raise AssertionError("the exception was lost")
    for answer in ("x", 2**100, None, object(), -1, 0.5):
        tolerate(lambda a=answer: store.backup(f"copy{a!r:.5}.db", lambda *args: a))
    store.close()
    check()


@case
def close_while_iterating() -> None:
    for name, after in itertools.product(("keys", "values", "items"), (0, 1, 150, 299, 300)):
        store = new()
        iterator = iter(getattr(store, name)())
        for _ in range(after):
            next(iterator)
        store.close()
        for _ in range(3):
            tolerate(lambda: next(iterator))
        del iterator
        gc.collect()
    check()


@case
def iterators_of_a_store_that_was_collected() -> None:
    iterators = []
    for number in range(30):
        iterators.append(iter(new(f"{number}.db").items()))
        gc.collect()
    for iterator in iterators:
        tolerate(lambda: next(iterator))
    for iterator in iterators:
        tolerate(lambda: list(iterator))


@case
def delete_the_store_during_the_iteration() -> None:
    store = new()
    for key in store:
        if key == b"0100":
            del store
            gc.collect()
            break
    for _ in range(10):
        store = new()
        for key, _value in store.items():
            if key == b"0100":
                store = new("other.db")
                gc.collect()


@case
def close_within_the_arguments() -> None:
    """An argument whose conversion closes the store that the call is about to use."""
    for make in (
        lambda s: {"put": (Evil(s), b"v")},
        lambda s: {"put_many": (closing_pairs(s),)},
        lambda s: {"get_many": (closing_keys(s),)},
        lambda s: {"update": (closing_pairs(s),)},
        lambda s: {"incr": ("n", EvilNumber(s))},
        lambda s: {"purge_expired": (EvilNumber(s),)},
        lambda s: {"put": ("k", b"v", EvilNumber(s))},
        lambda s: {"backup": (EvilPath(s),)},
    ):
        store = new()
        for name, arguments in make(store).items():
            tolerate(lambda: getattr(store, name)(*arguments))
        tolerate(store.close)
    check()


class Evil:
    """Pretends to be a key; closes the store when it is inspected."""

    def __init__(self, store: kvstore.Store) -> None:
        self.store = store

    def __buffer__(self, flags: int) -> memoryview:
        tolerate(self.store.close)
        gc.collect()
        return memoryview(b"evil")

    def __release_buffer__(self, view: memoryview) -> None:
        tolerate(self.store.close)

    def __bytes__(self) -> bytes:
        tolerate(self.store.close)
        return b"evil"

    def __str__(self) -> str:
        tolerate(self.store.close)
        return "evil"

    __repr__ = __str__

    def __hash__(self) -> int:
        return hash(str(self))

    def __eq__(self, other: object) -> bool:
        tolerate(self.store.close)
        return True

    def __getattr__(self, name: str) -> Any:
        tolerate(self.store.close)
        raise AttributeError(name)


class EvilNumber(Evil):
    def __int__(self) -> int:
        tolerate(self.store.close)
        return 1

    __index__ = __int__

    def __float__(self) -> float:
        return float(int(self))


class EvilPath(Evil):
    def __fspath__(self) -> str:
        tolerate(self.store.close)
        return "evil.db"


def closing_pairs(store: kvstore.Store) -> Iterator[tuple[str, bytes]]:
    yield "a", b"1"
    tolerate(store.close)
    gc.collect()
    yield "b", b"2"


def closing_keys(store: kvstore.Store) -> Iterator[str]:
    yield "0001"
    tolerate(store.close)
    gc.collect()
    yield "0002"


# --- objects used after their store, family or thread has ended


def objects_of(store: kvstore.Store) -> list[Any]:
    family = tolerate(lambda: store.family("f", create=True))
    things = [store, family]
    for make in (
        lambda: iter(store),
        lambda: store.keys(),
        lambda: store.items(),
        lambda: store.values(),
        lambda: iter(store.items()),
        lambda: iter(family.items()),
        lambda: store.expiring(0, 9e9),
        lambda: store.expiring(),
        lambda: store.batch(),
        lambda: family.batch(),
        lambda: store.transaction(),
        lambda: store.snapshot(),
        lambda: store.stats(),
    ):
        thing = tolerate(make)
        if thing is not None:
            things.append(thing)
    return things


def exercise(thing: Any) -> None:
    """Call every public method and many special ones, without arguments and with harmless ones."""
    for name in dir(type(thing)):
        if name in ("__class__", "__init_subclass__", "__subclasshook__", "__new__"):
            continue
        if name.startswith("_") and not name.startswith("__"):
            continue
        for arguments in ((), ("k",), ("k", b"v"), ("k", b"v", b"w"), (1,), (None, None, None)):
            tolerate(lambda: getattr(thing, name)(*arguments))


@case
def stale_objects_after_slots_are_used_again() -> None:
    stale = []
    for _ in range(4):
        store = new("stale.db")
        stale += objects_of(store)
        store.close()
    living = [kvstore.open(f"live{n}.db") for n in range(150)]
    for number, store in enumerate(living):
        store["who"] = str(number)
    for _ in range(300):
        kvstore.open("again.db").close()
    for thing in stale:
        exercise(thing)
    for number, store in enumerate(living):
        assert list(store.items()) == [(b"who", str(number).encode())], "a stale object reached a living store"
        store.close()


@case
def everything_after_close() -> None:
    store = new()
    things = objects_of(store)
    store.close()
    for thing in things:
        exercise(thing)
    tolerate(store.close)
    check()


@case
def everything_after_drop_of_the_family() -> None:
    store = new()
    family = store.family("f", create=True)
    family.put_many({f"{n}": b"" for n in range(100)})
    iterator = iter(family.items())
    next(iterator)
    batch = family.batch()
    batch.put("k", b"v")
    tolerate(lambda: store.drop_family("f"))
    for thing in (family, iterator, batch):
        exercise(thing)
    store.close()
    check()


@case
def new_without_init() -> None:
    for name, cls in public_classes():
        thing = tolerate(lambda: cls.__new__(cls))
        if thing is None:
            thing = tolerate(lambda: object.__new__(cls))
        if thing is not None:
            exercise(thing)
            tolerate(lambda: repr(thing))
            tolerate(lambda: hash(thing))
            tolerate(lambda: bool(thing))
            with_statement(thing)
            del thing
        gc.collect()


def with_statement(thing: Any) -> None:
    def run() -> None:
        with thing:
            pass

    tolerate(run)


@case
def init_twice() -> None:
    store = new()
    for arguments in ((), ("crash.db",), ("other.db",), (None,), (store,), (0,), (1, 2)):
        for thing in objects_of(store):
            tolerate(lambda: thing.__init__(*arguments))
    for thing in objects_of(store):
        exercise(thing)
    tolerate(store.close)
    gc.collect()
    check()


@case
def pickled_and_copied() -> None:
    store = new()
    things = objects_of(store)
    for thing in things[:2]:
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            exercise(pickle.loads(pickle.dumps(thing, protocol)))
        for duplicate in (copy.copy, copy.deepcopy):
            exercise(duplicate(thing))
    for thing in things[2:]:
        twin = tolerate(lambda: copy.copy(thing))
        if twin is not None:
            tolerate(lambda: next(twin))
            exercise(twin)
        tolerate(lambda: copy.deepcopy(thing))
        tolerate(lambda: pickle.dumps(thing))
    store.close()
    gc.collect()
    check()


@case
def weak_references() -> None:
    store = new()
    references = []
    for thing in objects_of(store):
        reference = tolerate(lambda: weakref.ref(thing, lambda r: tolerate(store.close)))
        if reference is not None:
            references.append(reference)
    del thing
    gc.collect()
    for reference in references:
        exercise(reference()) if reference() is not None else None
    tolerate(store.close)
    check()


@case
def finalizers_that_use_the_store() -> None:
    class Holder:
        def __init__(self) -> None:
            self.me = self
            self.store = new(f"{id(self)}.db")
            self.things = objects_of(self.store)

        def __del__(self) -> None:
            for thing in self.things:
                exercise(thing)

    for _ in range(3):
        Holder()
        gc.collect()


# --- strange arguments


@case
def strange_buffers() -> None:
    store = new()
    released = memoryview(b"abc")
    released.release()
    resized = bytearray(b"x" * 100)

    class ManyBytes(bytes):
        def __len__(self) -> int:
            return 10**9

    class ManyArray(bytearray):
        def __len__(self) -> int:
            return 10**9

    class Text(str):
        def encode(self, *args: Any, **kwargs: Any) -> Any:
            return [1, 2, 3]

        def __len__(self) -> int:
            return 10**9

    class Lying1(str):
        def encode(self, *args: Any, **kwargs: Any) -> Any:
            return ManyBytes(b"abc")

    class Lying2(str):
        def encode(self, *args: Any, **kwargs: Any) -> Any:
            return None

    class Broken:
        def __buffer__(self, flags: int) -> memoryview:
            raise RuntimeError("no buffer")

    class Lying:
        def __buffer__(self, flags: int) -> Any:
            return "no memoryview"

    strange = [
        released,
        resized,
        memoryview(b"a1b2c3")[::2],
        memoryview(b"abc")[::-1],
        memoryview(b""),
        memoryview(b"abcdef").cast("B", (2, 3)),
        memoryview(array("d", [1.0, 2.0])),
        (ctypes.c_char * 5)(),
        (ctypes.c_int * 0)(),
        ctypes.c_double(1),
        array("u" if sys.version_info < (3, 13) else "w", "äö"),
        ManyBytes(b"abc"),
        ManyArray(b"abc"),
        Text("abc"),
        Text(""),
        Lying1("abc"),
        Lying2("abc"),
        Broken(),
        Lying(),
        "\ud800",
        "\0",
        "a" * 70_000,
        b"a" * 70_000,
        range(5),
        type,
        Evil,
        NotImplemented,
        ...,
    ]
    for thing in strange:
        for call in calls_with(store, thing):
            tolerate(call)
    store.close()
    check()


def calls_with(store: kvstore.Store, thing: Any) -> list[Callable[[], Any]]:
    return [
        lambda: store.put(thing, thing),
        lambda: store.put("k", thing),
        lambda: store[thing],
        lambda: store.__setitem__(thing, thing),
        lambda: store.__delitem__(thing),
        lambda: thing in store,
        lambda: store.get_many([thing, thing]),
        lambda: store.put_many({"k": thing}),
        lambda: store.put_many([(thing, thing)]),
        lambda: store.compare_and_swap("0001", thing, thing),
        lambda: store.compare_and_delete(thing, thing),
        lambda: list(store.items(prefix=thing)),
        lambda: list(store.keys(start=thing, stop=thing)),
        lambda: store.family(thing, create=True),
        lambda: store.family(thing),
        lambda: store.drop_family(thing),
        lambda: store.backup(thing),
        lambda: kvstore.open(thing).close(),
        lambda: store.incr(thing, thing),
        lambda: store.batch().put(thing, thing),
        lambda: store.batch().delete(thing),
    ]


@case
def buffers_that_change_during_the_call() -> None:
    store = new()
    buffer = bytearray(b"x" * 5000)
    stop = threading.Event()

    def change() -> None:
        size = 0
        while not stop.is_set():
            size = (size + 977) % 9000
            try:
                buffer[:] = b"y" * (size + 1)
            except BufferError:
                pass

    # Each call releases the GIL, and would wait for it for a switch interval: a minute in total by default.
    sys.setswitchinterval(1e-5)
    changer = threading.Thread(target=change)
    changer.start()
    try:
        for number in range(3000):
            tolerate(lambda: store.put(f"k{number % 7}", buffer))
            tolerate(lambda: store.put(buffer, b""))
            tolerate(lambda: store.compare_and_swap("k1", buffer, buffer))
            tolerate(lambda: store.put_many([("a", buffer), (buffer, buffer)]))
    finally:
        stop.set()
        changer.join()
    store.close()
    check()


@case
def lists_that_change_during_the_call() -> None:
    store = new()
    keys: list[Any] = ["0001"] * 50

    class Cutting(bytes):
        def __len__(self) -> int:
            keys.clear()
            return super().__len__()

        def __buffer__(self, flags: int) -> memoryview:
            keys.clear()
            return memoryview(b"x")

        def __hash__(self) -> int:
            keys.clear()
            return 1

        def __iter__(self) -> Any:
            keys.clear()
            return super().__iter__()

    for _ in range(5):
        keys[:] = ["0001"] * 10 + [Cutting(b"abc")] + ["0002"] * 10
        tolerate(lambda: store.get_many(keys))
        keys[:] = [("a", b"1")] * 5 + [(Cutting(b"abc"), Cutting(b"d"))] + [("b", b"1")] * 5
        tolerate(lambda: store.put_many(keys))
        pairs = {Cutting(b"a"): b"1", "b": Cutting(b"x")}
        tolerate(lambda: store.put_many(pairs))

    def growing() -> Iterator[Any]:
        for number in range(2000):
            store[f"new{number}"] = b""
            yield f"new{number}"

    tolerate(lambda: store.get_many(growing()))
    store.close()
    check()


@case
def recursion_in_special_methods() -> None:
    store = new()

    class Deep:
        def __str__(self) -> str:
            return str(self)

        def __repr__(self) -> str:
            return repr(self)

        def __hash__(self) -> int:
            return hash(self)

        def __eq__(self, other: object) -> bool:
            return self == other

        def __index__(self) -> int:
            return self.__index__()

        def __float__(self) -> float:
            return float(self)

        def __bytes__(self) -> bytes:
            return bytes(self)

        def __fspath__(self) -> str:
            return os.fspath(self)

        def __iter__(self) -> Iterator[Any]:
            return iter(self)

        def __getattr__(self, name: str) -> Any:
            return getattr(self, name)

        def keys(self) -> Any:
            return self.keys()

    deep = Deep()
    for call in calls_with(store, deep):
        tolerate(call)
    tolerate(lambda: store.put("k", b"", ttl=deep))
    tolerate(lambda: store.update(deep))
    tolerate(lambda: store.memoize(deep))

    def down(depth: int) -> None:
        tolerate(lambda: store.put("deep", b"x"))
        tolerate(lambda: next(iter(store.items())))
        if depth:
            down(depth - 1)

    def endless() -> None:
        store.get("0001")
        iter(store.items())
        endless()

    down(100)
    tolerate(endless)
    store.set_clock(lambda: tolerate(endless) or 1.7e9)
    tolerate(lambda: store.put("k", b"v", ttl=1))
    tolerate(store.close)
    check()


HUGE = (2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64, 2**200, -1, -(2**31), -(2**31) - 1, -(2**63), -(2**63) - 1, 10**4000)


@case
def huge_numbers() -> None:
    store = new()
    numbers = [*HUGE, *map(float, HUGE[:-1]), float("nan"), float("inf"), -float("inf"), 5e-324, True]
    for number in numbers:
        for name in ("ttl", "expires_at"):
            tolerate(lambda: store.put("k", b"v", **{name: number}))
        for name in ("expire", "touch", "get_and_touch", "incr", "decr"):
            store["n"] = b"1"
            tolerate(lambda: getattr(store, name)("n", number))
        for name in ("purge_expired", "sweep", "vacuum", "checkpoint", "start_cleaner", "family", "transaction"):
            tolerate(lambda: getattr(store, name)(number))
            tolerate(lambda: store.stop_cleaner())
        tolerate(lambda: list(store.expiring(number, number)))
        tolerate(lambda: list(store.keys(limit=number)))
        tolerate(lambda: store.family("h", create=True, default_ttl=number))
        for name in inspect.signature(kvstore.open).parameters:
            opened = tolerate(lambda: kvstore.open("config.db", **{name: number}) if name != "path" else None)
            tolerate(lambda: opened.close())
    tolerate(store.close)
    check()


# --- subclasses and classes


def public_classes() -> list[tuple[str, type]]:
    found = {}
    for name in dir(kvstore):
        thing = getattr(kvstore, name)
        if isinstance(thing, type) and thing.__module__.startswith("kvstore"):
            found[name] = thing
    store = kvstore.open("classes.db")
    for thing in objects_of(store):
        if type(thing).__module__.startswith("kvstore"):
            found.setdefault(type(thing).__qualname__, type(thing))
    store.close()
    return sorted(found.items())


@case
def subclasses() -> None:
    for name, cls in public_classes():
        sub = tolerate(lambda: type("Sub" + name, (cls,), {}))
        if sub is None:
            continue
        for arguments in ((), ("sub.db",), (None,), (1, 2, 3), ("a", "b", "c", "d")):
            thing = tolerate(lambda: sub(*arguments))
            if thing is not None:
                exercise(thing)

        def half_way(self: Any, *args: Any, **kwargs: Any) -> None:
            raise RuntimeError("no init")

        broken = tolerate(lambda: type("Broken" + name, (cls,), {"__init__": half_way}))
        tolerate(lambda: broken("sub.db"))
        lazy = tolerate(lambda: type("Lazy" + name, (cls,), {"__init__": lambda self, *a, **k: None}))
        thing = tolerate(lambda: lazy("sub.db"))
        if thing is not None:
            exercise(thing)
        del thing
        gc.collect()


@case
def deleted_attributes() -> None:
    """Deleting or replacing any attribute that Python allows must lead to exceptions at most."""
    store = new()
    for thing in objects_of(store):
        names = list(getattr(thing, "__dict__", ())) + [
            s for c in type(thing).__mro__ for s in (getattr(c, "__slots__", ()) or ())
        ]
        for name in names:
            tolerate(lambda: setattr(thing, name, None))
        exercise(thing)
        for name in names:
            tolerate(lambda: delattr(thing, name))
        exercise(thing)
    gc.collect()
    check_other()


def check_other() -> None:
    check("another.db")


# --- threads and signals


@case
def handles_of_ended_threads() -> None:
    things: list[Any] = []

    def make() -> None:
        store = new("thread.db")
        things.extend(objects_of(store))
        next(iter(store.items()))

    for _ in range(5):
        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
    for thing in things:
        tolerate(lambda: next(thing))
    for thing in things:
        exercise(thing)
    things.clear()
    gc.collect()
    check("thread.db")


@case
def one_iterator_in_many_threads() -> None:
    store = new()
    store.put_many({f"{n:06}": b"x" * 50 for n in range(20_000)})
    for name in ("keys", "items", "values"):
        iterator = iter(getattr(store, name)())
        got: list[Any] = []

        def drain() -> None:
            while True:
                try:
                    got.append(next(iterator))
                except StopIteration:
                    return
                except ValueError as error:  # generator already executing
                    assert "already executing" in str(error)
                except kvstore.Error:
                    return

        threads = [threading.Thread(target=drain) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(map(repr, got))) <= 20_300
    store.close()
    check()


@case
def short_lived_threads() -> None:
    """Threads use the store, leave objects for other threads, and end, while the store is forked and closed."""
    for round_number in range(8):
        store = new()
        family = store.family("f", create=True)
        left: list[Any] = []

        def come_and_go(number: int) -> None:
            for _ in range(5):
                if left:
                    thing = left.pop(RANDOM.randrange(len(left)))
                    exercise(thing)
                    tolerate(lambda: [next(thing) for _ in range(20)])
                    tolerate(lambda: (thing.put("k", b"v"), thing.commit()))
                    tolerate(lambda: thing.__exit__(None, None, None))
            begun = (
                lambda: iter(store.items()), lambda: iter(family.keys()), lambda: store.expiring(), store.batch,
                lambda: store.transaction().__enter__(), lambda: store.snapshot(), lambda: pickle.loads(pickle.dumps(family)),
            )[number % 7]  # fmt: skip
            thing = tolerate(begun)
            tolerate(lambda: next(thing))
            left.append(thing)
            tolerate(lambda: store.put(f"{number}", b"v", ttl=5))

        for wave in range(4):
            threads = [threading.Thread(target=tolerate, args=(lambda n=n: come_and_go(n),)) for n in range(14)]
            for thread in threads:
                thread.start()
            if hasattr(os, "fork") and sys.version_info < (3, 12):  # later ones warn of threads
                child = os.fork()
                if child == 0:
                    tolerate(lambda: store.get("k"))
                    exercise(family)
                    left.clear()
                    gc.collect()
                    tolerate(store.close)
                    os._exit(0)
                if os.waitpid(child, 0)[1]:
                    raise AssertionError("the child did not end well")
            if wave == 3 or (wave == 2 and round_number % 2):
                tolerate(store.close)
            for thread in threads:
                thread.join()
            if round_number % 3 == 0:
                del left[::2]
                gc.collect()
        del store, family
        left.clear()
        gc.collect()
    check()


@case
def close_while_threads_work() -> None:
    for round_number in range(10):
        store = new()
        family = store.family("f", create=True)
        go = threading.Event()

        def work(number: int) -> None:
            go.wait()
            for n in range(2000):
                try:
                    if number == 0:
                        store.put(f"{n}", b"x" * 100, ttl=5)
                    elif number == 1:
                        list(store.items(limit=50))
                    elif number == 2:
                        family.get_many([f"{m}" for m in range(20)])
                    elif number == 3:
                        with family.batch() as batch:
                            batch.put("a", b"b")
                    elif number == 4:
                        with store.transaction():
                            family["x"] = b"y"
                    else:
                        objects_of(store)
                except kvstore.MisuseError:
                    return
                except kvstore.Error:
                    pass

        threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
        for thread in threads:
            thread.start()
        go.set()
        for _ in range(RANDOM.randrange(2000)):
            pass
        threading.Event().wait(RANDOM.random() / 20)
        store.close()
        for thread in threads:
            thread.join()
    check()


@case
def many_threads_close_one_store() -> None:
    for _ in range(50):
        store = kvstore.open("many.db")
        threads = [threading.Thread(target=lambda: tolerate(store.close)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    check("many.db")


@case
def interrupts() -> None:
    """KeyboardInterrupt at any moment of a scan, a purge, a write or a transaction; afterwards everything works."""
    # The signal is ignored if a shell has started the tests in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    store = new()
    pid = os.getpid()
    # On Windows os.kill would end the process.
    interrupt = (lambda: os.kill(pid, signal.SIGINT)) if os.name == "posix" else _thread.interrupt_main

    def scan() -> None:
        for _ in range(60):
            list(store.items())

    def write() -> None:
        for n in range(2000):
            store.put(f"w{n}", b"x", ttl=1000)

    def purge() -> None:
        for round_number in range(20):
            store.put_many({f"p{n}": b"" for n in range(500)}, expires_at=0)
            store.purge_expired()

    def transact() -> None:
        for n in range(500):
            with store.transaction():
                store["t"] = b"1"
                store["u"] = b"1"

    def batches() -> None:
        for n in range(500):
            with store.batch() as batch:
                batch.put("a", b"1")
                batch.put("b", b"1")

    hits = 0
    for work in (scan, write, purge, transact, batches):
        for _ in range(12):
            timer = threading.Timer(RANDOM.random() / 15, interrupt)
            try:
                timer.start()
                work()
                timer.cancel()
                timer.join()
            except KeyboardInterrupt:
                hits += 1
            try:
                timer.join()
            except KeyboardInterrupt:
                hits += 1
            for _ in range(2):  # a signal at the very end of the block before it
                try:
                    store.put("after", b"works")
                    with store.transaction():
                        pass
                except KeyboardInterrupt:
                    pass
            store["after"] = b"works"
    assert hits > 5, hits
    store.close()
    check()


@case
def interrupts_around_the_begin_of_a_transaction() -> None:
    """At no moment may an interrupt leave a transaction open that cannot be ended."""
    store = kvstore.open(":memory:")
    hits = 0

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    def disarm() -> None:
        while True:
            try:
                signal.setitimer(signal.ITIMER_REAL, 0)
                return
            except KeyboardInterrupt:
                pass

    # Python discards an exception in __del__; then the next interrupt ends the loop.
    sys.unraisablehook = lambda args: None
    signal.signal(signal.SIGALRM, interrupt)
    for _ in range(400):
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0005 + RANDOM.random() / 1000, 0.1)
            while True:
                with store.transaction():
                    pass
        except KeyboardInterrupt:
            hits += 1
        disarm()
        with store.transaction():
            store["k"] = b"v"
    assert hits == 400
    store.close()


@case
def signal_handlers_that_use_the_store() -> None:
    store = new()
    calls = [0]

    def handler(number: int, frame: Any) -> None:
        calls[0] += 1
        tolerate(lambda: store.put(f"signal{calls[0]}", b""))
        tolerate(lambda: list(store.items(limit=10)))
        tolerate(lambda: store.purge_expired())

    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
    for n in range(3000):
        store.put(f"{n}", b"x")
        if n % 50 == 0:
            list(store.items(limit=300))
            with store.transaction():
                store["t"] = b"1"
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert calls[0] > 0
    store.close()
    check()


@case
def handler_closes_store() -> None:
    store = new()
    signal.signal(signal.SIGALRM, lambda n, f: tolerate(store.close))
    signal.setitimer(signal.ITIMER_REAL, 0.05)

    def scan() -> None:
        while True:
            for _ in store.items():
                pass

    tolerate(scan)
    tolerate(lambda: store["0001"])
    check()


@case
def garbage_collection_at_every_allocation() -> None:
    gc.set_threshold(1, 1, 1)
    store = new()
    for thing in objects_of(store):
        exercise(thing)
    for number in range(30):
        cycle: list[Any] = [kvstore.open(f"gc{number % 3}.db")]
        cycle.append(cycle)
        cycle.append(iter(cycle[0].items()))
    tolerate(store.close)
    gc.set_threshold(700)
    check()


@case
def store_closed_by_trace_and_profile_functions() -> None:
    for hook in (sys.settrace, sys.setprofile):
        store = new()
        count = [0]

        def spy(frame: Any, event: str, arg: Any) -> Any:
            count[0] += 1
            if count[0] == 40:
                hook(None)
                tolerate(store.close)
            return spy

        hook(spy)
        for _ in range(20):
            tolerate(lambda: store.put("k", b"v", ttl=5))
            tolerate(lambda: list(store.items(limit=3)))
        hook(None)
        tolerate(store.close)
    check()


# --- everything with everything


def garbage(store: Any, pool: list[Any]) -> Any:
    kind = RANDOM.randrange(22)
    if kind == 0:
        return RANDOM.choice(HUGE[:-1])
    if kind == 1:
        return RANDOM.choice([0, 1, -1, 2, 3, 10, 255, 256])
    if kind == 2:
        return RANDOM.choice([0.0, 0.5, 1.0, -1.0, 1e9, 1e300, float("nan"), float("inf")])
    if kind in (3, 4):
        return bytes(RANDOM.randrange(256) for _ in range(RANDOM.randrange(12)))
    if kind in (5, 6):
        return "".join(chr(RANDOM.choice([65, 66, 0x30, 0, 0xE9, 0x20AC, 0x1F600, 0xD800])) for _ in range(RANDOM.randrange(6)))
    if kind == 7:
        return RANDOM.choice([None, True, False, ..., NotImplemented])
    if kind == 8:
        return bytearray(b"ba")
    if kind == 9:
        return memoryview(b"mv12")[:: RANDOM.choice([1, 2, -1])]
    if kind == 10:
        return RANDOM.choice([[], ["a", "b"], [("a", b"1")], [b"x", 1], ("a", 5), {}, {"a": b"1"}, {1: 2}, set(), iter(())])
    if kind == 11:
        return RANDOM.choice([datetime.timedelta(seconds=5), datetime.timedelta.max, datetime.timedelta.min])
    if kind == 12:
        return RANDOM.choice([datetime.datetime.now(), datetime.datetime.now(datetime.timezone.utc), datetime.date.today()])
    if kind == 13:
        return RANDOM.choice([object(), type, int, len, lambda *a: 0, lambda *a, **k: 1 / 0, 1j])
    if kind == 14:
        return RANDOM.choice(pool) if pool else None
    if kind == 15:
        return RANDOM.choice(["fuzz1.db", "nowhere/x.db", ".", "", ":memory:", "fuzz2.db\0x"])
    if kind == 16:
        return "k" * RANDOM.choice([65535, 65536, 65537])
    if kind == 17:
        return Evil(store)
    if kind == 18:
        return EvilNumber(store)
    if kind == 19:
        return RANDOM.choice(["default", "f", "g", "__x", "kvstore_y", "x" * 256])
    return RANDOM.choice(["0001", b"0002", "n", b"k"])


FUZZ_SKIP = {"memoize"}


@case
def fuzz() -> None:
    """Make random calls with random arguments on all public objects."""
    import kvstore.snkv

    modules = [kvstore, kvstore.snkv]
    store = new()
    pool: list[Any] = objects_of(store)

    def snkv_objects() -> list[Any]:
        old = tolerate(lambda: kvstore.snkv.KVStore(RANDOM.choice(["snkv.db", None])))
        things = [old]
        for make in (
            lambda: old.create_column_family("f"),
            lambda: old.default_column_family(),
            lambda: old.iterator(),
            lambda: old.prefix_iterator(b"0"),
            lambda: old.reverse_iterator(),
            lambda: old._db,
        ):
            things.append(tolerate(make))
        return [thing for thing in things if thing is not None]

    pool += snkv_objects()
    functions = [
        getattr(module, name)
        for module in modules
        for name in dir(module)
        if not name.startswith("_") and callable(getattr(module, name)) and name not in FUZZ_SKIP
        and getattr(getattr(module, name), "__module__", "").startswith("kvstore")
    ]
    for _ in range(int(os.environ.get("KVSTORE_FUZZ_CALLS", "6000"))):
        if not pool or RANDOM.random() < 0.003:
            tolerate(lambda: store.close())
            store = tolerate(new) or kvstore.open(":memory:")
            pool[:] = objects_of(store) + snkv_objects()
        if RANDOM.random() < 0.05:
            target = RANDOM.choice(functions)
        else:
            thing = RANDOM.choice(pool)
            names = [n for n in dir(type(thing)) if not n.startswith("_") or n in SPECIAL]
            if not names:
                continue
            name = RANDOM.choice(names)
            if name in ("close", "start_cleaner") and RANDOM.random() < 0.9:
                continue
            target = tolerate(lambda: getattr(thing, name))
            if not callable(target):
                continue
        positional = [garbage(store, pool) for _ in range(RANDOM.choice([0, 1, 1, 1, 2, 2, 3, 4]))]
        named = {}
        if RANDOM.random() < 0.4:
            try:
                parameters = list(inspect.signature(target).parameters)
            except (TypeError, ValueError):
                parameters = []
            for parameter in RANDOM.sample(parameters, RANDOM.randrange(len(parameters) + 1)):
                named[parameter] = garbage(store, pool)
        result = tolerate(lambda: target(*positional, **named))
        if inspect.isgenerator(result) or hasattr(result, "__next__"):
            for _ in range(RANDOM.randrange(4)):
                tolerate(lambda: next(result))
        if result is not None and type(result).__module__.startswith("kvstore") and not isinstance(result, Exception):
            pool.append(result)
        if len(pool) > 60:
            del pool[RANDOM.randrange(len(pool))]
    pool.clear()
    tolerate(store.close)
    gc.collect()
    store = kvstore.open("crash.db")
    store.integrity_check()


SPECIAL = {
    "__getitem__", "__setitem__", "__delitem__", "__contains__", "__iter__", "__next__", "__len__", "__enter__",
    "__exit__", "__eq__", "__repr__", "__bool__", "__reversed__", "__call__", "__init__", "__reduce_ex__", "__copy__",
    "__deepcopy__", "__getstate__", "__setstate__", "__del__", "__hash__",
}  # fmt: skip


def main() -> None:
    name, seed = sys.argv[1], int(sys.argv[2])
    RANDOM.seed(seed)
    CASES[name]()


if __name__ == "__main__":
    main()
