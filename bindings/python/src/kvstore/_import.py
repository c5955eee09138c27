"""The command ``import``: copy the data of another package into a store.

Finding and reading sources is in _sources; this module converts entries and writes them.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import pickle
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Optional, Union

from kvstore._path import is_remote
from kvstore._errors import Error, InvalidError
from kvstore._family import Family
from kvstore._sources import BYTES, KINDS, NOTHING, NUMBER, PICKLE, TEXT
from kvstore._sources import Entry, EntryError, Piece, Source, SourceError, find, has_log
from kvstore._store import Store
from kvstore._store import open as open_store
from kvstore._time import FOREVER
from kvstore._transaction import in_one_transaction

_MAX_KEY_BYTES = 65_536
#: The maximum number of entries, and the approximate number of bytes, of one transaction.
_BATCH_ENTRIES, _BATCH_BYTES = 1000, 4 << 20
#: The pickle protocol of imported values. Every Python that this package supports can read it.
_PICKLE_PROTOCOL = 4

#: About the year 9999. A later expiry time is a mistake in the source.
_LAST_MOMENT = 253_402_300_800.0

_EXPIRED = "expired in the source"
_PRESENT = "already in the target"


class Options(NamedTuple):
    """Settings of an import: how entries are converted and written."""

    family: Optional[str] = None
    values: str = "raw"
    unpickle: bool = False
    overwrite: bool = False
    skip_existing: bool = False
    dry_run: bool = False
    max_value_size: int = 0


class Report:
    """The result of an import: counts of imported and skipped entries."""

    def __init__(self, source: Source, dry_run: bool = False) -> None:
        self.kind = source.kind
        self.verb = "would be imported" if dry_run else "imported"
        #: Whether some values were imported as pickles, among others that are not.
        self.raw_pickles = False
        self.imported: Counter[str] = Counter()
        self.with_ttl = 0
        self.skipped: Counter[str] = Counter()

    @property
    def complete(self) -> bool:
        """Whether every live entry of the source is in the store."""
        return not set(self.skipped) - {_EXPIRED, _PRESENT}

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield ``(count, text)`` pairs, such as the number of entries imported into each family.
        """
        for family, count in sorted(self.imported.items()):
            name = json.dumps(family, ensure_ascii=False).encode(errors="backslashreplace").decode()
            yield count, f"{self.verb} from {self.kind} into family {name}"
        if not self.imported:
            yield 0, f"{self.verb} from {self.kind}"
        yield self.with_ttl, "of them with a TTL"
        for reason, count in self.skipped.most_common():
            yield count, f"skipped: {reason}"

    def as_text(self, in_columns: bool) -> str:
        """Return the report as text: in columns for a terminal, or with tabs, as the kvstore
        command does.
        """
        if in_columns:
            return "\n".join(f"{number:>12,}".replace(",", " ") + f"  {what}" for number, what in self.lines())
        return "\n".join(f"{number}\t{what}" for number, what in self.lines())

    @property
    def hint(self) -> str:
        """Advice for the user about skipped entries, or an empty string."""
        if not self.raw_pickles or self.kind != "diskcache":
            return ""
        return (
            "some values were imported as pickles and others not: use --values pickle to pickle all of "
            "them, for codec=kvstore.PICKLE"
        )

    def as_json(self) -> str:
        """Return the report as one JSON object."""
        return json.dumps(
            {
                "kind": self.kind,
                "imported": dict(self.imported),
                "with_ttl": self.with_ttl,
                "skipped": dict(self.skipped),
                "complete": self.complete,
            }
        )


