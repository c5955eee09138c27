"""Compare kvstore from Python with other embedded stores. Started by `run`, which installs the requirements.

In each round and for each value size, every store is created in a directory on disk and loaded with all keys in random
order ("batch": 1000 in a transaction). Then follow single operations on random keys, each in a transaction of its own, and
a scan. No store does an fsync per commit. Within each workload the stores take turns in slices, so that other load on
the machine affects all of them. All values read are checked, outside the timed parts. Puts replace existing values; puts
with a TTL are on keys that had none, and "get_ttl" reads these keys.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import random
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter_ns as now
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
DOCS = HERE.parents[2] / "docs" / "bench"

SIZES = (16, 100, 1000)
ROUNDS = 3
KEYS, OPERATIONS = 100_000, 20_000
QUICK_KEYS, QUICK_OPERATIONS = 10_000, 4_000
PER_TRANSACTION = 1000
SLICES = 4
SEED = 1


class Sample(NamedTuple):
    """One workload of one store in one round; ns per operation."""

    mean: float  # for reads: the median over parts of 250
    p50: float  # for single writes
    operations: int


#: By value size, workload and store name: one sample for each round.
Results = dict[tuple[int, str, str], list[Sample]]


class Boundary(NamedTuple):
    """The time of one call from Python and from C; ns, medians over turns."""

    call: str
    python: float
    c: float

    @property
    def cost(self) -> float:
        return self.python - self.c


class Walk(NamedTuple):
    """The time per row of an iteration over all pairs, and of struct creating the same objects from memory; ns, medians over turns.
    """

    call: str
    python: float
    memory: float


def note(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


class Values:
    """Values that differ by key and version, and hardly compress."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.noise = random.Random(SEED).randbytes(65536 + size)

    def __call__(self, number: int, version: int) -> bytes:
        at = (number * 7919 + version) % 65536
        return struct.pack("<QQ", number, version) + self.noise[at : at + self.size - 16]


