"""Row keys of a family: the partition of a key, and the partitions of a family.

Must not depend on a framework.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from kvstore import Family, row_key
from kvstore._iteration import successor

_END = b"\x00\x01"


def split_row_key(key: bytes) -> tuple[bytes, bytes]:
    """Return the partition and the clustering part of a row key.

    Raises:
        ValueError: If ``key`` was not built by :func:`kvstore.row_key`.
    """
    partition, end, clustering = key.partition(_END)
    if not end:
        raise ValueError("the key is not a row key, which kvstore.row_key builds")
    return partition.replace(b"\x00\xff", b"\x00"), clustering


def partitions(family: Family, limit: Optional[int] = None, prefix: bytes = b"") -> Iterator[bytes]:
    """Iterate over the partitions of a family that have a live row, in byte order, at most ``limit``.

    Reads one key of each. Keys that are not row keys are skipped.

    Args:
        family: The family.
        limit: The maximum number of partitions; None: all.
        prefix: Only keys that begin with it, whose rest is a row key.
    """
    start: Optional[bytes] = prefix
    found = 0
    while start is not None and (limit is None or found < limit):
        key = next(iter(family.keys(prefix=prefix, start=start, limit=1)), None)
        if key is None:
            return
        try:
            partition, _ = split_row_key(key[len(prefix) :])
        except ValueError:
            start = key + b"\x00"
            continue
        yield partition
        found += 1
        start = successor(prefix + row_key(partition))
