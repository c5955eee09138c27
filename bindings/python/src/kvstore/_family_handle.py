"""Class FamilyHandle, the base class of families: one native handle per thread, opened on first
use, and the conversion of arguments and errors that all methods of families need.

_store_state explains when native handles are closed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import FunctionType
from typing import Any, NoReturn, Optional

from kvstore._codec import Coding
from kvstore._connection_pool import Checkout, Connection, Pin, store_closed_error
from kvstore._errors import MisuseError, NotFoundError, exception_for, last_failure
from kvstore._native import NULL, Handles, ffi, lib, to_bytes
from kvstore._store_state import StoreState
from kvstore._time import Duration, Moment, given_expiry_ms, ttl_ms

_ERROR: int = lib.KVSTORE_ERROR
_NOTFOUND: int = lib.KVSTORE_NOTFOUND
_NO_TTL: int = lib.KVSTORE_NO_TTL


class _ThreadHandle:
    """Owner of a thread's native handle on a family. It also keeps the connection of the thread
    open.

    The checkout is held as long as the lookup contains the handle.
    """

    __slots__ = ("cf", "checkout", "handles", "thread")

    def __init__(self, cf: Any, checkout: Checkout, handles: Any) -> None:
        self.cf = cf
        self.checkout = checkout
        self.handles = handles
        #: The thread's number in the lookup; None: not in the lookup.
        self.thread: Optional[int] = None

    def use(self) -> None:
        """Put the handle into the lookup table, from which calls take the handle of their thread.

        Does nothing if ``threading.local`` was replaced, as greenlets do.
        """
        if threading.local.__module__ == "_thread":
            self.thread = self.handles.keep(self.cf)

    def __del__(self) -> None:
        if getattr(self, "thread", None) is not None:
            self.handles.drop(self.thread)


class FamilyHandle:
    """Base class of families: opens and keeps one native handle per thread."""

    __slots__ = ("__weakref__", "_closed", "_coding", "_handles", "_local", "_name", "_scans", "_state", "_store")

    #: Its attribute `cf` is this thread's handle, for the fast path. None before the first call,
    #: and while each call must check the asyncio task.
    _handles: Any
    #: Its attribute `thread_handle` holds this thread's handle as long as the thread exists.
    _local: Any
    _state: StoreState
    _scans: list[None]
    _name: str
    _closed: bool
    #: None: keys and values are plain bytes.
    _coding: Optional[Coding]
    #: The store that opened this family; None for the store itself.
    _store: Any

    def _attach(
        self,
        state: StoreState,
        name: str,
        cf: Any,
        pin: Optional[Pin],
        coding: Optional[Coding] = None,
        store: Any = None,
    ) -> None:
        """Initialize the attributes of the family.

        ``cf`` is this thread's native handle on the connection of ``pin``, if it is open already.
        """
        self._state = state
        self._scans = state.scans
        self._name = name
        self._closed = False
        self._coding = coding
        self._store = store
        self._drop_handles()
        if pin is not None:
            pin.connection.track_family(cf)
            self._local.thread_handle = _ThreadHandle(cf, pin.checkout, self._handles)
        with state.guard:
            state.families.add(self)

    def _detach(self) -> None:
        """Close the native handles of all threads. A running call keeps its handle until it
        returns.
        """
        self._closed = True
        self._drop_handles()

    def _drop_handles(self) -> None:
        """Drop the native handles of all threads. Each thread opens a new one when it needs it."""
        self._handles = Handles()
        self._local = threading.local()

    @property
    def _cf(self) -> Any:
        """The native handle of this family for the current thread. Pass it to the library at once.

        It is closed with its last reference, so do not keep it.
        """
        cf = self._handles.cf
        return self._open_here() if cf is None else cf

    def _open_here(self) -> Any:
        """Return this thread's native handle if the lookup table does not contain it.

        That is so on first use, and while an asyncio task has a transaction open.
        """
        pin = self._state.pin()  # first: a thread that waits in pin() must not hold references to handles
        local, handles = self._local, self._handles  # after that: closing the family replaces them
        if self._closed:
            raise self._closed_error()
        thread_handle = getattr(local, "thread_handle", None)
        if thread_handle is None or not thread_handle.checkout.connection.kv:
            thread_handle = local.thread_handle = _ThreadHandle(self._open_on(pin.connection), pin.checkout, handles)
        connection = pin.connection
        if connection.task is None or connection.transaction_thread != threading.get_ident():
            thread_handle.use()
        return thread_handle.cf

    def _open_on(self, connection: Connection) -> Any:
        """Open a native handle of this family on a connection, and return it."""
        out = family_pointer()
        rc = lib.kvstore_cf_open(connection.kv, self._name.encode(), out)
        if rc:
            self._must_be_open()
            if rc == _NOTFOUND:
                raise NotFoundError(
                    f"family {self._name!r} does not exist for this thread: it was dropped, or the transaction "
                    "that creates "
                    "it is not committed yet"
                )
            raise exception_for(rc, last_failure(connection.kv))
        cf = own_family(out)
        connection.track_family(cf)
        return cf

    # Keys and values of families without a codec; _family_codec overrides these.

    def _encode(self, value: Any) -> bytes:
        return to_bytes(value, "value")

    def _key(self, data: bytes) -> Any:
        return data

    def _decoded(self, rows: Iterator[Any], kind: int) -> Iterator[Any]:
        """Convert rows from bytes to the keys, values or items that callers get."""
        return rows

    def _fail(self, rc: int) -> NoReturn:
        """Raise the exception for a failed call on the family.

        KVSTORE_ERROR, a rejected argument, becomes InvalidError.
        """
        self._must_be_open()
        if rc == _NOTFOUND:
            raise no_such_key()
        failure = self._state.failure()
        if rc == _ERROR:
            raise failure.rejected()
        self._state.after_failure(rc)
        raise exception_for(rc, failure)

    def _check(self, rc: int) -> None:
        """Raise the exception for the result code of a call on the family. Does nothing on success.

        For calls whose arguments cannot be the cause of a failure.
        """
        if rc:
            self._must_be_open()
            self._state.check(rc)

    def _must_be_open(self) -> None:
        if self._state.closed:
            raise store_closed_error()
        if self._closed:
            raise self._closed_error()

    def _closed_error(self) -> MisuseError:
        return MisuseError(f"family {self._name!r} is closed: open it again with store.family()")

    def _default_ttl_ms(self) -> int:
        out = ffi.new("int64_t *")
        rc = lib.kvstore_cf_get_default_ttl(self._cf, out)
        if rc:
            self._fail(rc)
        return int(out[0])

    def _expire_ms(self, ttl: Optional[Duration], expires_at: Optional[Moment]) -> int:
        """Convert ``ttl`` or ``expires_at`` to an expiry time in milliseconds since the Unix epoch,
        as the library takes it. KVSTORE_NO_TTL means never.

        With neither, returns 0: the library applies the default TTL of the family.
        """
        if ttl is not None:
            if expires_at is not None:
                raise ValueError("ttl= and expires_at= cannot both be set: give one of them")
            ms = ttl_ms(ttl)
            if not ms:
                return _NO_TTL
        elif expires_at is not None:
            return given_expiry_ms(expires_at, self._state.now_ms) or _NO_TTL
        else:
            return 0
        return self._state.now_ms() + ms


def set_public_class(name: str, *mixins: type) -> None:
    """Make error messages of Python show the methods of mixin classes under the name of the public
    class.
    """
    for mixin in mixins:
        for method in vars(mixin).values():
            if isinstance(method, FunctionType):
                method.__qualname__ = f"{name}.{method.__name__}"


def no_such_key() -> NotFoundError:
    """Return the exception for a missing key.

    The message omits the key: keys may be secrets, and messages end up in logs.
    """
    return NotFoundError("no such key")


def family_pointer() -> Any:
    """Return memory into which the library writes the pointer to a family handle that it opens.

    If an interrupt prevents :func:`own_family`, the handle is closed with this memory.
    """
    return ffi.gc(ffi.new("KVColumnFamily **"), _close_family_in)


def _close_family_in(pointer: Any, close: Any = lib.kvstore_cf_close) -> None:
    close(pointer[0])


def own_family(pointer: Any) -> Any:
    """Take the family handle at ``pointer``, and return it. Its last reference closes it."""
    cf = ffi.gc(pointer[0], lib.kvstore_cf_close)
    pointer[0] = NULL
    return cf
