"""kvstore.memoize: results by arguments, one computation at a time over threads and processes."""

from __future__ import annotations

import collections
import contextlib
import copy
import datetime
import decimal
import functools
import inspect
import json
import pickle
import re
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from helpers import Clock

import kvstore
from kvstore import _memoize, _memoize_results


@pytest.fixture
def db(path: Path, clock: Clock) -> Iterator[kvstore.Store]:
    """A store with a busy timeout: threads that compute concurrently write concurrently."""
    with kvstore.open(path, sync="off") as store:
        store.set_clock(clock)
        yield store


def test_result_is_computed_once(db: kvstore.Store) -> None:
    calls = []

    @kvstore.memoize(db)
    def square(x: int) -> int:
        calls.append(x)
        return x * x

    assert [square(3), square(3), square(x=3), square(4)] == [9, 9, 9, 16]
    assert calls == [3, 4]


def test_result_is_kept_until_its_ttl_ends(db: kvstore.Store, clock: Clock) -> None:
    calls = []

    @kvstore.memoize(db, ttl=10)
    def f() -> int:
        calls.append(1)
        return len(calls)

    assert [f(), f()] == [1, 1]
    clock.advance(10)
    assert [f(), f()] == [2, 2]


def test_none_result_is_cached(db: kvstore.Store) -> None:
    calls = []

    @kvstore.memoize(db)
    def f() -> None:
        calls.append(1)

    f()
    f()
    assert len(calls) == 1


def test_arguments_are_compared_by_value_however_passed(db: kvstore.Store) -> None:
    calls: list[Any] = []

    @kvstore.memoize(db)
    def f(a: Any, b: Any = 2, *rest: Any, **named: Any) -> int:
        calls.append((a, b, rest, named))
        return len(calls)

    assert f(1) == f(1, 2) == f(a=1) == f(b=2, a=1)
    different = [f(1, 3), f(2), f("1"), f(b"1"), f(None), f((1, 2)), f([1, 2]), f(1, 2, 3), f(1, x=3), f(""), f({1: 2}), f({1})]
    assert len(set(different)) == len(different)
    assert f({1: 2, 3: 4}) == f({3: 4, 1: 2})
    assert f(1, x=1, y=2) == f(1, y=2, x=1)
    assert f(("a", "bc")) != f(("ab", "c"))
    assert f(["a"], ["b"]) != f(["a", "b"])


def test_equal_numbers_are_one_argument_unless_typed(db: kvstore.Store) -> None:
    untyped = kvstore.memoize(db, name="u")(lambda x: type(x).__name__)
    typed = kvstore.memoize(db, name="t", typed=True)(lambda x: type(x).__name__)
    assert [untyped(1), untyped(1.0), untyped(True)] == ["int", "int", "int"]
    assert [typed(1), typed(1.0), typed(True)] == ["int", "float", "bool"]
    assert [untyped(0.5), untyped(-0.0), untyped(0)] == ["float", "float", "float"]


def test_huge_and_special_numbers_are_accepted_as_arguments(db: kvstore.Store) -> None:
    f = kvstore.memoize(db, name="f")(lambda x: object.__hash__(x))
    numbers = (10**5000, -(10**5000), float("inf"), float("nan"), 1e308, 2**64)
    assert [f(number) for number in numbers] == [f(number) for number in numbers]
    assert f.cache_info() == (6, 6, 6, 0)


def test_two_functions_do_not_share_results(db: kvstore.Store) -> None:
    @kvstore.memoize(db)
    def one(x: int) -> str:
        return "one"

    @kvstore.memoize(db)
    def two(x: int) -> str:
        return "two"

    assert (one(1), two(1)) == ("one", "two")


def test_functions_share_results_only_under_equal_name(db: kvstore.Store) -> None:
    one = kvstore.memoize(db, name="a")(lambda: "one")
    same = kvstore.memoize(db, name="a")(lambda: "same")
    longer = kvstore.memoize(db, name="a:")(lambda: "longer")
    assert (one(), same(), longer()) == ("one", "one", "longer")
    assert one.cache_clear() == 1
    assert longer() == "longer"
    assert longer.cache_info().hits == 1


