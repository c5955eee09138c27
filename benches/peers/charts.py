"""Draws the charts: charts.py SUMMARY.csv FOLDER. Called by benches/run, which has the matplotlib for it."""

import csv
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import LogLocator

STORES = ["kvstore", "LMDB", "redb", "SQLite", "SNKV", "SNKV+ck", "fjall", "RocksDB"]
# In pictures of writes that all keep kvstore's promise about power cuts, too.
SYNCED = "LMDB+sync"
FLOOR = "bare append + fdatasync"

# One picture each: file name, title, panels (workload, title of the panel).
PICTURES = [
    (
        "reads.png",
        "Reads: 1 operation (less is better)",
        [
            ("get", "get"),
            ("get, hot set of 1000 keys", "get, hot set of 1000 keys"),
            ("get, miss", "get, miss"),
            ("exists", "exists"),
            ("scan, per row", "scan, per row"),
            ("prefix of 100 rows", "prefix of 100 rows"),
            ("get, 2 threads, own handles", "get, 2 threads with own handles"),
            ("get beside a writing process", "get while another process writes"),
            ("open", "open"),
        ],
    ),
    (
        "writes.png",
        "Writes: mean of 1 operation, checkpoints counted in (less is better)",
        [
            ("overwrite, auto", "overwrite, one per transaction"),
            ("delete, auto", "delete, one per transaction"),
            ("mixed 70/20/10, auto", "70% get, 20% put, 10% delete"),
            ("load, 1000 per transaction", "load, 1000 per transaction"),
            ("overwrite, 10 000 in one transaction", "overwrite, 10 000 per transaction"),
            ("put with fsync, p50", "put with fsync (median)"),
        ],
    ),
    (
        "ycsb.png",
        "YCSB (zipfian) and sessions: mean of 1 operation (less is better); sessions in LMDB, redb, fjall: without expiry",
        [
            ("YCSB A: 50 get, 50 update", "A: 50% get, 50% update"),
            ("YCSB B: 95 get, 5 update", "B: 95% get, 5% update"),
            ("YCSB C: get only", "C: get only"),
            ("YCSB F: 50 get, 50 read-modify-write", "F: 50% get, 50% read-modify-write"),
            ("session: 90 touch, 9 put_ttl, 1 delete", "sessions"),
        ],
    ),
    (
        "ttl.png",
        "Expiry: 1 operation (less is better)",
        [
            ("get, every key has a TTL", "get, every key has a TTL"),
            ("scan, every key has a TTL", "scan with TTLs, per row"),
            ("load with TTL", "load with TTL, 1000 per transaction"),
            ("put_ttl, auto", "put with TTL, one per transaction"),
            ("purge, per expired key", "purge, per expired key"),
            ("open, every key has a TTL", "open, every key has a TTL"),
        ],
    ),
    (
        "large-values.png",
        "Values of 1000 bytes: 1 operation (less is better)",
        [
            ("1000 B: get", "get"),
            ("1000 B: scan, per row", "scan, per row"),
            ("1000 B: file / data", "size of the file / size of the data"),
            ("1000 B: load, 1000 per transaction", "load, 1000 per transaction"),
            ("1000 B: overwrite, auto", "overwrite, one per transaction"),
            ("1000 B: delete, auto", "delete, one per transaction"),
        ],
    ),
]

# Drawn once more, with the stores that keep kvstore's promise about power cuts only.
WRITES = [
    ("overwrite, auto", "overwrite, one per transaction"),
    ("delete, auto", "delete, one per transaction"),
    ("mixed 70/20/10, auto", "70% get, 20% put, 10% delete"),
    ("load, 1000 per transaction", "load, 1000 per transaction"),
    ("overwrite, 10 000 in one transaction", "overwrite, 10 000 per transaction"),
    ("put_ttl, auto", "put with TTL, one per transaction"),
    ("YCSB A: 50 get, 50 update", "YCSB A"),
    ("YCSB F: 50 get, 50 read-modify-write", "YCSB F"),
    ("session: 90 touch, 9 put_ttl, 1 delete", "sessions"),
]

PERCENTILES = ["p50", "p99", "p99.9", "max"]


