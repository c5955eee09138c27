"""Ctrl-C at any moment leaves no transaction, lock or lease open.

Python raises the exception of a signal handler at the first step of a Python function, after a call and in a loop. A
profile function is called at these moments (except in loops), so one that raises acts like an interrupt. Functions of the
module ``threading`` are included.
"""

from __future__ import annotations

import gc
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable

import pytest

import kvstore
from kvstore._transaction import Transaction
from kvstore.contrib.diskcache import Cache, Deque
from kvstore.recipes import Lock, RLock, Semaphore
from kvstore.recipes._base import reading

PACKAGE = str(Path(kvstore.__file__).parent)


def is_ours(frame: Any) -> bool:
    file = frame.f_code.co_filename
    return bool(file.startswith(PACKAGE) or file == threading.__file__)


def interrupted_at(step: int, work: Callable[[], Any], then: int = 0) -> bool:
    """Run ``work``, and interrupt it at moment number ``step`` of the package.

    With ``then``, interrupt it again at function call number ``then`` after that. Return whether the first moment was
    reached.
    """
    left = [step, then]

    def second(frame: Any, event: str, argument: Any) -> None:
        if is_ours(frame) and frame.f_code.co_name != "__del__":
            left[1] -= 1
            if left[1] == 0:
                raise KeyboardInterrupt

    def first(frame: Any, event: str, argument: Any) -> None:
        # No interrupt is raised in or after a __del__, or between the end of an __enter__ and the block.
        if not is_ours(frame) or event in ("c_call", "c_exception"):
            return
        if frame.f_code.co_name == "__del__" or (event == "return" and frame.f_code.co_name == "__enter__"):
            return
        left[0] -= 1
        if left[0] == 0:
            if then:
                sys.settrace(second)
            raise KeyboardInterrupt

    before = sys.gettrace()
    # Python discards an interrupt in a finalizer, and a collection may run those of other tests.
    gc.disable()
    sys.setprofile(first)
    try:
        work()
    except KeyboardInterrupt:
        pass
    finally:
        sys.setprofile(None)
        sys.settrace(before)
        gc.enable()
    return left[0] <= 0


@pytest.fixture
def plain(path: Path) -> Iterator[kvstore.Store]:
    """A store with the system clock: an exception in a Python clock would be raised later and elsewhere."""
    with kvstore.open(path, busy_timeout=0, sync="off") as store:
        yield store


@pytest.fixture
def two(path: Path) -> Iterator[kvstore.Store]:
    """A second handle on the same file."""
    with kvstore.open(path, busy_timeout=0, sync="off") as store:
        yield store


def commits(db: kvstore.Store, open_: Callable[[], kvstore.Transaction]) -> None:
    with open_():
        db["in"] = b"1"


def rolls_back(db: kvstore.Store, open_: Callable[[], kvstore.Transaction]) -> None:
    with suppress(ZeroDivisionError), open_():
        db["in"] = b"1"
        1 / 0


def commits_by_hand(db: kvstore.Store, open_: Callable[[], kvstore.Transaction]) -> None:
    with open_() as tx:
        db["in"] = b"1"
        tx.commit()
        db["out"] = b"1"


def rolls_back_by_hand(db: kvstore.Store, open_: Callable[[], kvstore.Transaction]) -> None:
    with open_() as tx:
        db["in"] = b"1"
        tx.rollback()


def joining(db: kvstore.Store) -> Transaction:
    """The context of a step of a recipe."""
    return Transaction(db._state, True, joins=True)


def joins(db: kvstore.Store, open_: Callable[[], kvstore.Transaction]) -> None:
    with open_():
        db["in"] = b"1"
        with joining(db):
            db["in"] = b"2"
        with reading(db):
            db["in"]
        db.delete_many(["a", "b"])


@pytest.mark.parametrize("then", [0, 1, 2, 3])
@pytest.mark.parametrize("work", [commits, rolls_back, commits_by_hand, rolls_back_by_hand, joins])
def test_transaction_interrupted_anywhere_is_ended(
    db: kvstore.Store, two: kvstore.Store, work: Callable[..., None], then: int
) -> None:
    kept: list[kvstore.Transaction] = []

    def begin() -> kvstore.Transaction:
        kept.append(db.transaction())  # it lives on, as after "as tx" in a module
        return kept[-1]

    step = 1
    while interrupted_at(step, lambda: work(db, begin), then):
        db["after"] = b"%d" % step
        assert two["after"] == b"%d" % step, f"interrupted at {step}"
        assert not any(tx.active for tx in kept), f"interrupted at {step}"
        assert two.get("in") in (None, b"1", b"2")
        two["after"] = b"two"
        del two["after"]
        with db.transaction():
            db["in"] = b"0"
        del db["in"]
        step += 1
    assert step > 20