@contextmanager
def quiet() -> Iterator[None]:
    """Disable the garbage collector, as timeit does."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def parts(items: list[Any], size: int) -> Iterator[list[Any]]:
    for at in range(0, len(items), size):
        yield items[at : at + size]


class Tally:
    """The times of one workload of one store in one round."""

    def __init__(self) -> None:
        self.ns = 0
        self.operations = 0
        self.each: list[float] = []

    def add(self, ns: int, operations: int) -> None:
        self.ns += ns
        self.operations += operations
        self.each.append(ns / operations)

    def sample(self, use_median: bool) -> Sample:
        """Return the sample. ``use_median``: for reads, which have no rare expensive operations such as checkpoints.
        """
        mean, p50 = self.ns / self.operations, statistics.median(self.each)
        return Sample(p50 if use_median else mean, p50, self.operations)


class Contestant:
    """An open store, and the content it should have."""

    def __init__(self, store: Any, pairs: list[tuple[bytes, bytes]]) -> None:
        self.store = store
        self.expected = dict(pairs)
        self.tallies: dict[str, Tally] = {}

    def tally(self, workload: str) -> Tally:
        return self.tallies.setdefault(workload, Tally())

    def check(self, right: bool, what: str) -> None:
        if not right:
            raise SystemExit(f"bench: {self.store.name} gives wrong values: {what}")

    def mine(self, items: list[Any]) -> list[Any]:
        return items[: len(items) // self.store.share]

    def batch(self, pairs: list[tuple[bytes, bytes]]) -> None:
        tally = self.tally("batch")
        for part in parts(pairs, PER_TRANSACTION):
            begin = now()
            self.store.batch(part)
            tally.add(now() - begin, len(part))

    def get(self, keys: list[bytes], workload: str = "get") -> None:
        tally = self.tally(workload)
        gets = self.store.gets_ttl if workload == "get_ttl" else self.store.gets
        for part in parts(keys, 250):
            begin = now()
            values = gets(part)
            tally.add(now() - begin, len(part))
            self.check(values == [self.expected[key] for key in part], workload)

    def put(self, pairs: list[tuple[bytes, bytes]]) -> None:
        pairs = self.mine(pairs)
        add = self.tally("put").add
        put = self.store.put
        for key, value in pairs:
            begin = now()
            put(key, value)
            add(now() - begin, 1)
        self.expected.update(pairs)

    def put_ttl(self, pairs: list[tuple[bytes, bytes]], ttl: int) -> None:
        pairs = self.mine(pairs)
        add = self.tally("put_ttl").add
        put = self.store.put_ttl
        for key, value in pairs:
            begin = now()
            put(key, value, ttl)
            add(now() - begin, 1)
        self.expected.update(pairs)

    def scan(self, timed: bool) -> None:
        begin = now()
        rows = self.store.scan()
        ns = now() - begin
        if timed:
            self.tally("scan").add(ns, len(rows))
        self.check(len(rows) == min(len(self.expected), self.store.scan_limit or len(self.expected)), "scan: rows")
        self.check(all(self.expected[key] == value for key, value in rows), "scan: values")
        self.check(len({key for key, _ in rows}) == len(rows), "scan: keys")
        if self.store.ordered:
            self.check(all(a[0] < b[0] for a, b in zip(rows, rows[1:])), "scan: order")


def one_round(number: int, size: int, count: int, operations: int, folder: Path, results: Results) -> None:
    from stores import STORES, TTL_SECONDS

    chance = random.Random(f"{SEED} {number} {size}")
    value = Values(size)
    names = [b"key:%012d" % i for i in range(count)]
    order = list(range(count))
    chance.shuffle(order)
    pairs = [(names[i], value(i, 0)) for i in order]
    contestants = [Contestant(kind(folder), pairs) for kind in STORES]

    def turns() -> Iterator[tuple[Contestant, slice]]:
        """Yield each contestant in each slice, in changing order."""
        for at in range(SLICES):
            for contestant in chance.sample(contestants, len(contestants)):
                yield contestant, slice(at, None, SLICES)

    def some() -> list[int]:
        return chance.sample(range(count), operations)

    with quiet():
        for contestant, cut in turns():
            contestant.batch(pairs[cut])
    for contestant in contestants:
        contestant.store.ready()
    os.sync()  # write the data of the load now, and not during the measurements

    keys = [names[i] for i in some()]
    with quiet():
        for contestant, cut in turns():
            contestant.get(contestant.mine(keys[cut]))
    for contestant in chance.sample(contestants, len(contestants)):
        with quiet():
            contestant.scan(timed=True)
    pairs = [(names[i], value(i, 1)) for i in some()]
    with quiet():
        for contestant, cut in turns():
            contestant.put(pairs[cut])
    pairs = [(names[i], value(i, 2)) for i in some()]
    keys = [key for key, _ in pairs]
    with quiet():
        for contestant, cut in turns():
            if contestant.store.put_ttl is not None:
                contestant.put_ttl(pairs[cut], TTL_SECONDS)
    with quiet():
        for contestant, cut in turns():
            if contestant.store.put_ttl is not None:
                written = contestant.mine(keys[cut])
                contestant.get(chance.sample(written, len(written)), "get_ttl")

    for contestant in contestants:
        contestant.scan(timed=False)  # check that all puts exist
        contestant.store.close()
        for workload, tally in contestant.tallies.items():
            sample = tally.sample(use_median=workload in ("get", "get_ttl"))
            results.setdefault((size, workload, contestant.store.name), []).append(sample)


class Loops:
    """The loops of loop.c, compiled on creation."""

    def __init__(self, folder: Path) -> None:
        library = folder / "loop.so"
        compiler = os.environ.get("CC", "cc").split()
        subprocess.run([*compiler, "-O2", "-shared", "-fPIC", "-o", library, HERE / "loop.c"], check=True)
        loops = ctypes.CDLL(str(library))
        for loop in (loops.time_gets, loops.time_puts):
            loop.restype = ctypes.c_int64
            loop.argtypes = [
                ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_int,
            ]  # fmt: skip
        self.time_gets, self.time_puts = loops.time_gets, loops.time_puts


def boundaries(count: int, operations: int, folder: Path) -> list[Boundary]:
    """Measure the overhead of Python's get and put over the C functions they call.

    Both are timed on one handle of one store, in turns on random keys. Puts in their own transactions have short turns, so that
    most turns contain no checkpoint.
    """
    import kvstore
    from kvstore._native import ffi, lib

    size, most = 100, 250
    chance = random.Random(SEED)
    value = Values(size)
    names = [b"key:%012d" % i for i in range(count)]
    current = {name: value(i, 0) for i, name in enumerate(names)}
    pairs = list(current.items())
    chance.shuffle(pairs)
    loops = Loops(folder)
    out = ctypes.create_string_buffer(most * size)

    def address(function: str) -> int:
        return int(ffi.cast("intptr_t", ffi.addressof(lib, function)))

    def failed() -> SystemExit:
        return SystemExit("bench: a call from C failed, or gave a wrong value")

    with kvstore.open(folder / "boundary.db") as db:
        for part in parts(pairs, PER_TRANSACTION):
            db.put_many(part)
        family = int(ffi.cast("intptr_t", db._cf))
        get_into, cf_put = address("kvstore_cf_get_into"), address("kvstore_cf_put")
        get, put = db.get, db.put

        def python_gets(keys: list[bytes]) -> int:
            begin = now()
            values = [get(key) for key in keys]
            ns = now() - begin
            if values != [current[key] for key in keys]:
                raise SystemExit("bench: kvstore gives wrong values")
            return ns

        def c_gets(keys: list[bytes]) -> int:
            ns: int = loops.time_gets(get_into, family, b"".join(keys), 16, len(keys), out, size)
            if ns < 0 or out.raw != b"".join([current[key] for key in keys]):
                raise failed()
            return ns

        def python_puts(pairs: list[tuple[bytes, bytes]]) -> int:
            begin = now()
            for key, value in pairs:
                put(key, value)
            ns = now() - begin
            current.update(pairs)
            return ns

        def c_puts(pairs: list[tuple[bytes, bytes]]) -> int:
            keys, values = zip(*pairs)
            ns: int = loops.time_puts(cf_put, family, b"".join(keys), 16, len(keys), b"".join(values), size)
            if ns < 0:
                raise failed()
            current.update(pairs)
            return ns

        def compared(call: str, python: Any, c: Any, make: Any, turn: int) -> Boundary:
            sides: tuple[list[float], list[float]] = ([], [])
            with quiet():
                for at in range(2 * operations // turn):
                    for side in (at % 2, 1 - at % 2):
                        items = make(chance.sample(range(count), turn), at)
                        sides[side].append((python, c)[side](items) / turn)
            return Boundary(call, statistics.median(sides[0]), statistics.median(sides[1]))

        def keys_of(numbers: list[int], at: int) -> list[bytes]:
            return [names[i] for i in numbers]

        def pairs_of(numbers: list[int], at: int) -> list[tuple[bytes, bytes]]:
            return [(names[i], value(i, at + 1)) for i in numbers]

        found = [
            compared("get", python_gets, c_gets, keys_of, most),
            compared("put", python_puts, c_puts, pairs_of, 50),
        ]
        with db.transaction():
            found.append(compared("put in a transaction", python_puts, c_puts, pairs_of, most))
        if dict(db.items()) != current:
            raise SystemExit("bench: kvstore does not contain what was written")
    return found


def walks(count: int, folder: Path) -> list[Walk]:
    """Measure iterations over all pairs, in turns with the least that Python does for the same objects.

    When the rows are kept, most of the time is spent on memory that the system allocates in each turn. The store was closed
    after loading, so that all pages are in the file and none in the WAL.
    """
    import kvstore

    turns = 15
    value = Values(100)
    with kvstore.open(folder / "walk.db") as db:
        db.put_many((b"key:%012d" % i, value(i, 0)) for i in range(count))
    with kvstore.open(folder / "walk.db") as db:
        memory = b"".join(key + each for key, each in db.items())
        pair = struct.Struct("16s100s")
        found = []
        for call, use in (("items(), walked", deque(maxlen=0).extend), ("items(), kept", list)):
            sides: tuple[list[float], list[float]] = ([], [])
            with quiet():
                for _ in range(turns):
                    for side, rows in zip(sides, (db.items(), pair.iter_unpack(memory))):
                        begin = now()
                        use(rows)
                        side.append((now() - begin) / count)
            found.append(Walk(call, *map(statistics.median, sides)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="run", description="Compares kvstore from Python with other packages.")
    parser.add_argument("--quick", action="store_true", help="fewer keys and operations; docs/bench stays as it is")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how many rounds (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="where results go (default: target/bench)")
    parser.add_argument("--docs", type=Path, help="where the table and the chart go (default: docs/bench)")
    options = parser.parse_args()
    out: Path = options.out or HERE.parents[2] / "target" / "bench"
    out.mkdir(parents=True, exist_ok=True)
    docs: Path = options.docs or (out / "quick" if options.quick else DOCS)
    count, operations = (QUICK_KEYS, QUICK_OPERATIONS) if options.quick else (KEYS, OPERATIONS)

    import report

    load = os.getloadavg()[0]
    if load > 1:
        note(f"WARNING: the load average is {load:.2f}: other programs disturb the measurement")
    begin = time.monotonic()
    results: Results = {}
    work = Path(tempfile.mkdtemp(prefix="python-", dir=out))
    try:
        for number in range(options.rounds):
            for size in SIZES:
                folder = work / f"{number}-{size}"
                folder.mkdir()
                one_round(number, size, count, operations, folder, results)
                shutil.rmtree(folder)
                note(f"round {number + 1} of {options.rounds}, values of {size} bytes: {time.monotonic() - begin:.0f} s")
        calls = boundaries(count, operations, work)
        rows = walks(count, work)
    finally:
        shutil.rmtree(work)
    note(f"measured in {time.monotonic() - begin:.0f} s")
    report.write(results, calls, rows, count, load, out / ("python-quick.csv" if options.quick else "python.csv"), docs)


if __name__ == "__main__":
    main()
