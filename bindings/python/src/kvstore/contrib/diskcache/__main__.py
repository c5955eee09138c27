"""Copies a cache of diskcache into a cache of this package: ``python -m kvstore.contrib.diskcache``."""

from __future__ import annotations

import argparse
import collections
import pickle
import sys
import time
from pathlib import Path
from typing import Any, Optional

from kvstore import Error
from kvstore._import_sources import PICKLE, EntryError, Piece, SourceError, find
from kvstore.contrib.diskcache._cache import Cache


def copy(source: Path, target: Path, unpickle: bool) -> tuple[int, collections.Counter[str]]:
    """Copy the entries of a cache, with expiry times and tags. Keys that ``target`` has are replaced.

    Returns:
        The number of entries copied, and how many were skipped for which reason. Expired entries are
        not counted.

    Raises:
        SourceError: If the source cannot be read.
    """
    copied, skipped = 0, collections.Counter[str]()
    if target.exists() and target.samefile(source):
        raise SourceError("the target is the source itself: give another directory as target")
    with Cache(target) as cache:
        cache.reset("eviction_policy", "none", update=False)  # during the copy only
        for entry in find(source, "diskcache", None).entries():
            try:
                left = None if entry.expires_at is None else entry.expires_at - time.time()
                if left is not None and left <= 0:
                    continue
                key, value = _object(entry.key, "key", unpickle), _object(entry.value(), "value", unpickle)
                cache.set(key, value, expire=left, tag=entry.tag, retry=True)
                copied += 1
            except (EntryError, TypeError, ValueError) as error:
                skipped[str(error).partition(":")[0]] += 1
    return copied, skipped


def _object(piece: Piece, what: str, unpickle: bool) -> Any:
    if piece.kind != PICKLE:
        return piece.data
    if not unpickle:
        raise EntryError(f"the {what} is a pickle, which --unpickle loads")
    try:
        return pickle.loads(bytes(piece.data))  # type: ignore[arg-type]
    except Exception as error:  # unpickled classes may raise anything
        raise EntryError(f"the {what} is a pickle that cannot be loaded ({type(error).__name__})") from error


def main(arguments: Optional[list[str]] = None) -> int:
    """Copy the cache that the command line names. Return the exit status: 0 if all live entries were
    copied, 1 if some were skipped, 3 if the source cannot be read or the target not written.
    """
    parser = argparse.ArgumentParser(prog="python -m kvstore.contrib.diskcache", description=__doc__)
    parser.add_argument("source", type=Path, help="directory of a Cache or FanoutCache of diskcache; not changed")
    parser.add_argument("target", type=Path, help="directory of the new cache; if it exists, the entries are added to it, and replace equal keys")
    parser.add_argument(
        "--unpickle",
        action="store_true",
        help="load pickled keys and values. Only for a source that you trust: pickles can run code",
    )
    given = parser.parse_args(arguments)
    try:
        copied, skipped = copy(given.source, given.target, given.unpickle)
    except (SourceError, Error, OSError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 3
    print(f"{copied} entries copied, {sum(skipped.values())} skipped")
    for reason, count in skipped.most_common():
        print(f"  {count}: {reason}")
    return 1 if skipped else 0


if __name__ == "__main__":
    sys.exit(main())
