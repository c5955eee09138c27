"""Recovery: save the readable rows of a damaged file into a new store.

Must not import the store module: a damaged file cannot be opened as a store.
"""

from __future__ import annotations

import os
from typing import Any, Callable, NamedTuple, Optional

from kvstore._errors import last_failure
from kvstore._native import NULL, check, ffi, lib
from kvstore._path import Path

#: The type of report functions, called as report(text, done, total): a line about a loss or None,
#: the pages read, and all pages.
Report = Callable[[Optional[str], int, int], Any]


class Recovered(NamedTuple):
    """The result of :func:`recover`: the number of saved rows, and the number of losses."""

    #: The number of rows in the new store.
    saved: int
    #: The number of losses that were found: rows, pages or tables.
    lost: int


def recover(path: Path, new: Path, report: Optional[Report] = None) -> Recovered:
    """Save every readable row of a damaged file into a new store, with its value, TTL and family.

    Expired rows are left out. The damaged file is only read; no program may have it open. A changed
    byte inside a key or value is not noticed: values have no checksums.

    Args:
        path: The damaged file.
        new: The file of the new store. It must not exist, and appears when it is complete.
        report: Called as ``report(text, done, total)``: with a line about each loss, and regularly
            with None as ``text``. ``done`` and ``total`` are in pages. An exception it raises stops
            the recovery and is raised here.

    Returns:
        How many rows were saved, and how many losses were found.

    Raises:
        InvalidError: If ``new`` exists.
        CorruptError: If no page of the damaged file can be read.
        StoreIOError: If a file cannot be read or written.
    """
    names = [os.fsencode(path), os.fsencode(new)]
    if any(b"\0" in name for name in names):
        raise ValueError("path contains a NUL character: give a path without one")
    call = _Call(report)
    context = ffi.new_handle(call)
    saved, lost = ffi.new("int64_t *"), ffi.new("int64_t *")
    rc = lib.kvstore_recover(names[0], names[1], NULL if report is None else lib.kvpy_report, context, saved, lost)
    if call.error is not None:
        try:
            raise call.error
        finally:
            call.error = None  # avoid a reference cycle through the traceback
    if rc == lib.KVSTORE_ERROR:
        raise last_failure(NULL).rejected()
    check(rc)
    return Recovered(int(saved[0]), int(lost[0]))


class _Call:
    """Passes a report function to the library, and keeps the exception that the function raises."""

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
    except BaseException as e:  # raised again in recover()
        call.error = e
        return 1
    return 0
