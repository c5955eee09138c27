"""Class RateLimiter: limits how often something may happen, over all threads and processes.

Each of the three algorithms is a pure function from the state of a key, the time and the cost to a
new state and a decision. Times are whole milliseconds of the store's clock; states are decimal
text.
"""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Optional

from kvstore import FOREVER, Store, row_key
from kvstore._time import Duration, ttl_ms
from kvstore.recipes._base import (
    Backoff,
    Name,
    atomic,
    family_of,
    now_ms,
    positive_int,
    to_name,
    wrote,
)

_FAMILY = "recipes.rates"
_MAX_LIMIT = 10**9
#: A sliding window with a larger limit records hits in this many steps of time.
_STEPS = 64


class Decision(NamedTuple):
    """The result of a hit on a rate limiter: whether it is allowed, and how many more are."""

    #: Whether the hit is allowed. Only an allowed hit is counted.
    allowed: bool
    #: How many further hits are allowed now.
    remaining: int
    #: Seconds until the same hit would be allowed without other hits; 0.0 if it is allowed.
    retry_after: float
    #: Seconds until the full limit is available again without other hits.
    reset_after: float


class _Rule(NamedTuple):
    limit: int
    period_ms: int
    #: The number of hits that are allowed at once.
    burst: int


class _Step(NamedTuple):
    allowed: bool
    remaining: int
    retry_ms: int
    reset_ms: int
    #: The state to write, which is irrelevant after reset_ms. Empty for a refused hit, unless the
    #: stored state is in the future because a clock was set back: it is then rewritten with the
    #: present time, so that it expires.
    state: bytes


def _fixed_window(rule: _Rule, state: Optional[bytes], now: int, cost: int) -> _Step:
    """Decide whether a hit is allowed, with the algorithm "fixed_window".

    State: when the window began, and how much of it was used.
    """
    begun = start = now
    used = 0
    if state is not None:
        begun, before = map(int, state.split())
        if now < begun + rule.period_ms:
            start, used = min(begun, now), before
    left = start + rule.period_ms - now
    if used + cost > rule.limit:
        again = b"%d %d" % (start, used) if begun > now else b""
        return _Step(False, max(0, rule.limit - used), left, left, again)
    return _Step(True, rule.limit - used - cost, 0, left, b"%d %d" % (start, used + cost))


