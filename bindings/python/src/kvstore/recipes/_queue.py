"""Queue: messages that are taken for a time, and acknowledged, or come back.

Keys of a queue's family: ``c`` the counters; for each message ``b`` + id its body and ``m`` + id its state; and in
one of three indexes, by that state: ``r`` + id (ready), ``w`` + moment + id (waits for a moment: delayed, or taken),
``d`` + id (dead). Each method is one transaction that keeps all of them in step.
"""

from __future__ import annotations

import queue
import struct
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Generic, NamedTuple, Optional, TypeVar, Union, cast, overload

from kvstore import FOREVER, BusyError, Error, LockedError, Store
from kvstore._time import Duration, duration_ms
from kvstore.recipes._base import (
    Name, NotOwnedError, Patience, atomic, family_of, finite_ttl, in_transaction, now_ms, positive_int, reading, wake,
)  # fmt: skip

T = TypeVar("T")

_FAMILY = "recipes.queue."
_READY, _DELAYED, _TAKEN, _DEAD = range(4)
_META = struct.Struct(">BIQQQ")
_COUNTERS = struct.Struct(">5Q")
_LAST_MOMENT = (1 << 63) - 1


class _Meta(NamedTuple):
    """The state of a message."""

    state: int
    #: How often it was taken since it was put, or redriven.
    attempts: int
    #: How often it was ever taken: which delivery an acknowledgement is for.
    delivery: int
    #: When it is ready (again), if it waits.
    moment_ms: int
    put_ms: int


class QueueSizes(NamedTuple):
    """How many messages there are in a queue."""

    #: That can be taken now.
    ready: int
    #: Put with a delay, or given back with one, that is not over.
    delayed: int
    #: Taken, and not acknowledged yet.
    taken: int
    #: Dead letters.
    dead: int


class Message(Generic[T]):
    """A message that was taken from a queue (or only looked at, by ``peek`` and ``dead_letters``).

    As a context manager it is acknowledged at the end of the block, if it is not yet, or given back on an
    exception.
    """

    __slots__ = ("_delivery", "_queue", "_settled", "_unreadable", "_value", "attempts", "id", "put_time")

    def __init__(
        self, queue: Queue[T], number: int, value: Optional[T], unreadable: Optional[Exception], meta: _Meta
    ) -> None:
        self._queue = queue
        #: Its number: later ones are greater.
        self.id = number
        self._value = value
        self._unreadable = unreadable
        #: How often it was taken, this time included, since it was put or redriven.
        self.attempts = meta.attempts
        #: When it was put, in seconds since the Unix epoch.
        self.put_time = meta.put_ms / 1000
        self._delivery = meta.delivery
        self._settled = False

    @property
    def value(self) -> T:
        """What was put. Of a message that is only looked at, and that the codec cannot read, what the codec raises."""
        if self._unreadable is not None:
            raise self._unreadable.with_traceback(None)
        return cast("T", self._value)

    def ack(self) -> None:
        """Deletes it: it is done. NotOwnedError if its visibility was over and somebody else has taken it
        (or it is done already). In a transaction with what was done, both happen, or neither."""
        self._queue._ack(self)
        self._settled = True

    def nack(self, delay: Optional[Duration] = None) -> None:
        """Gives it back, to be ready after ``delay`` (default: the queue's ``retry_delay``); or to the dead
        letters, if that was the last attempt. NotOwnedError as for :meth:`ack`."""
        self._queue._nack(self, delay)
        self._settled = True

    def extend(self, visibility: Optional[Duration] = None) -> None:
        """Keeps it from others for so long from now (default: the queue's ``visibility``). NotOwnedError as
        for :meth:`ack`."""
        self._queue._extend(self, visibility)

    def owned(self) -> bool:
        """Whether it is still this delivery's: not done, and not taken by anybody else."""
        return self._queue._meta_of(self) is not None

    def __enter__(self) -> Message[T]:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        if kind is None:
            if not self._settled:
                self.ack()
            return
        try:
            self.nack()  # also if it was acknowledged: that may have been rolled back
        except Error:
            pass  # the caller must see what went wrong in the block; the message comes back by itself

    def __repr__(self) -> str:
        return f"<kvstore.recipes.Message {self.id}, attempt {self.attempts}>"