def import_into(source: Source, target: Union[str, Path], options: Options) -> Report:
    """Copy the live entries of a source into the store at ``target``. The store is created if it
    does not exist.

    Entries written before an error stay: run the import again with ``skip_existing``.

    Args:
        source: The source, from :func:`kvstore._sources.find`.
        target: A path, or the URL of a store on a server as str.
        options: How entries are converted and written.

    Raises:
        SourceError: If the source cannot be read or changed meanwhile, or if a target family has
            keys and neither ``overwrite`` nor ``skip_existing`` is set.
    """
    if isinstance(target, Path) and any(target.exists() and file.exists() and file.samefile(target) for file in source.files):
        raise SourceError("the target is the source itself: give the path of another file as STORE")
    report = Report(source, options.dry_run)
    before = {file: _state(file) for file in source.files if not has_log(file)}
    if options.dry_run:
        for _, entry in _converted(source, options, report):
            _count(report, entry)
    else:
        with open_store(target, max_value_size=options.max_value_size) as store:
            writer = _Writer(store, source, options, report)
            for size, entry in _converted(source, options, report):
                writer.add(size, entry)
            writer.flush()
            store.sync()
    if any(has_log(file) or _state(file) != state for file, state in before.items()):
        raise SourceError(
            f"{source.path} changed while it was read, so entries may be missing: import it again while no "
            "program uses it, "
            "with --skip-existing or --overwrite"
        )
    return report


def _state(file: Path) -> tuple[int, int, int]:
    stat = file.stat()
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


class _Ready(NamedTuple):
    """An entry of the source, converted to the form in which it is written."""

    family: str
    key: bytes
    value: bytes
    expires_at: Optional[float]
    #: Whether the value is a pickle that was imported unchanged.
    raw_pickle: bool


def _converted(source: Source, options: Options, report: Report) -> Iterator[tuple[int, _Ready]]:
    """Yield each entry that can be imported, converted, with its size. Count the entries that
    cannot.
    """
    # If a source has keys of several types, two of them can map to the same bytes: b"1" and "1", or
    # a number and its digits. To find out, each key is kept in memory.
    alike: Optional[set[tuple[str, bytes]]] = set() if source.kind in ("diskcache", "sqlitedict") else None
    for entry in source.entries():
        try:
            ready = _ready(entry, options)
            if ready is None:
                report.skipped[_EXPIRED] += 1
                continue
            if alike is not None:
                if (ready.family, ready.key) in alike:
                    raise EntryError("the key equals that of another entry once it is converted to bytes")
                alike.add((ready.family, ready.key))
        except EntryError as error:
            report.skipped[str(error)] += 1
            continue
        yield len(ready.key) + len(ready.value), ready


def _ready(entry: Entry, options: Options) -> Optional[_Ready]:
    moment = _moment(entry.expires_at)
    if moment is not None and moment <= time.time():
        return None
    key = _key(entry.key, options)
    if not 1 <= len(key) <= _MAX_KEY_BYTES:
        raise EntryError(f"the key is empty or longer than {_MAX_KEY_BYTES} bytes")
    family = entry.family or options.family or "default"
    piece = entry.value()
    return _Ready(family, key, _value(piece, options), moment, piece.kind == PICKLE and options.values == "raw")


def _moment(expires_at: Any) -> Optional[float]:
    if expires_at is None or expires_at == math.inf:
        return None
    if not _is_plain_number(expires_at) or expires_at > _LAST_MOMENT:
        raise EntryError("the expiry time is not a valid time")
    return float(expires_at)


def _key(piece: Piece, options: Options) -> bytes:
    if piece.kind != PICKLE:
        return _raw(piece)
    if not options.unpickle:
        raise EntryError("the key is a pickle: use --unpickle to read it")
    key = _unpickled(piece)
    if isinstance(key, (bytes, str)) or _is_plain_number(key):
        return _raw(_piece(key))
    return _json(key, "the key").encode()