def _sliding_window(rule: _Rule, state: Optional[bytes], now: int, cost: int) -> _Step:
    """Decide whether a hit is allowed, with the algorithm "sliding_window".

    State: times and costs of the hits.

    With a large limit, hits of one time step are stored as one, at the time of the latest. So they
    count for up to one step longer, and never shorter.
    """
    hits: list[tuple[int, int]] = []
    future = False
    for hit in (state or b"").split():
        at, count = map(int, hit.split(b":"))
        if at + rule.period_ms > now:
            future = future or at > now
            hits.append((min(at, now), count))
    used = sum(count for _, count in hits)
    if used + cost > rule.limit:
        over, retry = used + cost - rule.limit, 0
        for at, count in hits:
            retry = at + rule.period_ms - now
            over -= count
            if over <= 0:
                break
        return _Step(
            False, max(0, rule.limit - used), retry, hits[-1][0] + rule.period_ms - now, _joined(hits) if future else b""
        )
    step = 1 if rule.limit <= _STEPS else max(1, rule.period_ms // _STEPS)
    if hits and hits[-1][0] // step == now // step:
        hits[-1] = (now, hits[-1][1] + cost)
    else:
        hits.append((now, cost))
    return _Step(True, rule.limit - used - cost, 0, rule.period_ms, _joined(hits))


def _joined(hits: list[tuple[int, int]]) -> bytes:
    return b" ".join(b"%d:%d" % hit for hit in hits)


def _token_bucket(rule: _Rule, state: Optional[bytes], now: int, cost: int) -> _Step:
    """Decide whether a hit is allowed, with the algorithm "token_bucket".

    State: the level, in tokens times period_ms (a millisecond adds ``limit``), and the time of the
    level.
    """
    full = rule.burst * rule.period_ms
    level, at = full, now
    if state is not None:
        before, at = map(int, state.split())
        level = min(full, before + max(0, now - at) * rule.limit)
    need = cost * rule.period_ms
    if level < need:
        retry, reset = -((level - need) // rule.limit), -((level - full) // rule.limit)
        return _Step(False, level // rule.period_ms, retry, reset, b"%d %d" % (level, now) if at > now else b"")
    level -= need
    reset = -((level - full) // rule.limit)
    return _Step(True, level // rule.period_ms, 0, reset, b"%d %d" % (level, now))


_Algorithm = Callable[[_Rule, Optional[bytes], int, int], _Step]
_ALGORITHMS: dict[str, tuple[bytes, _Algorithm]] = {
    "fixed_window": (b"f", _fixed_window),
    "sliding_window": (b"s", _sliding_window),
    "token_bucket": (b"t", _token_bucket),
}


class RateLimiter:
    """A rate limiter: allows ``limit`` hits in each ``period``, separately for each key, such as a
    user or an address.

    Limiters of the same ``name`` and algorithm in a family count together; give them the same
    numbers. A refused hit is not counted: it only reads and blocks no other process. State expires
    when it becomes irrelevant. Times are those of the store's clock, in milliseconds.

    Args:
        store: A :class:`kvstore.Store`.
        name: str or bytes, not empty.
        limit: The number of hits, from 1 to 10**9.
        period: Seconds or a ``timedelta``.
        algorithm: "sliding_window": never more than ``limit`` hits in any period. For limits above
            64 it records hits in 64ths of the period, and may refuse for that much too long, but
            never allows too many. "fixed_window": a window begins with the first hit and ends a
            period later; around its end up to twice the limit can pass within a short time.
            "token_bucket": ``limit`` tokens arrive evenly in each period, and up to ``burst`` are
            kept.
        burst: The capacity of the bucket; None: ``limit``. Only for "token_bucket".
        family: The family in which the state is stored.

    >>> db = kvstore.open(":memory:")
    >>> logins = kvstore.recipes.RateLimiter(db, "logins", limit=2, period=60)
    >>> [logins.hit("ada").allowed for _ in range(3)], logins.hit("bob").remaining
    ([True, True, False], 1)
    >>> 59 < logins.peek("ada").retry_after <= 60
    True
    """

    def __init__(
        self,
        store: Store[Any, Any],
        name: Name,
        limit: int,
        period: Duration = 1.0,
        *,
        algorithm: str = "sliding_window",
        burst: Optional[int] = None,
        family: str = _FAMILY,
    ) -> None:
        if not isinstance(algorithm, str) or algorithm not in _ALGORITHMS:
            raise ValueError(f"algorithm must be one of {', '.join(_ALGORITHMS)}, not {algorithm!r}")
        if burst is not None and algorithm != "token_bucket":
            raise ValueError("burst= needs algorithm='token_bucket': leave it out for a window")
        if period == FOREVER:
            raise ValueError("period must be finite: give a number of seconds")
        limit = positive_int(limit, "limit")
        burst = limit if burst is None else positive_int(burst, "burst")
        if max(limit, burst) > _MAX_LIMIT:
            raise ValueError(f"limit and burst must be at most {_MAX_LIMIT}, not {max(limit, burst)}")
        self._rule = _Rule(limit, ttl_ms(period, "period"), burst)
        letter, self._algorithm = _ALGORITHMS[algorithm]
        self._name = name
        self._arguments = {"period": period, "algorithm": algorithm}
        self._partition = letter + to_name(name, "name")
        self._store = store
        self._family = family_of(store, family)

    def hit(self, key: Name, cost: int = 1) -> Decision:
        """Count a hit of a key if it is allowed, and return the decision.

        Joins an open transaction of the thread, and is rolled back with it.

        Args:
            key: str or bytes, not empty.
            cost: How many hits it counts for.

        Raises:
            ValueError: If ``cost`` could never be allowed.
        """
        cost = self._cost(cost)
        where = self._key(key)
        while True:
            old = self._family.get(where)
            step = self._algorithm(self._rule, old, now_ms(self._family), cost)
            # A failed write means that another hit was counted.
            if not step.state or self._replace(where, old, step):
                return _decision(step)

    def _replace(self, where: bytes, old: Optional[bytes], step: _Step) -> bool:
        """Write a new state only if the stored state is still ``old``, and return whether it was
        written.
        """
        ttl = max(1, step.reset_ms) / 1000
        if old is None:
            written = self._family.put(where, step.state, ttl, if_absent=True)
        else:
            written = self._family.compare_and_swap(where, old, step.state, ttl)
        wrote(self._store)
        return bool(written)

    def peek(self, key: Name, cost: int = 1) -> Decision:
        """Return the decision that :meth:`hit` would return, without counting a hit.

        ``remaining`` is the number before the hit.
        """
        step = self._step(self._key(key), self._cost(cost))
        return _decision(step)._replace(remaining=step.remaining + cost if step.allowed else step.remaining)

    def wait(self, key: Name, cost: int = 1, timeout: Optional[Duration] = None) -> bool:
        """Wait until a hit of a key is allowed, and count it.

        Waiting callers are not served in order.

        Args:
            key: str or bytes, not empty.
            cost: How many hits it counts for.
            timeout: The longest wait in seconds or as a ``timedelta``; None: no limit.

        Returns:
            True if the hit was counted; False if it would not be allowed in time.
        """
        backoff = Backoff(timeout)
        while True:
            decision = self.hit(key, cost)
            if decision.allowed:
                return True
            if not backoff.sleep(decision.retry_after):
                return False

    @atomic
    def reset(self, key: Name) -> None:
        """Forget the counted hits of a key."""
        where = self._key(key)
        self._family.delete(where)

    def _key(self, key: Name) -> bytes:
        return row_key(self._partition, to_name(key, "key"))

    def _cost(self, cost: int) -> int:
        cost = positive_int(cost, "cost")
        most = self._rule.burst
        if cost > most:
            raise ValueError(f"cost must be at most {most}, not {cost}: a larger one would never be allowed")
        return cost

    def _step(self, where: bytes, cost: int) -> _Step:
        return self._algorithm(self._rule, self._family.get(where), now_ms(self._family), cost)

    def __reduce__(self) -> Any:
        arguments = {**self._arguments, "family": self._family.name}
        if self._algorithm is _token_bucket:
            arguments["burst"] = self._rule.burst
        return _made_anew, (self._store, self._name, self._rule.limit, arguments)

    def __repr__(self) -> str:
        return f"<kvstore.recipes.RateLimiter {self._rule.limit} in {self._rule.period_ms / 1000} s>"


def _made_anew(store: Store[Any, Any], name: Name, limit: int, arguments: dict[str, Any]) -> RateLimiter:
    return RateLimiter(store, name, limit, **arguments)


def _decision(step: _Step) -> Decision:
    return Decision(step.allowed, step.remaining, step.retry_ms / 1000, step.reset_ms / 1000)
