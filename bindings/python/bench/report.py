"""Tables, targets and chart of the measurements of bench.py."""

from __future__ import annotations

import csv
import os
import platform
import statistics
from pathlib import Path
from typing import TYPE_CHECKING

from stores import STORES

if TYPE_CHECKING:
    from bench import Boundary, Results, Walk

OWN = "kvstore"
#: Of a column: the workload, which of its numbers, and the title.
COLUMNS = [
    ("get", "mean", "get"),
    ("get_ttl", "mean", "get, with TTL"),
    ("put", "mean", "put, mean"),
    ("put", "p50", "put, p50"),
    ("put_ttl", "mean", "put with TTL, mean"),
    ("put_ttl", "p50", "put with TTL, p50"),
    ("batch", "mean", "batch of 1000, per row"),
    ("scan", "mean", "scan, per row"),
]
CHARTED = [
    ("get", "get"), ("get_ttl", "get, with TTL"), ("put", "put"), ("put_ttl", "put with TTL"),
    ("batch", "batch of 1000,\nper row"), ("scan", "scan,\nper row"),
]  # fmt: skip
CHART_SIZE = 100
BOUNDARY_TARGET = 400
#: The maximum ns per pair of an iteration over pairs (a target).
WALK_TARGET = 130
NAMES = [store.name for store in STORES]


class Summary:
    """Medians over the rounds."""

    def __init__(self, results: Results) -> None:
        self.results = results
        self.sizes = sorted({size for size, _, _ in results})

    def each(self, size: int, workload: str, store: str, field: str = "mean") -> list[float]:
        return [getattr(sample, field) for sample in self.results.get((size, workload, store), [])]

    def ns(self, size: int, workload: str, store: str, field: str = "mean") -> float | None:
        values = self.each(size, workload, store, field)
        return statistics.median(values) if values else None

    def rows(self, size: int) -> list[list[str]]:
        """A row for each store: ns, and in brackets how many times kvstore's."""
        rows = []
        for name in NAMES:
            row = [name]
            for workload, field, _ in COLUMNS:
                ns, own = self.ns(size, workload, name, field), self.ns(size, workload, OWN, field)
                if ns is None or own is None:
                    row.append("–")
                else:
                    row.append(f"{ns:.0f}" if name == OWN else f"{ns:.0f} ({ratio(ns / own)})")
            rows.append(row)
        return rows


def ratio(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


def spaced(number: int) -> str:
    return f"{number:,}".replace(",", " ")


def targets(summary: Summary, calls: list[Boundary], walks: list[Walk]) -> list[str]:
    """Ratios are medians of the rounds' ratios; in brackets the least and the greatest."""
    lines = []

    def line(text: str, met: bool) -> None:
        lines.append(f"{text}: {'met' if met else 'MISSED'}")

    for peer, least in (("diskcache", 5.0), ("snkv", 1.0)):
        for own in (OWN, "kvstore.snkv"):
            for workload in ("get", "put"):
                pairs = zip(summary.each(CHART_SIZE, workload, peer), summary.each(CHART_SIZE, workload, own))
                ratios = [theirs / ours for theirs, ours in pairs]
                middle = statistics.median(ratios)
                spread = f"{middle:.2f} × {peer}'s speed ({min(ratios):.2f} to {max(ratios):.2f})"
                line(f"{own} {workload}: {spread}, target {least:g} ×", middle >= least)
    for call in calls:
        costs = f"boundary: {call.cost:.0f} ns (target {BOUNDARY_TARGET}), {call.call}"
        line(f"{costs}: {call.python:.0f} from Python, {call.c:.0f} from C", call.cost <= BOUNDARY_TARGET)
    for walk in walks:
        costs = f"{walk.call}: {walk.python:.0f} ns a row (target {WALK_TARGET})"
        line(f"{costs}, {walk.memory:.0f} for the same objects made of memory", walk.python <= WALK_TARGET)
    return lines


def machine(count: int, load: float) -> list[str]:
    model = platform.processor() or platform.machine()
    try:
        for info in Path("/proc/cpuinfo").read_text().splitlines():
            if info.startswith("model name"):
                model = info.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    import kvstore

    versions = ", ".join(f"{store.name} {store.version()}" for store in STORES if store.name != "kvstore.snkv")
    busy = "; other programs disturbed it" if load > 1 else ""
    return [
        f"{model}, {os.cpu_count()} CPUs, {platform.system()} {platform.release()}, CPython {platform.python_version()}."
        f" Load average at the start {load:.2f}{busy}.",
        f"{versions}; kvstore's engine: {kvstore.engine}.",
        f"{spaced(count)} keys of 16 bytes, random order; ns per operation, medians of the rounds; in brackets:"
        " the time divided by kvstore's (above 1: slower than kvstore).",
    ]


NOTES = """\
No store does an fsync per commit. Each operation is a transaction of its own, except in "batch" (1000 puts of new
keys in one). Puts replace values; puts with a TTL are of keys that had none. Every value read is checked. Gets are
medians within a round. Means of puts, batches and scans include all work of that time, such as checkpoints.

- `kvstore.snkv` is this package with snkv's interface.
- `snkv`: its defaults. It never checkpoints: its WAL grows without bound, and its means lack the cost of
  checkpoints that the means of kvstore include.
- `lmdb`: `sync=False`. No TTLs.
- `sqlite3`: WAL, `synchronous=NORMAL`, prepared, a table without rowid; TTLs are a column with an index.
- `diskcache`: its defaults (WAL, `synchronous=NORMAL`). Its scan is not ordered, and ends after
  10 000 rows.
- `sqlitedict`: autocommit, WAL, `synchronous=OFF` (its own choice), pickled values. No TTLs; its scan is not ordered.

diskcache and sqlitedict make a quarter of the gets and puts of the other packages, to save time.
"""


def markdown(summary: Summary, about: list[str]) -> str:
    text = ["# Speed from Python: kvstore and other packages", "", "Generated by `make bench-python`.", "", *about, ""]
    text += ["![Times by workload and store, values of 100 bytes](python.png)", ""]
    for size in sorted(summary.sizes, key=lambda size: size != CHART_SIZE):
        text += [f"## Values of {size} bytes", ""]
        text.append("| " + " | ".join(["ns", *(title for _, _, title in COLUMNS)]) + " |")
        text.append("|---" + "|--:" * len(COLUMNS) + "|")
        text += ["| " + " | ".join(row) + " |" for row in summary.rows(size)]
        text.append("")
    text += ["## Method", "", NOTES]
    return "\n".join(text)


def print_tables(summary: Summary) -> None:
    titles = ["ns", *(title for _, _, title in COLUMNS)]
    for size in summary.sizes:
        print(f"\nValues of {size} bytes")
        rows = [titles, *summary.rows(size)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(titles))]
        for row in rows:
            print("  ".join([row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))]))