@pytest.mark.parametrize("open_", [joining, reading, kvstore.Store.snapshot])
def test_recipe_transaction_interrupted_anywhere_is_ended(
    db: kvstore.Store, two: kvstore.Store, open_: Callable[[kvstore.Store], kvstore.Transaction]
) -> None:
    kept: list[kvstore.Transaction] = []

    def work() -> None:
        kept.append(open_(db))
        with kept[-1]:
            db.get("x")

    step = 1
    while interrupted_at(step, work):
        assert not db._state.in_transaction()
        two["after"] = b"%d" % step  # no older moment is seen
        assert db["after"] == b"%d" % step, f"interrupted at {step}"
        step += 1
    assert step > 10


@pytest.mark.parametrize("exclusive", [False, True])
def test_delete_many_interrupted_anywhere_is_atomic(path: Path, exclusive: bool) -> None:
    with kvstore.open(path, sync="off", exclusive=exclusive) as store:
        step = 1
        while interrupted_at(step, lambda: store.delete_many(["a", "b"])):
            assert len(store) in (0, 2)
            assert not store._state.in_transaction()
            store.put_many({"a": b"", "b": b""})
            step += 1
        assert step > 10


def test_rapid_signals_leave_no_transaction_open(db: kvstore.Store, two: kvstore.Store) -> None:
    if sys.version_info < (3, 10):
        pytest.skip("there, an interrupt can come between a block and its __exit__")
    # In 3.10 a second interrupt can be raised between an exception and its handler.
    then = 0.00003 if sys.version_info >= (3, 11) else 0.0
    interrupts = [0]

    def interrupt(number: int, frame: Any) -> None:
        if armed:
            interrupts[0] += 1
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    tx = db.transaction()
    armed = False
    try:
        for n in range(300):
            try:
                armed = True
                signal.setitimer(signal.ITIMER_REAL, 0.0003 + n % 97 / 200_000, then)  # several, while it is ended
                while True:
                    with tx:
                        db["in"] = b"1"
            except KeyboardInterrupt:
                armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert not tx.active
            db["after"] = b"%d" % n
            assert two["after"] == b"%d" % n
            two["after"] = b"two"
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert interrupts[0] >= 300


@pytest.mark.timeout(60, method="thread")  # what hangs here swallows exceptions, those of a signal, too
@pytest.mark.parametrize("then", range(10))
@pytest.mark.parametrize("renew", [False, True])
@pytest.mark.parametrize("kind", [Lock, RLock, Semaphore])
def test_lock_interrupted_anywhere_is_released(
    plain: kvstore.Store, two: kvstore.Store, kind: Any, renew: bool, then: int
) -> None:
    lock, other = kind(plain, "l", ttl=1000, renew=renew), kind(two, "l", ttl=1000)

    def work() -> None:
        with lock:
            if kind is RLock:
                with lock:
                    pass

    step = 1
    while interrupted_at(step, work, then):
        assert not lock._leases(), f"interrupted at {step}"
        assert other.acquire(blocking=False), f"interrupted at {step}"
        other.release()
        step += 1
    assert step > 40


def sets(cache: Cache) -> None:
    cache.set("in", 1)


def pulls(cache: Cache) -> None:
    cache.push(1)
    cache.pull()


def transacts(cache: Cache) -> None:
    with cache.transact():
        cache.incr("in")
        with cache.transact():
            cache.incr("in")


def transacts_in_a_deque(cache: Cache) -> None:
    with Deque.fromcache(cache).transact():
        cache.incr("in")


