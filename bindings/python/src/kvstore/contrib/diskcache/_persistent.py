"""The classes Deque and Index: a sequence and a mapping that are stored in a cache without eviction."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import (
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    MutableMapping,
    Sequence,
    ValuesView,
)
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Callable, Optional, TypeVar, Union

from kvstore.contrib.diskcache._cache import Cache
from kvstore.contrib.diskcache._disk import ENOVAL

R = TypeVar("R")


def _comparison(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], Any]:
    """Return a method that compares a Deque with another sequence, item by item."""

    def method(self: Any, other: Any) -> Any:
        if not isinstance(other, Sequence):
            return NotImplemented
        if compare in (operator.eq, operator.ne) and len(self) != len(other):
            return compare is operator.ne
        for mine, theirs in zip(self, other):
            if mine != theirs:
                return compare(mine, theirs)
        return compare(len(self), len(other))

    return method


class _Persistent:
    """Base class of Deque and Index."""

    _cache: Cache

    @property
    def cache(self) -> Cache:
        """The cache that stores the items."""
        return self._cache

    @property
    def directory(self) -> str:
        """The directory of the cache."""
        return self._cache.directory

    def transact(self) -> AbstractContextManager[None]:
        """Return a ``with`` block whose writes are committed together: see :meth:`Cache.transact`."""
        return self._cache.transact(retry=True)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(directory={self.directory!r})"


class Deque(_Persistent, Sequence[Any]):
    """A sequence with the interface of ``collections.deque``, stored in a file.

    All threads and processes may use it. Items at the ends are reached at once, all other items by walking
    from the nearer end.

    Args:
        iterable: Items to append.
        directory: The directory; None: a new temporary directory.
        maxlen: The maximum number of items; None: no maximum. It is not stored in the file.
        serializer: As for :class:`Cache`.
    """

    def __init__(
        self,
        iterable: Iterable[Any] = (),
        directory: Union[str, Path, None] = None,
        maxlen: Optional[float] = None,
        serializer: Optional[Any] = None,
    ) -> None:
        self._cache = Cache(directory, eviction_policy="none", serializer=serializer)
        self._maxlen = math.inf if maxlen is None else maxlen
        self.extend(iterable)

    @classmethod
    def fromcache(cls, cache: Cache, iterable: Iterable[Any] = (), maxlen: Optional[float] = None) -> Deque:
        """Return a deque that stores its items in ``cache``, which must not evict entries."""
        self = cls.__new__(cls)
        self._cache = cache
        self._maxlen = math.inf if maxlen is None else maxlen
        self.extend(iterable)
        return self

    @property
    def maxlen(self) -> float:
        """The maximum number of items. If it is set to less than there are, the first are removed."""
        return self._maxlen

    @maxlen.setter
    def maxlen(self, value: float) -> None:
        self._maxlen = value
        with self.transact():
            self._shorten("front")

    def _shorten(self, side: str) -> None:
        length = len(self._cache)
        while length > self._maxlen:
            self._cache.pull(side=side, retry=True)
            length, before = len(self._cache), length
            if length == before:
                return  # the entries that are left are no items

    def _push(self, value: Any, side: str, other: str) -> None:
        if self._maxlen == math.inf:
            self._cache.push(value, side=side, retry=True)
        else:
            with self.transact():
                self._cache.push(value, side=side, retry=True)
                self._shorten(other)

    def _at(self, index: int, work: Callable[[Any], R]) -> R:
        """Return ``work(key)`` for the item at an index. A key that was removed meanwhile is skipped."""
        index = operator.index(index)
        length = len(self._cache)
        if not -length <= index < length:
            raise IndexError("deque index out of range")
        is_in_front = 0 <= index <= length // 2 or index < -(length // 2) - 1
        place = index % length if is_in_front else length - 1 - index % length
        for _ in range(length):
            try:
                return work(self._cache._key_at(place, reverse=not is_in_front))
            except KeyError:
                pass  # removed meanwhile: another item has its place
        raise IndexError("deque index out of range")

    def __getitem__(self, index: Any) -> Any:
        return self._at(index, self._cache.__getitem__)

    def __setitem__(self, index: int, value: Any) -> None:
        self._at(index, lambda key: self._cache.__setitem__(key, value))

    def __delitem__(self, index: int) -> None:
        self._at(index, self._cache.__delitem__)

    def __len__(self) -> int:
        return len(self._cache)

    def __iter__(self) -> Iterator[Any]:
        return self._items(reverse=False)

    def __reversed__(self) -> Iterator[Any]:
        return self._items(reverse=True)

    def _items(self, reverse: bool) -> Iterator[Any]:
        for key in self._cache.iterkeys(reverse=reverse):
            try:
                yield self._cache[key]
            except KeyError:
                pass  # removed meanwhile

    __eq__ = _comparison(operator.eq)
    __ne__ = _comparison(operator.ne)
    __lt__ = _comparison(operator.lt)
    __le__ = _comparison(operator.le)
    __gt__ = _comparison(operator.gt)
    __ge__ = _comparison(operator.ge)
    __hash__ = None  # type: ignore[assignment]

    def __iadd__(self, iterable: Iterable[Any]) -> Deque:
        self.extend(iterable)
        return self

    def __getstate__(self) -> tuple[Any, ...]:
        return self._cache, self._maxlen

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._cache, self._maxlen = state

    def append(self, value: Any) -> None:
        """Add an item at the end. If there are more than ``maxlen`` then, the first is removed."""
        self._push(value, "back", "front")

    def appendleft(self, value: Any) -> None:
        """Add an item at the beginning. If there are more than ``maxlen`` then, the last is removed."""
        self._push(value, "front", "back")

    def extend(self, iterable: Iterable[Any]) -> None:
        """Append the items one after the other."""
        for value in list(self) if iterable is self else iterable:
            self.append(value)

    def extendleft(self, iterable: Iterable[Any]) -> None:
        """Add the items at the beginning one after the other."""
        for value in list(self) if iterable is self else iterable:
            self.appendleft(value)

    def clear(self) -> None:
        """Remove all items."""
        self._cache.clear(retry=True)

    def copy(self) -> Deque:
        """Return a copy, which is stored in a new temporary directory."""
        return type(self)(self, maxlen=self._maxlen, serializer=self._cache._serializer)

    __copy__ = copy

    def count(self, value: Any) -> int:
        """Return how many items equal ``value``."""
        return sum(item == value for item in self)

    def peek(self) -> Any:
        """Return the last item. Raises IndexError if there is none."""
        return self._end("back", self._cache.peek)

    def peekleft(self) -> Any:
        """Return the first item. Raises IndexError if there is none."""
        return self._end("front", self._cache.peek)

    def pop(self) -> Any:
        """Remove and return the last item. Raises IndexError if there is none."""
        return self._end("back", self._cache.pull)

    def popleft(self) -> Any:
        """Remove and return the first item. Raises IndexError if there is none."""
        return self._end("front", self._cache.pull)

    @staticmethod
    def _end(side: str, call: Callable[..., Any]) -> Any:
        _, value = call(default=(None, ENOVAL), side=side, retry=True)
        if value is ENOVAL:
            raise IndexError("the deque is empty")
        return value

    def remove(self, value: Any) -> None:
        """Remove the first item that equals ``value``. Raises ValueError if there is none."""
        for key in self._cache.iterkeys():
            try:
                if self._cache[key] == value:
                    del self._cache[key]
                    return
            except KeyError:
                pass  # removed meanwhile
        raise ValueError(f"{value!r} is not in the deque")

    def reverse(self) -> None:
        """Reverse the order of the items in one transaction."""
        with self.transact():
            items = list(reversed(self))
            self.clear()
            for value in items:
                self._cache.push(value, retry=True)

    def rotate(self, steps: int = 1) -> None:
        """Move the last item to the beginning ``steps`` times; if negative, the first to the end."""
        if not isinstance(steps, int):
            raise TypeError(f"steps must be an int, not {type(steps).__name__}")
        with self.transact():
            length = len(self._cache)
            if not length:
                return
            source, target = ("back", "front") if steps > 0 else ("front", "back")
            for _ in range(abs(steps) % length):
                _, value = self._cache.pull(default=(None, ENOVAL), side=source, retry=True)
                if value is ENOVAL:
                    return  # the rest has expired
                self._cache.push(value, side=target, retry=True)


class Index(_Persistent, MutableMapping[Any, Any]):
    """A mapping with the interface of ``collections.OrderedDict``, stored in a file.

    All threads and processes may use it. Keys are in the order in which they were added.

    Args:
        arguments: The directory, or None for a new temporary directory; then a mapping or pairs to
            add.
        serializer: As for :class:`Cache`.
        items: Keys that are str, and values, to add.
    """

    def __init__(self, *arguments: Any, serializer: Optional[Any] = None, **items: Any) -> None:
        directory: Any = None
        if arguments and (arguments[0] is None or isinstance(arguments[0], (str, os.PathLike))):
            directory, arguments = arguments[0], arguments[1:]
        self._cache = Cache(directory, eviction_policy="none", serializer=serializer)
        self._update(*arguments, **items)

    def _update(self, *arguments: Any, **items: Any) -> None:
        with self.transact():
            self.update(*arguments, **items)

    @classmethod
    def fromcache(cls, cache: Cache, *arguments: Any, **items: Any) -> Index:
        """Return an index that stores its items in ``cache``, which must not evict entries."""
        self = cls.__new__(cls)
        self._cache = cache
        self._update(*arguments, **items)
        return self

    def __getitem__(self, key: Any) -> Any:
        return self._cache[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._cache[key] = value

    def __delitem__(self, key: Any) -> None:
        del self._cache[key]

    def __contains__(self, key: object) -> bool:
        return key in self._cache

    def __iter__(self) -> Iterator[Any]:
        return iter(self._cache)

    def __reversed__(self) -> Iterator[Any]:
        return reversed(self._cache)

    def __len__(self) -> int:
        return len(self._cache)

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """Return the value of a key. If it does not exist, store ``default`` and return that."""
        while True:
            value = self._cache.get(key, default=ENOVAL, retry=True)
            if value is not ENOVAL:
                return value
            if self._cache.add(key, default, retry=True):
                return default

    def peekitem(self, last: bool = True) -> tuple[Any, Any]:
        """Return key and value of the item that was added last, or first. Raises KeyError if the
        index is empty.
        """
        return self._cache.peekitem(last, retry=True)  # type: ignore[no-any-return]

    def pop(self, key: Any, default: Any = ENOVAL) -> Any:
        """Remove a key and return its value; ``default`` if it does not exist.

        Raises:
            KeyError: If the key does not exist and there is no default.
        """
        value = self._cache.pop(key, default=default, retry=True)
        if value is ENOVAL:
            raise KeyError(key)
        return value

    def popitem(self, last: bool = True) -> tuple[Any, Any]:
        """Remove the item that was added last, or first, and return key and value. Raises KeyError
        if the index is empty.
        """
        with self.transact():
            key, value = self._cache.peekitem(last, retry=True)
            del self._cache[key]
        return key, value

    def push(self, value: Any, prefix: Optional[str] = None, side: str = "back") -> Any:
        """Add a value at one side of a queue, and return its key: see :meth:`Cache.push`."""
        return self._cache.push(value, prefix, side, retry=True)

    def pull(self, prefix: Optional[str] = None, default: Any = (None, None), side: str = "front") -> Any:
        """Remove the value at one side of a queue: see :meth:`Cache.pull`."""
        return self._cache.pull(prefix, default, side, retry=True)

    def clear(self) -> None:
        """Remove all items."""
        self._cache.clear(retry=True)

    def keys(self) -> KeysView[Any]:
        """Return a view of the keys."""
        return KeysView(self)

    def values(self) -> ValuesView[Any]:
        """Return a view of the values."""
        return ValuesView(self)

    def items(self) -> ItemsView[Any, Any]:
        """Return a view of keys and values."""
        return ItemsView(self)

    def memoize(
        self, name: Optional[str] = None, typed: bool = False, ignore: Iterable[Any] = ()
    ) -> Callable[[Callable[..., R]], Callable[..., R]]:
        """Return a decorator that stores the results of a function: see :meth:`Cache.memoize`."""
        return self._cache.memoize(name, typed, ignore=ignore)

    def __eq__(self, other: object) -> bool:
        """Compare with a mapping; with another Index or an OrderedDict, the order counts, too."""
        if not isinstance(other, Mapping):
            return NotImplemented
        if len(self) != len(other):
            return False
        if hasattr(other, "move_to_end") or isinstance(other, Index):
            return list(self.items()) == list(other.items())
        return all(key in other and value == other[key] for key, value in self.items())

    __hash__ = None  # type: ignore[assignment]

    def __getstate__(self) -> Cache:
        return self._cache

    def __setstate__(self, state: Cache) -> None:
        self._cache = state