class Queue(Generic[T]):
    """A queue of messages for several producers and consumers, in threads and processes.

    - ``visibility``: for so long a message that was taken is kept from others. Who has not acknowledged it
      by then (its process died, say) loses it: it is ready again.
    - ``max_attempts``: after having been taken so often without success it becomes a dead letter (None: never).
    - ``retry_delay``: after a nack it is ready again so much later.
    - ``codec``: an object with ``dumps`` and ``loads`` (json, pickle) for the values; without one they are bytes.

    Messages are delivered **at least once**: again after a consumer died, or took longer than the visibility.
    Whose effects are in the same store, and in one transaction with :meth:`Message.ack`, happen exactly once.

    Of the messages that are ready, the one that was put first is taken first; one that comes back has its old
    place. With several consumers, they may be *done* in another order.

    Moments are by the store's clock; ``timeout`` by the monotonic clock.

    ``put``, ``get`` and what ends a message join a transaction that the thread has open.

    >>> db = kvstore.open(":memory:")
    >>> jobs = kvstore.recipes.Queue(db, "jobs")
    >>> jobs.put("resize 1.png")
    1
    >>> with jobs.get() as message:
    ...     print(message.value, message.attempts)
    b'resize 1.png' 1
    >>> jobs.sizes()
    QueueSizes(ready=0, delayed=0, taken=0, dead=0)
    """

    @overload
    def __init__(
        self: Queue[bytes],
        store: Store[Any, Any],
        name: str,
        *,
        visibility: Duration = 30.0,
        max_attempts: Optional[int] = 5,
        retry_delay: Duration = 0,
        codec: None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: Queue[Any],
        store: Store[Any, Any],
        name: str,
        *,
        visibility: Duration = 30.0,
        max_attempts: Optional[int] = 5,
        retry_delay: Duration = 0,
        codec: Any,
    ) -> None: ...
    def __init__(
        self,
        store: Store[Any, Any],
        name: str,
        *,
        visibility: Duration = 30.0,
        max_attempts: Optional[int] = 5,
        retry_delay: Duration = 0,
        codec: Any = None,
    ) -> None:
        if not isinstance(name, str):
            raise TypeError(f"a queue's name must be a str, not {type(name).__name__}")
        if not name:
            raise ValueError("a queue's name cannot be empty")
        self._visibility = visibility
        self._visibility_ms = finite_ttl(visibility, "a visibility")
        self._max_attempts = None if max_attempts is None else positive_int(max_attempts, "max_attempts")
        self._retry_delay = retry_delay
        self._retry_ms = _delay_ms(retry_delay)
        self._codec = codec
        self._name = name
        self._store = store
        self._family = family_of(store, _FAMILY + name)

    @property
    def name(self) -> str:
        """The name of the queue; its family is ``"recipes.queue."`` and that."""
        return self._name

    # Putting

    def put(self, value: Union[T, Name], delay: Duration = 0) -> int:
        """Adds a message, which is ready after ``delay``; returns its number."""
        return self.put_many([value], delay)[0]

    def put_many(self, values: Iterable[Union[T, Name]], delay: Duration = 0) -> list[int]:
        """Adds messages in one transaction, all or none; returns their numbers."""
        bodies = [self._encoded(value) for value in values]
        after = _delay_ms(delay)
        numbers = self._add(bodies, after)
        wake()
        return numbers

    @atomic
    def _add(self, bodies: list[bytes], after_ms: int) -> list[int]:
        step = _Step(self)
        numbers = [step.add(body, after_ms) for body in bodies]
        step.end()
        return numbers

    def _encoded(self, value: Any) -> bytes:
        if self._codec is not None:
            value = self._codec.dumps(value)
        if isinstance(value, str):
            return value.encode()
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise TypeError(f"a message is str or bytes, not {type(value).__name__}; or give the queue a codec")
        return bytes(value)

    # Taking

    def get(
        self, block: bool = True, timeout: Optional[Duration] = None, visibility: Optional[Duration] = None
    ) -> Message[T]:
        """Takes a message. If none is ready, waits for at most ``timeout`` seconds (None: for ever), or not
        at all without ``block``; ``queue.Empty`` then. It looks again at least every 50 ms. BusyError if the
        store is still busy when the time is over, which can take up to ``busy_timeout`` longer.

        Inside a transaction it cannot wait: Error, unless ``block`` is False.
        """
        patience = Patience(timeout)
        visible = self._visible_ms(visibility)
        asked = False
        while True:
            try:
                taken = self._take(1, visible)
            except (BusyError, LockedError):
                if not block or patience.over():
                    raise
                taken = []
            if taken:
                return taken[0]
            if block and not asked:
                asked = True
                if in_transaction(self._store):
                    raise Error("get cannot wait inside a transaction, which keeps others from putting: block=False")
            if not block or not patience.wait():
                raise queue.Empty

    def get_many(self, limit: int, visibility: Optional[Duration] = None) -> list[Message[T]]:
        """Takes up to ``limit`` messages that are ready, in one transaction. Does not wait. Of those, ones that the
        codec cannot read are left out, and come back when their visibility is over; if it can read none, what it
        raises for the first is raised."""
        return self._take(positive_int(limit, "a limit"), self._visible_ms(visibility))

    def _visible_ms(self, visibility: Optional[Duration]) -> int:
        return self._visibility_ms if visibility is None else finite_ttl(visibility, "a visibility")

    def _take(self, limit: int, visible_ms: int) -> list[Message[T]]:
        if not self._has_some():
            return []
        taken = [self._message(number, meta, body) for number, meta, body in self._taken(limit, visible_ms)]
        # What cannot be read comes back, as after a consumer that died, and does not keep others from theirs.
        readable = [message for message in taken if message._unreadable is None]
        if readable or not taken:
            return readable
        unreadable = taken[0]._unreadable
        del taken  # which would have it, and be kept by its traceback
        raise cast("Exception", unreadable)

    @atomic
    def _taken(self, limit: int, visible_ms: int) -> list[tuple[int, _Meta, bytes]]:
        step = _Step(self)
        step.wake_up()
        taken: list[tuple[int, _Meta, bytes]] = []
        for key in list(iter(self._family.keys(prefix=b"r", limit=limit))):
            number = _number(key)
            meta, body = step.meta(number), self._family.get(b"b" + _bytes(number))
            if meta is None or body is None:
                raise Error(f"queue {self._name!r} has a message without a body: somebody else wrote to its family")
            meta = meta._replace(attempts=meta.attempts + 1, delivery=meta.delivery + 1)
            step.move(number, meta, _TAKEN, step.now + visible_ms)
            taken.append((number, meta, body))
        step.end()
        return taken

    def _has_some(self) -> bool:
        """Whether there is anything for a get to do: a look for which nobody has to wait."""
        family = self._family
        for key in family.keys(start=b"r", limit=1):
            return key[:1] == b"r" or int.from_bytes(key[1:9], "big") <= now_ms(family)
        return False

    def _message(self, number: int, meta: _Meta, body: bytes) -> Message[T]:
        if self._codec is None:
            return Message(self, number, cast("T", body), None, meta)
        try:
            return Message(self, number, self._codec.loads(body), None, meta)
        except Exception as error:
            return Message(self, number, None, error, meta)

    # The end of a message

    def _meta_of(self, message: Message[T]) -> Optional[_Meta]:
        """The state of a message, if it is still as it was delivered."""
        packed = self._family.get(b"m" + _bytes(message.id))
        meta = None if packed is None else _Meta(*_META.unpack(packed))
        return meta if meta and meta.delivery == message._delivery and meta.state != _DEAD and meta.attempts else None

    def _ours(self, message: Message[T]) -> _Meta:
        meta = self._meta_of(message)
        if meta is None:
            raise NotOwnedError("the message is done, or its visibility was over and somebody else has taken it")
        return meta

    @atomic
    def _ack(self, message: Message[T]) -> None:
        step = _Step(self)
        step.remove(message.id, self._ours(message))
        step.end()

    def _nack(self, message: Message[T], delay: Optional[Duration]) -> None:
        after = self._retry_ms if delay is None else _delay_ms(delay)
        self._give_back(message, after)
        wake()

    @atomic
    def _give_back(self, message: Message[T], after_ms: int) -> None:
        step = _Step(self)
        step.give_back(message.id, self._ours(message), after_ms)
        step.end()

    @atomic
    def _extend(self, message: Message[T], visibility: Optional[Duration]) -> None:
        visible = self._visible_ms(visibility)
        step = _Step(self)
        step.move(message.id, self._ours(message), _TAKEN, step.now + visible)
        step.end()

    # Looking

    def sizes(self) -> QueueSizes:
        """How many messages are in which state. Costs no more for a long queue."""
        with reading(self._store):
            counts = list(_counters(self._family)[1:])
            for _, meta in self._due():
                counts[meta.state] -= 1
                counts[_DEAD if self._is_lost(meta) else _READY] += 1
            return QueueSizes(*counts)

    def size(self) -> int:
        """How many messages can be taken now."""
        return self.sizes().ready

    def peek(self) -> Optional[Message[T]]:
        """The message that ``get`` would take next, without taking it; None if there is none."""
        with reading(self._store):
            numbers = [_number(key) for key in self._family.keys(prefix=b"r", limit=1)]
            numbers += [number for number, meta in self._due() if not self._is_lost(meta)]
            return self._look(min(numbers)) if numbers else None

    def dead_letters(self, limit: Optional[int] = None) -> list[Message[T]]:
        """The dead letters, the oldest first, also those that the codec cannot read: their ``value`` raises."""
        with reading(self._store):
            numbers = [_number(key) for key in self._family.keys(prefix=b"d")]
            numbers += [number for number, meta in self._due() if self._is_lost(meta)]
            found = [self._look(number) for number in sorted(numbers)[:limit]]
        return [message for message in found if message is not None]

    def _due(self) -> list[tuple[int, _Meta]]:
        """What has waited long enough, and is moved by whoever changes something next."""
        found = [(number, self._meta(number)) for number in _due(self._family, now_ms(self._family))]
        return [(number, meta) for number, meta in found if meta is not None]

    def _is_lost(self, meta: _Meta) -> bool:
        """Whether it becomes a dead letter, now that its time is over."""
        return meta.state == _TAKEN and self._exhausted(meta)

    def _look(self, number: int) -> Optional[Message[T]]:
        meta, body = self._meta(number), self._family.get(b"b" + _bytes(number))
        return None if meta is None or body is None else self._message(number, meta, body)

    def _meta(self, number: int) -> Optional[_Meta]:
        packed = self._family.get(b"m" + _bytes(number))
        return None if packed is None else _Meta(*_META.unpack(packed))

    def _exhausted(self, meta: _Meta) -> bool:
        return self._max_attempts is not None and meta.attempts >= self._max_attempts

    # Many at once

    def redrive(self, limit: Optional[int] = None) -> int:
        """Makes dead letters ready again, the oldest first, with all their attempts before them; returns how
        many."""
        redriven = self._redrive(limit)
        wake()
        return redriven

    @atomic
    def _redrive(self, limit: Optional[int]) -> int:
        step = _Step(self)
        step.wake_up()
        keys = list(iter(self._family.keys(prefix=b"d", limit=limit)))
        for key in keys:
            meta = step.meta(_number(key))
            if meta is not None:
                step.move(_number(key), meta._replace(attempts=0), _READY)
        step.end()
        return len(keys)

    @atomic
    def discard_dead_letters(self) -> int:
        """Deletes the dead letters; returns how many."""
        step = _Step(self)
        step.wake_up()
        keys = list(iter(self._family.keys(prefix=b"d")))
        for key in keys:
            meta = step.meta(_number(key))
            if meta is not None:
                step.remove(_number(key), meta)
        step.end()
        return len(keys)

    @atomic
    def clear(self) -> None:
        """Deletes all messages, those that are taken and the dead letters, too. Numbers go on."""
        last = _counters(self._family)[0]
        self._family.clear()
        self._family.put(b"c", _COUNTERS.pack(last, 0, 0, 0, 0), FOREVER)

    def __reduce__(self) -> Any:
        arguments = {
            "visibility": self._visibility,
            "max_attempts": self._max_attempts,
            "retry_delay": self._retry_delay,
            "codec": self._codec,
        }
        return _made_anew, (self._store, self._name, arguments)

    def __repr__(self) -> str:
        return f"<kvstore.recipes.Queue {self._name!r}>"