def test_exception_is_not_cached(db: kvstore.Store) -> None:
    calls = []

    @kvstore.memoize(db)
    def f() -> int:
        calls.append(1)
        if len(calls) == 1:
            raise LookupError("first")
        return len(calls)

    with pytest.raises(LookupError, match="first"):
        f()
    assert f() == 2
    assert len(db) == 1


def test_cache_clear_removes_only_results_of_its_function(db: kvstore.Store) -> None:
    db["mine"] = b"v"
    one = kvstore.memoize(db, name="one")(lambda x: x)
    two = kvstore.memoize(db, name="two")(lambda x: x)
    one(1), one(2), two(1)
    assert one.cache_clear() == 2
    assert one.cache_info().currsize == 0
    assert two.cache_info() == (0, 1, 1, 0)
    assert db["mine"] == b"v"


def test_custom_serializer_is_used(db: kvstore.Store) -> None:
    f = kvstore.memoize(db, name="f", serializer=json_bytes)(lambda: {"a": [1, 2]})
    assert f() == f() == {"a": [1, 2]}
    assert json.loads(db[f.cache_key()]) == {"a": [1, 2]}


class json_bytes:
    dumps = staticmethod(lambda value: json.dumps(value).encode())
    loads = staticmethod(json.loads)


def test_serializer_returning_text_works(db: kvstore.Store) -> None:
    f = kvstore.memoize(db, name="f", serializer=json)(lambda: [1])
    assert f() == f() == [1]


def test_unreadable_result_is_recomputed(db: kvstore.Store) -> None:
    f = kvstore.memoize(db, name="f")(lambda: 5)
    assert f() == 5
    db[f.cache_key()] = b"no pickle"
    assert f() == 5
    assert f() == 5
    assert f.cache_info().hits == 1


def test_unpicklable_argument_raises_to_caller(db: kvstore.Store) -> None:
    f = kvstore.memoize(db, name="f")(lambda x: 1)
    with pytest.raises(TypeError, match=r"memoize: the argument 'x' cannot be pickled .*: name it in ignore="):
        f(lambda: 0)
    with pytest.raises(TypeError, match="the argument 'x' cannot be pickled .*lock"):
        f([threading.Lock()])
    with pytest.raises(TypeError):
        f()
    assert len(db) == 0


def test_exception_of_signal_handler_during_digest_is_raised(db: kvstore.Store) -> None:
    class Slow:
        def __reduce__(self) -> Any:
            raise TimeoutError("alarm")  # as a signal handler does at any line

    f = kvstore.memoize(db, name="f")(lambda x: 1)
    with pytest.raises(TimeoutError, match="alarm"):
        f(Slow())


def test_ignored_parameters_do_not_affect_cache_key(db: kvstore.Store) -> None:
    f = kvstore.memoize(db, name="f", ignore=["log"])(lambda x, log=None: x)
    assert f(1, log=object()) == f(1, log=print) == 1
    assert f.cache_info().misses == 1
    with pytest.raises(ValueError, match="no_such"):
        kvstore.memoize(db, name="f", ignore=["no_such"])(lambda x: x)


def test_method_is_memoized_by_its_arguments_without_self(db: kvstore.Store) -> None:
    class A:
        @kvstore.memoize(db, ignore="self")
        def f(self, x: int) -> int:
            return x + 1

    assert A().f(1) == A().f(1) == 2
    assert A.f.cache_info().misses == 1


