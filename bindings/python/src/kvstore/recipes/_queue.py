"""Class Queue: a message queue. A consumer takes a message for a limited time and acknowledges it,
or it is delivered again.

_queue_storage has the layout of its family.
"""

from __future__ import annotations

import queue
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Generic, NamedTuple, Optional, TypeVar, Union, cast, overload

from kvstore import FOREVER, BusyError, Error, LockedError, Store
from kvstore._native import to_bytes
from kvstore._time import Duration, duration_ms
from kvstore.recipes._base import (
    OF_STORE, Backoff, Name, NotOwnedError, atomic, codec_of, family_of, finite_ttl, in_transaction, now_ms,
    positive_int, reading, wake,
)  # fmt: skip
from kvstore.recipes._queue_storage import (
    DEAD, READY, TAKEN, Changes, Meta, due, id_bytes, id_of, is_exhausted, last_number, read_counters, read_meta,
    reset_counters,
)  # fmt: skip

T = TypeVar("T")

_FAMILY = "recipes.queue."
#: The number of attempts after which a message that the codec cannot decode becomes a dead letter,
#: in a queue without ``max_attempts``.
_UNREADABLE_ATTEMPTS = 5


class QueueSizes(NamedTuple):
    """The number of messages of a queue in each state."""

    #: Messages that can be taken now.
    ready: int
    #: Messages whose delay has not ended.
    delayed: int
    #: Messages that were taken and not acknowledged yet.
    taken: int
    #: Messages that were not acknowledged after the last attempt (dead letters).
    dead: int


class Message(Generic[T]):
    """A message that was taken from a queue, or that ``peek`` or ``dead_letters`` returned.

    As a context manager it is acknowledged at the end of the block, or given back (``nack``) on an
    exception.
    """

    __slots__ = ("_delivery", "_queue", "_settled", "_unreadable", "_value", "attempts", "id", "put_time")

    def __init__(
        self, queue: Queue[T], number: int, value: Optional[T], unreadable: Optional[Exception], meta: Meta
    ) -> None:
        self._queue = queue
        #: The number of the message; later messages have greater numbers.
        self.id = number
        self._value = value
        self._unreadable = unreadable
        #: How often the message was taken since it was put or redriven, this delivery included.
        self.attempts = meta.attempts
        #: When the message was put, in seconds since the Unix epoch.
        self.put_time = meta.put_ms / 1000
        self._delivery = meta.delivery
        self._settled = False

    @property
    def value(self) -> T:
        """The value that the producer put into the queue.

        For a message that was only read and that the codec cannot decode, it raises the exception
        of the codec.
        """
        if self._unreadable is not None:
            raise self._unreadable.with_traceback(None)
        return cast("T", self._value)

    def ack(self) -> None:
        """Acknowledge the message: delete it from the queue, because it has been processed.

        In a transaction together with its effects, both happen or neither does.

        Raises:
            NotOwnedError: If it is done already, or its visibility ended and another consumer has
                taken it.
        """
        self._queue._ack(self)
        self._settled = True

    def nack(self, delay: Optional[Duration] = None) -> None:
        """Return the message to the queue, to be delivered again. After its last attempt it becomes
        a dead letter.

        Args:
            delay: Seconds or a ``timedelta`` until it is ready; None: the ``retry_delay`` of the
                queue.

        Raises:
            NotOwnedError: As for :meth:`ack`.
        """
        self._queue._nack(self, delay)
        self._settled = True

    def extend(self, visibility: Optional[Duration] = None) -> None:
        """Restart the visibility of the message: the time in which no other consumer gets it.

        Args:
            visibility: Seconds or a ``timedelta`` from now; None: the ``visibility`` of the queue.

        Raises:
            NotOwnedError: As for :meth:`ack`.
        """
        self._queue._extend(self, visibility)

    def owned(self) -> bool:
        """Return whether this consumer still has the message: it was not acknowledged, and no other
        consumer took it.
        """
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
            self.nack()  # even after ack(), which may have been rolled back
        except Error:
            pass  # the exception of the block is more important; the message is redelivered anyway

    def __repr__(self) -> str:
        return f"<kvstore.recipes.Message {self.id}, attempt {self.attempts}>"


