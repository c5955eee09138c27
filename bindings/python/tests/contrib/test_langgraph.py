"""The checkpointer and the cache for LangGraph: beyond LangGraph's own tests."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langgraph.checkpoint.base")
pytestmark = pytest.mark.filterwarnings("default")

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer  # noqa: E402

import kvstore  # noqa: E402
from kvstore.contrib.langgraph import KVStoreCache, KVStoreSaver, StrictSerializer  # noqa: E402


class Invoice:
    """A class of a program, which msgpack writes as a named tuple."""

    def __init__(self, number: int) -> None:
        self.number = number

    def _asdict(self) -> dict[str, Any]:
        return {"number": self.number}


def exploding_row(marker: Path) -> bytes:
    """Return a value with a call of os.system, in the form in which LangGraph's serializer writes a set."""
    import ormsgpack

    call = ormsgpack.packb(("os", "system", f"touch {marker}"))
    return ormsgpack.packb({"x": ormsgpack.Ext(0, call)})


def config(thread_id: Any = "t", checkpoint_ns: str = "", checkpoint_id: Any = None) -> Any:
    made = {"thread_id": thread_id, "checkpoint_ns": checkpoint_ns}
    return {"configurable": made if checkpoint_id is None else {**made, "checkpoint_id": checkpoint_id}}


def checkpoint(checkpoint_id: str, **values: Any) -> Any:
    versions = dict.fromkeys(values, "1")
    return {
        "v": 1, "id": checkpoint_id, "ts": "2026-01-01T00:00:00+00:00", "channel_values": values,
        "channel_versions": versions, "versions_seen": {}, "updated_channels": None,
    }  # fmt: skip


def ids(found: Any) -> list[str]:
    return [each.checkpoint["id"] for each in found]


def chain(saver: KVStoreSaver, *checkpoint_ids: str, thread_id: Any = "t", checkpoint_ns: str = "") -> None:
    parent = None
    for step, checkpoint_id in enumerate(checkpoint_ids):
        where = config(thread_id, checkpoint_ns, parent)
        saver.put(where, checkpoint(checkpoint_id, n=step), {"step": step, "run_id": f"run{step}"}, {})
        parent = checkpoint_id


def test_checkpoint_is_returned_with_its_parent_and_writes_in_order(tmp_path: Path) -> None:
    with KVStoreSaver(tmp_path / "c.db") as saver:
        chain(saver, "1", "2")
        where = config(checkpoint_id="2")
        saver.put_writes(where, [("a", 1), ("b", [2])], "task2", "~2")
        saver.put_writes(where, [("c", {"x": b"3"})], "task1", "~10")
        saver.put_writes(where, [("a", "again"), ("__error__", "first")], "task2", "~2")
        saver.put_writes(where, [("__error__", "second")], "task2", "~2")
        found = saver.get_tuple(config())
        assert found is not None and found == saver.get_tuple(found.config)
        assert found.checkpoint == checkpoint("2", n=1)
        assert found.metadata == {"step": 1, "run_id": "run1"}
        assert found.parent_config == config(checkpoint_id="1")
        assert found.pending_writes == [
            ("task1", "c", {"x": b"3"}),
            ("task2", "__error__", "second"),
            ("task2", "a", 1),
            ("task2", "b", [2]),
        ]
        first = saver.get_tuple(config(checkpoint_id="1"))
        assert first is not None and first.parent_config is None and first.pending_writes == []


def test_writes_before_their_checkpoint_are_no_checkpoint(tmp_path: Path) -> None:
    with KVStoreSaver(tmp_path / "c.db") as saver:
        chain(saver, "1")
        saver.put_writes(config(checkpoint_id="2"), [("a", 1)], "task")
        assert saver.get_tuple(config(checkpoint_id="2")) is None
        assert ids([saver.get_tuple(config())]) == ids(saver.list(config())) == ["1"]
        saver.put(config(checkpoint_id="1"), checkpoint("2"), {}, {})
        found = saver.get_tuple(config())
        assert found is not None and found.pending_writes == [("task", "a", 1)]


