"""Glob patterns of Redis."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstore.contrib._globs import Glob, escape

TEXTS = [
    "", "a", "b", "c", "d", "-", "]", "^", "!", "\\", "*", "?", "[", "ab", "abc", "axc", "a\nc", "hello", "hallo",
    "hllo", "heello", "hbllo", "h*llo", "h?llo", "a]", "b]", "ключ", "ключи",
]  # fmt: skip


def redis_matches(pattern: str, text: str) -> bool:
    """The algorithm of Redis (stringmatchlen in util.c), on characters."""
    while pattern and text:
        if pattern[0] == "*":
            return any(redis_matches(pattern[1:], text[at:]) for at in range(len(text) + 1))
        if pattern[0] == "[":
            pattern = pattern[1:]
            negated = pattern[:1] == "^"
            pattern = pattern[negated:]
            found = False
            while True:
                if pattern[:1] == "\\" and len(pattern) >= 2:
                    pattern = pattern[1:]
                    found |= pattern[0] == text[0]
                elif pattern[:1] in ("]", ""):
                    break
                elif len(pattern) >= 3 and pattern[1] == "-":
                    low, high = sorted((pattern[0], pattern[2]))
                    found |= low <= text[0] <= high
                    pattern = pattern[2:]
                else:
                    found |= pattern[0] == text[0]
                pattern = pattern[1:]
            if found == negated:
                return False
        elif pattern[0] != "?":
            if pattern[0] == "\\" and len(pattern) >= 2:
                pattern = pattern[1:]
            if pattern[0] != text[0]:
                return False
        pattern, text = pattern[1:], text[1:]
    return not text and not pattern.strip("*")


@pytest.mark.parametrize(
    "pattern, matching",
    [
        ("h?llo", "hello hallo hbllo h*llo h?llo"),
        ("h*llo", "hello hallo hllo heello hbllo h*llo h?llo"),
        ("h[ae]llo", "hello hallo"),
        ("h[^e]llo", "hallo hbllo h*llo h?llo"),
        ("h[a-b]llo", "hallo hbllo"),
        ("h[b-a]llo", "hallo hbllo"),
        (r"h\*llo", "h*llo"),
        (r"h\?llo", "h?llo"),
        ("h[*]llo", "h*llo"),
        ("h[?*]llo", "h*llo h?llo"),
        ("[!a]", "! a"),
        (r"[\]]", "]"),
        (r"[\^a]", "^ a"),
        ("[a-]", "] ^ a"),
        ("[]a]", ""),
        ("[^]", "a b c d - ] ^ ! \\ * ? ["),
        ("[abc", "a b c"),
        ("\\", "\\"),
        ("клю?", "ключ"),
        ("[а-л]лю*", "ключ ключи"),
        ("HELLO", ""),
        ("***", " ".join(TEXTS)),
    ],
)
def test_pattern_matches_as_in_redis(pattern: str, matching: str) -> None:
    glob = Glob(pattern)
    found = [text for text in TEXTS if glob.matches(text)]
    assert found == [text for text in TEXTS if redis_matches(pattern, text)]
    assert sorted(" ".join(found).split()) == sorted(matching.split())


ALPHABET = "ab-]^[*?\\\n"


@given(st.text(ALPHABET, max_size=12), st.text(ALPHABET, max_size=8))
def test_any_pattern_matches_as_in_redis(pattern: str, text: str) -> None:
    glob = Glob(pattern)
    assert glob.matches(text) == redis_matches(pattern, text)
    if glob.matches(text):
        assert text.startswith(glob.prefix)
        assert text == glob.prefix or not glob.is_exact
    elif glob.is_exact or glob.is_prefix:
        assert text != glob.prefix


@given(st.text(ALPHABET + "é", max_size=8))
def test_escaped_text_matches_itself(text: str) -> None:
    glob = Glob(escape(text))
    assert (glob.prefix, glob.is_exact, glob.matches(text)) == (text, True, True)


@pytest.mark.parametrize(
    "pattern, prefix, is_exact, is_prefix",
    [
        ("user:1", "user:1", True, False),
        ("user:*", "user:", False, True),
        ("user:**", "user:", False, True),
        ("user:*:name", "user:", False, False),
        ("[*]:1:user[12]", "*:1:user", False, False),
        (r"a\*b[c]?", "a*bc", False, False),
        ("*", "", False, True),
        ("", "", True, False),
    ],
)
def test_literal_prefix(pattern: str, prefix: str, is_exact: bool, is_prefix: bool) -> None:
    glob = Glob(pattern)
    assert (glob.prefix, glob.is_exact, glob.is_prefix) == (prefix, is_exact, is_prefix)


def test_many_stars_take_no_exponential_time() -> None:
    assert not Glob("*a" * 30 + "*b").matches("a" * 5000)  # otherwise the test times out
