"""Queue: order, visibility, retries, dead letters, and killed consumers."""

from __future__ import annotations

import json
import pickle
import queue
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Optional

import pytest
from helpers import START_S, Clock

import kvstore
from kvstore.recipes import Message, NotOwnedError, Queue, QueueSizes


@pytest.fixture
def store(path: Path, clock: Clock) -> Iterator[kvstore.Store]:
    with kvstore.open(path, busy_timeout=30, sync="off") as opened:
        opened.set_clock(clock)
        yield opened


def take(jobs: Queue[Any]) -> Message[Any]:
    return jobs.get(block=False)


def values(jobs: Queue[Any]) -> list[Any]:
    """Take and return all ready messages."""
    return [message.value for message in jobs.get_many(10**6)]


def test_messages_are_taken_in_order_and_removed_by_ack(store: kvstore.Store) -> None:
    jobs = Queue(store, "jobs")
    assert [jobs.put(value) for value in (b"a", "b", bytearray(b"c"))] == [1, 2, 3]
    assert jobs.size() == 3
    for number, value in ((1, b"a"), (2, b"b"), (3, b"c")):
        message = take(jobs)
        assert (message.id, message.value, message.attempts, message.put_time) == (number, value, 1, START_S)
        message.ack()
    assert jobs.sizes() == QueueSizes(0, 0, 0, 0)
    with pytest.raises(queue.Empty):
        take(jobs)
    assert jobs.put("d") == 4


def test_taken_message_is_hidden_until_visibility_ends(store: kvstore.Store, clock: Clock) -> None:
    jobs, others = Queue(store, "jobs", visibility=30), Queue(store, "jobs")
    jobs.put("a")
    first = take(jobs)
    clock.advance(29.999)
    with pytest.raises(queue.Empty):
        take(others)
    assert jobs.sizes() == QueueSizes(0, 0, 1, 0)
    clock.advance(0.001)
    assert jobs.sizes() == QueueSizes(1, 0, 0, 0)
    second = take(others)
    assert (second.id, second.attempts, second.owned(), first.owned()) == (1, 2, True, False)
    for call in (first.ack, first.nack, first.extend):
        with pytest.raises(NotOwnedError):
            call()
    second.ack()


def test_late_ack_works_if_message_was_not_taken_again(store: kvstore.Store, clock: Clock) -> None:
    jobs = Queue(store, "jobs", visibility=30)
    jobs.put("a")
    message = take(jobs)
    clock.advance(100)
    assert message.owned()
    message.ack()
    assert jobs.sizes() == QueueSizes(0, 0, 0, 0)
    with pytest.raises(NotOwnedError):
        message.ack()


def test_visibility_of_zero_is_refused_without_naming_forever(store: kvstore.Store) -> None:
    with pytest.raises(ValueError, match=r"^visibility must be positive, not 0$"):
        Queue(store, "jobs", visibility=0)


def test_extend_prolongs_visibility(store: kvstore.Store, clock: Clock) -> None:
    jobs = Queue(store, "jobs", visibility=30)
    jobs.put("a")
    message = jobs.get(visibility=5)
    clock.advance(4)
    message.extend()
    clock.advance(29)
    assert jobs.size() == 0
    message.extend(1)
    clock.advance(1)
    assert jobs.size() == 1


def test_with_block_acks_or_returns_message(store: kvstore.Store) -> None:
    jobs = Queue(store, "jobs")
    jobs.put("a")
    with pytest.raises(LookupError):
        with take(jobs):
            raise LookupError
    assert jobs.sizes() == QueueSizes(1, 0, 0, 0)
    with take(jobs) as message:
        assert (message.value, message.attempts) == (b"a", 2)
    assert jobs.sizes() == QueueSizes(0, 0, 0, 0)
    jobs.put("b")
    with take(jobs) as message:
        message.ack()
    jobs.put("c")
    with take(jobs) as message:
        message.nack(delay=60)
    assert jobs.sizes() == QueueSizes(0, 1, 0, 0)


def test_with_block_reports_message_taken_by_other_consumer(store: kvstore.Store, clock: Clock) -> None:
    jobs = Queue(store, "jobs", visibility=30)
    jobs.put("a")
    with pytest.raises(NotOwnedError):
        with take(jobs):
            clock.advance(30)
            take(jobs).ack()


