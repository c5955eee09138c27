"""Stores on a server: URLs as paths, and differences from files. Common behaviour is tested by the other test files, run with
KVSTORE_TEST_REMOTE=1.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import doctest
import gc
import multiprocessing
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import pytest
from helpers import DOCUMENTS, ROOT, assert_clean, content, run_import, run_python, use_store
from postgres import Server, schema_of

import kvstore
import kvstore.aio
import kvstore.snkv
from kvstore._path import redacted
from kvstore.recipes import Lock, Queue, RateLimiter, Semaphore, Tags, memoize

PASSWORD = "hunter2%20secret"
HOUR = 3600.0


@pytest.fixture
def db(url: str) -> Iterator[kvstore.Store]:
    with kvstore.open(url) as store:
        yield store


def connections(server: Server, url: str) -> int:
    """Return the number of connections of the server to a schema."""
    return int(server.sql(f"SELECT count(*) FROM pg_stat_activity WHERE application_name = '{schema_of(url)}'"))


def named(url: str) -> str:
    """Return the URL with an application name, by which the server lists its connections."""
    return f"{url.replace('?', f'?application_name={schema_of(url)}&')}"


# URLs as paths


def test_url_is_opened_like_path(url: str) -> None:
    assert kvstore.remote_available
    with kvstore.open(url) as db:
        db["user:1"] = "Ada"
        db.put("session", b"token", ttl=60)
        sessions = db.family("sessions", create=True, default_ttl=3600)
        sessions["a"] = b"1"
        with db.transaction():
            db["user:2"] = "Bob"
            sessions["b"] = b"2"
        assert db.path == url
    with kvstore.open(url.encode(), codec=kvstore.TEXT, keys=str) as db:
        assert dict(db.items(prefix="user:")) == {"user:1": "Ada", "user:2": "Bob"}
        assert 50 < (db.ttl("session") or 0) <= 60
        assert db.families() == ["sessions"] and len(db.family("sessions")) == 2
        db.integrity_check()
    with kvstore.open(url, read_only=True) as db, pytest.raises(kvstore.ReadOnlyError):
        db["x"] = b"1"


def test_no_file_is_read_or_created(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with kvstore.open(url) as db:
        db["a"] = b"1"
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            assert pool.submit(db.get, "a").result() == b"1"
        db.backup("copy.db")
    assert content(tmp_path / "elsewhere" / "copy.db") == {b"a": b"1"}
    assert sorted(os.listdir(tmp_path)) == ["elsewhere"] and os.listdir(tmp_path / "elsewhere") == ["copy.db"]


def test_file_only_features_are_refused_or_do_nothing(db: kvstore.Store, url: str) -> None:
    with pytest.raises(kvstore.InvalidError, match="clock"):
        db.set_clock(time.time)
    db.set_clock(None)
    assert not db.is_encrypted
    with pytest.raises(kvstore.InvalidError, match="server"):
        db.encrypt(password="x")
    with pytest.raises(ValueError, match="server"):
        kvstore.open(url, password="x")
    assert db.checkpoint() == (0, 0)
    db.vacuum()
    db.sync()
    with pytest.raises(kvstore.InvalidError, match="2500"):
        db["k" * 2501] = b""


def test_exclusive_does_not_make_threads_share_connection(server: Server, url: str) -> None:
    with kvstore.open(named(url), exclusive=True) as db:
        db["a"] = b"1"
        here = threading.Barrier(2)

        def use() -> None:
            db.get("a")
            here.wait()
            here.wait()

        thread = threading.Thread(target=use)
        thread.start()
        here.wait()
        assert connections(server, url) == 2
        here.wait()
        thread.join()


# Passwords


@pytest.mark.parametrize(
    "url, text",
    [
        ("postgresql://ada@host/db?schema=app", "postgresql://ada@host/db?schema=app"),
        ("postgresql://ada:pw@host:5432/db?schema=app", "postgresql://ada@host:5432/db?schema=app"),
        ("postgres://ada:@h1:1,h2:2/db", "postgres://ada@h1:1,h2:2/db"),
        ("postgresql://[::1]:5432/db?password=pw&schema=a&sslmode=require", "postgresql://[::1]:5432/db?schema=a"),
        ("postgresql:///db?host=/run/pg&user=ada&passfile=pw", "postgresql:///db?host=/run/pg&user=ada"),
        ("postgresql://host?pass%77ord=pw", "postgresql://host"),
        ("postgresql://%2Frun%2Fpg/db", "postgresql://%2Frun%2Fpg/db"),
        ("postgresql://", "postgresql://"),
        # Malformed: the text in place of a host may be a part of the password.
        ("postgresql://ada:pw/x@host/db", "postgresql://..."),
        ("postgresql://ada:pw?x@host/db", "postgresql://..."),
        ("postgresql://ada:pw#x@host/db", "postgresql://..."),
        ("postgresql://ada:pw@x@host/db", "postgresql://..."),
        ("postgresql://ada:pw", "postgresql://..."),
        ("postgresql://ada pw@host", "postgresql://..."),
        ("postgresql://host/db?schema=a&password=p@w", "postgresql://..."),
        ("/var/lib/a:b@c.db", "/var/lib/a:b@c.db"),
    ],
)
def test_url_is_shown_without_password(url: str, text: str) -> None:
    assert redacted(url) == text


@pytest.fixture
def with_password(server: Server, url: str) -> Iterator[str]:
    """A URL with a password that the server requires."""
    rules = server.folder / "data" / "pg_hba.conf"
    before = rules.read_text()
    server.sql("SET password_encryption = 'scram-sha-256'; CREATE ROLE ada LOGIN SUPERUSER PASSWORD 'hunter2 secret'")
    rules.write_text("local all ada scram-sha-256\n" + before)
    server.sql("SELECT pg_reload_conf()")
    yield url.replace("postgres@", f"ada:{PASSWORD}@")
    rules.write_text(before)
    server.sql("SELECT pg_reload_conf(); DROP OWNED BY ada CASCADE; DROP ROLE ada")


def says_nothing(*what: object) -> None:
    for one in what:
        assert "hunter2" not in str(one) and "hunter2" not in repr(one)


def test_no_text_contains_password(with_password: str, server: Server) -> None:
    with kvstore.open(with_password) as db:
        db["a"] = b"1"
        family = db.family("f", create=True)
        says_nothing(db, family, db.items(), db.transaction(), Lock(db, "l"), Queue(db, "q"), Tags(db), pickle.loads(pickle.dumps(db)))
        assert "ada@" in repr(db) and db.path == with_password
    says_nothing(db)
    says_nothing(kvstore.aio.open(with_password))
    failing = [
        with_password.replace("hunter2", "hunter2x"),
        with_password.replace(str(server.folder), "/nowhere"),
        with_password.replace("ada:", "ada:hunter2/"),
        with_password + "&nonsense=hunter2",
        with_password + "&port=hunter2",
        f"postgresql://ada:{PASSWORD}@[::1/db",
    ]
    for url in failing:
        for opened in (kvstore.open, kvstore.snkv.KVStore):
            with pytest.raises((kvstore.Error, kvstore.snkv.Error)) as caught:
                opened(url)
            says_nothing(caught.value)
            text = "".join(traceback.format_exception_only(caught.type, caught.value))
            assert "hunter2" not in text, text


def test_pickle_contains_url_with_password(with_password: str) -> None:
    with kvstore.open(with_password) as db:
        db["shared"] = b"1"
        with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            assert pool.submit(use_store, db, db.family("f", create=True, codec=kvstore.JSON), 1).result() == b"1"


# Threads, forks, processes


def test_each_thread_has_connection_closed_with_store(server: Server, url: str) -> None:
    with kvstore.open(named(url)) as db:
        db["a"] = b"1"
        here = threading.Barrier(4)

        def use() -> None:
            db.get("a")
            here.wait()
            here.wait()

        threads = [threading.Thread(target=use) for _ in range(3)]
        for thread in threads:
            thread.start()
        here.wait()
        assert connections(server, url) == 4
        here.wait()
        for thread in threads:
            thread.join()
    end = time.monotonic() + 30
    while connections(server, url) and time.monotonic() < end:
        time.sleep(0.01)
    assert connections(server, url) == 0


def test_transaction_belongs_to_thread_and_blocks_no_other(db: kvstore.Store) -> None:
    with db.transaction(), concurrent.futures.ThreadPoolExecutor(1) as pool:
        db["mine"] = b"1"
        pool.submit(db.put, "other", b"2").result(30)
        assert pool.submit(db.get, "mine").result(30) is None
    assert dict(db) == {b"mine": b"1", b"other": b"2"}


FORK = """
import os, sys, threading
import kvstore

