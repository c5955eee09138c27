"""Lock, RLock and Semaphore: one holder at a time over threads and processes, TTLs of holds, fencing tokens."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import Clock

import kvstore
import kvstore.aio
from kvstore.recipes import Lock, NotOwnedError, RLock, Semaphore, _leases


@pytest.fixture
def store(path: Path, clock: Clock) -> Iterator[kvstore.Store]:
    with kvstore.open(path, busy_timeout=30, sync="off") as opened:
        opened.set_clock(clock)
        yield opened


def in_a_thread(work: Callable[[], Any]) -> Any:
    """Return the result of ``work`` in another thread, or raise its exception."""
    result: list[Any] = []

    def run() -> None:
        try:
            result.append(work())
        except BaseException as e:
            result.append(e)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    assert result, "the thread hangs"
    if isinstance(result[0], BaseException):
        raise result[0]
    return result[0]


KINDS: dict[str, Callable[..., Any]] = {
    "Lock": lambda store, **more: Lock(store, "l", **{"ttl": 30, **more}),
    "RLock": lambda store, **more: RLock(store, "l", **{"ttl": 30, **more}),
    "Semaphore": lambda store, **more: Semaphore(store, "l", 1, **{"ttl": 30, **more}),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


@every_kind
def test_lock_has_one_holder(store: kvstore.Store, kind: str) -> None:
    mine, other = KINDS[kind](store), KINDS[kind](store)
    assert mine.acquire()
    assert (mine.locked(), mine.owned(), other.locked(), other.owned()) == (True, True, True, False)
    assert not in_a_thread(lambda: other.acquire(blocking=False))
    assert not in_a_thread(lambda: other.acquire(timeout=0.01))
    mine.release()
    assert (mine.locked(), mine.owned()) == (False, False)
    assert other.acquire(blocking=False)


@every_kind
def test_with_block_releases_lock_even_on_exception(store: kvstore.Store, kind: str) -> None:
    lock = KINDS[kind](store)
    with lock as same:
        assert same is lock and lock.owned()
    with pytest.raises(LookupError):
        with lock:
            raise LookupError
    assert not lock.locked()


@every_kind
def test_decorator_holds_lock_during_each_call(store: kvstore.Store, kind: str) -> None:
    lock = KINDS[kind](store)

    @lock
    def work(x: int) -> bool:
        return bool(lock.owned()) and x == 1

    assert work(1) and work(x=1)
    assert not lock.locked()


@every_kind
def test_lock_is_released_when_its_ttl_ends(store: kvstore.Store, clock: Clock, kind: str) -> None:
    mine, other = KINDS[kind](store, ttl=30), KINDS[kind](store)
    mine.acquire()
    clock.advance(29.999)
    assert mine.owned() and not in_a_thread(lambda: other.acquire(blocking=False))
    clock.advance(0.001)
    assert not mine.owned() and not mine.locked()
    assert other.acquire(blocking=False)


@every_kind
def test_release_or_extend_of_lost_lock_raises_not_owned(store: kvstore.Store, clock: Clock, kind: str) -> None:
    mine, other = KINDS[kind](store), KINDS[kind](store)
    mine.acquire()
    clock.advance(30)
    other.acquire()
    with pytest.raises(NotOwnedError, match="no longer"):
        mine.extend()
    with pytest.raises(NotOwnedError, match="no longer"):
        mine.release()
    assert other.owned()
    with pytest.raises(RuntimeError, match="does not hold"):
        mine.release()


@every_kind
def test_with_block_reports_lost_lock_unless_block_failed(store: kvstore.Store, clock: Clock, kind: str) -> None:
    lock = KINDS[kind](store)
    with pytest.raises(NotOwnedError):
        with lock:
            clock.advance(30)
    with pytest.raises(LookupError):
        with lock:
            clock.advance(30)
            raise LookupError


@every_kind
def test_extend_counts_from_now(store: kvstore.Store, clock: Clock, kind: str) -> None:
    lock = KINDS[kind](store, ttl=30)
    lock.acquire()
    clock.advance(20)
    assert lock.remaining() == 10
    lock.extend()
    assert lock.remaining() == 30
    lock.extend(5)
    assert lock.remaining() == 5
    clock.advance(5)
    assert lock.remaining() is None


@every_kind
def test_fencing_tokens_increase(store: kvstore.Store, clock: Clock, kind: str) -> None:
    tokens = []
    for step in (0, 0, 30, 0.5, 0, 1000):
        clock.advance(step)
        lock = KINDS[kind](store)
        with lock:
            tokens.append(lock.fencing_token)
    assert tokens == sorted(set(tokens))
    with pytest.raises(NotOwnedError):
        lock.fencing_token  # noqa: B018


def test_fencing_tokens_increase_across_locks_and_after_clear(store: kvstore.Store, clock: Clock) -> None:
    with Lock(store, "a") as a, Semaphore(store, "b") as b:
        tokens = [a.fencing_token, b.fencing_token]
    clock.advance(1)
    store.family("recipes.locks").clear()
    with Lock(store, "a") as a:
        tokens.append(a.fencing_token)
    assert tokens == sorted(set(tokens))


@pytest.mark.parametrize("counter", [b"", b"no number", b"\xff", b"9" * 25, b"9" * 5000, b"-5"])
def test_damaged_counter_of_fencing_tokens_counts_as_lost(store: kvstore.Store, counter: bytes) -> None:
    store.family("recipes.locks", create=True)["f"] = counter
    lock = Lock(store, "a")
    with lock:
        first = lock.fencing_token
    with lock:
        assert lock.fencing_token == first + 1


def test_fencing_tokens_increase_even_if_clock_goes_back(path: Path) -> None:
    tokens = []
    for now in (2_000_000_000.0, 1_000_000_000.0, 3_000_000_000.0):
        with kvstore.open(path) as store:
            store.set_clock(Clock(now))
            with Lock(store, str(now)) as lock:
                tokens.append(lock.fencing_token)
    assert tokens == sorted(set(tokens))


@every_kind
def test_lock_belongs_to_acquiring_thread(store: kvstore.Store, kind: str) -> None:
    lock = KINDS[kind](store)
    lock.acquire()
    with pytest.raises(NotOwnedError, match="thread"):
        in_a_thread(lock.release)
    assert not in_a_thread(lock.owned)
    assert not in_a_thread(lambda: lock.acquire(blocking=False))
    assert lock.owned()


@every_kind
def test_lock_without_thread_local_is_released_by_any_thread(store: kvstore.Store, kind: str) -> None:
    lock = KINDS[kind](store, thread_local=False)
    in_a_thread(lock.acquire)
    assert lock.owned()
    lock.release()
    assert not lock.locked()


@every_kind
def test_lock_can_be_transferred_by_token(store: kvstore.Store, clock: Clock, kind: str) -> None:
    giver, taker = KINDS[kind](store), KINDS[kind](store)
    giver.acquire()
    token = giver.token
    assert in_a_thread(lambda: (taker.adopt(token), taker.fencing_token, taker.release())) == (True, giver.fencing_token, None)
    assert not giver.locked() and not giver.owned()
    assert not taker.adopt(token)
    with pytest.raises(ValueError):
        taker.adopt(b"short")


def test_lock_acquired_twice_by_thread_raises_not_deadlocks(store: kvstore.Store) -> None:
    lock = Lock(store, "l")
    lock.acquire()
    with pytest.raises(kvstore.Error, match="RLock"):
        lock.acquire()
    assert not lock.acquire(blocking=False)


def test_rlock_is_free_after_equal_number_of_releases(store: kvstore.Store, clock: Clock) -> None:
    lock = RLock(store, "l", ttl=30)
    for _ in range(3):
        assert lock.acquire()
        clock.advance(20)
    assert lock.remaining() == 10
    for _ in range(3):
        assert lock.locked()
        lock.release()
    assert not lock.locked()


def test_reacquired_rlock_is_not_shortened(store: kvstore.Store, clock: Clock) -> None:
    lock = RLock(store, "x", ttl=30)
    with lock:
        lock.extend(600)
        with lock:
            assert lock.remaining() == 600
        lock.extend(10)
        with lock:
            assert lock.remaining() == 30


def test_renewal_does_not_shorten_ttl(store: kvstore.Store) -> None:
    lock = Lock(store, "x", ttl=0.3, renew=True)
    with lock:
        lock.extend(600)
        time.sleep(0.5)
        left = lock.remaining()
        assert left is not None and left > 500


def test_expired_rlock_is_not_reacquired_inside(store: kvstore.Store, clock: Clock) -> None:
    lock = RLock(store, "l", ttl=30)
    lock.acquire()
    clock.advance(30)
    with pytest.raises(NotOwnedError):
        lock.acquire()
    with pytest.raises(NotOwnedError):
        lock.release()
    assert lock.acquire()


def test_lock_and_rlock_of_same_name_exclude_each_other(store: kvstore.Store) -> None:
    with Lock(store, "l"):
        assert not RLock(store, "l").acquire(blocking=False)
        assert RLock(store, "other").acquire(blocking=False)
        assert RLock(store, "l", family="others").acquire(blocking=False)
        assert Semaphore(store, "l").acquire(blocking=False)


def test_semaphore_has_as_many_holders_as_its_value(store: kvstore.Store, clock: Clock) -> None:
    semaphores = [Semaphore(store, "s", 3, ttl=30) for _ in range(4)]
    assert [s.acquire(blocking=False) for s in semaphores] == [True, True, True, False]
    assert [s.slot for s in semaphores[:3]] == [0, 1, 2]
    assert (semaphores[3].available(), semaphores[3].locked()) == (0, True)
    semaphores[1].release()
    assert semaphores[3].available() == 1
    assert semaphores[3].acquire(blocking=False) and semaphores[3].slot == 1
    clock.advance(10)
    semaphores[0].extend()
    clock.advance(20)
    assert semaphores[0].available() == 2
    assert [s.owned() for s in semaphores] == [True, False, False, False]


def test_thread_may_hold_slots_and_releases_latest_first(store: kvstore.Store) -> None:
    semaphore = Semaphore(store, "s", 3)
    with semaphore, semaphore:
        assert (semaphore.slot, semaphore.available()) == (1, 1)
        semaphore.release()
        assert (semaphore.slot, semaphore.available()) == (0, 2)
        semaphore.acquire()
    assert semaphore.available() == 3


def test_locks_of_different_names_are_independent(store: kvstore.Store) -> None:
    names: list[Any] = ["a", "ab", b"a\0", b"a\xff", "a\x01", "l", "s", "f"]
    for kind in (Lock, Semaphore):
        locks = [kind(store, name) for name in names]
        for lock in locks:
            assert lock.acquire(blocking=False)
        assert all(lock.owned() for lock in locks)


@every_kind
def test_lock_is_refused_inside_transaction(store: kvstore.Store, kind: str) -> None:
    lock = KINDS[kind](store)
    with store.transaction():
        with pytest.raises(kvstore.Error, match="inside a transaction"):
            lock.acquire()
    with lock:
        with store.transaction():
            assert lock.owned()
            lock.extend(100)
            with pytest.raises(kvstore.Error):
                lock.release()
        assert lock.owned() and lock.remaining() == 100


@every_kind
def test_renewal_keeps_lock_until_release(store: kvstore.Store, clock: Clock, kind: str) -> None:
    """The renewal waits by the real clock; the TTL it sets counts by the store's fixed clock."""
    lock = KINDS[kind](store, ttl=0.15, renew=True)
    with lock:
        token = lock.token
        for _ in range(3):
            clock.advance(0.1)
            until = time.monotonic() + 30
            while lock.remaining() != 0.15:
                assert time.monotonic() < until
                time.sleep(0.001)
        assert lock.token == token
    assert not lock.locked()