class _Step:
    """One transaction's changes of a queue. Made inside the transaction; ``end`` writes the counters."""

    def __init__(self, of: Queue[Any]) -> None:
        self._queue = of
        self._family = of._family
        self.now = now_ms(self._family)
        self._before = _counters(self._family)
        self._counts = list(self._before)

    def end(self) -> None:
        if tuple(self._counts) != self._before:
            self._family.put(b"c", _COUNTERS.pack(*self._counts), FOREVER)

    def meta(self, number: int) -> Optional[_Meta]:
        return self._queue._meta(number)

    def add(self, body: bytes, after_ms: int) -> int:
        self._counts[0] += 1
        number = self._counts[0]
        self._family.put(b"b" + _bytes(number), body, FOREVER)
        if after_ms:
            self._write(number, _Meta(_DELAYED, 0, 0, _moment(self.now + after_ms), self.now))
        else:
            self._write(number, _Meta(_READY, 0, 0, 0, self.now))
        return number

    def move(self, number: int, meta: _Meta, state: int, moment_ms: int = 0) -> None:
        self._unlink(number)
        self._write(number, meta._replace(state=state, moment_ms=_moment(moment_ms)))

    def give_back(self, number: int, meta: _Meta, after_ms: int) -> None:
        """After an attempt that failed."""
        if self._queue._exhausted(meta):
            self.move(number, meta, _DEAD)
        elif after_ms:
            self.move(number, meta, _DELAYED, self.now + after_ms)
        else:
            self.move(number, meta, _READY)

    def wake_up(self) -> None:
        """Moves what has waited long enough."""
        for number in _due(self._family, self.now):
            meta = self.meta(number)
            if meta is not None:
                if meta.state == _TAKEN:
                    self.give_back(number, meta, 0)
                else:
                    self.move(number, meta, _READY)

    def remove(self, number: int, meta: _Meta) -> None:
        self._unlink(number)
        self._family.delete(b"m" + _bytes(number))
        self._family.delete(b"b" + _bytes(number))

    def _write(self, number: int, meta: _Meta) -> None:
        self._counts[1 + meta.state] += 1
        self._family.put(b"m" + _bytes(number), _META.pack(*meta), FOREVER)
        self._family.put(_link(number, meta), b"", FOREVER)

    def _unlink(self, number: int) -> None:
        """By the state in the store, which ``meta`` of a caller may already be ahead of."""
        meta = self.meta(number)
        if meta is not None:
            self._counts[1 + meta.state] -= 1
            self._family.delete(_link(number, meta))


