"""Recovery: what can be read of a damaged file, saved into a new store.

Must not import the store: such a file cannot be opened.
"""

from __future__ import annotations

import os
from typing import Any, Callable, NamedTuple, Optional

from kvstore._errors import InvalidError, error_text
from kvstore._maintenance import Path
from kvstore._native import NULL, check, ffi, lib

#: Called with a line about what is lost, or None, and with the pages that were read and are to be read.
Report = Callable[[Optional[str], int, int], Any]


class Recovered(NamedTuple):
    """What :func:`recover` has done."""

    #: Rows in the new store.
    saved: int
    #: Everything that was found to be lost: rows, pages, tables. 0: nothing is.
    lost: int


def recover(path: Path, new: Path, report: Optional[Report] = None) -> Recovered:
    """Saves every row that can be read of the file ``path``, which may be damaged, into a new store at ``new``: with
    its value, its TTL and its family. Rows that have expired are left out, and none is invented.

    The file is only read, and nobody may have it open. ``new`` must not exist, and appears when it is whole.
    ``report(text, done, total)`` is called with a line about each thing that is lost, and now and then with None as
    ``text``; ``done`` and ``total`` are numbers of pages. An exception in it stops the recovery and comes out here.
    A byte that was changed inside a key or a value is not noticed: values have no checksums.
    """
    names = [os.fsencode(path), os.fsencode(new)]
    if any(b"\0" in name for name in names):
        raise ValueError("a path cannot have a NUL in it")
    call = _Call(report)
    context = ffi.new_handle(call)
    saved, lost = ffi.new("int64_t *"), ffi.new("int64_t *")
    rc = lib.kvstore_recover(names[0], names[1], NULL if report is None else lib.kvpy_report, context, saved, lost)
    if call.error is not None:
        try:
            raise call.error
        finally:
            call.error = None  # no cycle through the traceback
    if rc == lib.KVSTORE_ERROR:
        raise InvalidError(error_text(NULL))
    check(rc)
    return Recovered(int(saved[0]), int(lost[0]))


class _Call:
    """A report function, and what it raised."""

    __slots__ = ("error", "report")

    def __init__(self, report: Optional[Report]) -> None:
        self.report = report
        self.error: Optional[BaseException] = None


@ffi.def_extern(error=1)  # type: ignore[untyped-decorator, unused-ignore]
def kvpy_report(context: Any, text: Any, done: int, total: int) -> int:
    call: _Call = ffi.from_handle(context)
    try:
        if call.report is not None:
            call.report(None if text == NULL else ffi.string(text).decode("utf-8", "replace"), done, total)
    except BaseException as e:  # it goes on in recover()
        call.error = e
        return 1
    return 0
