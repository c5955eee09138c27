"""Copies what another package keeps into a store: the command ``import``.

What a source is and how it is read is in _sources; here is what entries become, and how they are written.
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

from kvstore._connection import is_remote
from kvstore._errors import Error, InvalidError
from kvstore._family import Family
from kvstore._sources import BYTES, KINDS, NOTHING, NUMBER, PICKLE, TEXT
from kvstore._sources import Entry, EntryError, Piece, Source, SourceError, find, has_log
from kvstore._store import Store
from kvstore._store import open as open_store
from kvstore._time import FOREVER
from kvstore._transaction import in_one_transaction

_MAX_KEY_BYTES = 65_536
#: So many entries, or about so many bytes, are written in one transaction.
_BATCH_ENTRIES, _BATCH_BYTES = 1000, 4 << 20
#: Old enough for every Python that this package runs on.
_PICKLE_PROTOCOL = 4

#: The year 9999, about: what is later is a mistake, or was meant to be never.
_LAST_MOMENT = 253_402_300_800.0

_EXPIRED = "expired in the source"
_PRESENT = "already in the target"


class Options(NamedTuple):
    """How entries are converted and written."""

    family: Optional[str] = None
    values: str = "raw"
    unpickle: bool = False
    overwrite: bool = False
    skip_existing: bool = False
    dry_run: bool = False
    max_value_size: int = 0


class Report:
    """What was done."""

    def __init__(self, source: Source, dry_run: bool = False) -> None:
        self.kind = source.kind
        self.verb = "would be imported" if dry_run else "imported"
        #: Whether values were written as the pickles they are.
        self.raw_pickles = False
        self.imported: Counter[str] = Counter()
        self.with_ttl = 0
        self.skipped: Counter[str] = Counter()

    @property
    def complete(self) -> bool:
        """Whether everything is there that was alive in the source."""
        return not set(self.skipped) - {_EXPIRED, _PRESENT}

    def lines(self) -> Iterator[tuple[int, str]]:
        """Numbers, and of what they are."""
        for family, count in sorted(self.imported.items()):
            name = json.dumps(family, ensure_ascii=False).encode(errors="backslashreplace").decode()
            yield count, f"{self.verb} from {self.kind} into family {name}"
        if not self.imported:
            yield 0, f"{self.verb} from {self.kind}"
        yield self.with_ttl, "of them with a TTL"
        for reason, count in self.skipped.most_common():
            yield count, f"skipped: {reason}"

    def as_text(self, in_columns: bool) -> str:
        """In columns, for a terminal, or else with tabs: as the program kvstore does."""
        if in_columns:
            return "\n".join(f"{number:>12,}".replace(",", " ") + f"  {what}" for number, what in self.lines())
        return "\n".join(f"{number}\t{what}" for number, what in self.lines())

    @property
    def hint(self) -> str:
        """What else to say of it, or nothing."""
        if not self.raw_pickles or self.kind != "diskcache":
            return ""
        return "some values are pickles, as they are: with --values pickle all are, for codec=kvstore.PICKLE"

    def as_json(self) -> str:
        """For programs: one object."""
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
    """Copies the live entries of a source into the store at ``target`` (a text: the URL of one on a server), which is made
    if it is not there.

    SourceError if the source cannot be read, or a family that would be written to has keys, and nothing says what is
    to become of them. What was written before an error stays: run it again with ``skip_existing``.
    """
    if isinstance(target, Path) and any(target.exists() and file.exists() and file.samefile(target) for file in source.files):
        raise SourceError("the target is the source: give the path of another file")
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
            f"{source.path} was written to while it was read, so something may be missing: "
            "import it again when nobody uses it, with --skip-existing or --overwrite"
        )
    return report


def _state(file: Path) -> tuple[int, int, int]:
    stat = file.stat()
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


class _Ready(NamedTuple):
    """An entry as it is written."""

    family: str
    key: bytes
    value: bytes
    expires_at: Optional[float]
    #: Whether the value is a pickle of the source's, among others that are none.
    raw_pickle: bool


def _converted(source: Source, options: Options, report: Report) -> Iterator[tuple[int, _Ready]]:
    """The entries that can be imported, each with its size; counts the others."""
    # Where keys may be of several kinds, two may become one: bytes and a text, a number and its digits. (Each key is
    # kept in memory for that.)
    alike: Optional[set[tuple[str, bytes]]] = set() if source.kind in ("diskcache", "sqlitedict") else None
    for entry in source.entries():
        try:
            ready = _ready(entry, options)
            if ready is None:
                report.skipped[_EXPIRED] += 1
                continue
            if alike is not None:
                if (ready.family, ready.key) in alike:
                    raise EntryError("its key, as text, is that of another entry")
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
        raise EntryError(f"a key is empty or longer than {_MAX_KEY_BYTES} bytes")
    family = entry.family or options.family or "default"
    piece = entry.value()
    return _Ready(family, key, _value(piece, options), moment, piece.kind == PICKLE and options.values == "raw")


def _moment(expires_at: Any) -> Optional[float]:
    if expires_at is None or expires_at == math.inf:
        return None
    if not _is_plain_number(expires_at) or expires_at > _LAST_MOMENT:
        raise EntryError("its expiry is no moment")
    return float(expires_at)


def _key(piece: Piece, options: Options) -> bytes:
    if piece.kind != PICKLE:
        return _raw(piece)
    if not options.unpickle:
        raise EntryError("its key is a pickle; --unpickle reads it")
    key = _unpickled(piece)
    if isinstance(key, (bytes, str)) or _is_plain_number(key):
        return _raw(_piece(key))
    return _json(key, "its key").encode()


def _value(piece: Piece, options: Options) -> bytes:
    if piece.kind == NOTHING:
        return _raw(piece)
    if options.values == "pickle":
        return _bytes_of(piece) if piece.kind == PICKLE else pickle.dumps(piece.data, _PICKLE_PROTOCOL)
    if piece.kind != PICKLE:
        return _raw(piece) if options.values == "raw" else _json(piece.data, "its value").encode()
    if options.values == "json":
        if not options.unpickle:
            raise EntryError("its value is a pickle; --unpickle reads it")
        return _json(_unpickled(piece), "its value").encode()
    if options.unpickle:
        value = _unpickled(piece)
        if isinstance(value, (bytes, str)) or _is_plain_number(value):
            return _raw(_piece(value))
    return _bytes_of(piece)


def _bytes_of(piece: Piece) -> bytes:
    if not isinstance(piece.data, bytes):
        raise EntryError("a pickle that is not bytes")
    return piece.data


def _raw(piece: Piece) -> bytes:
    data = piece.data
    if piece.kind == NOTHING:
        raise EntryError("NULL for a key or value")
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
        raise EntryError(f"{what} is no JSON: it is of type {type(data).__name__}") from None
    return text


def _unpickled(piece: Piece) -> Any:
    try:
        return pickle.loads(_bytes_of(piece))
    except EntryError:
        raise
    except Exception as error:  # whatever the classes of the source raise
        raise EntryError(f"a pickle cannot be read: {type(error).__name__}") from error


class _Writer:
    """Writes entries many at a time, each time in one transaction."""

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

        # Counted when it is committed: on a server it may be run again.
        for entry, skipped in zip(waiting, in_one_transaction(self._store._shared, write)):
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
                    f"family {name!r} of the target has keys already: say --skip-existing to keep them, "
                    "--overwrite to replace them, or choose another --family"
                )
        return family

    def _write(self, family: Family, entry: _Ready) -> Optional[str]:
        """Writes an entry; returns why not, if not."""
        if self._options.skip_existing and entry.key in family:
            return _PRESENT
        expires_at, ttl = entry.expires_at, None
        if expires_at is None:
            ttl = FOREVER
        elif self._store._shared.connections.remote:  # the moment is by this machine's clock, and not by the server's
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
    """Adds ``import`` to the subparsers of an argparse program."""
    parser = commands.add_parser(
        "import",
        help="copy what another package keeps into a store, TTLs included",
        description="Copies the live entries of SOURCE, a folder or file of another package, into STORE. "
        "SOURCE is only read. Prints what was imported and what was skipped, and why.",
        epilog="Exit codes: 0 everything that was alive is there; 1 some of it was skipped; 2 wrong usage; "
        "3 the source cannot be read, or the store cannot be written; 130 interrupted.",
    )
    parser.add_argument("target", metavar="STORE", type=_target, help="it is made if it is not there")
    parser.add_argument("source", metavar="SOURCE", type=Path, help="for CSV and JSON see: kvstore import --help")
    parser.add_argument(
        "--from", dest="kind", choices=KINDS, help="what SOURCE is, if it is not recognised by itself"
    )
    parser.add_argument("--family", help="the family to import into (default: default); snkv's keep their names")
    parser.add_argument("--table", help="the table of a file of sqlitedict, if it has several")
    parser.add_argument(
        "--values",
        choices=("raw", "pickle", "json"),
        default="raw",
        help="what values become. raw: bytes, text and numbers as they read, pickles as they are (for programs that "
        "know); pickle: all as pickles (for codec=PICKLE, and the backend for Django); json: all as JSON, pickles "
        "with --unpickle only",
    )
    parser.add_argument(
        "--unpickle",
        action="store_true",
        help="read pickled keys and values. WARNING: a pickle can run any program when it is read. Do this only if "
        "you trust everybody who could write SOURCE",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace keys that STORE has")
    parser.add_argument(
        "--skip-existing", action="store_true", help="keep keys that STORE has; also goes on with an import that was "
        "interrupted",
    )  # fmt: skip
    parser.add_argument("--dry-run", action="store_true", help="only say what would be imported")
    parser.add_argument(
        "--max-value-size", type=int, default=0, metavar="BYTES", help="the longest value (default: 10 MiB)"
    )
    parser.add_argument("--json", action="store_true", help="print the report as a JSON object")
    parser.set_defaults(run=run)


def _target(text: str) -> Union[str, Path]:
    return text if is_remote(os.fsencode(text)) else Path(text)


def run(arguments: argparse.Namespace) -> int:
    """Does what the command line says; returns the exit code."""
    if arguments.overwrite and arguments.skip_existing:
        print("kvstore: --overwrite and --skip-existing exclude each other", file=sys.stderr)
        return 2
    try:
        source = find(arguments.source, arguments.kind, arguments.table)
        if source.kind == "snkv" and arguments.family is not None:
            print("kvstore: the families of a file of snkv keep their names: leave --family away", file=sys.stderr)
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
        print("kvstore: interrupted; with --skip-existing it goes on where it was", file=sys.stderr)
        return 130
    try:
        print(report.as_json() if arguments.json else report.as_text(sys.stdout.isatty()), flush=True)
    except BrokenPipeError:  # nobody reads it; the answer is the same
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if report.hint and not arguments.json:
        print(f"kvstore: {report.hint}", file=sys.stderr)
    return 0 if report.complete else 1
