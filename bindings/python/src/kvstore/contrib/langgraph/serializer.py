"""LangGraph's serializer in its strict mode, and rows that consist of a header and encoded values."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Optional

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

#: The encodings that LangGraph writes without pickle.
_ENCODINGS = frozenset({"null", "bytes", "bytearray", "msgpack"})


class StrictSerializer(JsonPlusSerializer):
    """LangGraph's serializer in its strict mode: reading runs no code that the file names.

    Args:
        allowed_types: Classes of which objects may be read, beyond LangGraph's list of safe types;
            or tuples of module and class name.

    Raises:
        ValueError: By ``loads_typed``, for an encoding that this class does not write.
    """

    def __init__(self, allowed_types: Iterable[Any] = ()) -> None:
        super().__init__(pickle_fallback=False, allowed_msgpack_modules=tuple(allowed_types) or None)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        if data[0] not in _ENCODINGS:
            raise ValueError(f"a value has the encoding {data[0]!r:.40}, which is not read: delete it")
        return super().loads_typed(data)


def serializer_of(serde: Optional[Any], allowed_types: Iterable[Any]) -> Any:
    """Return the serializer for the arguments ``serde`` and ``allowed_types`` of a backend."""
    allowed = tuple(allowed_types)
    if serde is not None and allowed:
        raise TypeError("serde= and allowed_types= cannot both be set: give the types to the serializer")
    return StrictSerializer(allowed) if serde is None else serde


def pack(header: list[Any], *values: tuple[str, bytes]) -> bytes:
    """Return a row: a line of JSON with the header and the encoding and length of each value, and
    the values.
    """
    layout = [[encoding, len(data)] for encoding, data in values]
    line = json.dumps([header, layout], separators=(",", ":")).encode()
    return b"\n".join((line, b"".join(data for _, data in values)))


def unpack(row: bytes) -> tuple[list[Any], list[tuple[str, bytes]]]:
    """Return the header and the values of a row that :func:`pack` has returned.

    Raises:
        ValueError: If the row has another format.
    """
    line, _, rest = row.partition(b"\n")
    values: list[tuple[str, bytes]] = []
    at = 0
    try:
        header, layout = json.loads(line)
        for encoding, length in layout:
            values.append((str(encoding), rest[at : at + length]))
            at += length
    except (TypeError, ValueError, RecursionError):
        at = -1
    if at != len(rest) or not isinstance(header, list):
        raise ValueError("the row was not written by this backend: another program has changed the file")
    return header, values
