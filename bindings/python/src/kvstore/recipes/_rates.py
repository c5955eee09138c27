"""RateLimiter: how often something may happen, decided in one step for everybody.

Three algorithms, each a pure function from the state of a key, the time and the cost to a new state and a
decision. Times are whole milliseconds by the store's clock; states are decimal text.
"""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Optional

from kvstore import FOREVER, Store, row_key
from kvstore._time import Duration, ttl_ms
from kvstore.recipes._base import Name, Patience, atomic, family_of, now_ms, positive_int, to_name

_FAMILY = "recipes.rates"
_MAX_LIMIT = 10**9
#: A sliding window of more than so many hits remembers them in so many steps of time.
_STEPS = 64


class Decision(NamedTuple):
    """What a limiter says to a hit."""

    #: Whether it may happen. If so it has been counted, otherwise not.
    allowed: bool
    #: How much may still happen now.
    remaining: int
    #: In how many seconds the same hit would be allowed, if nobody else hits meanwhile; 0.0 if it is allowed.
    retry_after: float
    #: In how many seconds everything is as if nothing had happened, if nobody hits meanwhile.
    reset_after: float


class _Rule(NamedTuple):
    limit: int
    period_ms: int
    #: What is allowed at once.
    burst: int


class _Step(NamedTuple):
    allowed: bool
    remaining: int
    retry_ms: int
    reset_ms: int
    #: What is to be written; it says nothing any more after reset_ms. Of a hit that is refused nothing, unless the
    #: state is from the future: a clock has gone back, and from here on it is of now, so that it ends some day.
    state: bytes


def _fixed_window(rule: _Rule, state: Optional[bytes], now: int, cost: int) -> _Step:
    """State: when the window began, and what was used."""
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
    """State: times and costs. With a large limit, hits of one step of time are kept as one, at the time of
    the latest: so they count for up to a step longer, and never shorter."""
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
    """State: the level, in tokens times period_ms, so that a millisecond adds ``limit``; and when it was that."""
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
    """Allows ``limit`` hits in each ``period``, for each key (a user, an address) by itself.

    - ``algorithm``: "sliding_window": never more than ``limit`` within any time of that length. Over 64
      hits it remembers them by 64ths of the period, and so may refuse for that much too long, never allow
      too much. "fixed_window": a window begins with the first hit, and ends a period later; around its end
      up to twice the limit can pass within a short time. "token_bucket": tokens come in evenly, ``limit`` in
      a period; up to ``burst`` of them are kept.
    - ``burst``: what a full bucket holds (default: ``limit``). For the token bucket only.

    Limiters of the same ``name`` and algorithm in a family count together: give them the same numbers.

    A hit that is refused is not counted, reads only, and waits for nobody. State ends by itself when it says
    nothing any more. Time is that of the store's clock, in milliseconds.

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
        if algorithm not in _ALGORITHMS:
            raise ValueError(f"an algorithm is one of {', '.join(_ALGORITHMS)}, not {algorithm!r}")
        if burst is not None and algorithm != "token_bucket":
            raise ValueError("burst is for the token_bucket; a window allows its limit at once")
        if period == FOREVER:
            raise ValueError("a period must end")
        limit = positive_int(limit, "a limit")
        burst = limit if burst is None else positive_int(burst, "a burst")
        if max(limit, burst) > _MAX_LIMIT:
            raise ValueError(f"a limit is at most {_MAX_LIMIT}, not {max(limit, burst)}")
        self._rule = _Rule(limit, ttl_ms(period), burst)
        letter, self._algorithm = _ALGORITHMS[algorithm]
        self._name = name
        self._arguments = {"period": period, "algorithm": algorithm}
        self._partition = letter + to_name(name, "a limiter's name")
        self._store = store
        self._family = family_of(store, family)

    def hit(self, key: Name, cost: int = 1) -> Decision:
        """Counts a hit, or refuses it: see :class:`Decision`. ValueError for a ``cost`` that could never be
        allowed. Joins an open transaction of the thread, and is undone with it."""
        cost = self._cost(cost)
        where = self._key(key)
        while True:
            old = self._family.get(where)
            step = self._algorithm(self._rule, old, now_ms(self._family), cost)
            # Each that is in vain is another's that counts.
            if not step.state or self._replace(where, old, step):
                return _decision(step)

    def _replace(self, where: bytes, old: Optional[bytes], step: _Step) -> bool:
        """Writes the state, if it is still the old one; says whether it was."""
        ttl = max(1, step.reset_ms) / 1000
        if old is None:
            return bool(self._family.put(where, step.state, ttl, if_absent=True))
        return bool(self._family.compare_and_swap(where, old, step.state, ttl))

    def peek(self, key: Name, cost: int = 1) -> Decision:
        """What :meth:`hit` would say. Counts nothing: ``remaining`` is what is left before the hit."""
        step = self._step(self._key(key), self._cost(cost))
        return _decision(step)._replace(remaining=step.remaining + cost if step.allowed else step.remaining)

    def wait(self, key: Name, cost: int = 1, timeout: Optional[Duration] = None) -> bool:
        """Waits until a hit is allowed, and counts it; False if that was not so within ``timeout`` seconds
        (None: for ever), and then nothing is counted. Who waits longest is not served first."""
        patience = Patience(timeout)
        while True:
            decision = self.hit(key, cost)
            if decision.allowed:
                return True
            if not patience.sleep(decision.retry_after):
                return False

    @atomic
    def reset(self, key: Name) -> None:
        """Forgets the hits of a key."""
        where = self._key(key)
        self._family.delete(where)

    def _key(self, key: Name) -> bytes:
        return row_key(self._partition, to_name(key, "a key"))

    def _cost(self, cost: int) -> int:
        cost = positive_int(cost, "a cost")
        most = self._rule.burst
        if cost > most:
            raise ValueError(f"a cost of {cost} can never be allowed: at most {most} are at once")
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
