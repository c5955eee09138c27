"""Writes the values of several keys, so that a value that the store rejects does not keep the others out.

Must not depend on a framework.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Optional, Union

import kvstore
from kvstore import Family
from kvstore._transaction import in_one_transaction
from kvstore.contrib._names import StoredName
from kvstore.contrib._storage import Storage

#: The name of a key, its value and its TTL in seconds. None: the key is deleted.
Row = tuple[StoredName, Union[bytes, str], Optional[float]]


def put_many(
    storage: Storage, family: Family, items: Mapping[StoredName, Union[bytes, str]], ttl: float
) -> set[StoredName]:
    """Write the values of several keys in one transaction.

    A value that is too large is left out and logged, and its key is deleted.

    Returns:
        The names of the keys that were left out.
    """
    try:
        family.put_many(items, ttl=ttl)
    except kvstore.Error as error:
        if not is_of_value(error):
            raise
        return put_rows(storage, family, ((name, data, ttl) for name, data in items.items()))
    return set()


def put_rows(
    storage: Storage, family: Family, rows: Iterable[Row], make_room: Optional[Callable[[Family], None]] = None
) -> set[StoredName]:
    """Write rows one by one in one transaction. See :func:`put_many`.

    ``make_room`` is called before each row, in the transaction, and keeps the family at a maximum number of keys.
    """
    rows = list(rows)
    failed: dict[StoredName, kvstore.Error] = {}

    def put() -> None:
        failed.clear()
        for name, data, ttl in rows:
            if make_room is not None:
                make_room(family)
            error = put_row(family, name, data, ttl)
            if error is not None:
                failed[name] = error

    try:
        in_one_transaction(family._state, put)
    except BaseException:
        storage.add_budget = (0, 0)  # removed keys are there again: count them
        raise
    for error in failed.values():
        storage.ignore(error)
    return set(failed)


def put_row(family: Family, name: StoredName, data: Union[bytes, str], ttl: Optional[float]) -> Optional[kvstore.Error]:
    """Write a row. Return the error if its value is too large; its key is then deleted."""
    try:
        if ttl is None:
            family.delete(name)
        else:
            family.put(name, data, ttl=ttl)
    except kvstore.Error as error:
        if not is_of_value(error):
            raise
        family.delete(name)
        return error
    return None


def is_of_value(error: kvstore.Error) -> bool:
    """Return whether a write failed because of its value, so that nothing was done and other values can be written."""
    return isinstance(error, kvstore.InvalidError) or error.hint is kvstore.Hint.RAISE_SIZE_LIMIT