def read(path):
    with open(path, newline="") as file:
        return [dict(row, keys=int(row["keys"]), median=float(row["median"])) for row in csv.DictReader(file)]


def number(value, unit):
    if unit == "ns":
        for limit, scale, name in [(1e3, 1, "ns"), (1e6, 1e3, "µs"), (1e9, 1e6, "ms"), (1e99, 1e9, "s")]:
            if value < limit:
                value, unit = value / scale, name
                break
    elif unit == "ratio":
        unit = "×"
    value = float(f"{value:.3g}")
    digits = 2 if value < 10 and unit != "ns" else 1 if value < 100 and unit != "ns" else 0
    return f"{value:.{digits}f} {unit}"


def bars(rows, path, title, panels, stores):
    rows = [r for r in rows if r["store"] in [*stores, FLOOR]]
    panels = [(w, t) for w, t in panels if any(r["workload"] == w for r in rows)]
    if not panels:
        return
    columns = 3
    lines = -(-len(panels) // columns)
    most = max(len({r["store"] for r in rows if r["workload"] == w}) for w, _ in panels)
    size = (3.9 * columns, lines * (0.75 + 0.24 * most) + 0.7)
    figure, axes = plt.subplots(lines, columns, figsize=size, squeeze=False)
    for axis in axes.flat:
        axis.set_axis_off()
    estimated = False
    for axis, (workload, name) in zip(axes.flat, panels):
        mine = {r["store"]: r for r in rows if r["workload"] == workload and r["keys"] == 0}
        names = [s for s in [*stores, FLOOR] if s in mine]
        values = [mine[s]["median"] for s in names]
        axis.set_axis_on()
        # Cuts bars at five times the median if one is so long that the rest would be invisible.
        longest = max(values)
        cut = 5 * sorted(values)[len(values) // 2]
        if longest > 2 * cut:
            longest = cut
        for y, store in enumerate(names):
            guess = mine[store]["estimated"] == "yes"
            estimated |= guess
            end = min(values[y], longest)
            # kvstore is dark and all others are light, in colour and in grey.
            axis.barh(
                y,
                end,
                height=0.72,
                color="#0b4f8a" if store == "kvstore" else "white" if guess else "#c9d3dc",
                edgecolor="#0b4f8a" if store == "kvstore" else "#8c99a5",
                hatch="////" if guess else None,
                linewidth=0.6,
            )
            text = number(values[y], mine[store]["unit"])
            weight = "bold" if store == "kvstore" else "normal"
            axis.text(end + longest * 0.02, y, text, va="center", fontsize=8, fontweight=weight)
            if values[y] > longest:
                for at in [0.90, 0.93]:
                    corners = [longest * (at - 0.015), longest * (at + 0.015)]
                    axis.plot(corners, [y + 0.4, y - 0.4], color="white", linewidth=2.5)
        axis.set_yticks(range(len(names)), ["append +\nfdatasync" if s == FLOOR else s for s in names], fontsize=8)
        axis.get_yticklabels()[0].set_fontweight("bold")
        # All panels have bars of one height.
        axis.set_ylim(most - 0.4, -0.6)
        axis.set_xlim(0, longest * 1.32)
        axis.set_xticks([])
        axis.tick_params(axis="y", length=0)
        axis.set_title(name, fontsize=9.5, loc="left", fontweight="bold")
        for side in ["top", "right", "bottom"]:
            axis.spines[side].set_visible(False)
    figure.suptitle(title + (" — hatched: estimated" if estimated else ""), fontsize=11, x=0.01, ha="left")
    save(figure, path, 0)


def save(figure, path, bottom):
    figure.tight_layout(rect=(0, bottom, 1, 0.99))
    figure.savefig(path, dpi=100, pil_kwargs={"optimize": True})
    plt.close(figure)
    print(f"{path}: {path.stat().st_size // 1024} KB")


LINES = [("o", "-"), ("s", "--"), ("^", "-."), ("D", ":"), ("v", (0, (5, 1))), ("P", (0, (3, 1, 1, 1))), ("X", (0, (1, 1)))]
SHADES = ["#0b4f8a", "#d1701f", "#3c8f5a", "#7a5aa6", "#8a8a8a", "#b03a48", "#5b4a3a"]


def percentiles(rows, path):
    """For each workload a panel, for each store a line from its median to its worst operation."""
    found = {(r["workload"], r["store"]): r["median"] for r in rows if r["estimated"] == "no"}
    names = [w[: -len(", p50")] for w, _ in found if w.endswith(", p50")]
    names = [w for w in dict.fromkeys(names) if (f"{w}, p99.9", "kvstore") in found]
    if not names:
        return
    stores = [*STORES[:2], SYNCED, *STORES[2:]]
    stores = [s for s in stores if any((f"{w}, p50", s) in found for w in names)]
    lines = -(-len(names) // 3)
    figure, axes = plt.subplots(lines, 3, figsize=(12.5, lines * (0.9 + 0.22 * len(stores)) + 0.9), sharex=True, squeeze=False)
    for axis in list(axes.flat)[len(names) :]:
        axis.set_axis_off()
    for axis, name in zip(axes.flat, names):
        for y, store in enumerate(stores):
            values = [found.get((f"{name}, {which}", store)) for which in PERCENTILES]
            if None in values:
                continue
            colour = "#0b4f8a" if store == "kvstore" else "#8c99a5"
            axis.plot([values[0], values[-1]], [y, y], color=colour, linewidth=2.2 if store == "kvstore" else 1)
            for value, marker, which in zip(values, "o|D>", PERCENTILES):
                axis.plot(value, y, marker=marker, color=colour, markersize=8 if marker == "|" else 4.5, markeredgewidth=1.6, linestyle="none")
        axis.set_xscale("log")
        axis.set_yticks(range(len(stores)), stores, fontsize=8)
        axis.get_yticklabels()[0].set_fontweight("bold")
        axis.set_ylim(len(stores) - 0.5, -0.5)
        axis.xaxis.set_major_locator(LogLocator())
        axis.xaxis.set_major_formatter(lambda value, _: number(value, "ns").replace(".00 ", " ").replace(".0 ", " "))
        axis.tick_params(axis="x", labelsize=8, labelbottom=True)
        axis.tick_params(axis="y", length=0)
        axis.minorticks_off()
        axis.grid(True, axis="x", color="#dddddd", linewidth=0.6)
        axis.set_title(name, fontsize=9.5, loc="left", fontweight="bold")
        for side in ["top", "right", "left"]:
            axis.spines[side].set_visible(False)
    handles = [plt.Line2D([], [], color="#555555", marker=m, markeredgewidth=1.6, linestyle="none", markersize=6, label=w) for w, m in zip(PERCENTILES, "o|D>")]
    figure.suptitle("Single operations: p50, p99, p99.9 and the worst (less is better)", fontsize=11, x=0.01, ha="left")
    figure.legend(handles=handles, loc="lower center", ncols=4, fontsize=9, frameon=False)
    save(figure, path, 0.6 / figure.get_size_inches()[1])


def growth(rows, path):
    names = ["get", "put, auto", "purge, per expired key", "purge_step, nothing due", "next_expiry, nothing due", "open", "scan, per row"]
    chosen = [(n, sorted((r["keys"], r["median"]) for r in rows if r["workload"] == "growth: " + n)) for n in names]
    chosen = [(name, points) for name, points in chosen if points]
    if not chosen:
        return
    figure, axis = plt.subplots(figsize=(7.5, 4.8))
    for (name, points), (marker, line), colour in zip(chosen, LINES, SHADES):
        axis.plot(*zip(*points), marker=marker, linestyle=line, color=colour, linewidth=1.6, markersize=5)
        axis.annotate(name, points[-1], xytext=(8, 0), textcoords="offset points", va="center", fontsize=9, color=colour)
    keys = sorted({keys for _, points in chosen for keys, _ in points})
    logarithmic(axis, "keys in the store", keys, [grouped(n) for n in keys])
    axis.set_xlim(right=keys[-1] * max(keys[-1] / keys[0], 10) ** 0.35)
    axis.set_title("kvstore: cost by number of keys", fontsize=11, loc="left")
    save(figure, path, 0)


def families(rows, path):
    rows = [r for r in rows if r["workload"].startswith("families: ")]
    names = list(dict.fromkeys(r["workload"] for r in rows if r["store"] == "kvstore"))
    if not names:
        return
    lines = -(-len(names) // 4)
    figure, axes = plt.subplots(lines, 4, figsize=(13.5, 2.7 * lines + 0.7), squeeze=False)
    for axis in list(axes.flat)[len(names) :]:
        axis.set_axis_off()
    for axis, name in zip(axes.flat, names):
        for store, (marker, line), colour in zip(["kvstore", "SNKV"], LINES, SHADES):
            points = sorted((r["keys"], r["median"]) for r in rows if r["workload"] == name and r["store"] == store)
            if points:
                wide = 2.4 if store == "kvstore" else 1.2
                axis.plot(*zip(*points), marker=marker, linestyle=line, color=colour, linewidth=wide, markersize=4, label=store)
        counts = sorted({r["keys"] for r in rows})
        logarithmic(axis, "", counts, [grouped(n) for n in counts])
        # At least two powers of ten, so that what hardly grows looks flat.
        low, high = axis.get_ylim()
        middle = (low * high) ** 0.5
        axis.set_ylim(min(low, middle / 10), max(high, middle * 10))
        if high > 1e4 * low:
            axis.yaxis.set_major_locator(LogLocator())
        axis.tick_params(labelsize=8)
        axis.set_title(name.removeprefix("families: "), fontsize=9.5, loc="left", fontweight="bold")
    figure.suptitle("1 operation by number of families (less is better)", fontsize=11, x=0.01, ha="left")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=len(labels), fontsize=9, frameon=False, handlelength=3.5)
    save(figure, path, 0.05)


def grouped(n):
    return f"{n:,}".replace(",", " ")


def logarithmic(axis, label, ticks, names):
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel(label)
    axis.set_xticks(ticks, names)
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 3)))
    axis.yaxis.set_major_formatter(lambda value, _: number(value, "ns").replace(".00 ", " ").replace(".0 ", " "))
    axis.grid(True, which="major", color="#dddddd", linewidth=0.6)
    axis.minorticks_off()
    for side in ["top", "right"]:
        axis.spines[side].set_visible(False)


