"""Keeps a family at a number of keys, for frameworks that count. Must not know any framework.

A file is better bounded in bytes (``max_bytes``), which the store sees to with each write.
"""

from __future__ import annotations

import itertools

from kvstore.contrib._places import Place


def make_room(place: Place, most: int, frequency: int) -> None:
    """To be called before a key is added to a family that is to have at most ``most``.

    If it has as many, what has expired is removed, and one live key of each ``frequency``: those that expire
    first, then the first of all. With a ``frequency`` of 0 all keys are removed.

    Keys are not counted each time: one process alone never exceeds the number, but several may for a while.
    """
    limit, left = place.room
    if limit == most and left > 0:
        place.room = (most, left - 1)
        return
    family = place.family()
    count = family.count()
    if count >= most:
        if frequency <= 0:
            family.clear()
        else:
            _remove(place, count // frequency)
        count = family.count()
    place.room = (most, max(0, (most - count - 1) // 2))


def _remove(place: Place, number: int) -> None:
    family = place.family()
    family.purge_expired()  # not among those that were counted, but in the file
    doomed: list[bytes] = []
    for key, _ in family.expiring():
        if len(doomed) == number:
            break
        doomed.append(key)
    if len(doomed) < number:  # all that is left lives for ever
        known = set(doomed)
        doomed += itertools.islice((key for key in family.keys() if key not in known), number - len(doomed))
    family.delete_many(doomed)