def test_method_is_bound_with_its_cache_key(db: kvstore.Store) -> None:
    class A:
        @kvstore.memoize(db, ignore="self")
        def f(self, x: int) -> int:
            """Adds one."""
            return x + 1

    a = A()
    assert a.f(1) == 2
    assert a.f.cache_key(1) == a.f.cache_key(x=1) == A.f.cache_key(None, 1)  # type: ignore[arg-type]
    assert a.f.cache_key(1) in db
    assert a.f == a.f != A().f and len({a.f, a.f}) == 1
    assert (a.f.__name__, a.f.__wrapped__(1), str(inspect.signature(a.f))) == ("f", 2, "(x: 'int') -> 'int'")
    assert str(inspect.signature(A.f)) == "(self, x: 'int') -> 'int'" and A.f.__doc__ == "Adds one."
    assert (a.f.cache_clear(), a.f.cache_info().currsize) == (1, 0)


class Adder:
    store = kvstore.open(":memory:")

    @kvstore.memoize(store, ignore="self")
    def add(self, x: int) -> int:
        return x + 1


@kvstore.memoize(Adder.store)
def add_two(x: int) -> int:
    return x + 2


def test_memoized_functions_and_methods_are_pickled_by_name() -> None:
    assert pickle.loads(pickle.dumps(add_two)) is copy.deepcopy(add_two) is add_two
    assert pickle.loads(pickle.dumps(Adder().add))(1) == 2


def test_memoized_function_may_be_recursive(db: kvstore.Store) -> None:
    @kvstore.memoize(db)
    def fibonacci(n: int) -> int:
        return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

    assert fibonacci(30) == 832040
    assert fibonacci.cache_info().misses == 31


def test_concurrent_threads_compute_once(path: Path) -> None:
    db = kvstore.open(path, busy_timeout=60)
    calls: list[int] = []
    go = threading.Event()

    @kvstore.memoize(db)
    def f(x: int) -> int:
        calls.append(x)
        go.wait(10)
        return x

    with ThreadPoolExecutor(6) as pool:
        results = [pool.submit(f, 7) for _ in range(6)]
        while not calls:
            pass
        go.set()
        assert [result.result() for result in results] == [7] * 6
    assert calls == [7]


def test_different_arguments_are_computed_concurrently(db: kvstore.Store) -> None:
    both = threading.Barrier(2)
    f = kvstore.memoize(db, name="f")(lambda x: both.wait(20) * 0 + x)
    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(f, [1, 2])) == [1, 2]


def test_waiting_thread_computes_after_failure_of_first(db: kvstore.Store) -> None:
    calls: list[int] = []
    started, go = threading.Event(), threading.Event()

    @kvstore.memoize(db)
    def f() -> int:
        calls.append(1)
        if len(calls) == 1:
            started.set()
            go.wait(10)
            raise LookupError
        return 5

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(f)
        started.wait(10)
        second = pool.submit(f)
        go.set()
        with pytest.raises(LookupError):
            first.result()
        assert second.result() == 5


def test_result_computed_across_cache_clear_is_not_kept(db: kvstore.Store) -> None:
    @kvstore.memoize(db)
    def f() -> int:
        f.cache_clear()
        return 1

    assert f() == 1
    assert f.cache_info().currsize == 0


def test_result_serialized_during_cache_clear_is_not_kept(db: kvstore.Store) -> None:
    class Slow:
        """Other threads clear the cache while it computes."""

        def dumps(self, value: object) -> bytes:
            clearing = threading.Thread(target=f.cache_clear)
            clearing.start()
            clearing.join(10)
            return pickle.dumps(value)

        loads = staticmethod(pickle.loads)

    @kvstore.memoize(db, serializer=Slow())
    def f() -> int:
        return 1

    assert f() == 1
    assert f.cache_info().currsize == 0


def test_result_that_took_longer_than_lease_is_stored(db: kvstore.Store, clock: Clock) -> None:
    calls = []

    @kvstore.memoize(db, ttl=1000, lease=10, name="slow")
    def slow(n: int) -> int:
        calls.append(n)
        clock.advance(30)
        if n == 2:
            slow.cache_clear()
        if n == 3 and calls.count(3) == 1:
            assert slow(4) == 4  # another result meanwhile
        return n

    assert [slow(1), slow(1)] == [1, 1] and calls == [1]
    assert [slow(2), slow(2)] == [2, 2] and calls == [1, 2, 2]  # cleared while it was computed
    assert slow.cache_info().errors == 0
    assert [slow(3), slow(3), slow(4)] == [3, 3, 4] and calls == [1, 2, 2, 3, 4]


