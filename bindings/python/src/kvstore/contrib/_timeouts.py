"""Conversion of the timeouts of frameworks to TTLs. Must not depend on a framework."""

from __future__ import annotations

from datetime import timedelta
from typing import Final, Optional, Union

from kvstore import FOREVER

#: A timeout in seconds, or as a timedelta.
Timeout = Union[float, timedelta]

#: Timeouts from 10,000 years on, in seconds, mean no TTL. ``sys.maxsize`` is a common one.
LONGEST: Final = 10_000 * 366 * 86_400


def bounded(timeout: Timeout) -> float:
    """Return a timeout in seconds, or FOREVER if it is 10,000 years or longer."""
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    return FOREVER if seconds >= LONGEST else seconds


def ttl_of(timeout: Timeout) -> Optional[float]:
    """Return the TTL for a timeout: seconds, FOREVER, or None for a value that expires at once."""
    seconds = bounded(timeout)
    return seconds if seconds > 0 else None


def finite_ttl_of(timeout: Timeout) -> float:
    """Return the TTL of a lock for a timeout: seconds, at most 10,000 years."""
    return min(bounded(timeout), LONGEST)