@every_kind
def test_renewal_of_lock_with_ttl_of_centuries_can_wait(
    store: kvstore.Store, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []
    monkeypatch.setattr(_leases._thread, "start_new_thread", lambda function, arguments: started.append(arguments))
    lock = KINDS[kind](store, ttl=10_000 * 366 * 86_400, renew=True)
    assert lock.acquire()
    [(_, _, released, interval, _)] = started
    lock.release()
    released.get(timeout=interval)  # raises OverflowError if Python cannot wait for so long


@every_kind
def test_renewal_ends_with_lock_object_or_its_thread(path: Path, kind: str) -> None:
    with kvstore.open(path, busy_timeout=30) as store:
        lock = KINDS[kind](store, ttl=0.2, renew=True)
        watch = KINDS[kind](store)
        in_a_thread(lock.acquire)  # and the thread ends
        assert watch.acquire(timeout=20)
        watch.release()
        lock.acquire()
        del lock
        assert watch.acquire(timeout=20)


@every_kind
@pytest.mark.parametrize("raises", [False, True])
def test_lock_whose_release_failed_ends_by_its_ttl(path: Path, kind: str, raises: bool) -> None:
    with kvstore.open(path, busy_timeout=30) as store:
        lock = KINDS[kind](store, ttl=0.2, renew=True)
        transaction = store.transaction()
        with pytest.raises(ZeroDivisionError if raises else kvstore.Error):
            with lock:
                transaction.__enter__()  # release() refuses to run inside it
                if raises:
                    raise ZeroDivisionError
        transaction.rollback()
        watch = KINDS[kind](store)
        assert watch.acquire(timeout=20), "it is renewed for ever"
        watch.release()
        assert lock.acquire(timeout=20), "its thread cannot take it again"
        lock.release()


def test_waiter_gets_lock_after_release(store: kvstore.Store) -> None:
    """The clock stands still, so only the release lets waiting threads continue."""
    inside: list[int] = []

    def work(number: int) -> None:
        with Lock(store, "l"):
            inside.append(number)
            assert len(inside) == 1
            inside.clear()

    with Lock(store, "l"):
        threads = [threading.Thread(target=work, args=(n,)) for n in range(5)]
        for thread in threads:
            thread.start()
        assert inside == []
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


def test_with_block_raises_timeout_error_if_not_acquired(store: kvstore.Store) -> None:
    with Lock(store, "l"):
        with pytest.raises(TimeoutError):
            with Lock(store, "l", blocking_timeout=0.01):
                raise AssertionError


def test_pickled_lock_is_not_held(store: kvstore.Store) -> None:
    lock = Semaphore(store, "s", 2, 7, renew=True, family="f")
    kind, arguments = lock.__reduce__()
    lock.acquire()
    again = kind(*arguments)
    assert again.available() == 1 and not again.owned()
    assert again._arguments() == lock._arguments()
    store.set_clock(None)
    other = pickle.loads(pickle.dumps(lock))
    assert not other.owned() and other._arguments() == lock._arguments()
    other._store.close()


@pytest.mark.parametrize(
    "bad, error",
    [
        ({"ttl": 0}, ValueError), ({"ttl": -1}, ValueError), ({"ttl": kvstore.FOREVER}, ValueError), ({"ttl": "5"}, TypeError),
        ({"name": ""}, ValueError), ({"name": 5}, TypeError), ({"blocking_timeout": -1}, ValueError),
    ],
)  # fmt: skip
def test_invalid_argument_is_refused_at_once(store: kvstore.Store, bad: dict[str, Any], error: type[Exception]) -> None:
    for kind in (Lock, RLock, Semaphore):
        with pytest.raises(error):
            kind(store, **{"name": "l", **bad})


@pytest.mark.parametrize("kind", [Lock, RLock, Semaphore])
def test_ttl_of_zero_is_refused_without_naming_forever(store: kvstore.Store, kind: type[Lock]) -> None:
    with pytest.raises(ValueError, match=r"^ttl must be positive, not 0$"):
        kind(store, "l", ttl=0)


def test_other_invalid_arguments_are_refused(store: kvstore.Store) -> None:
    for value in (0, -1, 10**6 + 1):
        with pytest.raises(ValueError):
            Semaphore(store, "s", value)
    with pytest.raises(TypeError):
        Semaphore(store, "s", 1.5)  # type: ignore[arg-type, unused-ignore]
    with pytest.raises(TypeError, match="store"):
        Lock({}, "l")  # type: ignore[arg-type, unused-ignore]
    with pytest.raises(TypeError, match=r"store must be a kvstore\.Store, not kvstore\.aio\.Store$"):
        Lock(kvstore.aio.Store.__new__(kvstore.aio.Store), "l")  # type: ignore[arg-type, unused-ignore]
    with pytest.raises(ValueError):
        Lock(store, "l").acquire(blocking=False, timeout=1)
    with pytest.raises(ValueError):
        Lock(store, "l").acquire(timeout=-1)


def test_closed_store_raises_misuse_error(path: Path) -> None:
    store = kvstore.open(path)
    lock = Lock(store, "l")
    lock.acquire()
    store.close()
    for call in (lock.release, lock.acquire, lock.extend, lock.owned, lock.locked):
        with pytest.raises(kvstore.MisuseError):
            call()


# Several processes

COUNT = """
import sys, kvstore
from kvstore.recipes import Lock, RLock, Semaphore
store = kvstore.open(sys.argv[1], busy_timeout=60)
lock = {lock}
tokens = []
for _ in range(60):
    with lock:
        tokens.append(lock.fencing_token)
        n = int(store.get("n", b"0"))    # not one step: only the lock keeps it right
        inside = store.incr("inside")
        assert inside <= {most}, inside
        store.decr("inside")
        store["n"] = str(n + 1)
print(*tokens)
"""


@pytest.mark.parametrize("lock", ["Lock(store, 'l')", "RLock(store, 'l')", "Semaphore(store, 'l', 1)"])
def test_processes_exclude_each_other(path: Path, lock: str) -> None:
    kvstore.open(path).close()
    code = COUNT.format(lock=lock, most=1)
    children = [subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    tokens = [[int(token) for token in child.communicate(timeout=120)[0].split()] for child in children]
    assert [child.returncode for child in children] == [0, 0, 0]
    with kvstore.open(path) as store:
        assert store["n"] == b"180"
    assert all(own == sorted(own) for own in tokens)
    assert len({token for own in tokens for token in own}) == 180


def test_semaphore_limits_number_of_processes(path: Path) -> None:
    kvstore.open(path).close()
    code = COUNT.format(lock="Semaphore(store, 's', 2)", most=2)
    children = [subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.DEVNULL) for _ in range(4)]
    assert [child.wait(120) for child in children] == [0] * 4


HOLD = """
import sys, time, kvstore
from kvstore.recipes import Lock, RLock, Semaphore
store = kvstore.open(sys.argv[1])
lock = {lock}
lock.acquire()
print(lock.fencing_token, flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("renew", [False, True])
@every_kind
def test_lock_of_killed_process_is_free_after_its_ttl(path: Path, kind: str, renew: bool) -> None:
    with kvstore.open(path, busy_timeout=30) as store:
        later = 0.0
        store.set_clock(lambda: time.time() + later)
        arguments = "'l', 1" if kind == "Semaphore" else "'l'"
        code = HOLD.format(lock=f"{kind}(store, {arguments}, ttl=600, renew={renew})")
        child = subprocess.Popen(
            [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None and child.stdin is not None
        token = int(child.stdout.readline())
        mine = KINDS[kind](store)
        assert not mine.acquire(blocking=False)
        child.kill()
        child.wait()
        assert not mine.acquire(blocking=False)
        later = 600.0
        assert mine.acquire(blocking=False)
        assert mine.fencing_token > token
        store.integrity_check()
        child.stdout.close()
        child.stdin.close()


def test_lock_works_after_repeated_kills_of_holders(path: Path) -> None:
    """Each process writes two numbers under the lock; the token reveals what a killed one left."""
    code = """
import sys, kvstore
from kvstore.recipes import Lock, NotOwnedError
store = kvstore.open(sys.argv[1], busy_timeout=60)
lock = Lock(store, "l", ttl=0.2)
print("ready", flush=True)
while True:
    try:
        with lock:
            token = lock.fencing_token
            with store.transaction():
                if lock.owned():
                    assert token > int(store.get("token", b"0"))
                    store["token"] = str(token)
    except NotOwnedError:
        pass    # it stood still for so long
"""
    with kvstore.open(path, busy_timeout=60) as store:
        for _ in range(4):
            children = [
                subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                for _ in range(2)
            ]
            for child in children:
                assert child.stdout is not None
                child.stdout.readline()
            before = int(store.get("token", b"0"))
            while int(store.get("token", b"0")) == before:
                time.sleep(0.001)
            for child in children:
                child.kill()
                assert child.communicate()[1] == ""
        assert Lock(store, "l").acquire(timeout=30)
        store.integrity_check()


def test_forked_child_does_not_hold_parent_locks(path: Path) -> None:
    code = """
import os, sys, kvstore
from kvstore.recipes import Lock, NotOwnedError
store = kvstore.open(sys.argv[1])
lock = Lock(store, "l")
lock.acquire()
child = os.fork()
if child == 0:
    try:
        lock.release()
    except NotOwnedError:
        os._exit(7 if lock.locked() and not lock.owned() and not lock.acquire(blocking=False) else 1)
    os._exit(2)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
lock.release()
print("done")
"""
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.files
def test_busy_error_of_other_writer_is_waited_out_or_raised(path: Path) -> None:
    code = """
import sys, kvstore
with kvstore.open(sys.argv[1]) as store, store.transaction():
    store["k"] = b"theirs"
    print("ready", flush=True)
    sys.stdin.readline()
"""
    with kvstore.open(path, busy_timeout=0) as store:
        lock = Lock(store, "l")
        child = subprocess.Popen(
            [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None and child.stdin is not None
        child.stdout.readline()
        for call in (lambda: lock.acquire(blocking=False), lambda: lock.acquire(timeout=0.01)):
            with pytest.raises(kvstore.BusyError):
                call()
        release = threading.Timer(0.1, lambda: (child.stdin.write("\n"), child.stdin.flush()))  # type: ignore[union-attr, func-returns-value, unused-ignore]
        release.start()
        assert lock.acquire(timeout=30)
        release.join()
        child.communicate(timeout=60)


def test_concurrent_release_by_other_thread_does_not_raise(db: kvstore.Store) -> None:
    """Threads share a lock: one checks it while another releases it."""
    lock = Lock(db, "l", thread_local=False)
    family: Any = lock._family

    class Meanwhile:
        """The family of the lock, in which the hold disappears after each read."""

        def __getattr__(self, name: str) -> Any:
            method = getattr(family, name)
            if name not in ("get", "get_with_ttl", "compare_and_delete"):
                return method

            def call(*arguments: Any) -> Any:
                lock._leases().clear()
                return method(*arguments)

            return call

        def __contains__(self, key: object) -> bool:
            return key in family

    for look in (lock.owned, lock.remaining, lock.release, lambda: lock.acquire(blocking=False)):
        lock._family = family
        assert lock.acquire(blocking=False)
        held = lock._latest()
        lock._family = Meanwhile()  # type: ignore[assignment]
        look()
        family.compare_and_delete(held.key, held.value)
        lock._leases().clear()