def test_late_result_does_not_replace_a_newer_one(db: kvstore.Store, clock: Clock) -> None:
    order: list[int] = []
    lease_is_over, second = threading.Event(), threading.Event()

    @kvstore.memoize(db, ttl=1000, lease=10, name="twice")
    def compute(n: int) -> int:
        order.append(len(order))
        mine = order[-1]
        if mine == 0:
            clock.advance(11)
            lease_is_over.set()
            second.wait(30)
        return mine

    first = threading.Thread(target=lambda: compute(1))
    first.start()
    lease_is_over.wait(30)
    assert compute(1) == 1
    second.set()
    first.join()
    assert compute(1) == 1 and order == [0, 1]


def test_other_caller_computes_after_lease_ends(db: kvstore.Store, clock: Clock) -> None:
    """A process that dies while computing delays the others for at most its lease."""
    f = kvstore.memoize(db, name="f", lease=30)(lambda: 5)
    lease_key = f.cache_key().replace(b":=", b":~")
    assert db.add(lease_key, b"the dead", ttl=30)
    waiting = threading.Thread(target=f)
    waiting.start()
    clock.advance(30)
    waiting.join(30)
    assert not waiting.is_alive()
    # It may have taken its lease at the time before the clock moved, and lost it at once.
    assert f() == 5
    assert f.cache_info().currsize == 1


def test_processes_share_results_and_compute_one_at_a_time(path: Path) -> None:
    code = """
import sys, time, kvstore
store = kvstore.open(sys.argv[1], busy_timeout=60)
@kvstore.memoize(store, name="shared")
def f(x):
    store.incr("computed")
    store.incr("inside")
    assert store["inside"] == b"1"
    for _ in range(20):
        store.get("computed")
    store.decr("inside")
    return x
print([f(n % 5) for n in range(40)] == [n % 5 for n in range(40)])
"""
    kvstore.open(path).close()
    children = [
        subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    for child in children:
        out, error = child.communicate(timeout=120)
        assert (child.returncode, out, error) == (0, "True\n", "")
    with kvstore.open(path) as store:
        assert store["computed"] == b"5"


def test_results_in_family_use_its_default_ttl(db: kvstore.Store, clock: Clock) -> None:
    cache = db.family("cache", create=True, default_ttl=60)
    f = kvstore.memoize(cache, name="f")(lambda: 1)
    f()
    assert cache.ttl(f.cache_key()) == 60.0
    assert len(db) == 0


def test_closed_store_raises_misuse_error(path: Path) -> None:
    store = kvstore.open(path)
    f = kvstore.memoize(store, name="f")(lambda: 1)
    store.close()
    with pytest.raises(kvstore.MisuseError):
        f()


def test_decorated_function_keeps_name_and_docstring(db: kvstore.Store) -> None:
    @kvstore.memoize(db)
    def documented() -> None:
        """Its text."""

    assert (documented.__name__, documented.__doc__) == ("documented", "Its text.")  # type: ignore[attr-defined, unused-ignore]
    assert documented.__wrapped__() is None


@pytest.mark.parametrize("bad", [{"ttl": 0}, {"ttl": -1}, {"lease": 0}, {"lease": -1}])
def test_invalid_time_raises_value_error_when_it_is_decorated(db: kvstore.Store, bad: Any) -> None:
    with pytest.raises(ValueError):
        kvstore.memoize(db, **bad)(lambda: 1)


def test_memoize_requires_store_or_family() -> None:
    with pytest.raises(TypeError):
        kvstore.memoize({})  # type: ignore[arg-type, unused-ignore]


def test_generators_are_refused(db: kvstore.Store) -> None:
    async def stream() -> Any:
        yield 1

    def generator() -> Any:
        yield 1

    for function, message in ((stream, "a list"), (generator, "a list"), (5, "not int")):
        with pytest.raises(TypeError, match=message):
            kvstore.memoize(db)(function)  # type: ignore[arg-type]


def test_function_without_own_name_needs_name_argument(db: kvstore.Store) -> None:
    for function, kind in ((lambda: 1, "a lambda"), (functools.partial(pow, 5), "a partial object")):
        with pytest.raises(TypeError, match=f"{kind} has no name of its own.*name='...'"):
            kvstore.memoize(db)(function)
    assert kvstore.memoize(db, name="five")(functools.partial(pow, 5))(2) == 25


class Point:
    def __init__(self, x: Any, y: Any = None) -> None:
        self.x, self.y = x, y


def test_objects_are_compared_by_their_parts(db: kvstore.Store) -> None:
    f = kvstore.memoize(db, name="f")(lambda x: 1)
    same = [
        lambda: Point(1, {"a": [2.5]}),
        lambda: datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc),
        lambda: decimal.Decimal("1.50"),
        lambda: uuid.UUID(int=7),
        lambda: collections.OrderedDict(a=1, b=Point(2)),
        lambda: functools.partial(pow, 2),
        lambda: re.compile("a+"),
        lambda: Point,
        lambda: len,
        lambda: inspect.Parameter.KEYWORD_ONLY,
    ]
    for make in same:
        assert f.cache_key(make()) == f.cache_key(make()), make()
    assert len({f.cache_key(make()) for make in same}) == len(same)
    assert f.cache_key(Point(1, 2)) != f.cache_key(Point(2, 1))
    shared = [1]
    assert f.cache_key([shared, shared]) == f.cache_key([[1], [1]]) != f.cache_key([[1], [1], [1]])