def test_delayed_message_is_hidden_until_due(store: kvstore.Store, clock: Clock) -> None:
    jobs = Queue(store, "jobs", visibility=600)
    jobs.put("later", delay=60)
    jobs.put("now")
    assert jobs.sizes() == QueueSizes(1, 1, 0, 0)
    assert values(jobs) == [b"now"]
    clock.advance(59.999)
    assert values(jobs) == []
    clock.advance(0.001)
    peeked = jobs.peek()
    assert peeked is not None and peeked.value == b"later"
    assert values(jobs) == [b"later"]


def test_returned_message_keeps_its_position(store: kvstore.Store, clock: Clock) -> None:
    jobs = Queue(store, "jobs", visibility=30)
    jobs.put_many(["a", "b", "c", "d"])
    a, b = take(jobs), take(jobs)
    b.nack()
    assert take(jobs).value == b"b"
    clock.advance(30)
    a.extend()
    assert values(jobs) == [b"b", b"c", b"d"]


def test_message_becomes_dead_letter_after_max_attempts(store: kvstore.Store, clock: Clock) -> None:
    jobs = Queue(store, "jobs", visibility=30, max_attempts=3)
    jobs.put_many(["nacked", "lost", "good"])
    for _ in range(3):
        take(jobs).nack()
    for _ in range(3):
        assert take(jobs).value == b"lost"
        clock.advance(30)
    assert take(jobs).value == b"good"
    assert jobs.sizes() == QueueSizes(0, 0, 1, 2)
    assert [(dead.value, dead.attempts) for dead in jobs.dead_letters()] == [(b"nacked", 3), (b"lost", 3)]
    assert len(jobs.dead_letters(limit=1)) == 1
    assert jobs.redrive(1) == 1
    again = take(jobs)
    assert (again.value, again.attempts) == (b"nacked", 1)
    assert jobs.discard_dead_letters() == 1
    assert jobs.sizes() == QueueSizes(0, 0, 2, 0)


def test_ack_from_before_redrive_is_refused(store: kvstore.Store) -> None:
    jobs = Queue(store, "jobs", max_attempts=1)
    jobs.put("a")
    old = take(jobs)
    old.nack()
    for state in ("dead", "ready", "taken"):
        if state == "ready":
            jobs.redrive()
        if state == "taken":
            new = take(jobs)
        assert not old.owned()
        with pytest.raises(NotOwnedError):
            old.ack()
    assert new.owned()


def test_message_without_max_attempts_is_always_retried(store: kvstore.Store) -> None:
    jobs = Queue(store, "jobs", max_attempts=None)
    jobs.put("a")
    for attempt in range(1, 100):
        message = take(jobs)
        assert message.attempts == attempt
        message.nack()


def test_nack_uses_retry_delay(store: kvstore.Store, clock: Clock) -> None:
    jobs = Queue(store, "jobs", retry_delay=10)
    jobs.put("a")
    take(jobs).nack()
    assert jobs.sizes() == QueueSizes(0, 1, 0, 0)
    clock.advance(10)
    take(jobs).nack(delay=0)
    assert jobs.size() == 1


def test_peek_does_not_take_message(store: kvstore.Store, clock: Clock) -> None:
    jobs = Queue(store, "jobs", visibility=30, max_attempts=1)
    assert jobs.peek() is None
    jobs.put_many(["a", "b"])
    for _ in range(2):
        message = jobs.peek()
        assert message is not None and (message.value, message.attempts) == (b"a", 0)
        with pytest.raises(NotOwnedError):
            message.ack()
    take(jobs)
    clock.advance(30)  # the first is exhausted
    message = jobs.peek()
    assert message is not None and message.value == b"b"


def test_clear_empties_queue_and_keeps_numbering(store: kvstore.Store) -> None:
    jobs = Queue(store, "jobs")
    jobs.put_many(["a", "b", "c"], delay=5)
    jobs.put("d")
    message = take(jobs)
    jobs.clear()
    assert jobs.sizes() == QueueSizes(0, 0, 0, 0)
    with pytest.raises(NotOwnedError):
        message.ack()
    assert jobs.put("e") == 5


def test_queues_are_independent(store: kvstore.Store) -> None:
    first, second = Queue(store, "1"), Queue(store, "2")
    first.put("a")
    assert second.size() == 0
    assert (first.name, repr(first)) == ("1", "<kvstore.recipes.Queue '1'>")