def test_list_is_latest_first_over_threads_and_namespaces(tmp_path: Path) -> None:
    with KVStoreSaver(tmp_path / "c.db") as saver:
        chain(saver, "1", "4", "7")
        chain(saver, "2", "5", checkpoint_ns="child:\0|x")
        chain(saver, "3", "6", thread_id="t\0")
        assert ids(saver.list(None)) == list("7654321")
        assert ids(saver.list(None, before=config(checkpoint_id="5"), limit=3)) == list("432")
        assert ids(saver.list({"configurable": {"thread_id": "t"}})) == list("75421")
        assert ids(saver.list(config(checkpoint_ns="child:\0|x"))) == list("52")
        assert ids(saver.list(config("t\0"), filter={"step": 1})) == ["6"]
        assert ids(saver.list(config(checkpoint_id="4"))) == ["4"]
        assert ids(saver.list(config(checkpoint_id="4"), before=config(checkpoint_id="4"))) == []
        assert ids(saver.list(None, limit=0)) == ids(saver.list(config("missing"))) == []


def test_list_continues_while_checkpoints_change(tmp_path: Path) -> None:
    with KVStoreSaver(tmp_path / "c.db") as saver:
        chain(saver, *"1234")
        found = saver.list(config())
        assert next(found).checkpoint["id"] == "4"
        chain(saver, "5")
        saver.prune(["t"])
        assert ids(found) == []


def test_thread_id_may_be_an_int(tmp_path: Path) -> None:
    with KVStoreSaver(tmp_path / "c.db") as saver:
        chain(saver, "1", thread_id=7)
        assert ids(saver.list(config("7"))) == ["1"]
        saver.delete_thread("7")
        assert saver.get_tuple(config(7)) is None


def test_threads_are_copied_and_deleted_with_their_writes(tmp_path: Path) -> None:
    with KVStoreSaver(tmp_path / "c.db") as saver:
        chain(saver, "1", "2")
        chain(saver, "3", thread_id="tt")
        saver.put_writes(config(checkpoint_id="2"), [("a", 1)], "task")
        saver.copy_thread("t", "copy")
        saver.copy_thread("t", "t")
        copied = saver.get_tuple(config("copy"))
        assert copied is not None and copied.pending_writes == [("task", "a", 1)]
        assert copied.parent_config == config("copy", checkpoint_id="1")
        saver.delete_thread("t")
        assert sorted(ids(saver.list(None))) == ["1", "2", "3"]
        saver.delete_for_runs(["run1", "missing"])
        saver.delete_for_runs([])
        assert sorted(ids(saver.list(None))) == ["1", "3"]
        saver.prune(["copy", "tt"], strategy="delete")
        assert saver._storage.family().count(expired=True) == 0
        with pytest.raises(ValueError, match="strategy must be"):
            saver.prune(["t"], strategy="none")


def test_prune_keeps_what_a_delta_channel_needs(tmp_path: Path) -> None:
    counted = {"counters_since_delta_snapshot": {"log": (1, 1)}}
    with KVStoreSaver(tmp_path / "c.db") as saver:
        saver.put(config(), checkpoint("1", log=["old"]), {}, {})
        saver.put(config(checkpoint_id="1"), checkpoint("2", log=["a"]), {}, {})
        saver.put(config(checkpoint_id="1"), checkpoint("3"), {}, {})  # a fork
        saver.put(config(checkpoint_id="2"), checkpoint("4"), counted, {})
        saver.put(config(checkpoint_id="4"), checkpoint("5", n=1), counted, {})
        for checkpoint_id in "245":
            saver.put_writes(config(checkpoint_id=checkpoint_id), [("log", checkpoint_id)], "task")
        before = saver.get_delta_channel_history(config=config(), channels=["log"])
        saver.prune(["t", "missing"])
        assert ids(saver.list(config())) == ["5", "4", "2"]
        assert saver.get_delta_channel_history(config=config(), channels=["log"]) == before
        assert before["log"]["seed"] == ["a"] and [write[2] for write in before["log"]["writes"]] == ["2", "4"]


