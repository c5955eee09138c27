"""Codecs: convert values to bytes and back, and keys to str.

A codec is any object with ``dumps`` and ``loads``. The file does not record which codec a program
uses. This module must not depend on stores.
"""

from __future__ import annotations

import importlib
import json
import pickle
from types import ModuleType
from typing import Any, Callable, Optional, Protocol, TypeVar, Union

from kvstore._native import to_bytes

T = TypeVar("T")


class Codec(Protocol[T]):
    """The type of ``codec=``: any object with ``dumps`` and ``loads``.

    Examples are ``kvstore.JSON``, the module ``json``, or an object of your own. A store with a
    codec can be pickled if its codec can.
    """

    def dumps(self, value: T, /) -> Union[str, bytes]:
        """Return the value as bytes, or as str, which is stored as UTF-8."""
        ...

    def loads(self, data: bytes, /) -> T:
        """Return the value that :meth:`dumps` converted to ``data``."""
        ...


class Named:
    """A codec that is pickled as its name, not as its content."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"kvstore.{self._name}"

    def __reduce__(self) -> str:
        return self._name


class _Text(Named):
    def dumps(self, value: str, /) -> bytes:
        if not isinstance(value, str):
            raise TypeError(f"value must be str with codec=kvstore.TEXT, not {type(value).__name__}")
        return to_bytes(value, "value")

    def loads(self, data: bytes, /) -> str:
        return data.decode()


class _Json(Named):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
        self._decode = json.JSONDecoder().decode

    def dumps(self, value: Any, /) -> bytes:
        return to_bytes(self._encode(value), "value")

    def loads(self, data: bytes, /) -> Any:
        return self._decode(data.decode())


class _Pickle(Named):
    def dumps(self, value: Any, /) -> bytes:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)

    def loads(self, data: bytes, /) -> Any:
        return pickle.loads(data)


#: Values are str, stored as UTF-8.
TEXT = _Text("TEXT")
#: Values are JSON: None, bool, numbers, str, and lists and dicts of these.
JSON = _Json("JSON")
#: Values are anything that can be pickled. Anyone who can write to the file can run code in this
#: process.
PICKLE = _Pickle("PICKLE")


def _of_bytes(value: Any) -> bytes:
    return to_bytes(value, "value")


def checked_serializer(serializer: Any) -> Any:
    """Return an object that has the methods of a codec. Raises TypeError for any other."""
    for method in ("dumps", "loads"):
        if not callable(getattr(serializer, method, None)):
            raise TypeError(
                f"serializer has no method {method}: give an object with dumps and loads, such as kvstore.DATA "
                f"or the module pickle, not {serializer!r}"
            )
    return serializer


class Coding:
    """The codec and the key type of a family: they convert its keys and values to and from bytes.
    """

    __slots__ = ("codec", "dumps", "loads", "text_keys")

    def __init__(self, codec: Optional[Codec[Any]], keys: type) -> None:
        self.codec = codec
        self.text_keys = keys is str
        self.dumps: Callable[[Any], Any] = _of_bytes if codec is None else codec.dumps
        #: None: values are returned as bytes.
        self.loads: Optional[Callable[[bytes], Any]] = None if codec is None else codec.loads

    @property
    def keys(self) -> type:
        return str if self.text_keys else bytes

    def encode(self, value: Any) -> bytes:
        data = self.dumps(value)
        return data if type(data) is bytes else to_bytes(data, "the result of the codec's dumps")

    def can_count(self) -> bool:
        """Return whether the codec can read the decimal text that ``incr`` writes."""
        if self.codec is None:
            return True
        try:
            return self.codec.loads(b"7") in (7, "7", b"7")
        except Exception:  # noqa: BLE001 # a codec may raise anything
            return False


def coding(codec: Any, keys: Any) -> Optional[Coding]:
    """Return a Coding for the arguments ``codec=`` and ``keys=``; None if keys and values are
    bytes.
    """
    if keys is not bytes and keys is not str:
        raise TypeError(f"keys must be the type str or the type bytes, not {keys!r}")
    if codec is None:
        return None if keys is bytes else Coding(None, keys)
    for name in ("dumps", "loads"):
        if not callable(getattr(codec, name, None)):
            raise TypeError(
                f"codec has no method {name}: give an object with dumps and loads, such as kvstore.TEXT, "
                "kvstore.JSON or "
                f"kvstore.PICKLE, not {type(codec).__name__}"
            )
    return Coding(codec, keys)


def pickled(codec: Optional[Codec[Any]]) -> Union[None, str, bytes]:
    """Return a description of a codec, from which another process can recreate it: the name of a
    module, or a pickle.

    Raises:
        TypeError: If the codec cannot be pickled.
    """
    if codec is None:
        return None
    if isinstance(codec, ModuleType):
        return codec.__name__
    try:
        return pickle.dumps(codec)
    except Exception as e:
        raise TypeError(
            f"cannot pickle a store or family whose codec, {type(codec).__name__}, cannot be pickled ({e}): "
            "define the "
            "codec's class at module level"
        ) from e


def unpickled(spec: Union[None, str, bytes]) -> Any:
    """Return the codec for a description that :func:`pickled` returned."""
    if isinstance(spec, str):
        return importlib.import_module(spec)
    return None if spec is None else pickle.loads(spec)
