"""The store against a model: a dict of families of dicts with expiry, two handles on one file, one clock.

Some hundred steps by default, always the same ones; KVSTORE_HYPOTHESIS_EXAMPLES=5000 runs more, at random.
"""

from __future__ import annotations

import copy
import os
import shutil
import tempfile
from collections.abc import Callable
from typing import Any, Optional

from helpers import START_S, Clock
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import kvstore

EXAMPLES = int(os.environ.get("KVSTORE_HYPOTHESIS_EXAMPLES", "0"))

FAMILIES = ["default", "plain", "cache", "tracked"]
KEYS = st.sampled_from([b"a", b"aa", b"ab", b"a\x00", b"b", b"b\xff", b"\xff", b"\xff\xff", b"n", b"long" * 40])
VALUES = st.sampled_from([b"", b"0", b"7", b"-3", b"value", b"other", b"\x00" * 300, b"9223372036854775807"])
TTLS_MS = st.sampled_from([1, 2, 500, 1000, 5000, 30_000])
MAYBE_TTLS_MS = st.one_of(st.none(), TTLS_MS)
HANDLES = st.integers(0, 1)
BOUNDS = st.one_of(st.none(), st.sampled_from([b"\x00", b"a", b"aa", b"b", b"bb", b"\xff", b"\xff\xff\xff"]))
PREFIXES = st.one_of(st.none(), st.sampled_from([b"a", b"aa", b"b", b"\xff", b"z"]))


class Row:
    def __init__(self, value: bytes, expire_ms: Optional[int], written_ms: int) -> None:
        self.value, self.expire_ms, self.written_ms = value, expire_ms, written_ms


class Family:
    def __init__(self, default_ttl_ms: Optional[int] = None) -> None:
        self.default_ttl_ms = default_ttl_ms
        self.rows: dict[bytes, Row] = {}


State = dict[str, Family]


