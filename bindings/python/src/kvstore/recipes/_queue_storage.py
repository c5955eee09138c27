"""How a queue stores its messages: the layout of its family, and the changes of a transaction.

Keys of a queue's family: ``c`` for the counters; for each message ``b`` + id with its body and
``m`` + id with its state; and an entry in one of three indexes, depending on the state: ``r`` + id
(ready), ``w`` + moment + id (waiting for a moment: delayed or taken), ``d`` + id (dead letter).
The caller makes each change in one transaction, so that they stay consistent.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple, Optional

from kvstore import FOREVER, Error
from kvstore.recipes._base import now_ms

READY, DELAYED, TAKEN, DEAD = range(4)
_META = struct.Struct(">BIQQQ")
_COUNTERS = struct.Struct(">5Q")
_LAST_MOMENT = (1 << 63) - 1
#: Numbers of attempts are below this. Larger ones are damage.
_MAX_ATTEMPTS = (1 << 32) - 1


class Meta(NamedTuple):
    """The state of a message in a queue."""

    state: int
    #: How often the message was taken since it was put or redriven.
    attempts: int
    #: How often the message was taken in total. It identifies the delivery that an acknowledgement
    #: is for.
    delivery: int
    #: When the message becomes ready (again), if it waits.
    moment_ms: int
    put_ms: int


class Changes:
    """The changes that one transaction makes to a queue.

    Created inside the transaction; :meth:`write_counters` writes the counters.
    """

    def __init__(self, family: Any, max_attempts: Optional[int]) -> None:
        self._family = family
        self._max_attempts = max_attempts
        self.now = now_ms(self._family)
        self._before = read_counters(self._family)
        self._counts = list(self._before)

    def write_counters(self) -> None:
        if not all(0 <= count <= _LAST_MOMENT for count in self._counts):
            raise Error(
                "the counters of the queue do not match its messages, because another program changed its family: "
                "call clear()"
            )
        if tuple(self._counts) != self._before:
            self._family.put(b"c", _COUNTERS.pack(*self._counts), FOREVER)

    def add(self, body: bytes, after_ms: int) -> int:
        self._counts[0] += 1
        number = self._counts[0]
        self._family.put(b"b" + id_bytes(number), body, FOREVER)
        if after_ms:
            self._write(number, Meta(DELAYED, 0, 0, _moment(self.now + after_ms), self.now))
        else:
            self._write(number, Meta(READY, 0, 0, 0, self.now))
        return number

    def move(self, number: int, meta: Meta, state: int, moment_ms: int = 0) -> None:
        self._unlink(number)
        self._write(number, meta._replace(state=state, moment_ms=_moment(moment_ms)))

    def return_message(self, number: int, meta: Meta, after_ms: int) -> None:
        """Move a message whose attempt failed back to the waiting ones, or to the dead letters."""
        if is_exhausted(meta, self._max_attempts):
            self.move(number, meta, DEAD)
        elif after_ms:
            self.move(number, meta, DELAYED, self.now + after_ms)
        else:
            self.move(number, meta, READY)

    def move_due(self) -> None:
        """Move all messages whose waiting time has ended to their next state."""
        for number in due(self._family, self.now):
            meta = read_meta(self._family, number)
            if meta is not None:
                if meta.state == TAKEN:
                    self.return_message(number, meta, 0)
                else:
                    self.move(number, meta, READY)

    def remove(self, number: int, meta: Meta) -> None:
        self._unlink(number)
        self._family.delete(b"m" + id_bytes(number))
        self._family.delete(b"b" + id_bytes(number))

    def _write(self, number: int, meta: Meta) -> None:
        self._counts[1 + meta.state] += 1
        self._family.put(b"m" + id_bytes(number), _META.pack(*meta), FOREVER)
        self._family.put(_link(number, meta), b"", FOREVER)

    def _unlink(self, number: int) -> None:
        """Remove the index entry of a message.

        The state is read from the store, because the caller's ``meta`` may already be changed.
        """
        meta = read_meta(self._family, number)
        if meta is not None:
            self._counts[1 + meta.state] -= 1
            self._family.delete(_link(number, meta))


def read_meta(family: Any, number: int) -> Optional[Meta]:
    """Return the state of a message; None if there is no such message."""
    packed = family.get(b"m" + id_bytes(number))
    if packed is None:
        return None
    if len(packed) == _META.size:
        meta = Meta(*_META.unpack(packed))
        if meta.state <= DEAD and meta.attempts < _MAX_ATTEMPTS and max(meta[2:]) <= _LAST_MOMENT:
            return meta
    raise Error(
        "the state of a message of the queue cannot be read, because another program changed its family: call clear()"
    )


def is_exhausted(meta: Meta, max_attempts: Optional[int]) -> bool:
    """Return whether a message has had its last attempt."""
    return max_attempts is not None and meta.attempts >= max_attempts


def last_number(family: Any) -> int:
    """Return the last message number of a queue, also if its counters are damaged."""
    numbers = [id_of(key) for prefix in (b"b", b"m") for key in family.keys(prefix=prefix, reverse=True, limit=1)]
    try:
        numbers.append(read_counters(family)[0])
    except Error:
        pass
    return max((number for number in numbers if number <= _LAST_MOMENT), default=0)


def reset_counters(family: Any, last: int) -> None:
    """Write the counters of an empty queue, whose last message number was ``last``."""
    family.put(b"c", _COUNTERS.pack(last, 0, 0, 0, 0), FOREVER)


def _link(number: int, meta: Meta) -> bytes:
    if meta.state == READY:
        return b"r" + id_bytes(number)
    if meta.state == DEAD:
        return b"d" + id_bytes(number)
    return b"w" + id_bytes(meta.moment_ms) + id_bytes(number)


def due(family: Any, now: int) -> list[int]:
    """Return the messages of a queue whose waiting time has ended at ``now``."""
    return [id_of(key) for key in family.keys(start=b"w", stop=b"w" + id_bytes(_moment(now) + 1))]


def read_counters(family: Any) -> tuple[int, ...]:
    """Return the last message number of a queue, and the number of messages in each state."""
    packed = family.get(b"c")
    if packed is None:
        return (0, 0, 0, 0, 0)
    if len(packed) == _COUNTERS.size:
        counters = _COUNTERS.unpack(packed)
        if max(counters) <= _LAST_MOMENT:
            return counters
    raise Error(
        "the counters of the queue cannot be read, because another program changed its family: call clear()"
    )


def _moment(ms: int) -> int:
    return min(max(ms, 0), _LAST_MOMENT)


def id_bytes(number: int) -> bytes:
    """Return a message number, or a moment, as it is in keys."""
    return number.to_bytes(8, "big")


def id_of(key: bytes) -> int:
    """Return the message number at the end of a key."""
    return int.from_bytes(key[-8:], "big")