def chart(summary: Summary, count: int, file: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    # From dark to light in greyscale too, and hatched by turns.
    looks = {
        "kvstore": ("#000000", ""), "kvstore.snkv": ("#0b3c6f", "////"), "snkv": ("#2f6db3", ""), "lmdb": ("#3f9aa0", "\\\\\\\\"),
        "sqlite3": ("#8cbf6f", ""), "diskcache": ("#e3d26a", "xxxx"), "sqlitedict": ("#f7f3dd", ""),
    }  # fmt: skip
    plt.rcParams.update({"font.size": 9, "hatch.linewidth": 0.5})
    figure, axes = plt.subplots(figsize=(10, 4.8), dpi=110)
    width = 0.88 / len(NAMES)
    for at, name in enumerate(NAMES):
        colour, hatch = looks[name]
        places, heights = [], []
        for group, (workload, _) in enumerate(CHARTED):
            ns = summary.ns(CHART_SIZE, workload, name)
            if ns is not None:
                present = [other for other in NAMES if summary.ns(CHART_SIZE, workload, other) is not None]
                places.append(group + (present.index(name) - (len(present) - 1) / 2) * width)
                heights.append(ns)
        axes.bar(places, heights, width, label=name, color=colour, edgecolor="black", linewidth=0.6, hatch=hatch, zorder=2)
        for place, height in zip(places, heights):
            axes.annotate(
                f"{height:.0f}" if height < 1000 else f"{height / 1000:.{1 if height < 99_500 else 0}f}k",
                (place, height), (0, 2), textcoords="offset points", ha="center", va="bottom", rotation=90, fontsize=6.5,
            )  # fmt: skip
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.set_ylim(low, high * 2)
    axes.set_xticks(range(len(CHARTED)), [title for _, title in CHARTED])
    axes.tick_params(axis="x", length=0)
    axes.yaxis.set_major_formatter(lambda ns, _: f"{ns:g} ns" if ns < 1000 else f"{ns / 1000:g} µs")
    axes.set_ylabel("per operation (log scale; on the bars: ns; less is better)")
    axes.set_title(f"From Python: {spaced(count)} keys of 16 bytes, values of {CHART_SIZE} bytes, no fsync per commit", fontsize=10)
    axes.grid(axis="y", color="#cccccc", linewidth=0.5, zorder=0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.legend(ncols=len(NAMES), loc="lower center", frameon=False, fontsize=8.5)
    figure.tight_layout(rect=(0, 0.05, 1, 1))
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, metadata={"Software": None})
    plt.close(figure)


def write_csv(results: Results, calls: list[Boundary], walks: list[Walk], file: Path) -> None:
    with file.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["value_bytes", "workload", "store", "round", "mean_ns", "p50_ns", "operations"])
        for (size, workload, store), samples in sorted(results.items()):
            for number, sample in enumerate(samples, 1):
                writer.writerow(
                    [size, workload, store, number, f"{sample.mean:.1f}", f"{sample.p50:.1f}", sample.operations]
                )
        for call in calls:
            for side, ns in (("python", call.python), ("c", call.c)):
                writer.writerow([CHART_SIZE, f"boundary: {call.call}", side, "", "", f"{ns:.1f}", ""])
        for walk in walks:
            for side, ns in (("python", walk.python), ("memory", walk.memory)):
                writer.writerow([CHART_SIZE, walk.call, side, "", f"{ns:.1f}", "", ""])


def write(results: Results, calls: list[Boundary], walks: list[Walk], count: int, load: float, table: Path, docs: Path) -> None:
    summary = Summary(results)
    about = machine(count, load)
    write_csv(results, calls, walks, table)
    chart(summary, count, docs / "python.png")
    (docs / "python.md").write_text(markdown(summary, about), encoding="utf-8")
    print("\n".join(about))
    print_tables(summary)
    print("\nTargets (values of 100 bytes)")
    print("\n".join(targets(summary, calls, walks)))
    print(f"\nWritten: {table}, {docs / 'python.md'}, {docs / 'python.png'}")