def _value(piece: Piece, options: Options) -> bytes:
    if piece.kind == NOTHING:
        return _raw(piece)
    if options.values == "pickle":
        return _bytes_of(piece) if piece.kind == PICKLE else pickle.dumps(piece.data, _PICKLE_PROTOCOL)
    if piece.kind != PICKLE:
        return _raw(piece) if options.values == "raw" else _json(piece.data, "the value").encode()
    if options.values == "json":
        if not options.unpickle:
            raise EntryError("the value is a pickle: use --unpickle to read it")
        return _json(_unpickled(piece), "the value").encode()
    if options.unpickle:
        value = _unpickled(piece)
        if isinstance(value, (bytes, str)) or _is_plain_number(value):
            return _raw(_piece(value))
    return _bytes_of(piece)


def _bytes_of(piece: Piece) -> bytes:
    if not isinstance(piece.data, bytes):
        raise EntryError("the pickle is not stored as bytes")
    return piece.data


def _raw(piece: Piece) -> bytes:
    data = piece.data
    if piece.kind == NOTHING:
        raise EntryError("the key or value is NULL")
    if isinstance(data, bytes):
        return data
    if isinstance(data, str):
        return data.encode("utf-8", "surrogateescape")
    return repr(data).encode()


def _piece(data: Union[bytes, str, int, float]) -> Piece:
    return Piece(BYTES if isinstance(data, bytes) else TEXT if isinstance(data, str) else NUMBER, data)


def _is_plain_number(data: Any) -> bool:
    return type(data) is int or (type(data) is float and math.isfinite(data))


def _json(data: Any, what: str) -> str:
    try:
        text = json.dumps(data, ensure_ascii=False, allow_nan=False)
        text.encode()
    except (TypeError, ValueError, RecursionError):
        raise EntryError(f"{what} is of type {type(data).__name__}, which cannot be written as JSON") from None
    return text


def _unpickled(piece: Piece) -> Any:
    try:
        return pickle.loads(_bytes_of(piece))
    except EntryError:
        raise
    except Exception as error:  # unpickled classes may raise anything
        raise EntryError(f"the pickle cannot be loaded: {type(error).__name__}") from error


class _Writer:
    """Writes entries to the store in groups, each in one transaction."""

    def __init__(self, store: Store, source: Source, options: Options, report: Report) -> None:
        self._store = store
        self._source = source
        self._options = options
        self._report = report
        self._families: dict[str, Family] = {}
        self._waiting: list[_Ready] = []
        self._bytes = 0

    def add(self, size: int, entry: _Ready) -> None:
        self._waiting.append(entry)
        self._bytes += size
        if len(self._waiting) >= _BATCH_ENTRIES or self._bytes >= _BATCH_BYTES:
            self.flush()

    def flush(self) -> None:
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        for entry in waiting:
            self._family(entry.family)

        def write() -> list[Optional[str]]:
            return [self._write(self._family(entry.family), entry) for entry in waiting]

        # Counted after the commit: on a server the transaction may run again.
        for entry, skipped in zip(waiting, in_one_transaction(self._store._state, write)):
            if skipped is None:
                _count(self._report, entry)
            else:
                self._report.skipped[skipped] += 1

    def _family(self, name: str) -> Family:
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = self._store.family(name, create=True)
            if family and not (self._options.overwrite or self._options.skip_existing):
                raise SourceError(
                    f"family {name!r} of the target already has keys: use --skip-existing to keep them, "
                    "--overwrite to "
                    "replace them, or choose another --family"
                )
        return family

    def _write(self, family: Family, entry: _Ready) -> Optional[str]:
        """Write one entry. Return None, or the reason why the entry was skipped."""
        if self._options.skip_existing and entry.key in family:
            return _PRESENT
        expires_at, ttl = entry.expires_at, None
        if expires_at is None:
            ttl = FOREVER
        elif self._store._state.pool.remote:  # the expiry time refers to this machine's clock, not the server's
            ttl, expires_at = max(0.001, expires_at - time.time()), None
        try:
            family.put(entry.key, entry.value, ttl, expires_at)
        except InvalidError as error:
            return str(error)
        return None