db = kvstore.open(sys.argv[1])
db["n"] = b"0"
family = db.family("f", create=True)
transaction = db.transaction()
transaction.__enter__()
db["parent"] = b"1"
child = os.fork()
if child == 0:
    assert db.get("parent") is None           # a connection of its own
    assert db.incr("n") == 1
    family["child"] = b"1"
    transaction.__exit__(None, None, None)    # the parent's: nothing is done
    assert db.get("parent") is None
    thread = threading.Thread(target=lambda: db.incr("n"))
    thread.start()
    thread.join()
    sys.exit(0)                               # with all that an exit does
assert os.waitpid(child, 0)[1] == 0
transaction.__exit__(None, None, None)
assert db["parent"] == b"1" and db["n"] == b"2" and family["child"] == b"1"
child = os.fork()
if child == 0:
    db.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
db["after"] = b"1"
print("done")
"""


def test_forked_child_reconnects_and_parent_continues(url: str) -> None:
    assert_clean(run_python(FORK, url), "done")


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_process_pools_use_store_passed_as_argument(db: kvstore.Store, method: str) -> None:
    db["shared"] = b"42"
    family = db.family("results", create=True, codec=kvstore.JSON, keys=str)
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.starmap(use_store, [(db, family, n) for n in range(8)]) == [b"42"] * 8
    assert db["n"] == b"8" and dict(family) == {f"{n}": n for n in range(8)}


def test_pickles_of_same_url_give_one_object(db: kvstore.Store) -> None:
    one, two = pickle.loads(pickle.dumps(db)), pickle.loads(pickle.dumps(db))
    assert one is two
    one.close()


def test_unreferenced_store_leaves_no_connection(server: Server, url: str) -> None:
    db = kvstore.open(named(url))
    db["a"] = b"1"
    del db
    gc.collect()
    end = time.monotonic() + 30
    while connections(server, url) and time.monotonic() < end:
        time.sleep(0.01)
    assert connections(server, url) == 0


# Conflicts


def test_conflicting_transaction_raises_locked_and_is_retryable(url: str) -> None:
    with kvstore.open(url) as one, kvstore.open(url) as two:
        one["a"] = one["b"] = b"0"
        with pytest.raises(kvstore.LockedError) as caught, one.transaction():
            seen = one["a"]
            with two.transaction():
                two["a"] = two["b"] + b"!"
            one["b"] = seen + b"?"
        assert caught.value.code == kvstore.LockedError.code and caught.value.hint is kvstore.Hint.RUN_TRANSACTION_AGAIN
        assert dict(one) == {b"a": b"0!", b"b": b"0"}
        with one.transaction():  # nothing is left of the other
            one["b"] = one["a"] + b"?"
        assert two["b"] == b"0!?"
        with one.transaction() as transaction:  # told by a call, and then by all
            one["a"]
            two["a"] = b"1"
            with pytest.raises(kvstore.LockedError):
                one["a"] = b"2"
            with pytest.raises(kvstore.LockedError):
                one.get("a")
            transaction.rollback()
        assert one["a"] == b"1"


def several(processes: int, code: str, *arguments: str) -> list[str]:
    """Run a program in several processes at once, and return their output."""
    head = "import sys, time, queue\nimport kvstore\nfrom kvstore.recipes import *\nstore = kvstore.open(sys.argv[1], busy_timeout=60)\n"
    with concurrent.futures.ThreadPoolExecutor(processes) as pool:
        done = list(pool.map(lambda n: run_python(head + code, *arguments, str(n)), range(processes)))
    for one in done:
        assert_clean(one)
    return [one.stdout.strip() for one in done]


def test_locks_exclude_processes_and_tokens_increase(db: kvstore.Store, url: str) -> None:
    code = """