@pytest.mark.timeout(120, method="thread")  # what hangs here swallows exceptions, those of a signal, too
@pytest.mark.parametrize("then", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("work", [sets, pulls, transacts, transacts_in_a_deque])
def test_interrupted_diskcache_write_lets_others_write(tmp_path: Path, work: Callable[..., None], then: int) -> None:
    with Cache(tmp_path, timeout=0.5) as cache, ThreadPoolExecutor(1) as pool:
        step = 1
        while interrupted_at(step, lambda: work(cache), then):
            assert pool.submit(cache.set, "after", step).result(), f"interrupted at {step}"
            assert cache["after"] == step and not cache._in_transaction()
            cache.clear()
            step += 1
    assert step > 40


def test_interrupt_of_nested_lock_keeps_outer_hold(plain: kvstore.Store) -> None:
    lock = RLock(plain, "l", ttl=1000)
    for work in (lambda: lock.acquire() and lock.release(), lambda: lock.__enter__().__exit__(None, None, None)):
        step = 1
        with lock:
            while interrupted_at(step, work):
                if work.__code__.co_names[0] == "__enter__":
                    assert lock._latest().depth == 1, f"interrupted at {step}"
                lock._latest().depth = 1
                step += 1
            assert lock.owned()
        assert not lock.locked() and step > 10


def test_interrupted_memoized_call_can_be_repeated_at_once(plain: kvstore.Store) -> None:
    @kvstore.memoize(plain, ttl=60, lease=1000)
    def square(n: int) -> int:
        return n * n

    step = 1
    while interrupted_at(step, lambda: square(3)):
        assert not plain.keys(prefix=square.cache_key(3).replace(b":=", b":~")), f"interrupted at {step}"
        square.cache_clear()
        assert square(3) == 9 and square.cache_info().currsize == 1, f"interrupted at {step}"
        square.cache_clear()
        step += 1
    assert step > 20


def test_wait_interrupted_anywhere_raises_only_the_interrupt(plain: kvstore.Store, two: kvstore.Store) -> None:
    @kvstore.memoize(plain, ttl=60)
    def square(n: int) -> int:
        return n * n

    lease_key = square.cache_key(3).replace(b":=", b":~")

    def computation() -> None:
        plain.put(lease_key, b"somebody else's", 0.005)
        square(3)

    lock = Lock(plain, "l", ttl=1000)
    with Lock(two, "l", ttl=1000):
        for work in (lambda: lock.acquire(timeout=0.005), computation):
            step = 1
            while interrupted_at(step, work):  # another exception comes out of it
                square.cache_clear()
                step += 1
            assert step > 20
    assert lock.acquire(blocking=False)
    lock.release()


def test_no_python_finalizer_can_lose_an_interrupt(plain: kvstore.Store) -> None:
    """Python discards exceptions raised inside __del__."""
    finalizers: list[str] = []

    def look(frame: Any, event: str, argument: Any) -> None:
        if event == "call" and is_ours(frame) and frame.f_code.co_name == "__del__":
            finalizers.append(f"{frame.f_code.co_filename}:{frame.f_lineno}")

    locks: list[Any] = [kind(plain, "l", ttl=1000, renew=renew) for kind in (Lock, RLock, Semaphore) for renew in (False, True)]
    gc.collect()
    gc.disable()
    sys.setprofile(look)
    try:
        plain.put_many({"a": b"", "b": b""})
        plain.batch().put("c", b"")
        with plain.batch() as batch:
            batch.put("c", b"")
        del batch
        with plain.transaction():
            plain.delete_many(["a", "b"])
        for lock in locks:
            with lock:
                pass
    finally:
        sys.setprofile(None)
        gc.enable()
    assert finalizers == []


@pytest.mark.parametrize("then", [0, 1, 2, 3])
@pytest.mark.parametrize("kind", [None, ZeroDivisionError])
def test_end_in_other_thread_interrupted_anywhere_completes(
    db: kvstore.Store, two: kvstore.Store, kind: Any, then: int
) -> None:
    with ThreadPoolExecutor(1) as first:
        step = 1
        while True:
            tx = db.transaction()
            first.submit(tx.__enter__).result()
            first.submit(db.put, "in", b"1").result()

            def leave(tx: kvstore.Transaction = tx) -> None:
                with suppress(kvstore.Error):
                    tx.__exit__(kind, kind and kind(), None)

            came = interrupted_at(step, leave, then)
            assert not tx.active, f"interrupted at {step}"
            two["after"] = b"two"
            first.submit(db.put, "after", b"%d" % step).result()
            assert two["after"] == b"%d" % step and "in" not in two, f"interrupted at {step}"
            if not came:
                break
            step += 1
        assert step > 10
