"""What other packages keep: finds out whose a file or folder is, and reads its entries one by one.

Reads only: no source is written to, nothing is unpickled, and none of the packages is needed but snkv, whose files
nobody else can read. What the entries become is decided in _import.
"""

from __future__ import annotations

import dbm
import importlib
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional, Union
from urllib.parse import quote

#: What a source can be.
KINDS = ("diskcache", "sqlitedict", "shelve", "dbm", "snkv")

#: How a key or value is kept: as itself (bytes, str, int, float), or as a pickle, which is not looked into; or it is
#: missing.
BYTES, TEXT, NUMBER, PICKLE, NOTHING = "bytes", "text", "number", "pickle", "nothing"


class SourceError(Exception):
    """The source cannot be read; the text says why and what to do."""


class EntryError(Exception):
    """One entry cannot be read; the text is a reason to report."""


class Piece(NamedTuple):
    """A key or a value."""

    kind: str
    data: Union[bytes, str, int, float]


class Entry(NamedTuple):
    """A key with its value."""

    #: The family it is in; None if the source has no families.
    family: Optional[str]
    key: Piece
    #: Reads the value. EntryError if it cannot be.
    value: Callable[[], Piece]
    #: When it expires, in seconds since the Unix epoch, as the source has it; None: never.
    expires_at: Any


class Source(NamedTuple):
    """A source that was found."""

    kind: str
    path: Path
    #: The files that must not change while they are read, and which are not to be written to.
    files: list[Path]
    entries: Callable[[], Iterator[Entry]]


def find(path: Path, kind: Optional[str] = None, table: Optional[str] = None) -> Source:
    """The source at a path. ``kind`` says what it is, if it cannot be told; ``table`` is for sqlitedict."""
    found = kind or recognise(path)
    if table is not None and found != "sqlitedict":
        raise SourceError(f"a table is chosen in files of sqlitedict, and {path} is one of {found}")
    if found == "diskcache":
        caches = _diskcaches(path)
        return Source(found, path, caches, lambda: _read_diskcaches(caches))
    if found == "sqlitedict":
        name = _sqlitedict_table(path, table)
        return Source(found, path, [path], lambda: _read_table(path, name))
    if found in ("shelve", "dbm"):
        base, files = _dbm_files(path)
        return Source(found, path, files, lambda: _read_dbm(base, pickles=found == "shelve"))
    if found == "snkv":
        return Source(found, path, [path], lambda: _read_snkv(path))
    raise SourceError(f"{kind!r} is none of {', '.join(KINDS)}")


def recognise(path: Path) -> str:
    """What is at a path: one of KINDS."""
    if path.is_dir():
        if _caches_in(path):
            return "diskcache"
        raise SourceError(f"{path} is a folder without a cache.db of diskcache's")
    if not path.exists():
        if _whichdb(path):
            return "shelve"
        raise SourceError(f"there is nothing at {path}")
    if path.name == "cache.db" and "Cache" in _tables(path):
        return "diskcache"
    if _is_sqlite(path):
        try:
            tables = _tables(path)
        except SourceError:
            return "snkv"  # SQLite's pages without SQLite's list of tables
        if "kvstore_family" in tables:
            raise SourceError(f"{path} is a store of kvstore's already; Store.backup copies it")
        if not tables:
            return "snkv"
        return "shelve" if tables.get("Dict") == ["key", "value"] and len(tables) == 1 else "sqlitedict"
    if _whichdb(path):
        return "shelve"
    raise SourceError(f"cannot tell what {path} is: say --from, one of {', '.join(KINDS)}")


# SQLite


