r"""Glob patterns of Redis, as its command KEYS reads them. Must not depend on a framework.

``*`` stands for any characters and ``?`` for one. ``[abc]`` and ``[a-c]`` stand for one character of
a set, and ``[^abc]`` for one outside of it. A backslash removes the special meaning of the character
after it. Case matters. Unlike in Redis, ``?`` and sets stand for characters and not for bytes.

>>> from kvstore.contrib._globs import Glob
>>> glob = Glob("user:[0-9]*")
>>> glob.prefix, glob.matches("user:7:name"), glob.matches("user:x")
('user:', True, False)
"""

from __future__ import annotations

import re
from typing import NamedTuple, Union

_SPECIAL = re.compile(r"([*?\[\\])")


class _OneOf(NamedTuple):
    """A ``?`` or a set of characters, as a regular expression."""

    expression: str


class _Star(NamedTuple):
    """A ``*``."""


#: One element of a pattern. A str is a literal character.
_Item = Union[str, _OneOf, _Star]


def escape(text: str) -> str:
    """Return a pattern that matches only ``text``. If there is nothing to escape, it is ``text``."""
    return _SPECIAL.sub(r"\\\1", text)


class Glob:
    """A parsed pattern. Every str is a valid pattern.

    Attributes:
        prefix: The literal characters with which every match begins.
        is_exact: Whether the only match is ``prefix``.
        is_prefix: Whether everything that begins with ``prefix`` matches.
    """

    __slots__ = ("_regex", "is_exact", "is_prefix", "prefix")

    def __init__(self, pattern: str) -> None:
        items = _parse(pattern)
        literals = 0
        while literals < len(items) and isinstance(items[literals], str):
            literals += 1
        self.prefix = "".join(str(item) for item in items[:literals])
        self.is_exact = literals == len(items)
        self.is_prefix = items[literals:] == [_Star()]
        self._regex = re.compile(_expression(items), re.DOTALL)

    def matches(self, text: str) -> bool:
        """Return whether the pattern matches the whole text."""
        return self._regex.fullmatch(text) is not None


def _parse(pattern: str) -> list[_Item]:
    items: list[_Item] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        at += 1
        if char == "*":
            if items[-1:] != [_Star()]:
                items.append(_Star())
        elif char == "?":
            items.append(_OneOf("."))
        elif char == "[":
            item, at = _parse_set(pattern, at)
            items.append(item)
        elif char == "\\" and at < len(pattern):
            items.append(pattern[at])
            at += 1
        else:
            items.append(char)
    return items


def _parse_set(pattern: str, at: int) -> tuple[_Item, int]:
    """Parse the set whose first character is at ``at``. Return it and the position after it.

    As in Redis, the end of the pattern ends the set too, and the bounds of a range may be swapped.
    """
    negated = pattern[at : at + 1] == "^"
    at += negated
    ranges: list[tuple[str, str]] = []
    while at < len(pattern) and pattern[at] != "]":
        if pattern[at] == "\\" and at + 1 < len(pattern):
            low = high = pattern[at + 1]
            at += 2
        elif pattern[at + 1 : at + 2] == "-" and at + 2 < len(pattern):
            low, high = sorted((pattern[at], pattern[at + 2]))
            at += 3
        else:
            low = high = pattern[at]
            at += 1
        ranges.append((low, high))
    if not negated and len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return ranges[0][0], at + 1
    if not ranges:
        return _OneOf("." if negated else "(?!)"), at + 1
    members = "".join(f"{re.escape(low)}-{re.escape(high)}" for low, high in ranges)
    return _OneOf(f"[{'^' if negated else ''}{members}]"), at + 1


def _expression(items: list[_Item]) -> str:
    """Return the regular expression for a pattern. It takes no exponential time.

    The part between two stars has a fixed length, so the first place where it fits is the right one.
    A lookahead and a reference to its group keep the expression from trying other places.
    """
    parts = [""]
    for item in items:
        if isinstance(item, _Star):
            parts.append("")
        else:
            parts[-1] += item.expression if isinstance(item, _OneOf) else re.escape(item)
    first, *others = parts
    if not others:
        return first
    between = "".join(f"(?=(?P<g{n}>.*?{part}))(?P=g{n})" for n, part in enumerate(others[:-1]))
    return f"{first}{between}.*{others[-1]}"
