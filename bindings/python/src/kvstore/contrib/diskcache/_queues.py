"""The methods of Cache for queues, and peekitem."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Optional

from kvstore._transaction import Transaction
from kvstore.contrib.diskcache._base import CacheBase, encode_tag, result
from kvstore.contrib.diskcache._disk import ENOVAL
from kvstore.contrib.diskcache._keys import decode, encode, readable
from kvstore.contrib.diskcache._tables import Tables

_FIRST_QUEUE_KEY, _LAST_QUEUE_KEY = 500_000_000_000_000, 999_999_999_999_999


class QueueMethods(CacheBase):
    """Base class of :class:`Cache` with its methods for queues."""

    def push(
        self,
        value: Any,
        prefix: Optional[str] = None,
        side: str = "back",
        expire: Optional[float] = None,
        read: bool = False,
        tag: Any = None,
        retry: bool = False,
    ) -> Any:
        """Add a value at one side of a queue, and return its key.

        The keys of a queue are ints from 500,000,000,000,000, or with a prefix str: "prefix-number".

        Args:
            value: The value.
            prefix: The name of the queue; None: the queue with int keys.
            side: "back" or "front".
            expire: Seconds until the value expires; None: never.
            read: Whether ``value`` is a file, whose content is stored.
            tag: As for :meth:`set`.
            retry: Wait without a limit if the store is locked.

        Raises:
            ValueError: If ``side`` is none of these, or if the next key, such as 0 at the front of
                entries with the keys 1 and 0, exists and is outside the queue.
            Timeout, TypeError: As for :meth:`set`.
        """
        if side not in ("back", "front"):
            raise ValueError(f"side must be 'back' or 'front', not {side!r}")
        data, encoded_tag = self._stored(None, value, read), encode_tag(tag)

        def push(tables: Tables) -> Any:
            number = _FIRST_QUEUE_KEY
            for name in self._queue(tables, prefix, side):
                last = decode(name)[0]
                number = (last if prefix is None else int(last.rpartition("-")[2])) + (1 if side == "back" else -1)
            key: Any = number if prefix is None else f"{prefix}-{number:015d}"
            name = encode(key, True)
            if not 0 < number < _LAST_QUEUE_KEY and name in tables.values:
                raise ValueError(f"the queue is full at its {side}: the key {key!r} is in use")
            self._put(tables, name, b"", data, expire, encoded_tag)
            return key

        return self._write(push, retry)

    @staticmethod
    def _queue(tables: Tables, prefix: Optional[str], side: str) -> Iterable[bytes]:
        """Return the name of the first or last entry of a queue, in a list."""
        low: Any
        low, high = (0, _LAST_QUEUE_KEY) if prefix is None else (f"{prefix}-{0:015d}", f"{prefix}-{_LAST_QUEUE_KEY}")
        bounds = encode(low, True) + b"\0", encode(high, True)
        for limit in (1, None):  # the first key nearly always belongs to the queue
            for name in tables.entries.keys(start=bounds[0], stop=bounds[1], reverse=side == "back", limit=limit):
                key: Any = (readable(name) or (None,))[0]
                if type(key) is type(low) and (prefix is None or _is_number(key.rpartition("-")[2])):
                    return [name]
        return []

    def pull(
        self,
        prefix: Optional[str] = None,
        default: Any = (None, None),
        side: str = "front",
        expire_time: bool = False,
        tag: bool = False,
        retry: bool = False,
    ) -> Any:
        """Remove the value at one side of a queue, and return its key and value; ``default`` if the
        queue is empty. With ``expire_time`` or ``tag``, the pair is the first item of a tuple.
        """

        def pull(tables: Tables) -> Any:
            for name in self._queue(tables, prefix, side):
                return decode(name)[0], self._take(tables, name)
            return None

        return self._queue_result(self._write(pull, retry), default, expire_time, tag)

    def peek(
        self,
        prefix: Optional[str] = None,
        default: Any = (None, None),
        side: str = "front",
        expire_time: bool = False,
        tag: bool = False,
        retry: bool = False,
    ) -> Any:
        """Return what :meth:`pull` would return, without removing it."""

        def peek(tables: Tables) -> Any:
            with Transaction(tables.values._state, False, joins=True):
                for name in self._queue(tables, prefix, side):
                    return decode(name)[0], self._look(tables, name)
            return None

        return self._queue_result(self._read(peek, retry), default, expire_time, tag)

    def _queue_result(self, found: Any, default: Any, expire_time: bool, tag: bool) -> Any:
        key, (data, moment, label) = found or (None, (None, None, None))
        value = self._value(data)
        if value is ENOVAL:
            return result(default, None, None, expire_time, tag)
        return result((key, value), moment, label, expire_time, tag)

    def peekitem(self, last: bool = True, expire_time: bool = False, tag: bool = False, retry: bool = False) -> Any:
        """Return key and value of the entry that was added last, or first. With ``expire_time`` or
        ``tag``, the pair is the first item of a tuple.

        Raises:
            KeyError: If the cache has no entry that can be read.
        """

        def peek(tables: Tables) -> Any:
            with Transaction(tables.values._state, False, joins=True):
                end = tables.next_position()
                rows = tables.names(None, end, last, 1)
                while rows:
                    ((place, name),) = rows
                    key, look = self._key(tables, name), self._look(tables, name)
                    if key is not ENOVAL and self._value(look[0]) is not ENOVAL:
                        return key, look
                    rows = tables.names(place, end, last, 1)
            return None

        item = self._queue_result(self._read(peek, retry), ENOVAL, expire_time, tag)
        if (item[0] if expire_time or tag else item) is ENOVAL:
            raise KeyError("the cache is empty")
        return item


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()