def sizes(rows, path):
    figure, axes = plt.subplots(1, 3, figsize=(11.5, 4))
    some = False
    for axis, what in zip(axes, ["get", "overwrite", "scan, per row"]):
        for store, (marker, line), colour in zip([s for s in STORES if s != "SNKV+ck"], LINES, SHADES):
            points = []
            for size in [16, 100, 1000, 16000]:
                name = f"values of {size} B: {what}"
                points += [(size, r["median"]) for r in rows if r["workload"] == name and r["store"] == store]
            if points:
                some = True
                wide = 2.4 if store == "kvstore" else 1.2
                axis.plot(*zip(*points), marker=marker, linestyle=line, color=colour, linewidth=wide, markersize=4, label=store)
        logarithmic(axis, "bytes of a value", [16, 100, 1000, 16000], ["16", "100", "1000", "16 000"])
        axis.set_title(what, fontsize=9.5, loc="left", fontweight="bold")
    figure.suptitle("1 operation by size of the values (less is better)", fontsize=11, x=0.01, ha="left")
    if some:
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="lower center", ncols=len(labels), fontsize=8.5, frameon=False, handlelength=3.5)
        save(figure, path, 0.06)
    plt.close(figure)


def main():
    rows, folder = read(sys.argv[1]), Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    for name, title, panels in PICTURES:
        bars(rows, folder / name, title, panels, STORES)
    keeping = [r for r in rows if r["keeps"] == "yes"]
    title = "Writes of stores that a power cut cannot damage, and that lose the last moments at most (less is better)"
    bars(keeping, folder / "equal-writes.png", title, WRITES, [STORES[0], SYNCED, *STORES[1:]])
    percentiles(rows, folder / "percentiles.png")
    growth(rows, folder / "growth.png")
    families(rows, folder / "families.png")
    sizes(rows, folder / "value-sizes.png")


main()