def test_queue_codec_encodes_values(store: kvstore.Store) -> None:
    jobs = Queue(store, "jobs", codec=json)
    jobs.put({"a": [1, None]})
    assert take(jobs).value == {"a": [1, None]}
    with pytest.raises(TypeError):
        jobs.put_many([1, {1, 2}])
    assert jobs.sizes() == QueueSizes(0, 0, 1, 0)


def test_queue_uses_codec_of_its_store(tmp_path: Path) -> None:
    with kvstore.open(tmp_path / "a.db", codec=kvstore.JSON, keys=str) as coded:
        jobs = Queue(coded, "jobs")
        jobs.put({"a": [1, None]})
        jobs.put("text")
        assert [message.value for message in jobs.get_many(5)] == [{"a": [1, None]}, "text"]
        with pytest.raises(TypeError):
            jobs.put({1, 2})
        again = pickle.loads(pickle.dumps(jobs))
        jobs.put([2])
        assert take(again).value == [2]
        for codec, value in ((None, b"[3]"), (kvstore.TEXT, "[3]"), (kvstore.DATA, (3,))):
            own: Queue[Any] = Queue(coded, f"own {codec}", codec=codec)
            own.put(value)
            looked = Queue(coded, f"own {codec}", codec=None).peek()
            assert looked is not None and (codec is kvstore.DATA or looked.value == b"[3]")
            assert take(pickle.loads(pickle.dumps(own))).value == value
    with kvstore.open(tmp_path / "b.db", keys=str) as plain:
        bare = Queue(plain, "jobs")
        bare.put("text")
        assert take(bare).value == b"text"


def test_codec_without_dumps_is_refused(store: kvstore.Store) -> None:
    with pytest.raises(TypeError, match="no method dumps"):
        Queue(store, "jobs", codec=object())


def test_unreadable_value_becomes_dead_letter_without_max_attempts(store: kvstore.Store, clock: Clock) -> None:
    Queue(store, "jobs").put_many([b"no json", b"1"])
    jobs = Queue(store, "jobs", codec=json, visibility=30, max_attempts=None)
    for attempt in range(5):
        assert jobs.sizes().dead == 0
        with pytest.raises(ValueError):
            take(jobs)
        if attempt == 0:
            message = take(jobs)
            assert message.value == 1
            message.ack()
        clock.advance(30)
    assert jobs.sizes() == QueueSizes(0, 0, 0, 1)
    assert [dead.attempts for dead in jobs.dead_letters()] == [5]
    assert jobs.redrive() == 1
    assert take(Queue(store, "jobs")).value == b"no json"


def test_unreadable_value_becomes_dead_letter(store: kvstore.Store) -> None:
    Queue(store, "jobs").put(b"no json")
    jobs = Queue(store, "jobs", codec=json, visibility=30, max_attempts=2)
    later = Clock()
    store.set_clock(later)
    for _ in range(2):
        with pytest.raises(ValueError):
            take(jobs)
        later.advance(30)
    with pytest.raises(queue.Empty):
        take(jobs)
    assert jobs.sizes().dead == 1


def test_unreadable_value_does_not_block_other_messages(store: kvstore.Store) -> None:
    Queue(store, "jobs").put_many([b"no json", b"1", b"2"])
    jobs = Queue(store, "jobs", codec=json, visibility=30, max_attempts=2)
    later = Clock()
    store.set_clock(later)
    for message in jobs.get_many(10):
        assert message.value in (1, 2)
        message.ack()
    later.advance(30)
    with pytest.raises(ValueError):
        jobs.get_many(10)
    later.advance(30)
    assert jobs.get_many(10) == []
    (dead,) = jobs.dead_letters()
    with pytest.raises(ValueError):
        dead.value
    assert (dead.attempts, jobs.redrive()) == (2, 1)
    looked = jobs.peek()
    assert looked is not None and looked.id == dead.id


@pytest.mark.parametrize("max_attempts", [None, 3])
def test_unreadable_values_do_not_block_a_transaction(store: kvstore.Store, max_attempts: Optional[int]) -> None:
    Queue(store, "jobs").put_many([b"no json", b"nor this", b"1", b"2"])
    jobs = Queue(store, "jobs", codec=json, max_attempts=max_attempts)
    with store.transaction():
        message = jobs.get(block=False)
        assert message.value == 1
        message.ack()
    with store.transaction():
        (message,) = jobs.get_many(1)
        assert message.value == 2
        message.ack()
    sizes = jobs.sizes()
    assert sizes.ready + sizes.taken + sizes.dead == 2
    Queue(store, "jobs").put(b"nor that")
    with pytest.raises(ValueError), store.transaction():
        jobs.get(block=False)  # no other message
    assert jobs.sizes() == sizes._replace(ready=sizes.ready + 1)