def _count(report: Report, entry: _Ready) -> None:
    report.imported[entry.family] += 1
    report.raw_pickles = report.raw_pickles or entry.raw_pickle
    report.with_ttl += entry.expires_at is not None


# The command


def add_command(commands: Any) -> None:
    """Add the command ``import`` to the subparsers of an argparse program."""
    parser = commands.add_parser(
        "import",
        help="copy the data of another package into a store, with its TTLs",
        description="Copy the live entries of SOURCE, a directory or file of another package, into STORE. SOURCE is only "
        "read. Prints what was imported, and what was skipped and why.",
        epilog="Exit status: 0 all live entries were imported; 1 some were skipped; 2 usage error; 3 the source cannot be "
        "read or the store cannot be written; 130 interrupted.",
    )
    parser.add_argument("target", metavar="STORE", type=_target, help="the target store; created if it does not exist")
    parser.add_argument(
        "source", metavar="SOURCE", type=Path, help="the file or directory; for CSV and JSON: kvstore import --help"
    )
    parser.add_argument(
        "--from", dest="kind", choices=KINDS, help="the format of SOURCE, if it is not recognised"
    )
    parser.add_argument("--family", help="the family to import into (default: default); families of snkv keep their names")
    parser.add_argument("--table", help="the table of a sqlitedict file, if it has several")
    parser.add_argument(
        "--values",
        choices=("raw", "pickle", "json"),
        default="raw",
        help="how values are stored. raw: bytes, text and numbers as text, pickles unchanged; pickle: all as pickles (for "
        "codec=kvstore.PICKLE and the Django backend); json: all as JSON, pickles only with --unpickle",
    )
    parser.add_argument(
        "--unpickle",
        action="store_true",
        help="load pickled keys and values. WARNING: loading a pickle can run arbitrary code. Use this only if you trust "
        "everyone who could write to SOURCE",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace keys that exist in STORE")
    parser.add_argument(
        "--skip-existing", action="store_true", help="keep keys that exist in STORE; also continues an interrupted import",
    )  # fmt: skip
    parser.add_argument("--dry-run", action="store_true", help="print what would be imported, and write nothing")
    parser.add_argument(
        "--max-value-size", type=int, default=0, metavar="BYTES", help="maximum size of a value (default: 10 MiB)"
    )
    parser.add_argument("--json", action="store_true", help="print the report as a JSON object")
    parser.set_defaults(run=run)


def _target(text: str) -> Union[str, Path]:
    return text if is_remote(os.fsencode(text)) else Path(text)


def run(arguments: argparse.Namespace) -> int:
    """Run the import that the command line describes, and return the exit status."""
    if arguments.overwrite and arguments.skip_existing:
        print("kvstore: --overwrite and --skip-existing cannot both be given: choose one", file=sys.stderr)
        return 2
    try:
        source = find(arguments.source, arguments.kind, arguments.table)
        if source.kind == "snkv" and arguments.family is not None:
            print("kvstore: families of a snkv file keep their names: leave out --family", file=sys.stderr)
            return 2
        options = Options(
            family=arguments.family,
            values=arguments.values,
            unpickle=arguments.unpickle,
            overwrite=arguments.overwrite,
            skip_existing=arguments.skip_existing,
            dry_run=arguments.dry_run,
            max_value_size=arguments.max_value_size,
        )
        report = import_into(source, arguments.target, options)
    except (SourceError, Error, OSError, ValueError) as error:
        print(f"kvstore: {error}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        print("kvstore: interrupted: use --skip-existing to continue", file=sys.stderr)
        return 130
    try:
        print(report.as_json() if arguments.json else report.as_text(sys.stdout.isatty()), flush=True)
    except BrokenPipeError:  # the reader is closed; the exit status stays the same
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if report.hint and not arguments.json:
        print(f"kvstore: {report.hint}", file=sys.stderr)
    return 0 if report.complete else 1
