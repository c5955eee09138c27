"""Codecs: how values are kept as bytes, and keys given back as text.

A codec is any object with ``dumps`` and ``loads``. Which one a program uses is not written into the file. Must not
know stores.
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
    """What ``codec=`` takes, for annotations: any object with these two methods, such as ``kvstore.JSON``, the module
    json, or one of your own. A store with a codec can be pickled if its codec can."""

    def dumps(self, value: T, /) -> Union[str, bytes]:
        """The value as bytes, or as str, which is kept as UTF-8."""
        ...

    def loads(self, data: bytes, /) -> T:
        """The value of such bytes."""
        ...


class _Named:
    """A codec that pickles as its name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"kvstore.{self._name}"

    def __reduce__(self) -> str:
        return self._name


class _Text(_Named):
    def dumps(self, value: str, /) -> bytes:
        if not isinstance(value, str):
            raise TypeError(f"a value must be a str for kvstore.TEXT, not {type(value).__name__}")
        return to_bytes(value, "a value")

    def loads(self, data: bytes, /) -> str:
        return data.decode()


class _Json(_Named):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
        self._decode = json.JSONDecoder().decode

    def dumps(self, value: Any, /) -> bytes:
        return to_bytes(self._encode(value), "a value")

    def loads(self, data: bytes, /) -> Any:
        return self._decode(data.decode())


class _Pickle(_Named):
    def dumps(self, value: Any, /) -> bytes:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)

    def loads(self, data: bytes, /) -> Any:
        return pickle.loads(data)


#: Values are str, kept as UTF-8.
TEXT = _Text("TEXT")
#: Values are what json can write: None, bool, numbers, str, and lists and dicts of them.
JSON = _Json("JSON")
#: Values are what pickle can write. Whoever can write to the file can run code in this process.
PICKLE = _Pickle("PICKLE")


def _of_bytes(value: Any) -> bytes:
    return to_bytes(value, "a value")


class Coding:
    """The codec and the type of keys of a family."""

    __slots__ = ("codec", "dumps", "loads", "text_keys")

    def __init__(self, codec: Optional[Codec[Any]], keys: type) -> None:
        self.codec = codec
        self.text_keys = keys is str
        self.dumps: Callable[[Any], Any] = _of_bytes if codec is None else codec.dumps
        #: None: values stay bytes.
        self.loads: Optional[Callable[[bytes], Any]] = None if codec is None else codec.loads

    @property
    def keys(self) -> type:
        return str if self.text_keys else bytes

    def encode(self, value: Any) -> bytes:
        data = self.dumps(value)
        return data if type(data) is bytes else to_bytes(data, "what a codec's dumps returns")

    def can_count(self) -> bool:
        """Whether the codec reads the decimal text that incr writes as the number, or its text."""
        if self.codec is None:
            return True
        try:
            return self.codec.loads(b"7") in (7, "7", b"7")
        except Exception:  # noqa: BLE001 # what a codec raises for what it cannot read is its own business
            return False


def coding(codec: Any, keys: Any) -> Optional[Coding]:
    """What codec= and keys= ask for; None: bytes, as they are."""
    if keys is not bytes and keys is not str:
        raise TypeError(f"keys must be str or bytes (the type), not {keys!r}")
    if codec is None:
        return None if keys is bytes else Coding(None, keys)
    for name in ("dumps", "loads"):
        if not callable(getattr(codec, name, None)):
            raise TypeError(
                "a codec is an object with dumps and loads, such as kvstore.TEXT, kvstore.JSON or kvstore.PICKLE; "
                f"this {type(codec).__name__} has no {name}"
            )
    return Coding(codec, keys)


def pickled(codec: Optional[Codec[Any]]) -> Union[None, str, bytes]:
    """What makes the codec again in another process: a module's name, or a pickle. TypeError if there is none."""
    if codec is None:
        return None
    if isinstance(codec, ModuleType):
        return codec.__name__
    try:
        return pickle.dumps(codec)
    except Exception as e:
        raise TypeError(
            f"the codec, a {type(codec).__name__}, cannot be pickled, and so nor can what has it ({e}): make its class "
            "one of a module"
        ) from e


def unpickled(spec: Union[None, str, bytes]) -> Any:
    """The codec that :func:`pickled` was given."""
    if isinstance(spec, str):
        return importlib.import_module(spec)
    return None if spec is None else pickle.loads(spec)