def test_failed_call_raises_and_changes_nothing(tmp_path: Path) -> None:
    with KVStoreSaver(tmp_path / "c.db", max_value_size=2000) as saver:
        chain(saver, "1")
        with pytest.raises(kvstore.Error):
            saver.put(config(checkpoint_id="1"), checkpoint("2", n="x" * 3000), {}, {})
        with pytest.raises(kvstore.Error):
            saver.put_writes(config(checkpoint_id="1"), [("a", 1), ("b", "x" * 3000)], "task")
        found = saver.get_tuple(config())
        assert found is not None and found.checkpoint["id"] == "1" and found.pending_writes == []
    for option in ({"ignore_errors": True}, {"max_bytes": 1_000_000}):
        with pytest.raises(TypeError, match="must not lose checkpoints"):
            KVStoreSaver(tmp_path / "c.db", **option)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="serde= and allowed_types="):
        KVStoreSaver(tmp_path / "c.db", serde=JsonPlusSerializer(), allowed_types=[Invoice])


def test_planted_call_is_not_made(tmp_path: Path) -> None:
    marker = tmp_path / "exploded"
    row = exploding_row(marker)
    JsonPlusSerializer(allowed_msgpack_modules=True).loads_typed(("msgpack", row))
    assert marker.exists()  # LangGraph's default makes it
    marker.unlink()

    saver, cache = KVStoreSaver(tmp_path / "c.db"), KVStoreCache(tmp_path / "c.db")
    chain(saver, "1")
    saver.put_writes(config(checkpoint_id="1"), [("a", 1)], "task")
    cache.set({(("n",), "k"): (1, None)})
    for encoding in ("msgpack", "json", "pickle"):
        with kvstore.open(tmp_path / "c.db") as db:
            for family in map(db.family, db.families()):
                for key, value in list(family.items()):
                    head, _, _ = value.partition(b"\n")
                    start = b"[[null]," if head.startswith(b"[[null]") else head[: head.rindex(b"],[[") + 2]
                    count = 2 if head.startswith(b"[[null]") else 1
                    layout = ",".join([f'["{encoding}",{len(row)}]'] * count).encode()
                    family[key] = start + b"[" + layout + b"]]\n" + row * count
        cached = cache.get([(("n",), "k")])
        if encoding == "msgpack":
            found = saver.get_tuple(config())
            assert found is not None and found.pending_writes == [("task", "a", {"x": f"touch {marker}"})]
            assert cached == {(("n",), "k"): {"x": f"touch {marker}"}}
        else:
            with pytest.raises(ValueError, match="which is not read"):
                saver.get_tuple(config())
            assert cached == {}
    for planted in (b"\x80\x04K\x01.", b"", b"[]", b"[[],[[1,2]]]\nx", b"[" * 100_000, b'[[],[["msgpack",-1]]]\n'):
        with kvstore.open(tmp_path / "c.db") as db:
            for family in map(db.family, db.families()):
                for key in list(family):
                    family[key] = planted
        assert cache.get([(("n",), "k")]) == {}
        with pytest.raises(ValueError, match="not written by this backend"):
            saver.get_tuple(config())
    assert not marker.exists()
    saver.close()
    cache.close()


def test_allowed_types_are_read_as_objects(tmp_path: Path) -> None:
    plain = KVStoreCache(tmp_path / "c.db")
    plain.set({((), "k"): (Invoice(7), None)})
    assert plain.get([((), "k")]) == {((), "k"): {"number": 7}}
    for allowed in (Invoice, (Invoice.__module__, "Invoice")):
        read = KVStoreCache(tmp_path / "c.db", allowed_types=[allowed]).get([((), "k")])[(), "k"]
        assert type(read) is Invoice and read.number == 7
    saver = KVStoreSaver(":memory:")
    saver.put(config(), checkpoint("1", invoice=Invoice(7)), {}, {})
    found = saver.with_allowlist([(Invoice.__module__, "Invoice")]).get_tuple(config())
    assert found is not None and isinstance(found.checkpoint["channel_values"]["invoice"], Invoice)
    assert isinstance(saver.serde, StrictSerializer)
    with pytest.raises(TypeError):
        StrictSerializer().dumps_typed(object())