def test_busy_store_hides_no_readable_message(tmp_path: Path) -> None:
    with kvstore.open(tmp_path / "q.db", busy_timeout=0) as db, kvstore.open(tmp_path / "q.db") as other:
        Queue(db, "jobs").put_many([b"no json", b"1"])
        tx = other.transaction()

        class Codec:
            """Decodes the unreadable message when another process has begun to write."""

            dumps = staticmethod(json.dumps)

            @staticmethod
            def loads(data: bytes) -> Any:
                if data == b"no json":
                    tx.__enter__()
                return json.loads(data)

        jobs = Queue(db, "jobs", codec=Codec(), visibility=0.001, max_attempts=None)
        for _ in range(4):
            with pytest.raises(ValueError):
                try:
                    jobs.get(block=False)
                finally:
                    tx.__exit__(None, None, None)
                    tx = other.transaction()
                    time.sleep(0.01)
        (message,) = jobs.get_many(10)
        assert message.value == 1
        tx.__exit__(None, None, None)


def test_effects_and_ack_in_one_transaction_are_atomic(store: kvstore.Store, clock: Clock) -> None:
    jobs = Queue(store, "jobs", visibility=30)
    jobs.put("a")
    message = take(jobs)
    with pytest.raises(LookupError):
        with store.transaction():
            store.incr("done")
            message.ack()
            raise LookupError
    assert message.owned() and "done" not in store
    clock.advance(30)
    second = take(jobs)
    with pytest.raises(NotOwnedError):
        with store.transaction():
            store.incr("done")
            message.ack()
    with store.transaction():
        store.incr("done")
        second.ack()
    assert store["done"] == b"1"


def test_put_joins_a_transaction(store: kvstore.Store) -> None:
    jobs = Queue(store, "jobs")
    with pytest.raises(LookupError):
        with store.transaction():
            jobs.put("a")
            assert take(jobs).value == b"a"
            raise LookupError
    assert jobs.sizes() == QueueSizes(0, 0, 0, 0)
    with store.transaction():
        store["order"] = b"1"
        jobs.put("send mail")
    assert take(jobs).value == b"send mail"


def test_get_does_not_wait_inside_a_transaction(store: kvstore.Store) -> None:
    jobs = Queue(store, "jobs")
    with store.transaction():
        with pytest.raises(kvstore.Error, match="block=False"):
            jobs.get()
        jobs.put("a")
        assert jobs.get().value == b"a"


def test_get_waits_for_a_put_and_no_longer_than_its_timeout(store: kvstore.Store) -> None:
    jobs = Queue(store, "jobs")
    with pytest.raises(queue.Empty):
        jobs.get(timeout=0.01)
    got: list[bytes] = []
    thread = threading.Thread(target=lambda: got.append(jobs.get(timeout=60).value))
    thread.start()
    jobs.put("a")
    thread.join(60)
    assert got == [b"a"]


def test_pickled_queue_keeps_its_settings(store: kvstore.Store, clock: Clock) -> None:
    jobs = Queue(store, "jobs", visibility=7, max_attempts=1, retry_delay=3, codec=json)
    make, arguments = jobs.__reduce__()
    again = make(*arguments)
    jobs.put([1])
    assert take(again).value == [1]
    clock.advance(7)
    with pytest.raises(queue.Empty):
        take(again)
    assert again.sizes().dead == 1