def _is_sqlite(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(16) == b"SQLite format 3\0"


def has_log(path: Path) -> bool:
    """Whether a write-ahead log lies beside a file of SQLite's: somebody uses it, or has left something there."""
    log = path.with_name(path.name + "-wal")
    return log.exists() and log.stat().st_size > 0


def connect(path: Path) -> sqlite3.Connection:
    """A connection that writes nothing. With a log it reads one state of the file, whatever others write. Without one
    the file is read as it is, so that SQLite puts no files beside it; then it must not change meanwhile."""
    mode = "mode=ro" if has_log(path) else "mode=ro&immutable=1"
    try:
        connection = sqlite3.connect(f"file:{quote(str(path.absolute()))}?{mode}", uri=True, timeout=10)
    except sqlite3.Error as error:
        raise SourceError(f"{path} cannot be opened: {error}") from error
    connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
    return connection


def _tables(path: Path) -> dict[str, list[str]]:
    """The columns of each table."""
    connection = connect(path)
    try:
        names = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        return {
            name: [row[1] for row in connection.execute(f"PRAGMA table_info({_quoted(name)})")] for (name,) in names
        }
    except sqlite3.Error as error:
        raise SourceError(f"{path} cannot be read as a database: {error}") from error
    finally:
        connection.close()


def _rows(path: Path, query: str) -> Iterator[Any]:
    connection = connect(path)
    try:
        yield from connection.execute(query)
    except sqlite3.Error as error:
        raise SourceError(f"{path} cannot be read: {error}") from error
    finally:
        connection.close()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _plain(data: Any) -> Piece:
    """What SQLite keeps, as itself."""
    if isinstance(data, bytes):
        return Piece(BYTES, data)
    if isinstance(data, str):
        return Piece(TEXT, data)
    if isinstance(data, (int, float)):
        return Piece(NUMBER, data)
    return Piece(NOTHING, b"")


def _guessed(data: Any) -> Piece:
    """The same, but bytes may be a pickle: packages do not say."""
    if isinstance(data, bytes) and len(data) > 2 and data[0] == 0x80 and 2 <= data[1] <= 5 and data[-1] == 0x2E:
        return Piece(PICKLE, data)
    return _plain(data)


# diskcache: a folder with cache.db, and a file for each long value. A FanoutCache is a folder of such folders.


def _caches_in(folder: Path) -> list[Path]:
    if (folder / "cache.db").is_file():
        return [folder / "cache.db"]
    return sorted(folder.glob("[0-9][0-9][0-9]/cache.db"))


def _diskcaches(path: Path) -> list[Path]:
    caches = _caches_in(path) if path.is_dir() else [path] if path.is_file() else []
    if not caches:
        raise SourceError(f"there is no cache of diskcache's at {path}: give its folder")
    for cache in caches:
        if "Cache" not in _tables(cache):
            raise SourceError(f"{cache} has no table Cache, so it is none of diskcache's")
    return caches


def _read_diskcaches(caches: list[Path]) -> Iterator[Entry]:
    for cache in caches:
        query = "SELECT key, raw, expire_time, mode, filename, value FROM Cache ORDER BY rowid"
        for key, raw, expire_time, mode, filename, value in _rows(cache, query):
            name = _plain(key) if raw else Piece(PICKLE, key)
            yield Entry(None, name, _diskcache_value(cache.parent, mode, filename, value), expire_time)


def _diskcache_value(folder: Path, mode: Any, filename: Any, value: Any) -> Callable[[], Piece]:
    def read() -> Piece:
        data = value if filename is None else _file_in(folder, filename)
        if mode == 1:
            return _plain(data)
        if mode == 3 and isinstance(data, bytes):
            return Piece(TEXT, data.decode("utf-8", "surrogateescape"))
        if mode in (2, 4) and isinstance(data, bytes):
            return Piece(BYTES if mode == 2 else PICKLE, data)
        raise EntryError("a value of a mode that is not diskcache's")

    return read


def _file_in(folder: Path, filename: Any) -> bytes:
    path = os.path.realpath(folder / str(filename))
    if not path.startswith(os.path.realpath(folder) + os.sep):
        raise EntryError("the file of a value is outside the cache's folder")
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise EntryError(f"the file of a value cannot be read: {error.strerror}") from error


# sqlitedict: tables of key and value


def _sqlitedict_table(path: Path, table: Optional[str]) -> str:
    if not path.is_file():
        raise SourceError(f"there is no file {path}")
    names = [name for name, columns in _tables(path).items() if columns == ["key", "value"]]
    if table is not None:
        if table not in names:
            raise SourceError(f"{path} has no table {table!r} of key and value; it has {', '.join(names) or 'none'}")
        return table
    if len(names) != 1:
        known = f"several tables: {', '.join(names)}; say --table" if names else "no table of key and value"
        raise SourceError(f"{path} has {known}")
    return names[0]


def _read_table(path: Path, table: str) -> Iterator[Entry]:
    for key, value in _rows(path, f"SELECT key, value FROM {_quoted(table)}"):  # noqa: S608 # quoted
        yield Entry(None, _plain(key), _given(value), None)


def _given(data: Any) -> Callable[[], Piece]:
    return lambda: _guessed(data)


# shelve and dbm


def _whichdb(path: Path) -> Optional[tuple[str, str]]:
    """Which module, and the name it wants: some add an ending to it."""
    names = [str(path)]
    if path.suffix in (".db", ".dat", ".dir", ".bak", ".pag"):
        names.append(str(path.with_suffix("")))
    for name in names:
        module = dbm.whichdb(name)
        if module:
            return module, name
    return None


def _dbm_files(path: Path) -> tuple[tuple[str, str], list[Path]]:
    if path.is_file() and _is_sqlite(path):
        return ("dbm.sqlite3", str(path)), [path]
    found = _whichdb(path)
    if found is None:
        raise SourceError(f"{path} is no file of shelve's or dbm's")
    base = Path(found[1])
    endings = ("", ".db", ".dat", ".dir", ".pag")
    return found, [base.with_name(base.name + e) for e in endings if base.with_name(base.name + e).is_file()]


def _read_dbm(found: tuple[str, str], pickles: bool) -> Iterator[Entry]:
    module, name = found
    if module == "dbm.sqlite3":  # of Python 3.13; older ones can read it, too
        items: Iterator[tuple[Any, Any]] = _rows(Path(name), "SELECT key, value FROM Dict")
    else:
        items = _dbm_items(module, name)
    for key, value in items:
        yield Entry(None, Piece(BYTES, bytes(key)), _given(value) if pickles else _bytes(value), None)


def _bytes(data: Any) -> Callable[[], Piece]:
    return lambda: Piece(BYTES, bytes(data))


def _dbm_items(module: str, name: str) -> Iterator[tuple[Any, Any]]:
    try:
        reader: Any = importlib.import_module(module)
    except ImportError as error:
        raise SourceError(f"{name} needs Python's module {module}, which is not there: {error}") from error
    try:
        with reader.open(name, "r") as file:
            for key in file.keys():
                yield key, file[key]
    except Exception as error:  # of a damaged file, dbm.dumb says any
        raise SourceError(f"{name} cannot be read: {error}") from error


# snkv


def _read_snkv(path: Path) -> Iterator[Entry]:
    try:
        snkv: Any = importlib.import_module("snkv")
        failure = snkv.Error
    except (ImportError, AttributeError) as error:  # or it is a folder of that name
        raise SourceError("files of snkv are read by its own package: pip install snkv") from error
    if not path.is_file():
        raise SourceError(f"there is no file {path}")
    try:
        with snkv.KVStore(str(path), read_only=1) as store:
            yield from _snkv_family(store, "default")
            for name in store.list_column_families():
                with store.open_column_family(name) as family:
                    yield from _snkv_family(family, name)
    except failure as error:
        raise SourceError(f"{path} cannot be read by snkv: {error}") from error


def _snkv_family(family: Any, name: str) -> Iterator[Entry]:
    for key, value in family.iterator():
        left = family.ttl(key)  # seconds; None: no TTL
        expires_at = None if left is None else time.time() + left
        yield Entry(name, Piece(BYTES, key), _bytes(value), expires_at)
