"""kvstore.memoize: results by arguments, one computation at a time over threads and processes."""

from __future__ import annotations

import copy
import functools
import inspect
import json
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from helpers import Clock

import kvstore


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
    assert f.cache_info() == (6, 6, 6)


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
    assert two.cache_info() == (0, 1, 1)
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
    with pytest.raises(Exception):
        f(lambda: 0)
    with pytest.raises(TypeError):
        f()
    assert len(db) == 0


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


def test_coroutines_and_generators_are_refused(db: kvstore.Store) -> None:
    async def coroutine() -> None: ...

    async def stream() -> Any:
        yield 1

    def generator() -> Any:
        yield 1

    for function, message in ((coroutine, "async"), (stream, "async"), (generator, "a list"), (5, "not int")):
        with pytest.raises(TypeError, match=message):
            kvstore.memoize(db)(function)  # type: ignore[arg-type]


def test_function_without_own_name_needs_name_argument(db: kvstore.Store) -> None:
    for function, kind in ((lambda: 1, "a lambda"), (functools.partial(pow, 5), "a partial object")):
        with pytest.raises(TypeError, match=f"{kind} has no name of its own.*name='...'"):
            kvstore.memoize(db)(function)
    assert kvstore.memoize(db, name="five")(functools.partial(pow, 5))(2) == 25