@pytest.mark.parametrize(
    "bad, error",
    [
        ({"visibility": 0}, ValueError), ({"visibility": kvstore.FOREVER}, ValueError), ({"max_attempts": 0}, ValueError),
        ({"max_attempts": 1.5}, TypeError), ({"retry_delay": -1}, ValueError), ({"retry_delay": kvstore.FOREVER}, ValueError),
        ({"name": 5}, TypeError), ({"name": ""}, ValueError), ({"name": "x" * 300}, ValueError),
    ],
)  # fmt: skip
def test_invalid_setting_is_refused_at_once(store: kvstore.Store, bad: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        Queue(store, **{"name": "jobs", **bad})


def test_invalid_calls_change_nothing(store: kvstore.Store) -> None:
    jobs = Queue(store, "jobs")
    for call in (
        lambda: jobs.put(5), lambda: jobs.put_many(["a", None]), lambda: jobs.put("a", delay=-1), lambda: jobs.get_many(0),
        lambda: jobs.get(timeout=-1), lambda: jobs.get(visibility=0),
    ):  # fmt: skip
        with pytest.raises((TypeError, ValueError)):
            call()  # type: ignore[no-untyped-call, unused-ignore]
    assert jobs.sizes() == QueueSizes(0, 0, 0, 0)


class Model:
    """A model of a queue in memory: the state of each message, and until when it lasts."""

    def __init__(self, visibility: float, most: int) -> None:
        self.visibility, self.most = visibility, most
        self.messages: dict[int, list[Any]] = {}  # state, until, attempts
        self.last = 0

    def wake(self, now: float) -> None:
        for message in self.messages.values():
            if message[0] in ("delayed", "taken") and message[1] <= now:
                message[0] = "dead" if message[0] == "taken" and message[2] >= self.most else "ready"

    def get(self, now: float) -> Optional[int]:
        self.wake(now)
        for number, message in sorted(self.messages.items()):
            if message[0] == "ready":
                message[:] = ["taken", now + self.visibility, message[2] + 1]
                return number
        return None


@pytest.mark.parametrize("seed", range(5))
def test_random_calls_match_model(store: kvstore.Store, clock: Clock, seed: int) -> None:
    chance = random.Random(seed)
    jobs, model = Queue(store, "jobs", visibility=10, max_attempts=3), Model(10, 3)
    held: list[Message[bytes]] = []
    for _ in range(300):
        act = chance.choice(["put", "put", "get", "get", "get", "ack", "nack", "extend", "time", "redrive"])
        if act == "put":
            delay = chance.choice([0, 0, 5])
            model.last += 1
            model.messages[model.last] = ["delayed" if delay else "ready", clock.now_s + delay, 0]
            assert jobs.put(str(model.last), delay) == model.last
        elif act == "get":
            expected = model.get(clock.now_s)
            try:
                message = take(jobs)
            except queue.Empty:
                assert expected is None
            else:
                assert (message.id, message.value) == (expected, str(expected).encode())
                assert message.attempts == model.messages[message.id][2]
                held.append(message)
        elif act in ("ack", "nack", "extend") and held:
            message = held.pop(chance.randrange(len(held)))
            owned = message.owned()
            newer = any(other.id == message.id and other._delivery > message._delivery for other in held)
            assert not (owned and newer)
            try:
                getattr(message, act)()
            except NotOwnedError:
                assert not owned
            else:
                here = model.messages[message.id]
                if act == "ack":
                    del model.messages[message.id]
                elif act == "nack":
                    here[0] = "dead" if here[2] >= 3 else "ready"
                else:
                    here[:2] = ["taken", clock.now_s + 10]
                    held.append(message)
        elif act == "time":
            clock.advance(chance.choice([1, 4, 11]))
        elif act == "redrive":
            model.wake(clock.now_s)
            for message_ in model.messages.values():
                if message_[0] == "dead":
                    message_[:] = ["ready", 0, 0]
            jobs.redrive()
        if act in ("get", "time"):
            model.wake(clock.now_s)
            states = [message[0] for message in model.messages.values()]
            sizes = QueueSizes(*(states.count(state) for state in ("ready", "delayed", "taken", "dead")))
            assert jobs.sizes() == sizes
            dead = [number for number, message in sorted(model.messages.items()) if message[0] == "dead"]
            assert [message.id for message in jobs.dead_letters()] == dead


def test_concurrent_threads_get_each_message_once(store: kvstore.Store) -> None:
    jobs = Queue(store, "jobs")
    jobs.put_many([str(n) for n in range(200)])
    got: list[int] = []

    def work() -> None:
        while True:
            try:
                with jobs.get(block=False) as message:
                    got.append(int(message.value))
            except queue.Empty:
                return

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(got) == list(range(200))
    assert jobs.sizes() == QueueSizes(0, 0, 0, 0)


@pytest.mark.parametrize("block", [5, 0.5, None, "no"])
def test_get_rejects_wait_in_place_of_block(db: kvstore.Store, block: Any) -> None:
    jobs = Queue(db, "jobs")
    jobs.put("x")
    with pytest.raises(TypeError, match="block must be True or False, not .*: give the longest wait as timeout="):
        jobs.get(block)
    assert jobs.get(1).value == b"x"  # equal to True, as in queue.Queue
    with pytest.raises(queue.Empty):
        jobs.get(0)


WORKER = """
import queue, random, sys, time, kvstore
from kvstore.recipes import NotOwnedError, Queue
store = kvstore.open(sys.argv[1], busy_timeout=60)
jobs = Queue(store, "jobs", visibility=float(sys.argv[2]), max_attempts=None)
done = store.family("done", create=True)
print("ready", flush=True)
while True:
    try:
        message = jobs.get(timeout=float(sys.argv[3]))
    except queue.Empty:
        break
    while True:
        try:
            with store.transaction():     # what is done, and that it is, in one step
                done.incr(message.value)
                jobs.put(message.value + b"+") if not message.value.endswith(b"+") else None
                message.ack()
            break
        except NotOwnedError:
            break
        except kvstore.LockedError:       # on a server
            time.sleep(random.uniform(0, 0.02))
"""


def test_transactional_effects_happen_once_despite_kills(path: Path) -> None:
    """While consumers are killed, each message has its effect once, and produces one further message."""
    with kvstore.open(path, busy_timeout=60) as store:
        jobs = Queue(store, "jobs", max_attempts=None)
        done = store.family("done", create=True)
        command = [sys.executable, "-c", WORKER, str(path), "0.2"]
        names: list[str] = []
        killed_at_work = 0
        for number in range(20):  # if this process is stalled, the workers of a round finish all messages
            if killed_at_work == 3:
                break
            new = [f"{number}.{n}" for n in range(800)]
            names += new
            before = len(done)
            jobs.put_many(new)
            children = [subprocess.Popen([*command, "60"], stdout=subprocess.PIPE, text=True) for _ in range(2)]
            for child in children:
                assert child.stdout is not None
                child.stdout.readline()
            while len(done) < before + 20:
                time.sleep(0.001)
            for child in children:
                child.kill()
                child.communicate()
            killed_at_work += len(done) < 2 * len(names)
            store.integrity_check()
        assert killed_at_work
        last = [subprocess.Popen([*command, "1"], stdout=subprocess.DEVNULL) for _ in range(2)]
        assert [child.wait(120) for child in last] == [0, 0]
        assert {key: int(count) for key, count in done.items()} == {
            f"{name}{end}".encode(): 1 for name in names for end in ("", "+")
        }
        assert jobs.sizes() == QueueSizes(0, 0, 0, 0)
        assert len(store.family("recipes.queue.jobs")) == 1  # the counters


def test_put_many_of_killed_producer_is_atomic(path: Path) -> None:
    code = """
import sys, kvstore
from kvstore.recipes import Queue
jobs = Queue(kvstore.open(sys.argv[1], busy_timeout=60), "jobs")
while True:
    jobs.put_many(["x"] * 7)
"""
    with kvstore.open(path, busy_timeout=60) as store:
        jobs = Queue(store, "jobs")
        child = subprocess.Popen([sys.executable, "-c", code, str(path)])
        while jobs.size() < 70:
            time.sleep(0.001)
        child.kill()
        child.wait()
        size = jobs.size()
        assert size % 7 == 0
        assert [message.id for message in jobs.get_many(10**6)] == list(range(1, size + 1))


@pytest.mark.parametrize(
    "row",
    [b"zz", b"", b"\xff" * 40, b"\xff" * 29, b"\0" * 29, b"\0" * 40],
    ids=lambda row: f"{row[:1].hex()}-{len(row)}",
)
@pytest.mark.parametrize("prefix", [b"c", b"m"])
def test_damaged_row_is_an_error_until_clear(store: kvstore.Store, prefix: bytes, row: bytes) -> None:
    jobs = Queue(store, "q")
    jobs.put_many(["a", "b", "c"])
    jobs.get()
    family = store.family("recipes.queue.q")
    for key in list(family.keys(prefix=prefix)):
        family[key] = row
    calls: list[Callable[[], Any]] = [
        lambda: jobs.get(block=False), jobs.peek, jobs.sizes, lambda: jobs.put("d"), jobs.dead_letters,
        jobs.redrive, jobs.discard_dead_letters,
    ]  # fmt: skip
    for call in calls:
        try:
            call()
        except kvstore.Error as error:
            assert str(error).endswith("call clear()")
    jobs.clear()
    assert jobs.put("e") >= 4
    assert jobs.get().value == b"e"
