"""Class Iterator: manual steps, and iteration that reads rows ahead."""

from __future__ import annotations

from collections.abc import Iterator as TypingIterator
from typing import Any, Optional

from kvstore._native import NULL, ffi, lib
from kvstore.snkv._constants import NO_TTL
from kvstore.snkv._errors import closed_error
from kvstore.snkv._session import NEVER_MS, Encodable, Session, encoded

_FIRST_ROWS = 8
_MOST_ROWS: int = lib.KVPY_CHUNK_ROWS


class Iterator:
    """An iterator over the live entries of a family in key order, ascending or descending.

    Three ways to use it::

        for key, value in db.iterator(): ...
        with db.iterator() as it: ...
        it.first()                              # for a reverse iterator: it.last() and it.prev()
        while not it.eof:
            print(it.key, it.value)
            it.next()

    It holds no lock: writing, committing and closing are possible while it is open. It sees what
    this store writes ahead of its position.
    """

    # As a Python iterator it reads ahead many rows in one native call. `_row` is the last returned
    # row while the native iterator is after the rows in `_ahead`; None while the native iterator is
    # at the current row. The rows ahead are discarded when this store writes and when one of them
    # expires. They exist without `_row` only if the clock could not be read.
    __slots__ = (
        "_ahead", "_changes", "_failed", "_first_expire_ms", "_native", "_row", "_session", "_size", "_started",
    )  # fmt: skip

    def __init__(self, raw: Any, session: Session, started: Optional[bool]) -> None:
        """Create an iterator for the native iterator ``raw``. For internal use.

        ``started`` is None if ``raw`` is already at its first entry.
        """
        self._native: Any = ffi.gc(raw, lib.kvstore_iterator_close)
        self._session = session
        self._started = started
        self._row: Optional[tuple[bytes, bytes]] = None
        self._ahead: list[tuple[bytes, bytes]] = []  # reversed: the next row is the last element
        self._first_expire_ms = NEVER_MS  # the earliest expiry time of the rows ahead
        self._changes = 0  # session.changes when the rows ahead were read
        self._failed = 0  # the result code of a failed read after the rows ahead
        self._size = _FIRST_ROWS

    def _check(self, code: int) -> None:
        if code:
            raise closed_error("Iterator") if self._native is NULL else self._session.failure(code)

    # --- Manual control ---

    def first(self) -> Iterator:
        """Move to the first entry, and return this iterator."""
        with self._session.lock:
            self._check(lib.kvstore_iterator_first(self._native))
            self._moved()
        return self

    def last(self) -> Iterator:
        """Move a reverse iterator to the last entry, and return this iterator.

        Raises Error for a forward iterator.
        """
        with self._session.lock:
            self._check(lib.kvstore_iterator_last(self._native))
            self._moved()
        return self

    def seek(self, key: Encodable) -> Iterator:
        """Move to the first key that is equal to ``key`` or greater, and return this iterator.

        A reverse iterator moves to the first key that is equal or less.
        """
        raw = encoded(key)
        with self._session.lock:
            self._check(lib.kvstore_iterator_seek(self._native, raw, len(raw)))
            self._moved()
        return self

    def next(self) -> None:
        """Move to the next entry."""
        with self._session.lock:
            if self._row is not None:
                self._go_behind(self._row[0])
            elif self._ahead:
                self._go_back()
            else:
                self._check(lib.kvstore_iterator_next(self._native))

    def prev(self) -> None:
        """Move a reverse iterator to the previous entry. Raises Error for a forward iterator."""
        with self._session.lock:
            self._check(lib.kvstore_iterator_prev(self._native))
            if self._row is not None:
                self._go_behind(self._row[0])
            elif self._ahead:
                self._go_back()

    @property
    def eof(self) -> bool:
        """Whether the iterator has no current entry.

        It has none before the first move, after the last entry, and when it is closed.
        """
        with self._session.lock:
            if self._ahead and self._session.kv is not NULL:
                return False
            return self._current() is None and self._at_eof()

    @property
    def key(self) -> bytes:
        """The key of the current entry. Raises Error at the end."""
        with self._session.lock:
            row = self._here()
            return self._key() if row is None else row[0]

    @property
    def value(self) -> bytes:
        """The value of the current entry. Raises Error at the end."""
        with self._session.lock:
            row = self._here()
            return self._value() if row is None else row[1]

    def item(self) -> tuple[bytes, bytes]:
        """Return the ``(key, value)`` of the current entry. Raises Error at the end."""
        with self._session.lock:
            return self._here() or (self._key(), self._value())

    def _moved(self) -> None:
        """Record that the native iterator is at the current entry, and discard the rows read ahead.
        """
        self._started = True
        self._row = None
        self._ahead.clear()

    def _go_behind(self, key: bytes) -> None:
        """Move the native iterator to the entry after ``key``, which may no longer exist."""
        self._check(lib.kvstore_iterator_seek(self._native, key, len(key)))
        self._moved()
        if not self._at_eof() and self._key() == key:
            self._check(lib.kvstore_iterator_next(self._native))

    def _go_back(self) -> None:
        """Move the native iterator back to the first of the rows that were read ahead."""
        key = self._ahead[-1][0]
        self._check(lib.kvstore_iterator_seek(self._native, key, len(key)))
        self._moved()

    def _stay(self) -> None:
        """Record that :meth:`__next__` must return the entry at which the native iterator is."""
        self._started = None

    def _here(self) -> Optional[tuple[bytes, bytes]]:
        """Return the current row if it was read ahead; None if it must be read from the native
        iterator.
        """
        if self._row is None and self._ahead:
            self._go_back()
            self._stay()
        return self._current()

    def _current(self) -> Optional[tuple[bytes, bytes]]:
        return None if self._session.kv is NULL else self._row

    def _at_eof(self) -> bool:
        return bool(lib.kvstore_iterator_eof(self._native))

    def _key(self) -> bytes:
        session = self._session
        self._check(lib.kvstore_iterator_key(self._native, session.data_out, session.length))
        data: bytes = ffi.unpack(session.data[0], session.length[0])
        return data

    def _value(self) -> bytes:
        session = self._session
        self._check(lib.kvstore_iterator_value(self._native, session.data_out, session.length))
        data: bytes = ffi.unpack(session.data[0], session.length[0])
        return data

    # --- Python iterator protocol ---

    def __iter__(self) -> TypingIterator[tuple[bytes, bytes]]:
        return self

    def __next__(self) -> tuple[bytes, bytes]:
        session = self._session
        lock = session.lock
        lock.acquire()
        try:
            if self._ahead and self._changes == session.changes and self._none_expired():
                self._row = row = self._ahead.pop()
                return row
            return self._read()
        finally:
            lock.release()

    def _none_expired(self) -> bool:
        return self._first_expire_ms == NEVER_MS or self._session.now_ms() < self._first_expire_ms

    def _read(self) -> tuple[bytes, bytes]:
        """Return the next row from the native iterator, and read further rows ahead."""
        session = self._session
        native = self._native
        if native is NULL:
            raise StopIteration
        if self._row is not None:
            if self._ahead or self._failed or self._changes != session.changes or not self._none_expired():
                self._go_behind(self._row[0])
                self._size = 1  # rows that changed once are likely to change again
        elif self._ahead:
            self._go_back()
        elif self._started:
            self._check(lib.kvstore_iterator_next(native))
        elif self._started is not None:
            self._check(lib.kvstore_iterator_first(native))
        self._moved()
        self._changes = session.changes
        while True:
            chunk = session.chunk()
            count: int = lib.kvpy_fill(native, self._size, chunk)
            self._size = min(self._size * 2, _MOST_ROWS)
            self._failed = chunk.failed
            if count == 0:
                if self._failed:
                    self._stay()
                self._check(self._failed)
                if session.kv is NULL:
                    raise closed_error("KVStore")
                raise StopIteration
            ends: list[int] = ffi.unpack(chunk.ends, 2 * count)
            data: bytes = ffi.unpack(chunk.bytes, ends[-1])
            keys_from, keys_to = [0, *ends[1:-1:2]], ends[::2]
            rows = [(data[a:b], data[b:c]) for a, b, c in zip(keys_from, keys_to, ends[1::2])]
            rows.reverse()
            self._ahead = rows  # set before the clock is read: if that fails, these rows are still ahead
            self._first_expire_ms = chunk.first_expire_ms
            now_ms = 0 if self._first_expire_ms == NEVER_MS else session.now_ms()
            if now_ms >= self._first_expire_ms:
                live = [ms == NO_TTL or ms > now_ms for ms in ffi.unpack(chunk.expire_ms, count)]
                live_rows = [row for row, is_live in zip(reversed(rows), live) if is_live]
                self._ahead = []
                if not live_rows:
                    if self._failed:
                        self._stay()
                    self._check(self._failed)
                    continue
                self._row = row = live_rows[0]  # the other rows are read again
                return row
            self._row = row = rows.pop()
            return row

    # --- Lifecycle ---

    def close(self) -> None:
        """Close the iterator. It may be closed twice."""
        with self._session.lock:
            if self._native is not NULL:
                self._moved()
                native, self._native = self._native, NULL
                ffi.release(native)

    def __enter__(self) -> Iterator:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()
