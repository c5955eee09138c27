"""Families with a codec, or with ``keys=str``: they convert keys and values.

Each method calls the method of Family with bytes, and decodes the bytes it returns. Families
without a codec use none of these classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Optional

from kvstore._errors import InvalidError
from kvstore._family import Family
from kvstore._family_handle import no_such_key
from kvstore._iteration import ITEMS, KEYS
from kvstore._native import Data, K, V
from kvstore._time import Duration, Moment

_RAISE: Any = object()


class CodedFamily(Family[K, V]):
    """A family whose values are encoded by a codec, or whose keys are str. It has the methods of
    :class:`Family`.
    """

    __slots__ = ()

    def _encode(self, value: Any) -> bytes:
        return self._coding.encode(value)  # type: ignore[union-attr]

    def _value(self, data: bytes) -> Any:
        coding: Any = self._coding
        if coding.loads is None:
            return data
        try:
            return coding.loads(data)
        except MemoryError:
            raise
        except Exception as e:
            raise InvalidError(
                f"the codec {coding.codec!r} cannot decode a value of family {self._name!r}: open the family "
                "with the codec "
                "that wrote it"
            ) from e

    def _key(self, data: bytes) -> Any:
        if not self._coding.text_keys:  # type: ignore[union-attr]
            return data
        try:
            return data.decode()
        except UnicodeDecodeError as e:
            raise InvalidError(
                f"a key of family {self._name!r} is not valid UTF-8 and cannot be returned as str: open it "
                "with keys=bytes"
            ) from e

    def _item(self, row: tuple[bytes, bytes]) -> tuple[Any, Any]:
        return self._key(row[0]), self._value(row[1])

    def _decoded(self, rows: Iterator[Any], kind: int) -> Iterator[Any]:
        # map() can continue after an exception; a generator would end.
        return map(self._item if kind == ITEMS else self._key if kind == KEYS else self._value, rows)

    def get(self, key: Data, default: Any = None) -> Any:
        data = Family.get(self, key)
        return default if data is None else self._value(data)  # type: ignore[arg-type]

    def __getitem__(self, key: Data) -> V:
        value: V = self._value(Family.__getitem__(self, key))  # type: ignore[arg-type]
        return value

    def put(
        self,
        key: Data,
        value: Any,
        ttl: Optional[Duration] = None,
        expires_at: Optional[Moment] = None,
        *,
        keep_ttl: bool = False,
        if_absent: bool = False,
        if_present: bool = False,
    ) -> bool:
        of_bytes: Family[Any, bytes] = self  # type: ignore[assignment]
        return Family.put(
            of_bytes, key, self._encode(value), ttl, expires_at,
            keep_ttl=keep_ttl, if_absent=if_absent, if_present=if_present,
        )  # fmt: skip

    def __setitem__(self, key: Data, value: Any) -> None:
        of_bytes: Family[Any, bytes] = self  # type: ignore[assignment]
        Family.__setitem__(of_bytes, key, self._encode(value))

    def pop(self, key: Data, default: Any = _RAISE) -> Any:
        while True:
            data: Any = Family.get(self, key)
            if data is None:
                if default is _RAISE:
                    raise no_such_key()
                return default
            value = self._value(data)  # decode before deleting: decoding may raise
            if self._delete_if(key, data):
                return value

    def popitem(self) -> tuple[K, V]:
        while True:
            first = self._first()
            if first is None:
                raise no_such_key()
            item: tuple[K, V] = self._item(first)
            if self._delete_if(*first):
                return item

    def setdefault(
        self, key: Data, default: Any, ttl: Optional[Duration] = None, expires_at: Optional[Moment] = None
    ) -> V:
        value: V = self._value(Family.setdefault(self, key, default, ttl, expires_at))
        return value

    def incr(
        self, key: Data, delta: int = 1, ttl: Optional[Duration] = None, expires_at: Optional[Moment] = None
    ) -> int:
        coding = self._coding
        if coding is not None and not coding.can_count():
            raise TypeError(
                f"incr and decr store numbers as decimal text, which codec={coding.codec!r} cannot read: use a "
                "family "
                "without a codec, or with kvstore.JSON or kvstore.TEXT"
            )
        return Family.incr(self, key, delta, ttl, expires_at)

    def compare_and_swap(
        self,
        key: Data,
        expected: Any,
        value: Any,
        ttl: Optional[Duration] = None,
        expires_at: Optional[Moment] = None,
    ) -> bool:
        new = self._encode(value)
        while True:  # equal values may have different encodings
            data: Any = Family.get(self, key)
            if data is None or self._value(data) != expected:
                return False
            if self._swap(key, data, new, ttl, expires_at):
                return True

    def compare_and_delete(self, key: Data, expected: Any) -> bool:
        while True:
            data: Any = Family.get(self, key)
            if data is None or self._value(data) != expected:
                return False
            if self._delete_if(key, data):
                return True

    def get_many(self, keys: Iterable[Any]) -> dict[Any, V]:
        found: dict[Any, Any] = Family.get_many(self, keys)
        return {key: self._value(data) for key, data in found.items()}

    def get_with_ttl(self, key: Data) -> Optional[tuple[V, Optional[float]]]:
        found: Any = Family.get_with_ttl(self, key)
        return None if found is None else (self._value(found[0]), found[1])

    def get_and_touch(self, key: Data, ttl: Optional[Duration] = None, default: Any = None) -> Any:
        data: Any = Family.get_and_touch(self, key, ttl)
        return default if data is None else self._value(data)
