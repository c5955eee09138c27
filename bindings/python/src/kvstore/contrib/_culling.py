"""Keeps a family at a maximum number of keys, for frameworks that have such a limit.

Must not depend on a framework.

Limiting the file in bytes (``max_bytes``) is cheaper: the store enforces it in each write.
"""

from __future__ import annotations

import itertools

from kvstore import Family
from kvstore.contrib._storage import Storage


def cull(storage: Storage, family: Family, most: int, frequency: int) -> None:
    """Remove keys of a full family, so that one key can be added without exceeding ``most`` keys.

    If the family is full, all expired keys are removed and one live key in every ``frequency``:
    those that expire first, then the first in key order. With a ``frequency`` of 0 all keys are
    removed.

    Keys are not counted each time: one process never exceeds the maximum, but several processes may
    for a while.
    """
    limit, left = storage.add_budget
    if limit == most and left > 0:
        storage.add_budget = (most, left - 1)
        return
    count = family.count()
    if count >= most:
        if frequency <= 0:
            family.clear()
        else:
            _remove(family, count // frequency)
        count = family.count()
    storage.add_budget = (most, max(0, (most - count - 1) // 2))


def _remove(family: Family, number: int) -> None:
    family.purge_expired()  # not counted above, but still in the file
    doomed: list[bytes] = []
    for key, _ in family.expiring():
        if len(doomed) == number:
            break
        doomed.append(key)
    if len(doomed) < number:  # the remaining keys have no TTL
        known = set(doomed)
        doomed += itertools.islice((key for key in family.keys() if key not in known), number - len(doomed))
    family.delete_many(doomed)
