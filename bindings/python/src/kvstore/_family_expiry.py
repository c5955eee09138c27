"""The methods of a family on TTLs, expiry times, purging and write times. Mixed into Family.

Must not read or write values, except in get_with_ttl and get_and_touch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, Optional, TypeVar, Union, overload

from kvstore._family_handle import FamilyHandle
from kvstore._iteration import expiring
from kvstore._native import Data, K, V, copy_and_free, ffi, lib, to_bytes
from kvstore._time import FOREVER, Duration, Moment, duration_ms, moment_ms, rounded_ms

T = TypeVar("T")

_NOTFOUND: int = lib.KVSTORE_NOTFOUND
_NO_TTL: int = lib.KVSTORE_NO_TTL
_MIN_MS, _MAX_MS = -(1 << 63), (1 << 63) - 1


class ExpiryMethods(FamilyHandle, Generic[K, V]):
    """Base class of :class:`kvstore.Family` with its methods on TTLs, expiry times and write times.
    """

    __slots__ = ()

    def ttl(self, key: Data) -> Optional[float]:
        """Return the remaining TTL of a key in seconds.

        Returns:
            Seconds until the key expires, or None if it never expires.

        Raises:
            NotFoundError: If the key does not exist or has expired.

        >>> db = kvstore.open(":memory:")
        >>> db.put("otp", b"123456", ttl=30)
        True
        >>> 29 < db.ttl("otp") <= 30
        True
        """
        key = to_bytes(key)
        out = ffi.new("int64_t *")
        rc = lib.kvstore_cf_ttl_remaining(self._cf, key, len(key), out)
        left = int(out[0])
        if rc == 0 and left == 0:  # expired, but not yet reported as missing
            rc = _NOTFOUND
        if rc:
            self._fail(rc)
        return None if left == _NO_TTL else left / 1000

    def get_with_ttl(self, key: Data) -> Optional[tuple[V, Optional[float]]]:
        """Return the value of a key and its remaining TTL, in one read.

        Returns:
            ``(value, seconds)``, with None for the seconds if the key never expires; or None if the
            key does not exist.
        """
        key = to_bytes(key)
        data, length, left = ffi.new("void **"), ffi.new("int *"), ffi.new("int64_t *")
        rc = lib.kvstore_cf_get_ttl(self._cf, key, len(key), data, length, left)
        if rc == _NOTFOUND:
            return None
        if rc:
            self._fail(rc)
        value: Any = copy_and_free(data[0], length[0])
        return value, None if left[0] == _NO_TTL else int(left[0]) / 1000

    def expires_at(self, key: Data) -> Optional[float]:
        """Return the expiry time of a key in seconds since the Unix epoch.

        Returns:
            Seconds since the Unix epoch, or None if the key never expires.

        Raises:
            NotFoundError: If the key does not exist or has expired.
        """
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
        """Set the TTL or the expiry time of a key. Its value stays the same.

        A key without a TTL counts as expiring later than any moment. An expiry time in the past
        removes the key.

        Args:
            key: str or bytes-like.
            ttl: Seconds or a ``timedelta`` from now; ``FOREVER`` removes the TTL.
            expires_at: The expiry time, instead of ``ttl``.
            nx: Only if the key has no TTL.
            xx: Only if the key has a TTL.
            gt: Only if the new expiry time is later than the current one.
            lt: Only if the new expiry time is earlier than the current one.

        Returns:
            True if the expiry time was changed; False if the key does not exist or the condition
            did not hold.

        Raises:
            ValueError: If neither or both of ``ttl`` and ``expires_at`` are given, or more than one
                condition.
        """
        if ttl is None and expires_at is None:
            raise ValueError("expire() needs ttl= or expires_at=: give one, or call persist() to remove the TTL")
        if nx + xx + gt + lt > 1:
            raise ValueError("expire() takes at most one condition: give one of nx=, xx=, gt= and lt=")
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
        """Restart the TTL of a key: it expires ``ttl`` seconds from now. Its value stays the same.

        Args:
            key: str or bytes-like.
            ttl: Seconds or a ``timedelta`` from now; None: the default TTL of the family.

        Returns:
            True if the key exists.

        Raises:
            ValueError: If ``ttl`` is None and the family has no default TTL.
        """
        key = to_bytes(key)
        changed = ffi.new("int *")
        rc = lib.kvstore_cf_expire(self._cf, key, len(key), self._touch_ms(ttl), 0, changed)
        return self._changed(rc, key, changed)

    def persist(self, key: Data) -> bool:
        """Remove the TTL of a key, so that it never expires.

        Returns:
            True if the key had a TTL; False if it had none or does not exist.
        """
        key = to_bytes(key)
        changed = ffi.new("int *")
        rc = lib.kvstore_cf_persist(self._cf, key, len(key), changed)
        return self._changed(rc, key, changed)

    def _changed(self, rc: int, key: bytes, changed: Any) -> bool:
        if rc == _NOTFOUND:
            return False
        if rc:
            self._fail(rc)
        self._state.changed()
        return bool(changed[0])

    def _touch_ms(self, ttl: Optional[Duration]) -> int:
        if ttl is not None:
            return self._expire_ms(ttl, None)
        ms = self._default_ttl_ms()
        if not ms:
            raise ValueError(f"family {self._name!r} has no default TTL: give ttl=")
        return self._state.now_ms() + ms

    @overload
    def get_and_touch(self, key: Data, ttl: Optional[Duration] = None) -> Optional[V]: ...
    @overload
    def get_and_touch(self, key: Data, ttl: Optional[Duration], default: T) -> Union[V, T]: ...
    def get_and_touch(self, key: Data, ttl: Optional[Duration] = None, default: Any = None) -> Any:
        """Return the value of a key and restart its TTL, in one atomic step.

        For sessions that expire some time after their last use.

        Args:
            key: str or bytes-like.
            ttl: Seconds or a ``timedelta`` from now; None: the default TTL of the family.
            default: Returned if the key does not exist.

        Raises:
            ValueError: If ``ttl`` is None and the family has no default TTL.
        """
        key = to_bytes(key)
        data, length = ffi.new("void **"), ffi.new("int *")
        rc = lib.kvstore_cf_get_and_expire(self._cf, key, len(key), self._touch_ms(ttl), data, length)
        if rc == _NOTFOUND:
            return default
        if rc:
            self._fail(rc)
        self._state.changed()
        return copy_and_free(data[0], length[0])

    def expiring(
        self, start: Optional[Moment] = None, stop: Optional[Moment] = None
    ) -> Iterator[tuple[K, float]]:
        """Iterate over the keys that have a TTL, with their expiry times, earliest expiry first.

        Expired keys that no purge has removed yet are included.

        Args:
            start: The earliest expiry time, inclusive; None: from the first key.
            stop: The latest expiry time, exclusive; None: to the last key, inclusive.

        Yields:
            ``(key, expires_at)``, with the expiry time in seconds since the Unix epoch.
        """
        first = _MIN_MS if start is None or start == -FOREVER else moment_ms(start, "start")
        last = _MAX_MS if stop is None or stop == FOREVER else moment_ms(stop, "stop")
        return map(lambda row: (self._key(row[0]), row[1] / 1000), expiring(self, first, last))

    def next_expiry(self) -> Optional[float]:
        """Return the earliest expiry time in the family, in seconds since the Unix epoch.

        Expired keys that no purge has removed yet count.

        Returns:
            Seconds since the Unix epoch, or None if no key has a TTL.
        """
        out = ffi.new("int64_t *")
        rc = lib.kvstore_cf_next_expiry(self._cf, out)
        if rc == _NOTFOUND:
            return None
        self._check(rc)
        return int(out[0]) / 1000

    def purge_expired(self) -> int:
        """Remove the expired keys of this family from the file, and return how many were removed.

        Called on a store, it purges the default family only: use :meth:`Store.purge_step` or
        :meth:`Store.start_cleaner` for all families. The cost depends only on the number of expired
        keys. Other writers that wait get their turn after a few milliseconds.
        """
        out = ffi.new("int *")
        rc = lib.kvstore_cf_purge_expired(self._cf, out)
        self._check(rc)
        return int(out[0])

    def purge_before(self, cutoff: Moment) -> int:
        """Remove the keys of this family that expired before ``cutoff``, and return how many were
        removed.

        Live keys are kept, whatever the cutoff.
        """
        out = ffi.new("int64_t *")
        rc = lib.kvstore_cf_purge_before(self._cf, _MAX_MS if cutoff == FOREVER else moment_ms(cutoff, "cutoff"), out)
        self._check(rc)
        return int(out[0])

    @property
    def default_ttl(self) -> Optional[float]:
        """The default TTL in seconds, for writes that give neither ``ttl`` nor ``expires_at``.
        None: no TTL.

        It is stored in the file and applies to every handle and process as soon as it is set.
        Existing keys keep their expiry times. At most 20 years.
        """
        return self._default_ttl_ms() / 1000 or None

    @default_ttl.setter
    def default_ttl(self, ttl: Optional[Duration]) -> None:
        rc = lib.kvstore_cf_set_default_ttl(self._cf, default_ttl_ms(ttl))
        if rc:
            self._fail(rc)

    @property
    def write_tracking(self) -> bool:
        """Whether the family records when each value was written, for :meth:`write_time` and
        :meth:`sweep`.

        Changing it visits every row. When it is switched on, existing keys count as written now.
        When it is switched off, all write times are removed.
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
        """Change the family's default TTL and write tracking, where the argument is not None and
        differs from the current setting.
        """
        if ttl_ms is not None and ttl_ms != self._default_ttl_ms():
            rc = lib.kvstore_cf_set_default_ttl(self._cf, ttl_ms)
            if rc:
                self._fail(rc)
        if write_tracking is not None and bool(write_tracking) != self.write_tracking:
            self.write_tracking = bool(write_tracking)

    def write_time(self, key: Data) -> float:
        """Return when the value of a key was written, in seconds since the Unix epoch.

        Changing only the TTL does not count as a write.

        Returns:
            Seconds since the Unix epoch.

        Raises:
            NotFoundError: If the key does not exist or has expired.
            Error: If :attr:`write_tracking` is off.
        """
        key = to_bytes(key)
        out = ffi.new("int64_t *")
        rc = lib.kvstore_cf_write_time(self._cf, key, len(key), out)
        if rc == _NOTFOUND:
            self._fail(rc)
        self._check(rc)
        return int(out[0]) / 1000

    def sweep(self, max_age: Duration) -> int:
        """Remove every key whose value was written longer ago than ``max_age``.

        Args:
            max_age: Seconds or a ``timedelta``.

        Returns:
            The number of live keys that were removed.

        Raises:
            Error: If :attr:`write_tracking` is off.
        """
        out = ffi.new("int64_t *")
        rc = lib.kvstore_cf_sweep(self._cf, duration_ms(max_age, "max_age"), out)
        self._state.changed()
        self._check(rc)
        return int(out[0])


def default_ttl_ms(ttl: Optional[Duration]) -> int:
    """Return a default TTL in milliseconds; 0 if there is none."""
    if ttl is None or ttl == FOREVER:
        return 0
    ms = rounded_ms(ttl, "default_ttl")
    if ms <= 0:
        raise ValueError(
            f"default_ttl must be positive, not {ttl!r}: for no default TTL, use None or kvstore.FOREVER"
        )
    return ms