def test_argument_with_shared_parts_takes_linear_time(db: kvstore.Store) -> None:
    f = kvstore.memoize(db, name="f")(lambda x: 1)
    parts: list[Any] = [[]]
    points = Point(0)
    for _ in range(100):  # 2 ** 100 paths
        parts = [parts, parts]
        points = Point(points, points)
    assert f(parts) == f(points) == 1
    assert f.cache_key(parts) != f.cache_key(points)


def test_argument_that_contains_itself_is_refused_by_name(db: kvstore.Store) -> None:
    f = kvstore.memoize(db, name="f", ignore="log")(lambda node, log=None: 1)
    cycle: list[Any] = []
    cycle.append(cycle)
    point = Point(1)
    point.y = {"back": point}
    for bad in (cycle, point):
        with pytest.raises(ValueError, match="memoize: the argument 'node' contains itself.*ignore="):
            f(bad)
        assert f(1, bad) == 1
    assert len(db) == 1


@contextlib.contextmanager
def busy(path: Path) -> Iterator[None]:
    """Another handle writes."""
    with kvstore.open(path, busy_timeout=0) as other, other.transaction():
        other.put("other", "1")
        yield


def test_result_is_returned_if_store_is_busy(path: Path) -> None:
    with kvstore.open(path, busy_timeout=0) as db:
        calls: list[int] = []

        @kvstore.memoize(db, name="f")
        def f(x: int) -> int:
            calls.append(x)
            if x < 0:
                raise ZeroDivisionError
            return x

        with busy(path):
            assert f(1) == f(1) == 1
            with pytest.raises(ZeroDivisionError):
                f(-1)
        assert calls == [1, 1, -1] and f.cache_info() == (0, 3, 0, 3)
        assert f(1) == f(1) == 1
        assert calls == [1, 1, -1, 1] and f.cache_info() == (1, 4, 1, 3)