def _link(number: int, meta: _Meta) -> bytes:
    if meta.state == _READY:
        return b"r" + _bytes(number)
    if meta.state == _DEAD:
        return b"d" + _bytes(number)
    return b"w" + _bytes(meta.moment_ms) + _bytes(number)


def _due(family: Any, now: int) -> list[int]:
    """The messages that have waited long enough."""
    return [_number(key) for key in family.keys(start=b"w", stop=b"w" + _bytes(_moment(now) + 1))]


def _counters(family: Any) -> tuple[int, ...]:
    """The last number given, and how many messages are in each state."""
    packed = family.get(b"c")
    return (0, 0, 0, 0, 0) if packed is None else _COUNTERS.unpack(packed)


def _moment(ms: int) -> int:
    return min(max(ms, 0), _LAST_MOMENT)


def _bytes(number: int) -> bytes:
    return number.to_bytes(8, "big")


def _number(key: bytes) -> int:
    return int.from_bytes(key[-8:], "big")


def _delay_ms(delay: Duration) -> int:
    if delay == FOREVER:
        raise ValueError("a delay must end")
    return duration_ms(delay, "a delay")


def _made_anew(store: Store[Any, Any], name: str, arguments: dict[str, Any]) -> Any:
    return Queue(store, name, **arguments)
