"""The methods of a family about expiry without the values: TTLs, purging, write times.

Mixed into Family. Must not read or write values, but for get_and_touch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, Optional, TypeVar, Union, overload

from kvstore._handle import Handle
from kvstore._iteration import expiring
from kvstore._native import Data, K, V, ffi, lib, taken, to_bytes
from kvstore._time import FOREVER, Duration, Moment, duration_ms, moment_ms, rounded_ms

T = TypeVar("T")

_NOTFOUND: int = lib.KVSTORE_NOTFOUND
_NO_TTL: int = lib.KVSTORE_NO_TTL
_MIN_MS, _MAX_MS = -(1 << 63), (1 << 63) - 1


class ExpiryMethods(Handle, Generic[K, V]):
    """See Family."""

    __slots__ = ()

    def ttl(self, key: Data) -> Optional[float]:
        """How many seconds a key has left; None if it never expires. NotFoundError if it is missing.

        >>> db = kvstore.open(":memory:")
        >>> db["otp", 30] = b"123456"
        >>> 29 < db.ttl("otp") <= 30
        True
        """
        key = to_bytes(key)
        out = ffi.new("int64_t *")
        rc = lib.kvstore_cf_ttl_remaining(self._cf, key, len(key), out)
        left = int(out[0])
        if rc == 0 and left == 0:  # met when it had just expired
            rc = _NOTFOUND
        if rc:
            self._fail(rc)
        return None if left == _NO_TTL else left / 1000

    def get_with_ttl(self, key: Data) -> Optional[tuple[V, Optional[float]]]:
        """The value of a key and how many seconds it has left (None: it never expires), in one read;
        None if the key is missing."""
        key = to_bytes(key)
        data, length, left = ffi.new("void **"), ffi.new("int *"), ffi.new("int64_t *")
        rc = lib.kvstore_cf_get_ttl(self._cf, key, len(key), data, length, left)
        if rc == _NOTFOUND:
            return None
        if rc:
            self._fail(rc)
        value: Any = taken(data[0], length[0])
        return value, None if left[0] == _NO_TTL else int(left[0]) / 1000

    def expires_at(self, key: Data) -> Optional[float]:
        """When a key expires, in seconds since the Unix epoch; None if never. NotFoundError if it is
        missing."""
        key = to_bytes(key)
        out = ffi.new("int64_t *")
        rc = lib.kvstore_cf_expire_time(self._cf, key, len(key), out)
        if rc:
            self._fail(rc)
        return None if out[0] == _NO_TTL else int(out[0]) / 1000

    def expire(
        self,
        key: Data,
        ttl: Optional[Duration] = None,
        expires_at: Optional[Moment] = None,
        *,
        nx: bool = False,
        xx: bool = False,
        gt: bool = False,
        lt: bool = False,
    ) -> bool:
        """Changes when a key expires, not its value; says whether it did. False: the key is missing, or
        the condition did not hold.

        At most one condition: ``nx`` only if it has no TTL, ``xx`` only if it has one, ``gt`` only to
        a later moment, ``lt`` only to an earlier one. A key without a TTL counts as expiring later
        than any moment. FOREVER takes the TTL away; a moment in the past takes the key.
        """
        if ttl is None and expires_at is None:
            raise ValueError("expire needs a ttl or an expires_at; persist takes the TTL away")
        if nx + xx + gt + lt > 1:
            raise ValueError("expire takes one of nx, xx, gt and lt")
        key = to_bytes(key)
        flags = (
            lib.KVSTORE_EXPIRE_NX
            if nx
            else lib.KVSTORE_EXPIRE_XX
            if xx
            else lib.KVSTORE_EXPIRE_GT
            if gt
            else lib.KVSTORE_EXPIRE_LT
            if lt
            else 0
        )
        changed = ffi.new("int *")
        rc = lib.kvstore_cf_expire(self._cf, key, len(key), self._expire_ms(ttl, expires_at), flags, changed)
        return self._changed(rc, key, changed)

    def touch(self, key: Data, ttl: Optional[Duration] = None) -> bool:
        """Lets a key live ``ttl`` from now on (default: the family's default TTL, and ValueError if it
        has none); says whether the key is there."""
        key = to_bytes(key)
        changed = ffi.new("int *")
        rc = lib.kvstore_cf_expire(self._cf, key, len(key), self._touch_ms(ttl), 0, changed)
        return self._changed(rc, key, changed)

    def persist(self, key: Data) -> bool:
        """Takes the TTL from a key; says whether it had one. False also if the key is missing."""
        key = to_bytes(key)
        changed = ffi.new("int *")
        rc = lib.kvstore_cf_persist(self._cf, key, len(key), changed)
        return self._changed(rc, key, changed)

    def _changed(self, rc: int, key: bytes, changed: Any) -> bool:
        if rc == _NOTFOUND:
            return False
        if rc:
            self._fail(rc)
        self._shared.changed()
        return bool(changed[0])

    def _touch_ms(self, ttl: Optional[Duration]) -> int:
        expire_ms = self._expire_ms(ttl, None)
        if ttl is None and expire_ms == 0:
            raise ValueError(f"family {self._name!r} has no default TTL: give a ttl")
        return expire_ms

    @overload
    def get_and_touch(self, key: Data, ttl: Optional[Duration] = None) -> Optional[V]: ...
    @overload
    def get_and_touch(self, key: Data, ttl: Optional[Duration], default: T) -> Union[V, T]: ...
    def get_and_touch(self, key: Data, ttl: Optional[Duration] = None, default: Any = None) -> Any:
        """The value of a key (or ``default``), which lives ``ttl`` from now on, in one step: as touch.
        For sessions that live for some time after their last use."""
        key = to_bytes(key)
        data, length = ffi.new("void **"), ffi.new("int *")
        rc = lib.kvstore_cf_get_and_expire(self._cf, key, len(key), self._touch_ms(ttl), data, length)
        if rc == _NOTFOUND:
            return default
        if rc:
            self._fail(rc)
        self._shared.changed()
        return taken(data[0], length[0])

    def expiring(
        self, start: Optional[Moment] = None, stop: Optional[Moment] = None
    ) -> Iterator[tuple[K, float]]:
        """The keys that expire from ``start`` to before ``stop``, in the order of their expiry, as pairs
        of key and moment (seconds since the Unix epoch). Without ``stop`` to the end of time, the last
        moment included. Those that have expired, but are still there, are among them."""
        first = _MIN_MS if start is None or start == -FOREVER else moment_ms(start)
        last = _MAX_MS if stop is None or stop == FOREVER else moment_ms(stop)
        return map(lambda row: (self._key(row[0]), row[1] / 1000), expiring(self, first, last))

    def next_expiry(self) -> Optional[float]:
        """The earliest moment at which a key of the family expires (or has expired, if it is still
        there), in seconds since the Unix epoch; None if no key has a TTL."""
        out = ffi.new("int64_t *")
        rc = lib.kvstore_cf_next_expiry(self._cf, out)
        if rc == _NOTFOUND:
            return None
        self._check(rc)
        return int(out[0]) / 1000

    def purge_expired(self) -> int:
        """Removes the expired keys of the family (of a store: of its default family; those of all families
        :meth:`Store.purge_step` and :meth:`Store.start_cleaner` remove); returns how many. The work grows with that
        number only; others may write after every 256 keys."""
        out = ffi.new("int *")
        rc = lib.kvstore_cf_purge_expired(self._cf, out)
        self._check(rc)
        return int(out[0])

    def purge_before(self, cutoff: Moment) -> int:
        """Removes the keys of the family that expired before a moment; returns how many. Live keys stay,
        whatever the moment."""
        out = ffi.new("int64_t *")
        rc = lib.kvstore_cf_purge_before(self._cf, _MAX_MS if cutoff == FOREVER else moment_ms(cutoff), out)
        self._check(rc)
        return int(out[0])

    @property
    def default_ttl(self) -> Optional[float]:
        """The TTL in seconds that writes give which name none; None if there is none. At most 20 years.

        It is kept in the file, and counts for every handle and process from the moment it is set. Keys
        that are there keep what they have.
        """
        return self._default_ttl_ms() / 1000 or None

    @default_ttl.setter
    def default_ttl(self, ttl: Optional[Duration]) -> None:
        rc = lib.kvstore_cf_set_default_ttl(self._cf, default_ttl_ms(ttl))
        if rc:
            self._fail(rc)

    @property
    def write_tracking(self) -> bool:
        """Whether the family remembers when values were written, for write_time and sweep.

        To set it looks at every row. Switched on, the keys that are there count as written now;
        switched off, all write times are forgotten.
        """
        out = ffi.new("int *")
        rc = lib.kvstore_cf_get_write_tracking(self._cf, out)
        self._check(rc)
        return bool(out[0])

    @write_tracking.setter
    def write_tracking(self, on: bool) -> None:
        rc = lib.kvstore_cf_set_write_tracking(self._cf, 1 if on else 0)
        self._check(rc)

    def _set_up(self, ttl_ms: Optional[int], write_tracking: Optional[bool]) -> None:
        """Changes those settings that are given (not None) and different."""
        if ttl_ms is not None and ttl_ms != self._default_ttl_ms():
            rc = lib.kvstore_cf_set_default_ttl(self._cf, ttl_ms)
            if rc:
                self._fail(rc)
        if write_tracking is not None and bool(write_tracking) != self.write_tracking:
            self.write_tracking = bool(write_tracking)

    def write_time(self, key: Data) -> float:
        """When the value of a key was written, in seconds since the Unix epoch. A change of its TTL is
        no write. NotFoundError if it is missing, Error if the family has no ``write_tracking``."""
        key = to_bytes(key)
        out = ffi.new("int64_t *")
        rc = lib.kvstore_cf_write_time(self._cf, key, len(key), out)
        if rc == _NOTFOUND:
            self._fail(rc)
        self._check(rc)
        return int(out[0]) / 1000

    def sweep(self, max_age: Duration) -> int:
        """Removes every key that was written longer ago than ``max_age``; returns how many of them were
        alive. Error if the family has no ``write_tracking``."""
        out = ffi.new("int64_t *")
        rc = lib.kvstore_cf_sweep(self._cf, duration_ms(max_age, "an age"), out)
        self._shared.changed()
        self._check(rc)
        return int(out[0])


def default_ttl_ms(ttl: Optional[Duration]) -> int:
    """A default TTL in milliseconds; 0 for none."""
    if ttl is None or ttl == FOREVER:
        return 0
    ms = rounded_ms(ttl, "a default TTL")
    if ms <= 0:
        raise ValueError(f"a default TTL must be positive, not {ttl!r}; for none, give FOREVER, or set default_ttl to None")
    return ms