def seconds(ms: Optional[int]) -> Optional[float]:
    return None if ms is None else ms / 1000


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp(prefix="kvstore-")
        self.path = os.path.join(self.folder, "model.db")
        self.clock = Clock()
        self.now_ms = int(START_S * 1000)
        self.committed: State = {name: Family() for name in FAMILIES}
        self.stores: list[Any] = [None, None]
        self.transactions: list[Any] = [None, None]
        self.kinds: list[Optional[bool]] = [None, None]  # of the open transaction: writes?
        self.views: list[Optional[State]] = [None, None]

    @initialize(default_ttl_ms=TTLS_MS)
    def begin(self, default_ttl_ms: int) -> None:
        self.open(0)
        self.stores[0].family("plain", create=True)
        self.stores[0].family("cache", create=True, default_ttl=default_ttl_ms / 1000)
        self.stores[0].family("tracked", create=True).write_tracking = True
        self.committed["cache"].default_ttl_ms = default_ttl_ms
        self.open(1)

    def open(self, handle: int) -> None:
        self.stores[handle] = kvstore.open(self.path, busy_timeout=0, sync="off")
        self.stores[handle].set_clock(self.clock)

    def teardown(self) -> None:
        for store in self.stores:
            if store is not None:
                store.close()
        shutil.rmtree(self.folder)

    # --- the model

    def state(self, handle: int) -> State:
        view = self.views[handle]
        return self.committed if view is None else view

    def live(self, handle: int, name: str) -> dict[bytes, Row]:
        rows = self.state(handle)[name].rows
        return {k: r for k, r in sorted(rows.items()) if r.expire_ms is None or r.expire_ms > self.now_ms}

    def data(self, handle: int, name: str) -> Any:
        return self.stores[handle] if name == "default" else self.stores[handle].family(name)

    def write(self, handle: int, name: str, real: Callable[[Any], Any], model: Callable[[Family], Any]) -> None:
        """Run a write on the store and the model; they must agree on the result or the exception."""
        data = self.data(handle, name)
        expected: Any
        if self.kinds[handle] is False:
            expected = kvstore.ReadOnlyError
        elif self.kinds[handle] is None and self.kinds[1 - handle]:
            expected = kvstore.BusyError
        else:
            expected = model(self.state(handle)[name])
        if isinstance(expected, type):
            try:
                answer = real(data)
            except expected:
                return
            # A write that has nothing to do may return without taking the lock.
            assert answer in (False, 0, None), f"{answer!r} instead of {expected.__name__}"
            assert expected in (kvstore.ReadOnlyError, kvstore.BusyError)
        else:
            assert real(data) == expected

    def set_row(self, family: Family, key: bytes, value: bytes, expire_ms: Optional[int]) -> None:
        family.rows[key] = Row(value, expire_ms, self.now_ms)

    def is_live(self, family: Family, key: bytes) -> bool:
        row = family.rows.get(key)
        return row is not None and (row.expire_ms is None or row.expire_ms > self.now_ms)

    def moment(self, ttl_ms: Optional[int], default_ms: Optional[int] = None) -> Optional[int]:
        ttl_ms = default_ms if ttl_ms is None else ttl_ms
        return None if ttl_ms is None else self.now_ms + ttl_ms

    # --- writes

    @rule(
        handle=HANDLES,
        name=st.sampled_from(FAMILIES),
        key=KEYS,
        value=VALUES,
        ttl_ms=MAYBE_TTLS_MS,
        condition=st.sampled_from([None, "if_absent", "if_present"]),
        keep_ttl=st.booleans(),
    )
    def put(
        self, handle: int, name: str, key: bytes, value: bytes, ttl_ms: Any, condition: Any, keep_ttl: bool
    ) -> None:
        def model(family: Family) -> bool:
            alive = self.is_live(family, key)
            if (condition == "if_absent" and alive) or (condition == "if_present" and not alive):
                return False
            if keep_ttl and alive:
                self.set_row(family, key, value, family.rows[key].expire_ms)
            else:
                self.set_row(family, key, value, self.moment(ttl_ms, family.default_ttl_ms))
            return True

        options = {condition: True} if condition else {}
        self.write(handle, name, lambda d: d.put(key, value, ttl=seconds(ttl_ms), keep_ttl=keep_ttl, **options), model)

    @rule(handle=HANDLES, name=st.sampled_from(FAMILIES), key=KEYS, value=VALUES)
    def set_item(self, handle: int, name: str, key: bytes, value: bytes) -> None:
        def model(family: Family) -> None:
            self.set_row(family, key, value, self.moment(None, family.default_ttl_ms))

        self.write(handle, name, lambda d: d.__setitem__(key, value), model)

    @rule(handle=HANDLES, name=st.sampled_from(FAMILIES), key=KEYS)
    def delete(self, handle: int, name: str, key: bytes) -> None:
        def model(family: Family) -> bool:
            alive = self.is_live(family, key)
            family.rows.pop(key, None)
            return alive

        self.write(handle, name, lambda d: d.delete(key), model)

    @rule(handle=HANDLES, name=st.sampled_from(FAMILIES), key=KEYS)
    def pop(self, handle: int, name: str, key: bytes) -> None:
        def model(family: Family) -> Any:
            value = family.rows[key].value if self.is_live(family, key) else None
            family.rows.pop(key, None)
            return value

        self.write(handle, name, lambda d: d.pop(key, None), model)

    @rule(handle=HANDLES, name=st.sampled_from(FAMILIES), keys=st.lists(KEYS, max_size=4), value=VALUES, ttl_ms=MAYBE_TTLS_MS)
    def put_many(self, handle: int, name: str, keys: list[bytes], value: bytes, ttl_ms: Any) -> None:
        def model(family: Family) -> None:
            for key in keys:
                self.set_row(family, key, value, self.moment(ttl_ms, family.default_ttl_ms))

        def real(data: Any) -> None:
            assert data.put_many([(key, value) for key in keys], ttl=seconds(ttl_ms)) == len(keys)

        self.write(handle, name, real, model)

    @rule(
        handle=HANDLES,
        name=st.sampled_from(FAMILIES),
        steps=st.lists(st.tuples(KEYS, st.one_of(st.none(), VALUES), MAYBE_TTLS_MS), max_size=4),
    )
    def batch(self, handle: int, name: str, steps: list[Any]) -> None:
        def model(family: Family) -> None:
            for key, value, ttl_ms in steps:
                if value is None:
                    family.rows.pop(key, None)
                else:
                    self.set_row(family, key, value, self.moment(ttl_ms, family.default_ttl_ms))

        def real(data: Any) -> None:
            with data.batch() as batch:
                for key, value, ttl_ms in steps:
                    if value is None:
                        batch.delete(key)
                    else:
                        batch.put(key, value, ttl=seconds(ttl_ms))

        self.write(handle, name, real, model)

    @rule(handle=HANDLES, name=st.sampled_from(FAMILIES), key=KEYS, old=VALUES, new=VALUES, ttl_ms=MAYBE_TTLS_MS)
    def compare_and_swap(self, handle: int, name: str, key: bytes, old: bytes, new: bytes, ttl_ms: Any) -> None:
        def model(family: Family) -> bool:
            if not self.is_live(family, key) or family.rows[key].value != old:
                return False
            self.set_row(family, key, new, self.moment(ttl_ms, family.default_ttl_ms))
            return True

        self.write(handle, name, lambda d: d.compare_and_swap(key, old, new, ttl=seconds(ttl_ms)), model)

    @rule(handle=HANDLES, name=st.sampled_from(FAMILIES), key=KEYS, old=VALUES)
    def compare_and_delete(self, handle: int, name: str, key: bytes, old: bytes) -> None:
        def model(family: Family) -> bool:
            if not self.is_live(family, key) or family.rows[key].value != old:
                return False
            del family.rows[key]
            return True

        self.write(handle, name, lambda d: d.compare_and_delete(key, old), model)

    @rule(handle=HANDLES, name=st.sampled_from(FAMILIES), key=KEYS, by=st.integers(-3, 3), ttl_ms=MAYBE_TTLS_MS)
    def incr(self, handle: int, name: str, key: bytes, by: int, ttl_ms: Any) -> None:
        def model(family: Family) -> Any:
            if not self.is_live(family, key):
                self.set_row(family, key, str(by).encode(), self.moment(ttl_ms, family.default_ttl_ms))
                return by
            row = family.rows[key]
            try:
                total = int(row.value) + by
            except ValueError:
                return None
            if not -(2**63) <= total < 2**63:
                return None
            self.set_row(family, key, str(total).encode(), row.expire_ms)
            return total

        def real(data: Any) -> Any:
            try:
                return data.incr(key, by, ttl=seconds(ttl_ms))
            except ValueError:
                return None

        self.write(handle, name, real, model)

    @rule(handle=HANDLES, name=st.sampled_from(FAMILIES), key=KEYS, ttl_ms=TTLS_MS, way=st.sampled_from(["expire", "touch"]))
    def expire(self, handle: int, name: str, key: bytes, ttl_ms: int, way: str) -> None:
        def model(family: Family) -> bool:
            alive = self.is_live(family, key)
            if alive:
                family.rows[key].expire_ms = self.moment(ttl_ms)
            return alive

        self.write(handle, name, lambda d: getattr(d, way)(key, ttl_ms / 1000), model)

    @rule(handle=HANDLES, name=st.sampled_from(FAMILIES), key=KEYS)
    def persist(self, handle: int, name: str, key: bytes) -> None:
        def model(family: Family) -> bool:
            if not self.is_live(family, key) or family.rows[key].expire_ms is None:
                return False
            family.rows[key].expire_ms = None
            return True

        self.write(handle, name, lambda d: d.persist(key), model)

    @rule(handle=HANDLES, name=st.sampled_from(FAMILIES), key=KEYS, ttl_ms=TTLS_MS)
    def get_and_touch(self, handle: int, name: str, key: bytes, ttl_ms: int) -> None:
        def model(family: Family) -> Any:
            if not self.is_live(family, key):
                return None
            family.rows[key].expire_ms = self.moment(ttl_ms)
            return family.rows[key].value

        self.write(handle, name, lambda d: d.get_and_touch(key, ttl_ms / 1000), model)

    @rule(handle=HANDLES, name=st.sampled_from(FAMILIES), start=BOUNDS, stop=BOUNDS, prefix=PREFIXES)
    def delete_range(self, handle: int, name: str, start: Any, stop: Any, prefix: Any) -> None:
        if not prefix and not start and stop is None:
            return  # refused

        def model(family: Family) -> int:
            chosen = [
                key
                for key in family.rows
                if (prefix is None or key.startswith(prefix))
                and (start is None or key >= start)
                and (stop is None or key < stop)
            ]
            alive = sum(self.is_live(family, key) for key in chosen)
            for key in chosen:
                del family.rows[key]
            return alive

        self.write(handle, name, lambda d: d.delete_range(prefix=prefix, start=start, stop=stop), model)

    @rule(handle=HANDLES, ttl_ms=MAYBE_TTLS_MS)
    def set_default_ttl(self, handle: int, ttl_ms: Any) -> None:
        def model(family: Family) -> None:
            family.default_ttl_ms = ttl_ms

        self.write(handle, "cache", lambda d: setattr(d, "default_ttl", seconds(ttl_ms)), model)

    @rule(handle=HANDLES, name=st.sampled_from(FAMILIES))
    def clear(self, handle: int, name: str) -> None:
        self.write(handle, name, lambda d: d.clear(), lambda family: family.rows.clear())

    @rule(handle=HANDLES, name=st.sampled_from(FAMILIES))
    def purge(self, handle: int, name: str) -> None:
        def model(family: Family) -> None:
            for key in [k for k in family.rows if not self.is_live(family, k)]:
                del family.rows[key]

        def real(data: Any) -> None:
            data.purge_expired()
            assert data.count(expired=True) == data.count() or name == "default"

        self.write(handle, name, real, model)

    @rule(handle=HANDLES, age_ms=st.sampled_from([0, 1, 1000, 20_000]))
    def sweep(self, handle: int, age_ms: int) -> None:
        def model(family: Family) -> int:
            old = [k for k, r in family.rows.items() if r.written_ms < self.now_ms - age_ms]
            alive = sum(self.is_live(family, key) for key in old)
            for key in old:
                del family.rows[key]
            return alive

        self.write(handle, "tracked", lambda d: d.sweep(age_ms / 1000), model)

    # --- reads

    @rule(handle=HANDLES, name=st.sampled_from(FAMILIES), key=KEYS)
    def get(self, handle: int, name: str, key: bytes) -> None:
        data, row = self.data(handle, name), self.live(handle, name).get(key)
        assert (key in data) == (row is not None)
        assert data.get(key) == (row.value if row else None)
        if row is None:
            for ask in (data.ttl, data.expires_at, data.__getitem__):
                try:
                    ask(key)
                except KeyError:
                    continue
                raise AssertionError("an answer for a key that is not there")
        else:
            assert data[key] == row.value
            assert data.expires_at(key) == seconds(row.expire_ms)
            left = None if row.expire_ms is None else row.expire_ms - self.now_ms
            assert data.ttl(key) == seconds(left)

    @rule(handle=HANDLES, name=st.sampled_from(FAMILIES), keys=st.lists(KEYS, max_size=6))
    def get_many(self, handle: int, name: str, keys: list[bytes]) -> None:
        live = self.live(handle, name)
        got = self.data(handle, name).get_many(keys)
        assert got == {key: live[key].value for key in keys if key in live}

    @rule(
        handle=HANDLES,
        name=st.sampled_from(FAMILIES),
        prefix=PREFIXES,
        start=BOUNDS,
        stop=BOUNDS,
        reverse=st.booleans(),
        limit=st.one_of(st.none(), st.integers(0, 5)),
    )
    def scan(self, handle: int, name: str, prefix: Any, start: Any, stop: Any, reverse: bool, limit: Any) -> None:
        rows = [
            (key, row.value)
            for key, row in self.live(handle, name).items()
            if (prefix is None or key.startswith(prefix))
            and (start is None or key >= start)
            and (stop is None or key < stop)
        ]
        if reverse:
            rows.reverse()
        rows = rows[:limit]
        data, asked = self.data(handle, name), {"prefix": prefix, "start": start, "stop": stop}
        assert list(data.items(**asked, reverse=reverse, limit=limit)) == rows
        assert list(data.keys(**asked, reverse=reverse, limit=limit)) == [key for key, _ in rows]
        assert list(data.values(**asked, reverse=reverse, limit=limit)) == [value for _, value in rows]

    # --- time, transactions, opening again

    @rule(ms=st.sampled_from([0, 1, 499, 1000, 4999, 30_000]))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms
        self.clock.now_s = self.now_ms / 1000

    @rule(handle=HANDLES, write=st.booleans())
    def begin_transaction(self, handle: int, write: bool) -> None:
        if self.kinds[handle] is not None:
            return
        transaction = self.stores[handle].transaction(write=write)
        if write and self.kinds[1 - handle]:
            try:
                transaction.__enter__()
            except kvstore.BusyError:
                return
            raise AssertionError("two writers")
        transaction.__enter__()
        if not write:
            len(self.stores[handle])  # the snapshot is taken by the first read at the latest
        self.transactions[handle], self.kinds[handle] = transaction, write
        self.views[handle] = copy.deepcopy(self.committed)

    @precondition(lambda self: self.kinds != [None, None])
    @rule(handle=HANDLES, commit=st.booleans())
    def end_transaction(self, handle: int, commit: bool) -> None:
        if self.kinds[handle] is None:
            handle = 1 - handle
        transaction, view = self.transactions[handle], self.views[handle]
        if commit:
            transaction.__exit__(None, None, None)
            if self.kinds[handle]:
                assert view is not None
                self.committed = view
        else:
            error = RuntimeError("roll back")
            assert not transaction.__exit__(RuntimeError, error, None)
        self.transactions[handle] = self.kinds[handle] = self.views[handle] = None

    @rule(handle=HANDLES)
    def open_again(self, handle: int) -> None:
        self.stores[handle].close()
        self.transactions[handle] = self.kinds[handle] = self.views[handle] = None
        self.open(handle)

    @rule(handle=HANDLES, ttl_ms=TTLS_MS, name=st.sampled_from(FAMILIES))
    def snapshot(self, handle: int, ttl_ms: int, name: str) -> None:
        """A snapshot of one handle does not see what the other writes."""
        if self.kinds != [None, None]:
            return
        before = [(key, row.value) for key, row in self.live(handle, "default").items()]
        with self.stores[handle].snapshot():
            assert list(self.stores[handle].items()) == before
            self.stores[1 - handle].put(b"by the other", b"", ttl=ttl_ms / 1000)
            assert list(self.stores[handle].items()) == before
        self.set_row(self.committed["default"], b"by the other", b"", self.now_ms + ttl_ms)

    @invariant()
    def both_handles_show_what_the_model_has(self) -> None:
        for handle, store in enumerate(self.stores):
            if store is None:
                continue
            for name in FAMILIES:
                data, live = self.data(handle, name), self.live(handle, name)
                assert len(data) == data.count() == len(live)
                assert list(data.items()) == [(key, row.value) for key, row in live.items()]

    @invariant()
    def the_file_is_sound(self) -> None:
        if self.stores[0] is not None:
            self.stores[0].integrity_check()


TestStore = Machine.TestCase
TestStore.settings = settings(
    max_examples=EXAMPLES or 150,
    stateful_step_count=50,
    deadline=None,
    derandomize=not EXAMPLES,
    database=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