class Queue(Generic[T]):
    """A queue of messages for several producers and consumers, in threads and processes.

    Messages are delivered **at least once**: again if a consumer died or took longer than the
    visibility. If the effects of a message are in the same store, and in one transaction with
    :meth:`Message.ack`, they happen exactly once.

    Of the ready messages, the one that was put first is taken first; a redelivered message keeps
    its place. With several consumers, messages may be *done* in another order.

    Delays and visibility follow the store's clock; ``timeout`` follows the monotonic clock. All
    methods except a waiting ``get`` join a transaction that the thread has open.

    Args:
        store: A :class:`kvstore.Store`.
        name: str, not empty.
        visibility: Seconds or a ``timedelta`` for which a taken message is hidden from other
            consumers. A consumer that has not acknowledged it by then (it may have died) loses it,
            and the message is ready again.
        max_attempts: How often a message is taken before it becomes a dead letter; None: no
            maximum.
        retry_delay: Seconds or a ``timedelta`` after a ``nack`` until the message is ready again.
        codec: An object with ``dumps`` and ``loads`` (kvstore.JSON) for the values; None: values
            are bytes. By default the codec of the store. All producers and consumers of a queue
            must have the same: a message that the codec cannot decode makes ``get`` raise the
            exception of the codec, is ready again after its visibility, and becomes a dead letter
            after ``max_attempts``, or after 5 attempts if that is None.

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
        self: Queue[T],
        store: Store[Any, T],
        name: str,
        *,
        visibility: Duration = 30.0,
        max_attempts: Optional[int] = 5,
        retry_delay: Duration = 0,
    ) -> None: ...
    @overload
    def __init__(
        self: Queue[bytes],
        store: Store[Any, Any],
        name: str,
        *,
        visibility: Duration = 30.0,
        max_attempts: Optional[int] = 5,
        retry_delay: Duration = 0,
        codec: None,
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
        codec: Any = OF_STORE,
    ) -> None:
        if not isinstance(name, str):
            raise TypeError(f"name must be str, not {type(name).__name__}")
        if not name:
            raise ValueError("name is empty: give at least one character")
        self._visibility = visibility
        self._visibility_ms = finite_ttl(visibility, "visibility")
        self._max_attempts = None if max_attempts is None else positive_int(max_attempts, "max_attempts")
        self._retry_delay = retry_delay
        self._retry_ms = _delay_ms(retry_delay, "retry_delay")
        self._name = name
        self._store = store
        self._family = family_of(store, _FAMILY + name)
        self._codec = codec_of(store, codec)
        self._own_codec = {} if codec is OF_STORE else {"codec": codec}

    @property
    def name(self) -> str:
        """The name of the queue. Its family is ``"recipes.queue."`` followed by the name."""
        return self._name

    # Putting

    def put(self, value: Union[T, Name], delay: Duration = 0) -> int:
        """Add a message to the queue, and return the message's number.

        Args:
            value: What the codec accepts; without a codec, str or bytes-like.
            delay: Seconds or a ``timedelta`` until it is ready.
        """
        return self.put_many([value], delay)[0]

    def put_many(self, values: Iterable[Union[T, Name]], delay: Duration = 0) -> list[int]:
        """Add several messages to the queue in one transaction, and return their numbers.

        See :meth:`put`.
        """
        bodies = [self._encoded(value) for value in values]
        after = _delay_ms(delay)
        numbers = self._add(bodies, after)
        wake()
        return numbers

    @atomic
    def _add(self, bodies: list[bytes], after_ms: int) -> list[int]:
        changes = Changes(self._family, self._max_attempts)
        numbers = [changes.add(body, after_ms) for body in bodies]
        changes.write_counters()
        return numbers

    def _encoded(self, value: Any) -> bytes:
        if self._codec is not None:
            value = self._codec.dumps(value)
        if isinstance(value, str):
            return to_bytes(value, "value")
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise TypeError(
                f"value must be str or bytes-like, not {type(value).__name__}: give the queue or its store "
                "a codec for other types"
            )
        return bytes(value)

    # Taking

    def get(
        self, block: bool = True, timeout: Optional[Duration] = None, visibility: Optional[Duration] = None
    ) -> Message[T]:
        """Take the next message from the queue, and return it. By default, wait until there is one.

        While it waits, it checks at least every 50 ms.

        Args:
            block: Wait until a message is ready.
            timeout: The longest wait in seconds or as a ``timedelta``; None: no limit.
            visibility: How long the message is hidden from other consumers; None: the
                ``visibility`` of the queue.

        Raises:
            queue.Empty: If no message is ready, or none became ready in time. BusyError: If the
            store is still busy after the timeout. This can take up to ``busy_timeout`` longer.
            Error: If it would have to wait inside a transaction, which prevents other writers from
            putting messages. The exception of the codec if it cannot decode the message, which
            stays taken for its visibility: call ``get`` again for the next one. Inside a
            transaction, which an exception may roll back, ``get`` returns the next message that can
            be decoded, and raises only if there is none.
        """
        if block not in (True, False):  # as in get(5), which would wait without limit
            raise TypeError(f"block must be True or False, not {block!r}: give the longest wait as timeout=")
        backoff = Backoff(timeout)
        visible = self._visible_ms(visibility)
        asked = False
        while True:
            try:
                taken = self._take(1, visible)
            except (BusyError, LockedError):
                if not block or backoff.over():
                    raise
                taken = []
            if taken:
                return taken[0]
            if block and not asked:
                asked = True
                if in_transaction(self._store):
                    raise Error(
                        "get() cannot wait inside a transaction, because producers cannot write meanwhile: "
                        "use block=False"
                    )
            if not block or not backoff.wait():
                raise queue.Empty

    def get_many(self, limit: int, visibility: Optional[Duration] = None) -> list[Message[T]]:
        """Take up to ``limit`` ready messages in one transaction, and return them. Does not wait.

        Messages that the codec cannot decode are left out. They become ready again after their
        visibility, and dead letters after their last attempt. If none can be decoded, the exception
        of the codec for the first one is raised.
        """
        return self._take(positive_int(limit, "limit"), self._visible_ms(visibility))

    def _visible_ms(self, visibility: Optional[Duration]) -> int:
        return self._visibility_ms if visibility is None else finite_ttl(visibility, "visibility")

    def _take(self, limit: int, visible_ms: int) -> list[Message[T]]:
        readable, unreadable = self._take_readable(limit, visible_ms)
        try:
            if not readable and unreadable is not None:
                raise unreadable
            return readable
        finally:
            del unreadable  # its traceback refers to this frame

    def _take_readable(self, limit: int, visible_ms: int) -> tuple[list[Message[T]], Optional[Exception]]:
        """Take messages, and return those that the codec can decode, and its first exception.

        Undecodable messages become ready again later, as if their consumer had died, and do not
        block the others. A consumer with the right codec may be running elsewhere.
        """
        readable: list[Message[T]] = []
        unreadable: dict[int, Exception] = {}
        while self._has_some():
            seen = len(unreadable)
            for number, meta, body in self._taken(limit, visible_ms):
                message = self._message(number, meta, body)
                if message._unreadable is None:
                    readable.append(message)
                else:
                    unreadable.setdefault(number, message._unreadable)
                    self._bury_exhausted(message)
            # The exception may roll back the transaction of the caller, and with it what was taken: look
            # for another message first.
            if readable or len(unreadable) == seen or not in_transaction(self._store):
                break
        return readable, next(iter(unreadable.values()), None)

    @atomic
    def _taken(self, limit: int, visible_ms: int) -> list[tuple[int, Meta, bytes]]:
        changes = Changes(self._family, self._max_attempts)
        changes.move_due()
        taken: list[tuple[int, Meta, bytes]] = []
        for key in list(iter(self._family.keys(prefix=b"r", limit=limit))):
            number = id_of(key)
            meta, body = read_meta(self._family, number), self._family.get(b"b" + id_bytes(number))
            if meta is None or body is None:
                raise Error(
                    f"queue {self._name!r} has a message without a body, because another program changed its "
                    "family: call clear()"
                )
            meta = meta._replace(attempts=meta.attempts + 1, delivery=meta.delivery + 1)
            changes.move(number, meta, TAKEN, changes.now + visible_ms)
            taken.append((number, meta, body))
        changes.write_counters()
        return taken

    def _bury_exhausted(self, message: Message[T]) -> None:
        """Move an undecodable message that this consumer has just taken to the dead letters after
        its last attempt. If the store is busy, a later attempt does.
        """
        if self._max_attempts is None and message.attempts >= _UNREADABLE_ATTEMPTS:
            try:
                self._bury(message)
            except (BusyError, LockedError):
                pass

    @atomic
    def _bury(self, message: Message[T]) -> None:
        meta = self._meta_of(message)
        if meta is not None:
            changes = Changes(self._family, self._max_attempts)
            changes.move(message.id, meta, DEAD)
            changes.write_counters()

    def _has_some(self) -> bool:
        """Return whether a ``get`` may find a message. Only reads, and so blocks no other process.
        """
        family = self._family
        for key in family.keys(start=b"r", limit=1):
            return key[:1] == b"r" or int.from_bytes(key[1:9], "big") <= now_ms(family)
        return False

    def _message(self, number: int, meta: Meta, body: bytes) -> Message[T]:
        if self._codec is None:
            return Message(self, number, cast("T", body), None, meta)
        try:
            return Message(self, number, self._codec.loads(body), None, meta)
        except Exception as error:
            return Message(self, number, None, error, meta)

    # The end of a message

    def _meta_of(self, message: Message[T]) -> Optional[Meta]:
        """Return the state of a message, or None if its consumer no longer has it."""
        meta = read_meta(self._family, message.id)
        return meta if meta and meta.delivery == message._delivery and meta.state != DEAD and meta.attempts else None

    def _ours(self, message: Message[T]) -> Meta:
        meta = self._meta_of(message)
        if meta is None:
            raise NotOwnedError(
                "the message is already done, or another consumer took it because its visibility ended: use a "
                "longer visibility="
            )
        return meta

    @atomic
    def _ack(self, message: Message[T]) -> None:
        changes = Changes(self._family, self._max_attempts)
        changes.remove(message.id, self._ours(message))
        changes.write_counters()

    def _nack(self, message: Message[T], delay: Optional[Duration]) -> None:
        after = self._retry_ms if delay is None else _delay_ms(delay)
        self._give_back(message, after)
        wake()

    @atomic
    def _give_back(self, message: Message[T], after_ms: int) -> None:
        changes = Changes(self._family, self._max_attempts)
        changes.return_message(message.id, self._ours(message), after_ms)
        changes.write_counters()

    @atomic
    def _extend(self, message: Message[T], visibility: Optional[Duration]) -> None:
        visible = self._visible_ms(visibility)
        changes = Changes(self._family, self._max_attempts)
        changes.move(message.id, self._ours(message), TAKEN, changes.now + visible)
        changes.write_counters()

    # Looking

    def sizes(self) -> QueueSizes:
        """Return the number of messages in each state.

        The cost does not depend on the length of the queue.
        """
        with reading(self._store):
            counts = list(read_counters(self._family)[1:])
            for _, meta in self._due():
                counts[meta.state] -= 1
                counts[DEAD if self._is_lost(meta) else READY] += 1
            return QueueSizes(*counts)

    def size(self) -> int:
        """Return the number of messages that consumers can take now."""
        return self.sizes().ready

    def peek(self) -> Optional[Message[T]]:
        """Return the message that ``get`` would take next, without taking it; None if there is
        none.
        """
        with reading(self._store):
            numbers = [id_of(key) for key in self._family.keys(prefix=b"r", limit=1)]
            numbers += [number for number, meta in self._due() if not self._is_lost(meta)]
            return self._look(min(numbers)) if numbers else None

    def dead_letters(self, limit: Optional[int] = None) -> list[Message[T]]:
        """Return the dead letters, oldest first: messages that were not acknowledged after the last
        attempt.

        Accessing the ``value`` of one that the codec cannot decode raises.

        Args:
            limit: The maximum number of messages; None: all.
        """
        with reading(self._store):
            numbers = [id_of(key) for key in self._family.keys(prefix=b"d")]
            numbers += [number for number, meta in self._due() if self._is_lost(meta)]
            found = [self._look(number) for number in sorted(numbers)[:limit]]
        return [message for message in found if message is not None]

    def _due(self) -> list[tuple[int, Meta]]:
        """Return the delayed and taken messages whose waiting time has ended.

        The next change of the queue moves them.
        """
        found = [(number, read_meta(self._family, number)) for number in due(self._family, now_ms(self._family))]
        return [(number, meta) for number, meta in found if meta is not None]

    def _is_lost(self, meta: Meta) -> bool:
        """Return whether a message becomes a dead letter when its waiting time ends."""
        return meta.state == TAKEN and is_exhausted(meta, self._max_attempts)

    def _look(self, number: int) -> Optional[Message[T]]:
        meta, body = read_meta(self._family, number), self._family.get(b"b" + id_bytes(number))
        return None if meta is None or body is None else self._message(number, meta, body)

    # Many at once

    def redrive(self, limit: Optional[int] = None) -> int:
        """Make dead letters ready again, oldest first, and return how many.

        Their attempts count from 0 again.

        Args:
            limit: The maximum number of messages; None: all.
        """
        redriven = self._redrive(limit)
        wake()
        return redriven

    @atomic
    def _redrive(self, limit: Optional[int]) -> int:
        changes = Changes(self._family, self._max_attempts)
        changes.move_due()
        keys = list(iter(self._family.keys(prefix=b"d", limit=limit)))
        for key in keys:
            meta = read_meta(self._family, id_of(key))
            if meta is not None:
                changes.move(id_of(key), meta._replace(attempts=0), READY)
        changes.write_counters()
        return len(keys)

    @atomic
    def discard_dead_letters(self) -> int:
        """Delete all dead letters, and return how many there were."""
        changes = Changes(self._family, self._max_attempts)
        changes.move_due()
        keys = list(iter(self._family.keys(prefix=b"d")))
        for key in keys:
            meta = read_meta(self._family, id_of(key))
            if meta is not None:
                changes.remove(id_of(key), meta)
        changes.write_counters()
        return len(keys)

    @atomic
    def clear(self) -> None:
        """Delete all messages of the queue, including taken ones and dead letters.

        Numbering continues.
        """
        last = last_number(self._family)
        self._family.clear()
        reset_counters(self._family, last)

    def __reduce__(self) -> Any:
        arguments = {
            "visibility": self._visibility,
            "max_attempts": self._max_attempts,
            "retry_delay": self._retry_delay,
            **self._own_codec,
        }
        return _rebuild, (self._store, self._name, arguments)

    def __repr__(self) -> str:
        return f"<kvstore.recipes.Queue {self._name!r}>"


def _delay_ms(delay: Duration, what: str = "delay") -> int:
    if delay == FOREVER:
        raise ValueError(f"{what} must be finite: give a number of seconds")
    return duration_ms(delay, what)


def _rebuild(store: Store[Any, Any], name: str, arguments: dict[str, Any]) -> Any:
    return Queue(store, name, **arguments)