def test_cache_has_namespaces_and_native_ttl(tmp_path: Path) -> None:
    cache = KVStoreCache(tmp_path / "c.db")
    now = [1_700_000_000.0]
    cache._storage.store().set_clock(lambda: now[0])
    namespaces: list[Any] = [(), ("a",), ("a", "b"), ("a\0b",), ("ab",), ("",)]
    cache.set({(namespace, "k"): (number, None) for number, namespace in enumerate(namespaces)})
    assert list(cache.get([(namespace, "k") for namespace in namespaces]).values()) == list(range(6))
    cache.clear([("a",), ("missing",)])
    assert (("a",), "k") not in cache.get([(("a",), "k")]) and len(cache._storage.family()) == 5
    cache.set({((), "k"): ("short", 10), (("ab",), "k"): ("none", 0), ((), "j"): ([1], 20)})
    assert cache.get([((), "k"), (("ab",), "k"), ((), "j")]) == {((), "k"): "short", ((), "j"): [1]}
    now[0] += 10
    assert cache.get([((), "k"), ((), "j")]) == {((), "j"): [1]}
    cache.clear()
    assert len(cache._storage.family()) == 0 and cache.get([]) == {}
    cache.close()


def test_cache_does_not_break_what_it_caches(tmp_path: Path) -> None:
    cache = KVStoreCache(tmp_path / "new" / "c.db", max_value_size=1000)
    cache.set({((), "k"): ("old", None)})
    cache.set({((), "k"): ("x" * 2000, None)})
    assert cache.get([((), "k")]) == {}
    cache.set({((), "k"): ("new", None)})
    shutil.rmtree(tmp_path / "new")
    time.sleep(0.05)  # a handle looks for its file every 10 ms
    cache.set({((), "j"): ("newer", None)})
    assert cache.get([((), "k"), ((), "j")]) == {((), "j"): "newer"}
    assert os.stat(tmp_path / "new" / "c.db").st_mode & 0o777 == 0o600
    cache.close()


def test_asynchronous_methods_do_as_synchronous_ones(tmp_path: Path) -> None:
    async def main() -> None:
        async with KVStoreSaver(tmp_path / "c.db") as saver:
            stored = await saver.aput(config(), checkpoint("1", n=1), {"step": 0}, {})
            await saver.aput_writes(stored, [("a", 1)], "task")
            await asyncio.gather(
                *(saver.aput(stored, checkpoint(f"{number:03}"), {"step": number}, {}) for number in range(2, 30))
            )
            assert await saver.aget_tuple(stored) == saver.get_tuple(stored)
            assert [each async for each in saver.alist(config(), limit=7)] == list(saver.list(config(), limit=7))
            assert await saver.aget_delta_channel_history(config=stored, channels=["a"]) == {"a": {"writes": []}}
            await saver.acopy_thread("t", "u")
            await saver.aprune(["t"])
            assert len(list(saver.list(config()))) == 1 and len(list(saver.list(config("u")))) == 29
            await saver.adelete_thread("u")
            await saver.adelete_for_runs(["none"])
        cache = KVStoreCache(tmp_path / "c.db")
        await cache.aset({((), "k"): (1, None)})
        assert await cache.aget([((), "k")]) == {((), "k"): 1}
        await cache.aclear([()])
        assert await cache.aget([((), "k")]) == {}
        cache.close()

    asyncio.run(main())


GRAPH = """
import operator, os, sys
from typing import Annotated, TypedDict
from langgraph.graph import START, StateGraph
from langgraph.types import CachePolicy
from kvstore.contrib.langgraph import KVStoreCache, KVStoreSaver

class State(TypedDict):
    log: Annotated[list, operator.add]

def node(state):
    print("ran")
    return {"log": [os.getpid()]}

builder = StateGraph(State)
builder.add_node("node", node, cache_policy=CachePolicy(key_func=lambda state: "key"))
builder.add_edge(START, "node")
graph = builder.compile(checkpointer=KVStoreSaver("g.db"), cache=KVStoreCache("g.db"))
print(len(graph.invoke({"log": ["in"]}, {"configurable": {"thread_id": "t"}})["log"]))
"""


def test_graph_continues_in_another_process(tmp_path: Path) -> None:
    pytest.importorskip("langgraph.graph")
    for expected in ("ran\n2\n", "4\n"):
        done = subprocess.run(
            [sys.executable, "-c", GRAPH], cwd=tmp_path, capture_output=True, text=True, timeout=120
        )
        assert (done.stdout, done.stderr) == (expected, "")
