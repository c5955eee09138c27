"""Class Tags: marks keys with tags, and deletes all keys of a tag at once.

An index in a family of its own: under ``t`` the keys of each tag, under ``k`` the tags of each key.
Index rows of keys that expired or were deleted directly are removed a few at a time, by the calls
that add tags.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Optional

from kvstore import FOREVER, Family, Store, row_key
from kvstore._native import text_bytes
from kvstore._time import Duration, Moment
from kvstore.recipes._base import Name, atomic, family_of, reading, to_name, wrote

_FAMILY = "recipes.tags"
#: The number of index keys that each call that adds tags checks.
_LOOKS = 4


class Tags:
    """Marks the keys of a family with tags, by which they can be listed and deleted.

    The tags are stored in a separate index.

    A key and its tags are written in one transaction, and deleted in one. Every reader sees the
    keys of an invalidated tag disappear at the same moment. Each call joins an open transaction of
    the thread.

    Keys stay ordinary keys. A key that is written directly keeps its tags; a key that is deleted
    and written again keeps them until the index has been cleaned. So ``invalidate`` may delete more
    than intended, never less. An expired or deleted key has no tags. Values go through the codec of
    the store, if it has one; keys come back as bytes.

    Args:
        store: A :class:`kvstore.Store`.
        family: The family whose keys are tagged; None: the default family.
        index: The family of the index.

    >>> db = kvstore.open(":memory:")
    >>> tags = kvstore.recipes.Tags(db)
    >>> tags.put("page:1", b"...", ["user:ada", "news"], ttl=600)
    >>> tags.put("page:2", b"...", ["user:bob", "news"], ttl=600)
    >>> tags.invalidate("user:ada"), list(db), tags.keys("news")
    (1, [b'page:2'], [b'page:2'])
    """

    def __init__(self, store: Store[Any, Any], family: Optional[str] = None, *, index: str = _FAMILY) -> None:
        self._store = store
        self._index = family_of(store, index)
        self._data: Family[Any, Any] = store if family is None else store.family(family)
        name = self._data.name.encode()
        self._scope = bytes([len(name)]) + name

    def put(
        self,
        key: Name,
        value: Any,
        tags: Iterable[str],
        ttl: Optional[Duration] = None,
        expires_at: Optional[Moment] = None,
    ) -> None:
        """Write a value and replace the tags of its key.

        The value is written as :meth:`kvstore.Family.put` does.
        """
        self._put(to_name(key, "key"), key, value, _tags(tags), ttl, expires_at)
        wrote(self._store)

    @atomic
    def _put(
        self, where: bytes, key: Name, value: Any, tags: frozenset[str], ttl: Optional[Duration], expires_at: Optional[Moment]
    ) -> None:
        self._data.put(key, value, ttl, expires_at)
        self._set(where, tags)
        self._look_after()

    def set(self, key: Name, tags: Iterable[str]) -> bool:
        """Replace all tags of a key. If the key does not exist, return False and do nothing."""
        return self._set_if_there(to_name(key, "key"), key, _tags(tags))

    @atomic
    def _set_if_there(self, where: bytes, key: Name, tags: frozenset[str]) -> bool:
        if key not in self._data:
            return False
        self._set(where, tags)
        self._look_after()
        return True

    @atomic
    def add(self, key: Name, *tags: str) -> bool:
        """Add tags to a key. If the key does not exist, return False and do nothing."""
        where, more = to_name(key, "key"), _tags(tags)
        if key not in self._data:
            return False
        self._set(where, self._tags_of(where) | more)
        self._look_after()
        return True

    @atomic
    def remove(self, key: Name, *tags: str) -> None:
        """Remove tags from a key. Tags that the key does not have are ignored."""
        where, less = to_name(key, "key"), _tags(tags)
        self._set(where, self._tags_of(where) - less)

    def of(self, key: Name) -> list[str]:
        """Return the sorted tags of a key. The result is empty if the key does not exist."""
        where = to_name(key, "key")
        with reading(self._store):
            return sorted(self._tags_of(where)) if key in self._data else []

    def keys(self, tag: str) -> list[bytes]:
        """Return the live keys that have a tag, in key order."""
        if not isinstance(tag, str):
            raise TypeError(f"tag must be str, not {type(tag).__name__}")
        with reading(self._store):
            return [key for key in self._keys_of(tag) if key in self._data]

    @atomic
    def invalidate(self, *tags: str) -> int:
        """Delete all keys that have any of the tags, and return how many live keys were deleted.

        They are deleted in one transaction.
        """
        wanted = _tags(tags)
        deleted = 0
        for tag in wanted:
            for key in list(self._keys_of(tag)):
                deleted += self._data.delete(key)
                self._set(key, frozenset())
        return deleted

    def purge(self) -> int:
        """Remove keys that no longer exist from the index of tags, and return how many.

        Calling it is optional: each call that adds tags checks four keys of the index.
        """
        removed = 0
        after: Optional[bytes] = None
        while True:
            after, gone = self._purge_some(after)  # in portions, so that other writers can run between
            removed += gone
            if after is None:
                return removed

    @atomic
    def _purge_some(self, after: Optional[bytes]) -> tuple[Optional[bytes], int]:
        return self._remove_gone(after, 1000)

    # The index

    def _tag_part(self, tag: str) -> bytes:
        return b"t" + self._scope + text_bytes(tag, "tag")

    def _record(self, key: bytes) -> bytes:
        return row_key(b"k" + self._scope, key)

    def _keys_of(self, tag: str) -> Iterable[bytes]:
        return (key for key, _ in self._index.rows(self._tag_part(tag)))

    def _tags_of(self, key: bytes) -> frozenset[str]:
        return _unpacked(self._index.get(self._record(key)))

    def _set(self, key: bytes, tags: frozenset[str]) -> None:
        before = self._tags_of(key)
        for tag in before - tags:
            self._index.delete(row_key(self._tag_part(tag), key))
        for tag in tags - before:
            self._index.put(row_key(self._tag_part(tag), key), b"", FOREVER)
        if not tags:
            self._index.delete(self._record(key))
        elif tags != before:
            self._index.put(self._record(key), _packed(tags), FOREVER)

    def _look_after(self) -> None:
        """Check the next few keys of the index, and remove those that no longer exist.

        Starts where the last call stopped.
        """
        cursor = b"c" + self._scope
        after, _ = self._remove_gone(self._index.get(cursor), _LOOKS)
        if after is None:
            self._index.delete(cursor)
        else:
            self._index.put(cursor, after, FOREVER)

    def _remove_gone(self, after: Optional[bytes], limit: int) -> tuple[Optional[bytes], int]:
        """Check up to ``limit`` keys of the index, and remove those that no longer exist.

        Return the last key checked (None: no more keys), and how many did not exist.
        """
        rows = self._index.rows(b"k" + self._scope, start=after, limit=limit + 1)
        keys = [key for key, _ in rows if key != after][:limit]
        gone = [key for key in keys if key not in self._data]
        for key in gone:
            self._set(key, frozenset())
        return (keys[-1] if len(keys) == limit else None), len(gone)

    def __reduce__(self) -> Any:
        name = None if self._data is self._store else self._data.name
        return _made_anew, (self._store, name, self._index.name)

    def __repr__(self) -> str:
        return f"<kvstore.recipes.Tags of family {self._data.name!r}>"


def _made_anew(store: Store[Any, Any], family: Optional[str], index: str) -> Tags:
    return Tags(store, family, index=index)


def _tags(tags: Iterable[str]) -> frozenset[str]:
    if isinstance(tags, (str, bytes)):
        raise TypeError("tags must be an iterable of str, not a single one: give a list")
    wanted = frozenset(tags)
    for tag in wanted:
        if not isinstance(tag, str):
            raise TypeError(f"each tag must be str, not {type(tag).__name__}")
        if not tag:
            raise ValueError("a tag is empty: give at least one character")
        text_bytes(tag, "a tag")
    return wanted


def _packed(tags: frozenset[str]) -> bytes:
    encoded = [tag.encode() for tag in sorted(tags)]
    return b"".join(len(tag).to_bytes(4, "big") + tag for tag in encoded)


def _unpacked(packed: Optional[bytes]) -> frozenset[str]:
    tags, at = set(), 0
    while packed and at < len(packed):
        end = at + 4 + int.from_bytes(packed[at : at + 4], "big")
        tags.add(packed[at + 4 : end].decode())
        at = end
    return frozenset(tags)
