"""The codec ``kvstore.DATA``: data types of Python as JSON with tags. Reading runs no code from the
file.

What JSON has is written as JSON: None, bool, int, float, str, lists, and dicts whose keys are str.
Any other value becomes an object with one key, its tag, which begins with "$":

======================  ============================================================
``{"$bytes": s}``       bytes, in base64
``{"$tuple": [...]}``   tuple; also ``$set`` and ``$frozenset``
``{"$dict": [[k, v]]}`` dict with other keys, or with a key that begins with "$"
``{"$int": s}``         int of more than 1,000 bits, in hexadecimal
``{"$datetime": [...]}`` ISO 8601, fold, name of the time zone or null
``{"$date": s}``        ISO 8601; also ``$time``: ISO 8601, fold
``{"$timedelta": [d, s, us]}``, ``{"$decimal": s}``, ``{"$uuid": s}``, ``{"$complex": [re, im]}``
``{"$enum": [...]}``    module, qualified name of the class, name of the member
``{"$object": [...]}``  registered name of the class, fields
``{"$ndarray": [...]}`` dtype, shape, base64; also ``$scalar`` of numpy: dtype, base64
======================  ============================================================

A value that is bytes or an array as a whole has a form of its own, without base64: see ``_BYTES``.

An enum is looked up among the loaded modules; nothing is imported. JSON: RFC 8259, with NaN and
Infinity as Python's json writes them.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import decimal
import enum
import importlib
import json
import re
import sys
import uuid
import zoneinfo
from types import ModuleType
from typing import Any, Callable, Optional, TypeVar

from kvstore._codec import Named

C = TypeVar("C", bound=type)

#: The first byte of a value that is bytes: the bytes follow.
_BYTES = b"\x01"
#: The first byte of a value that is an array: dtype and shape as JSON, a zero byte, the elements.
_ARRAY = b"\x02"
#: The first byte of a pickle of protocol 2 or later.
_PICKLE = b"\x80"

_encode_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
#: What JSON has, and reads as the same type.
_JSON_TYPES = frozenset({type(None), bool, float, str})
#: The element types of arrays: numbers, text, times; no objects and no records.
_DTYPE = re.compile(r"[<>|=](?:[biufcmM]\d{1,3}(?:\[\d*\w{1,2}\])?|[SU]\d{1,9})\Z")
_MANY_BITS = 1000


class _Data(Named):
    """The codec ``kvstore.DATA``: data types of Python. Reading runs no code from the file.

    A value comes back with its type. These types can be stored, also inside each other:

    - None, bool, int, float, complex, str, bytes
    - list, tuple, set, frozenset, and dict, whose keys can have all these types, too
    - datetime, date, time, timedelta. The time zone of a datetime is a ``timezone`` or a ``ZoneInfo``,
      that of a time a ``timezone``
    - Decimal, UUID
    - single members of an Enum, IntEnum or Flag whose class is not defined in a function
    - dataclasses and named tuples, after :meth:`register`
    - NumPy arrays and scalars of numbers, bool, text or times

    Any other type is a TypeError, also a subclass of one of these: bytearray, memoryview,
    OrderedDict, defaultdict, Counter, deque, range, Path, Fraction, IPv4Address, exceptions. Convert the
    value first, for example by ``bytes``, ``dict``, ``list`` or ``str``.
    """

    def __init__(self) -> None:
        super().__init__("DATA")
        self._classes: dict[str, type] = {}
        self._names: dict[type, str] = {}
        self._decode = json.JSONDecoder(object_hook=self._from_object).decode

    def register(self, cls: C, name: Optional[str] = None) -> C:
        """Allow a dataclass or named tuple as a value, and return the class. Can be used as a decorator.

        Reading calls the class with its fields as arguments.

        Args:
            cls: A dataclass or named tuple.
            name: The name in the file; None: module and qualified name. A class that was renamed
                can still be read under its old name if it is registered with that, too.

        Raises:
            TypeError: If ``cls`` is neither.
            ValueError: If the name is used for another class.

        >>> from dataclasses import dataclass
        >>> @kvstore.DATA.register
        ... @dataclass
        ... class Point:
        ...     x: int
        ...     y: int
        >>> kvstore.DATA.loads(kvstore.DATA.dumps(Point(1, 2)))
        Point(x=1, y=2)
        """
        if not isinstance(cls, type) or not (dataclasses.is_dataclass(cls) or _is_named_tuple(cls)):
            raise TypeError(f"register() needs a dataclass or a named tuple, not {cls!r}")
        name = f"{cls.__module__}.{cls.__qualname__}" if name is None else name
        known = self._classes.setdefault(name, cls)
        # A module that is loaded again defines its classes again.
        if known is not cls and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ValueError(f"the name {name!r} is already registered for {known!r}")
        self._classes[name] = cls
        self._names.setdefault(cls, name)  # the first name is written
        return cls

    def dumps(self, value: Any, /) -> bytes:
        """Return the value as bytes.

        Raises:
            TypeError: If a part of it has a type that this codec does not support.
            ValueError: If it contains itself.
        """
        kind = type(value)
        if kind is bytes:
            return b"".join((_BYTES, value))
        if _is_array(kind):
            dtype, shape = _array_type(value)
            return b"".join((_ARRAY, _encode_json([dtype, shape]).encode(), b"\0", value.tobytes()))
        try:
            tree = value if kind in _JSON_TYPES else self._to_json(value)
            return _encode_json(tree).encode("utf-8", "surrogatepass")
        except RecursionError:
            raise ValueError(f"this {kind.__name__} is nested too deeply, or contains itself") from None

    def loads(self, data: bytes, /) -> Any:
        """Return the value that :meth:`dumps` converted to ``data``.

        Raises:
            ValueError: If ``data`` was not written by this codec.
        """
        first = data[:1]
        if first == _BYTES:
            return data[1:]
        if first == _PICKLE:
            raise ValueError(
                "the value was written with pickle, which could run code when it is read: delete it, or use "
                "serializer=pickle if nobody else can write to the file"
            )
        try:
            if first == _ARRAY:
                kind, _, elements = data[1:].partition(b"\0")
                dtype, shape = json.loads(kind)
                return _array(dtype, shape, elements)
            return self._decode(data.decode("utf-8", "surrogatepass"))
        except _UnknownError:
            raise
        except Exception as error:  # a tag can have any content
            raise ValueError(f"the value was not written by kvstore.DATA, or is damaged: {error}") from None

    def _to_json(self, value: Any) -> Any:
        kind = type(value)
        if kind in _JSON_TYPES:
            return value
        if kind is int:
            return value if value.bit_length() <= _MANY_BITS else {"$int": hex(value)}
        if kind is list:
            return [self._to_json(item) for item in value]
        if kind is dict:
            if all(type(key) is str and key[:1] != "$" for key in value):
                return {key: self._to_json(item) for key, item in value.items()}
            return {"$dict": [[self._to_json(key), self._to_json(item)] for key, item in value.items()]}
        if kind is tuple or kind is set or kind is frozenset:
            return {f"${kind.__name__}": [self._to_json(item) for item in value]}
        convert = _TO_TAG.get(kind)
        if convert is not None:
            return convert(value)
        if isinstance(value, enum.Enum):
            # Only a member that is found by its name: no combination of flags, and no class in a function.
            if value.name in kind.__members__ and "<locals>" not in kind.__qualname__:
                return {"$enum": [kind.__module__, kind.__qualname__, value.name]}
        elif kind in self._names:
            fields = [[name, self._to_json(getattr(value, name))] for name in _fields(kind)]
            return {"$object": [self._names[kind], {"$dict": fields}]}
        elif _is_array(kind):
            return {"$ndarray": [*_array_type(value), _base64(value.tobytes())]}
        elif kind.__module__ == "numpy" and hasattr(value, "dtype"):
            return {"$scalar": [_array_type(value)[0], _base64(value.tobytes())]}
        raise TypeError(_refusal(kind))

    def _from_object(self, found: dict[str, Any]) -> Any:
        if len(found) != 1:
            return found
        ((tag, content),) = found.items()
        if tag[:1] != "$":
            return found
        if tag == "$object":
            name, fields = content
            cls = self._classes.get(name)
            if cls is None:
                raise _UnknownError(f"the value has an object of the class {name!r}, which is not registered here")
            return cls(**fields)
        convert = _FROM_TAG.get(tag)
        if convert is None:
            raise ValueError(f"unknown tag {tag!r}")
        return convert(content)


class _UnknownError(ValueError):
    """The value has a class that this process does not know."""


def _is_array(kind: type) -> bool:
    return kind.__name__ == "ndarray" and kind.__module__ == "numpy"


def _is_named_tuple(cls: type) -> bool:
    return issubclass(cls, tuple) and hasattr(cls, "_fields")


def _fields(cls: Any) -> tuple[str, ...]:
    """Return the names of the fields that a registered class takes as arguments."""
    if _is_named_tuple(cls):
        return tuple(cls._fields)
    return tuple(field.name for field in dataclasses.fields(cls) if field.init)


def _refusal(kind: type) -> str:
    name = f"{kind.__module__}.{kind.__qualname__}"
    if dataclasses.is_dataclass(kind) or _is_named_tuple(kind):
        return f"an object of the class {name} cannot be stored yet: call kvstore.DATA.register({kind.__name__})"
    return (
        f"an object of the type {name} cannot be stored: convert it to a type that help(kvstore.DATA) lists, or give "
        "serializer=pickle if nobody else can write to the file"
    )


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _of_base64(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _datetime(value: datetime.datetime) -> Any:
    zone = _zone(value)
    text = value.isoformat() if zone is None else value.replace(tzinfo=None).isoformat()
    return {"$datetime": [text, value.fold, zone]}


def _zone(value: datetime.datetime) -> Optional[str]:
    zone = value.tzinfo
    if zone is None or type(zone) is datetime.timezone:
        return None
    if type(zone) is zoneinfo.ZoneInfo and zone.key is not None:
        return zone.key
    raise TypeError(_refusal(type(zone)))


def _of_datetime(content: list[Any]) -> datetime.datetime:
    text, fold, zone = content
    value = datetime.datetime.fromisoformat(text).replace(fold=fold)
    return value if zone is None else value.replace(tzinfo=zoneinfo.ZoneInfo(zone))


def _time(value: datetime.time) -> Any:
    if value.tzinfo is not None and type(value.tzinfo) is not datetime.timezone:
        raise TypeError(_refusal(type(value.tzinfo)))
    return {"$time": [value.isoformat(), value.fold]}


def _of_time(content: list[Any]) -> datetime.time:
    text, fold = content
    return datetime.time.fromisoformat(text).replace(fold=fold)


def _enum(content: list[str]) -> enum.Enum:
    """Return a member of an enum. Reads only dicts of modules and classes, which runs no code."""
    module, path, member = content
    found: Any = sys.modules.get(module)
    for name in path.split("."):
        # Not isinstance and found.__dict__, which load a module of importlib.util.LazyLoader.
        has_names = issubclass(type(found), (type, ModuleType))
        found = object.__getattribute__(found, "__dict__").get(name) if has_names else None
    if not issubclass(type(found), enum.EnumMeta):  # not isinstance, which calls a property __class__
        raise _UnknownError(f"the value has a member of {module}.{path}, which is no enum that was imported here")
    chosen: enum.Enum = dict(found.__members__)[member]
    return chosen


def _array_type(array: Any) -> tuple[str, list[int]]:
    dtype = array.dtype.str
    if not _DTYPE.match(dtype):
        raise TypeError(f"an array of the dtype {array.dtype} cannot be stored: numbers, text and times can")
    return dtype, list(array.shape)


def _array(dtype: str, shape: list[int], elements: bytes) -> Any:
    numpy: Any = importlib.import_module("numpy")
    if not _DTYPE.match(dtype):
        raise ValueError(f"an array of the dtype {dtype!r}")
    array = numpy.ndarray(shape, numpy.dtype(dtype), bytearray(elements))
    if array.nbytes != len(elements):
        raise ValueError("an array of another size")
    return array


_TO_TAG: dict[type, Callable[[Any], Any]] = {
    bytes: lambda value: {"$bytes": _base64(value)},
    datetime.datetime: _datetime,
    datetime.date: lambda value: {"$date": value.isoformat()},
    datetime.time: _time,
    datetime.timedelta: lambda value: {"$timedelta": [value.days, value.seconds, value.microseconds]},
    decimal.Decimal: lambda value: {"$decimal": str(value)},
    uuid.UUID: lambda value: {"$uuid": value.hex},
    complex: lambda value: {"$complex": [value.real, value.imag]},
}

_FROM_TAG: dict[str, Callable[[Any], Any]] = {
    "$bytes": _of_base64,
    "$tuple": tuple,
    "$set": set,
    "$frozenset": frozenset,
    "$dict": dict,
    "$int": lambda content: int(content, 16),
    "$datetime": _of_datetime,
    "$date": lambda content: datetime.date.fromisoformat(content),
    "$time": _of_time,
    "$timedelta": lambda content: datetime.timedelta(*content),
    "$decimal": lambda content: decimal.Decimal(content),
    "$uuid": lambda content: uuid.UUID(hex=content),
    "$complex": lambda content: complex(*content),
    "$enum": _enum,
    "$scalar": lambda content: _array(content[0], [], _of_base64(content[1]))[()],
    "$ndarray": lambda content: _array(content[0], content[1], _of_base64(content[2])),
}

#: Values are data types of Python: None, bool, int, float, complex, str, bytes, list, tuple, dict,
#: set, frozenset, datetime, date, time, timedelta, Decimal, UUID, members of enums, dataclasses and
#: named tuples that were registered with ``DATA.register``, and numpy arrays and scalars of numbers,
#: text or times. Other types and subclasses are a TypeError. Reading runs no code from the file.
DATA = _Data()