lock, data = Lock(store, "l", ttl=60), store.family("data", create=True)
for _ in range(15):
    with lock:
        before = int(data.get("n", b"0"))
        assert int(data.get("token", b"0")) < lock.fencing_token
        data["token"] = str(lock.fencing_token)
        data["n"] = str(before + 1)
"""
    several(3, code, url)
    assert db.family("data")["n"] == b"45"


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="no SIGSTOP here")
@pytest.mark.parametrize("renew", [False, True])
def test_process_paused_past_ttl_loses_lock_and_token(db: kvstore.Store, url: str, renew: bool) -> None:
    code = f"""
import os, signal, sys
import kvstore
from kvstore.recipes import Lock, NotOwnedError
store = kvstore.open(sys.argv[1])
lock, data = Lock(store, "l", ttl=0.5, renew={renew}), store.family("data", create=True)
lock.acquire()
print(lock.fencing_token, flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
assert not lock.owned()
try:
    lock.extend()
except NotOwnedError:
    print("told")
with store.transaction():  # as what is guarded refuses an old token
    assert int(data["token"]) > lock.fencing_token
try:
    lock.release()
except NotOwnedError:
    print("told again")
store.close()
"""
    command = [sys.executable, "-W", "error", "-c", code, url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as stopped:
        assert stopped.stdout is not None
        first = int(stopped.stdout.readline())
        os.waitpid(stopped.pid, os.WUNTRACED)
        with Lock(db, "l", ttl=60, blocking_timeout=30) as lock:
            assert lock.fencing_token > first
            db.family("data")["token"] = str(lock.fencing_token)
            stopped.send_signal(signal.SIGCONT)
            out, err = stopped.communicate(timeout=60)
            assert lock.owned()
    assert (out, err, stopped.returncode) == ("told\ntold again\n", "", 0)


def test_semaphore_admits_exactly_its_value_of_processes(db: kvstore.Store, url: str) -> None:
    code = """
slots, inside = Semaphore(store, "s", 2), store.family("inside", create=True)
for _ in range(10):
    with slots:
        assert inside.incr("n") <= 2
        inside.decr("n")
"""
    several(3, code, url)
    assert db.family("inside")["n"] == b"0"


@pytest.mark.parametrize("algorithm", ["sliding_window", "fixed_window", "token_bucket"])
def test_limiter_counts_hits_of_all_processes(db: kvstore.Store, url: str, algorithm: str) -> None:
    code = f"""
limiter = RateLimiter(store, "r", 20, 3600 * 24, algorithm={algorithm!r})
print(sum(limiter.hit("k").allowed for _ in range(15)))
"""
    assert sum(map(int, several(3, code, url))) == 20


def test_each_message_of_a_queue_is_taken_once(db: kvstore.Store, url: str) -> None:
    Queue(db, "q").put_many([str(n) for n in range(40)])
    code = """
jobs = Queue(store, "q", visibility=600)
while True:
    try:
        with jobs.get(block=False) as message:
            print(message.value.decode())
    except queue.Empty:
        break
"""
    taken = [int(word) for text in several(3, code, url) for word in text.split()]
    assert sorted(taken) == list(range(40))
    assert tuple(Queue(db, "q").sizes()) == (0, 0, 0, 0)


def calls_of(monkeypatch: pytest.MonkeyPatch, work: Callable[[], Any]) -> list[str]:
    """Count the library calls that write, commit or begin, each of which is a round trip."""
    made: list[str] = []
    names = "begin commit cf_put_with cf_put_for cf_put_ttl cf_put cf_delete cf_compare_and_swap cf_expire cf_increment"

    class Listening:
        def __getattr__(self, name: str) -> Any:
            if name.replace("kvstore_", "").replace("kvpy_", "") in [*names.split(), "delete_many"]:
                made.append(name)
            return getattr(real, name)

    real = kvstore._native.lib
    with monkeypatch.context() as patch:
        for name, module in list(sys.modules.items()):
            if name.startswith("kvstore.") and getattr(module, "lib", None) is real:
                patch.setattr(module, "lib", Listening())
        work()
    return made


def test_delete_many_takes_one_round_trip(db: kvstore.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    db.put_many({f"{n}": b"1" for n in range(500)})
    deleted: list[int] = []
    made = calls_of(monkeypatch, lambda: deleted.append(db.delete_many([f"{n}" for n in range(1, 600)])))
    assert (made, deleted, list(db)) == (["kvpy_delete_many"], [499], [b"0"])


def test_limiter_hit_and_lock_extend_are_one_write_each(db: kvstore.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    limiter, lock = RateLimiter(db, "n", limit=9, period=60), Lock(db, "l", ttl=30)
    limiter.hit("k")
    assert calls_of(monkeypatch, lambda: limiter.hit("k")) == ["kvstore_cf_compare_and_swap"]
    with lock:
        assert calls_of(monkeypatch, lock.extend) == ["kvstore_cf_compare_and_swap"]


def test_hits_of_many_clients_are_counted_together(db: kvstore.Store, url: str) -> None:
    code = """
limiter = RateLimiter(store, "n", limit=100, period=3600, algorithm=sys.argv[2])
print(sum(limiter.hit("k").allowed for _ in range(60)))
"""
    for algorithm in ("fixed_window", "sliding_window", "token_bucket"):
        allowed = sum(int(text) for text in several(3, code, url, algorithm))
        assert 100 <= allowed <= 105  # a bucket fills a little meanwhile


def test_tags_and_many_key_calls_retry_on_conflict(db: kvstore.Store, url: str) -> None:
    code = """
tags = Tags(store)
for n in range(10):
    tags.put(f"{sys.argv[2]}:{n}", b"v", iter(["all", sys.argv[2]]))
    store.put_many({f"x{i}": b"1" for i in range(5)})
    store.pop_many([f"x{i}" for i in range(5)])
    store.delete_many([f"x{i}" for i in range(5)])
    store.family("made", create=True, default_ttl=60)
"""
    several(3, code, url)
    tags = Tags(db)
    assert len(tags.keys("all")) == 30 and tags.invalidate("1") == 10 and len(tags.keys("all")) == 20


def test_result_is_computed_by_one_process_at_a_time(db: kvstore.Store, url: str) -> None:
    code = """
counts = store.family("counts", create=True)
@kvstore.memoize(store, ttl=60, name="f")
def f(x):
    counts.incr("n")
    time.sleep(0.3)
    return x
print(f(7))
"""
    assert several(3, code, url) == ["7"] * 3
    assert db.family("counts")["n"] == b"1"


def test_recipe_in_caller_transaction_raises_conflict(url: str) -> None:
    with kvstore.open(url) as one, kvstore.open(url) as two:
        mine, other = Queue(one, "q"), Queue(two, "q")
        mine.put(b"0")
        with pytest.raises(kvstore.LockedError), one.transaction():
            mine.put(b"1")
            other_is_done = threading.Thread(target=other.put, args=(b"2",))
            one.get("x")
            other_is_done.start()
            other_is_done.join(0.5)  # it waits for the row; or has written before
            if other_is_done.is_alive():
                raise kvstore.LockedError("the other one waits for this one, as it may")
        other_is_done.join()
        assert mine.size() == 2


# Clocks that differ


@pytest.fixture(params=[HOUR, -HOUR], ids=["the server is ahead", "the server is behind"])
def apart(request: pytest.FixtureRequest, server: Server, url: str) -> kvstore.Store:
    """A store on a server whose clock differs from this machine's."""
    kvstore.open(url).close()  # makes the schema, by which the server finds the clock
    server.set_clock(url, f"{int(request.param) * 1000:+}")
    store = kvstore.open(url)
    request.addfinalizer(store.close)
    store["a"] = b"1"
    assert abs((store._state.now_ms() / 1000 - time.time()) - request.param) < 60
    return store


def lasts(left: float | None, ttl: float = 60) -> bool:
    return left is not None and ttl - 20 < left <= ttl


def test_ttls_last_as_long_as_given(apart: kvstore.Store) -> None:
    db = apart
    db.put("put", b"1", ttl=60)
    db.put("item", b"1", ttl=60)
    assert db.add("add", b"1", ttl=60) and not db.add("add", b"1", ttl=60)
    db.put("present", b"1")
    assert db.put("present", b"2", ttl=60, if_present=True)
    db.put("kept", b"1", ttl=60)
    db.put("kept", b"2", keep_ttl=True)
    db.setdefault("default", b"1", ttl=60)
    db.incr("incr", ttl=60)
    db["expire"] = db["touch"] = db["swap"] = db["get"] = b"1"
    assert db.expire("expire", 60) and db.touch("touch", 60)
    assert db.compare_and_swap("swap", b"1", b"2", ttl=60)
    assert db.get_and_touch("get", 60) == b"1"
    db.put_many({"many": b"1"}, ttl=60)
    with db.batch() as batch:
        batch.put("batch", b"1", ttl=60)
    family = db.family("f", create=True, default_ttl=60)
    family["own"] = b"1"
    with family.batch() as batch:
        batch.put("batch", b"1")
    with db.transaction():
        db.put("transaction", b"1", ttl=60)
        db.add("added", b"1", ttl=60)
    keys = [key for key in db if key != b"a"]
    assert len(keys) == 15
    for key in keys:
        assert lasts(db.ttl(key)), key
    assert lasts(family.ttl("own")) and lasts(family.ttl("batch"))
    assert len(list(db.items())) == 16 and dict(db)[b"put"] == b"1" and len(db.get_many(keys)) == 15
    assert abs((db.expires_at("put") or 0) - 60 - db._state.now_ms() / 1000) < 20
    assert db.purge_expired() == 0 and len(db) == 16


def test_recipes_use_server_clock(apart: kvstore.Store, url: str) -> None:
    db = apart
    lock = Lock(db, "l", ttl=60)
    with lock, kvstore.open(url) as other:
        assert lasts(lock.remaining()) and not Lock(other, "l").acquire(blocking=False)
        lock.extend(60)
        assert lasts(lock.remaining())
    with Semaphore(db, "s", 1, ttl=60) as slot:
        assert lasts(slot.remaining())
    for algorithm in ("sliding_window", "fixed_window", "token_bucket"):
        limiter = RateLimiter(db, "r", 1, 60, algorithm=algorithm)
        assert limiter.hit("k").allowed and not limiter.hit("k").allowed
        assert lasts(limiter.peek("k").retry_after)
    jobs = Queue(db, "q", visibility=60)
    jobs.put(b"now")
    jobs.put(b"later", delay=60)
    message = jobs.get(block=False)
    assert message.value == b"now" and tuple(jobs.sizes()) == (0, 1, 1, 0)
    message.nack(delay=60)
    assert tuple(jobs.sizes()) == (0, 2, 0, 0)
    tags = Tags(db)
    tags.put("tagged", b"1", ["t"], ttl=60)
    assert lasts(db.ttl("tagged"))
    calls: list[int] = []
    function = memoize(db, ttl=60, stale=5, early=1.0, name="f")(lambda x: calls.append(x))
    function(1), function(1)
    assert calls == [1]


def test_clients_with_different_clocks_agree(server: Server, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of this process is an hour ahead; the other client uses the server's."""
    with kvstore.open(url) as mine, kvstore.open(url) as other:
        monkeypatch.setattr(time, "time", lambda: time.time_ns() / 1e9 + HOUR)
        limiter, jobs = RateLimiter(mine, "r", 1, 60), Queue(mine, "q")
        assert limiter.hit("k").allowed and not RateLimiter(other, "r", 1, 60).hit("k").allowed
        jobs.put(b"later", delay=60)
        assert Queue(other, "q").sizes().delayed == 1
        mine.put("k", b"v", ttl=60)
        assert lasts(other.ttl("k"))


def test_snkv_uses_server_clock(apart: kvstore.Store, url: str) -> None:
    with kvstore.snkv.KVStore(url) as db:
        db.put(b"put", b"1", ttl=60)
        assert db.put_if_absent(b"absent", b"1", ttl=60) and not db.put_if_absent(b"absent", b"2", ttl=60)
        assert lasts(db.ttl(b"put")) and lasts(db.ttl(b"absent"))
        assert [key for key, _ in db] == [b"a", b"absent", b"put"]


def test_import_keeps_remaining_ttl(apart: kvstore.Store, url: str, tmp_path: Path) -> None:
    diskcache = pytest.importorskip("diskcache")
    cache = diskcache.Cache(str(tmp_path / "cache"))
    cache.set("k", b"v", expire=60)
    cache.set("forever", b"v")
    cache.close()
    assert run_import(tmp_path / "cache", url, "--skip-existing") == 0
    assert lasts(apart.ttl("k")) and apart.ttl("forever") is None


# Lost connections

SUSPENDED = """
import os, sys
import kvstore, kvstore.snkv
store, other = kvstore.open(sys.argv[1]), kvstore.snkv.KVStore(sys.argv[1])
keys = [b"%d" % n for n in range(6)]
for key in keys:
    store.put(key, b"", ttl=3600)
walk, pairs = iter(store.keys()), iter(other)
assert [next(walk), next(walk)] == keys[:2] and [next(pairs)[0], next(pairs)[0]] == keys[:2]
print("read ahead", flush=True)
input()
os.environ["KVSTORE_TEST_CLOCK_OFFSET"] = "7200"  # as after a suspend, in which the monotonic clock stands still
for call in lambda: next(walk), lambda: next(pairs), store._state.now_ms:
    try:
        print(call())
    except (kvstore.Error, kvstore.snkv.Error) as error:
        print(type(error).__name__, flush=True)
input()
assert list(store.keys()) == keys and [key for key, _ in pairs] == keys[2:]
print("goes on", flush=True)
"""


def test_iteration_fails_without_server_time_after_suspend(server: Server, url: str, tmp_path: Path) -> None:
    clock = tmp_path / "other_clock.so"
    source = ROOT / "tests" / "c" / "other_clock.c"
    subprocess.run(["cc", "-std=c11", "-D_GNU_SOURCE", "-shared", "-fPIC", str(source), "-o", str(clock)], check=True)
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-c", SUSPENDED, url], env={**os.environ, "LD_PRELOAD": str(clock)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as walking:  # fmt: skip
        assert walking.stdin is not None and walking.stdout is not None
        said = [walking.stdout.readline()]
        server.stop()
        try:
            walking.stdin.write("\n")
            walking.stdin.flush()
            said += [walking.stdout.readline() for _ in range(3)]
        finally:
            server.start()
        rest, errors = walking.communicate("\n", timeout=60)
    assert (*said, rest, errors) == ("read ahead\n", "StoreIOError\n", "Error\n", "StoreIOError\n", "goes on\n", "")


def test_store_continues_after_server_restart(server: Server, url: str) -> None:
    with kvstore.open(url, busy_timeout=30) as db:
        db["a"] = b"1"
        with pytest.raises(kvstore.StoreIOError), db.transaction():
            db["a"] = b"2"
            server.stop()
            server.start()
            db["a"] = b"3"
        assert db["a"] == b"1"
        db["a"] = b"4"
        lock = Lock(db, "l", ttl=30, renew=True)
        with lock:
            server.stop()
            server.start()
            assert lock.owned()
    with pytest.raises(kvstore.StoreIOError) as caught:
        kvstore.open(url.replace(str(server.folder), f"{server.folder}/nowhere"))
    assert "nowhere" in str(caught.value) or "connect" in str(caught.value)


# asyncio


def test_asyncio_store_opens_url(url: str) -> None:
    async def use() -> None:
        async with kvstore.aio.open(url, readers=2) as db:
            await db.put("a", b"1", ttl=60)
            sessions = await db.family("sessions", create=True)
            async with db.transaction() as tx:
                await tx.put("b", b"2")
                assert await db.get("b") is None  # another connection
            assert await db.get("b") == b"2"
            with pytest.raises(RuntimeError):
                async with db.transaction() as tx:
                    await tx.put("c", b"3")
                    raise RuntimeError
            assert await db.get("c") is None
            await asyncio.gather(*(sessions.incr("n") for _ in range(20)))
            assert await sessions.get("n") == b"20"
            assert [key async for key in db.keys()] == [b"a", b"b"]
            with pytest.raises(kvstore.InvalidError):
                await db.encrypt(password="x")

    asyncio.run(use())


def test_asyncio_conflict_raises_locked_error(url: str) -> None:
    async def use() -> None:
        async with kvstore.aio.open(url) as one, kvstore.aio.open(url) as two:
            await one.put("a", b"0")
            with pytest.raises(kvstore.LockedError):
                async with one.transaction() as tx:
                    await tx.get("a")
                    await two.put("a", b"1")
                    await tx.put("a", b"2")
            assert await one.get("a") == b"1"
            async with one.transaction() as tx:
                await tx.put("a", b"2")
            assert await two.get("a") == b"2"

    asyncio.run(use())


# The drop-in for snkv, and the command


def test_snkv_store_opens_url(url: str) -> None:
    with kvstore.snkv.KVStore(url, busy_timeout=1000) as db:
        db[b"a"] = b"1"
        db.put(b"b", b"2", ttl=60)
        with db.create_column_family("f") as family:
            family.put(b"x", b"1")
        db.begin(write=True)
        db.put(b"c", b"3")
        db.rollback()
        assert dict(db) == {b"a": b"1", b"b": b"2"} and db.list_column_families() == ["f"]
        assert [key for key, _ in db.iterator(reverse=True)] == [b"b", b"a"]
        db.integrity_check()


def test_documented_transfer_works_on_server(url: str) -> None:
    page = next(path for path in DOCUMENTS if path.name == "python-processes.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    block = "".join(example.source for example in doctest.DocTestParser().get_examples("".join(t for t in blocks if "transfer" in t)))
    names: dict[str, Any] = {"kvstore": kvstore}
    exec(block, names)  # noqa: S102
    transfer: Callable[..., None] = names["transfer"]
    with kvstore.open(url, codec=kvstore.JSON) as db:
        db["ada"], db["bob"] = 100, 0
        threads = [threading.Thread(target=transfer, args=(db, "ada", "bob", 5)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert dict(db) == {b"ada": 60, b"bob": 40}