def test_store_that_becomes_busy_during_call_changes_no_outcome(path: Path) -> None:
    with kvstore.open(path, busy_timeout=0) as db:
        block = contextlib.ExitStack()

        @kvstore.memoize(db, name="f")
        def f(x: int) -> int:
            if not f.cache_info().errors:
                block.enter_context(busy(path))
            if x < 0:
                raise ZeroDivisionError
            return x

        with block:
            assert f(1) == 1
        before = f.cache_info().errors
        assert before == 2  # the result was not stored, nor the lease released
        begin = time.monotonic()
        assert f(1) == f(1) == 1  # the next call takes the lease that was left
        assert f.cache_info() == (1, 2, 1, before) and time.monotonic() - begin < 30

        g = kvstore.memoize(db, name="g")(f.__wrapped__)
        with busy(path), pytest.raises(ZeroDivisionError):
            g(-1)


def test_result_larger_than_any_value_is_returned(path: Path) -> None:
    with kvstore.open(path, max_value_size=1000) as db:
        f = kvstore.memoize(db, name="f")(lambda n: "x" * n)
        assert len(f(2000)) == len(f(2000)) == 2000
        assert f.cache_info() == (0, 2, 0, 2)
        assert len(f(10)) == len(f(10)) == 10
        assert f.cache_info() == (1, 3, 1, 2)


def test_results_are_returned_from_damaged_full_and_read_only_store(path: Path) -> None:
    with kvstore.open(path) as db:
        db.limit(max_bytes=200_000, policy="none")
        f = kvstore.memoize(db, name="f")(lambda n: b"x" * n)
        assert len(f(400_000)) == len(f(400_000)) == 400_000
        assert f.cache_info() == (0, 2, 0, 2)
        f(7)
    with kvstore.open(path, read_only=True) as db:
        f = kvstore.memoize(db, name="f")(lambda n: b"x" * n)
        assert len(f(7)) == len(f(8)) - 1 == 7
        assert f.cache_info() == (1, 1, 1, 1)
    data = bytearray(path.read_bytes())
    data[4096:] = bytes(len(data) - 4096)
    with kvstore.open(path) as db:
        path.write_bytes(data)
        f = kvstore.memoize(db, name="f", ttl=60, stale=5)(lambda n: b"x" * n)
        assert len(f(3)) == len(f(3)) == 3
        with pytest.raises(kvstore.Error):
            f.cache_info()


def test_signal_handler_may_call_memoized_function(db: kvstore.Store) -> None:
    f = kvstore.memoize(db, name="f")(lambda x: x)
    assert f(1) == 1
    with _memoize_results._counting:  # as if a signal had come while a call counts
        assert f(1) == 1
    assert f.cache_info().hits == 1


def test_rows_are_counted_without_blocking_calls(db: kvstore.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    f = kvstore.memoize(db, name="f")(lambda x: x)
    f(1)
    keys = kvstore.Family.keys

    def slowly(self: Any, *args: Any, **settings: Any) -> Any:
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(f, 1).result(20) == 1
        return keys(self, *args, **settings)

    monkeypatch.setattr(kvstore.Family, "keys", slowly)
    assert f.cache_info().currsize == 1


def test_recursion_takes_three_levels_of_the_interpreter(db: kvstore.Store) -> None:
    def depth_of(cache: Any) -> int:
        deepest = 0

        @cache
        def down(n: int) -> int:
            nonlocal deepest
            deepest = n
            return down(n + 1)  # type: ignore[no-any-return]

        with pytest.raises(RecursionError):
            down(0)
        return deepest

    limit = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(1000)
        assert depth_of(kvstore.memoize(db)) > 280
    finally:
        sys.setrecursionlimit(limit)


def test_wrong_serializer_and_name_are_refused_at_once(db: kvstore.Store) -> None:
    for wrong in ("json", None, 5, object()):
        with pytest.raises(TypeError, match="serializer has no method dumps: give an object with dumps and loads"):
            kvstore.memoize(db, serializer=wrong)
    for name in (5, "", b"x"):
        with pytest.raises(TypeError, match="name must be a str"):
            kvstore.memoize(db, name=name)  # type: ignore[arg-type]
