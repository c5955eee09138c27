"""Conversion of keys and values: the classes Disk and JSONDisk, which programs may subclass."""

from __future__ import annotations

import io
import json
import zlib
from typing import Any, Optional

from kvstore import DATA
from kvstore._codec import checked_serializer

MODE_NONE, MODE_RAW, MODE_BINARY, MODE_TEXT, MODE_PICKLE = range(5)


class Constant(tuple[str]):
    """A named constant whose repr is its name."""

    def __new__(cls, name: str) -> Constant:
        return tuple.__new__(cls, (name,))

    def __repr__(self) -> str:
        return self[0]


#: The default of arguments for which None is a valid value.
ENOVAL = Constant("ENOVAL")
#: The key or value in a call of :class:`Disk` if it is not known.
UNKNOWN = Constant("UNKNOWN")

#: A converted value: its size beyond the row (always 0), its mode, no file name, and the value
#: as bytes, str, int or float.
Stored = tuple[int, int, None, Any]


class Disk:
    """Converts keys and values to the types that a cache stores, and back.

    bytes, str, int of 64 bits and float are stored as they are, other values with ``serializer``.
    Unlike diskcache's, this class writes no files, so subclasses cannot choose file names.

    Args:
        directory: The directory of the cache.
        min_file_size: From this size in bytes, a value is "large": ``read=True`` returns a file.
        pickle_protocol: Accepted for programs that set it, and not used.
        serializer: An object with ``dumps`` and ``loads``. By default ``kvstore.DATA``: other types
            than those it lists are a TypeError. With ``pickle`` any object can be stored, and write
            access to the file is enough to run code in this process.
    """

    def __init__(
        self, directory: str, min_file_size: int = 0, pickle_protocol: int = 0, serializer: Optional[Any] = None
    ) -> None:
        self._directory = directory
        self.min_file_size = min_file_size
        self.pickle_protocol = pickle_protocol
        self.serializer = DATA if serializer is None else checked_serializer(serializer)

    def put(self, key: Any) -> tuple[Any, bool]:
        """Convert a key. Return bytes, str, int or float, and whether that is the key itself."""
        if _is_plain(key):
            return key, True
        data = self.serializer.dumps(key)
        return (data.encode() if isinstance(data, str) else data), False

    def get(self, key: Any, raw: bool) -> Any:
        """Convert what :meth:`put` has returned back to the key."""
        return key if raw else self.serializer.loads(key)

    def store(self, value: Any, read: bool, key: Any = UNKNOWN) -> Stored:
        """Convert a value, or with ``read`` the content of a file that is open in binary mode."""
        if read:
            return 0, MODE_BINARY, None, value.read()
        if type(value) is bytes and len(value) >= self.min_file_size:
            return 0, MODE_BINARY, None, value
        if _is_plain(value):
            return 0, MODE_RAW, None, value
        data = self.serializer.dumps(value)
        return 0, MODE_PICKLE, None, data.encode() if isinstance(data, str) else data

    def fetch(self, mode: int, filename: None, value: Any, read: bool) -> Any:
        """Convert what :meth:`store` has returned back to the value. With ``read``, return a large
        value that is bytes as a file.
        """
        if mode == MODE_PICKLE:
            return self.serializer.loads(value)
        return io.BytesIO(value) if read and mode == MODE_BINARY else value

    def hash(self, key: Any) -> int:
        """Return a number from 0 to 2**32 - 1 that is the same for a key in all processes."""
        stored = self.put(key)[0]
        return zlib.crc32(stored if isinstance(stored, bytes) else repr(stored).encode("utf-8", "surrogatepass"))


class JSONDisk(Disk):
    """Converts keys and values to JSON that is compressed with zlib.

    Args:
        directory: The directory of the cache.
        compress_level: 0 (no compression) to 9 (the smallest result).
        options: Arguments of :class:`Disk`.
    """

    def __init__(self, directory: str, compress_level: int = 1, **options: Any) -> None:
        self.compress_level = compress_level
        super().__init__(directory, **options)

    def put(self, key: Any) -> tuple[Any, bool]:
        return super().put(self._compressed(key))

    def get(self, key: Any, raw: bool) -> Any:
        return json.loads(zlib.decompress(super().get(key, raw)))

    def store(self, value: Any, read: bool, key: Any = UNKNOWN) -> Stored:
        return super().store(value if read else self._compressed(value), read, key=key)

    def fetch(self, mode: int, filename: None, value: Any, read: bool) -> Any:
        data = super().fetch(mode, filename, value, read)
        return data if read else json.loads(zlib.decompress(data))

    def _compressed(self, value: Any) -> bytes:
        return zlib.compress(json.dumps(value).encode(), self.compress_level)


def _is_plain(value: Any) -> bool:
    kind = type(value)
    return kind is str or kind is bytes or kind is float or (kind is int and -(1 << 63) <= value < 1 << 63)
