"""Which tests are left out on Windows, and why: nothing else. conftest.py asks.

A key is a file of tests, or FILE::TEST, which stands for all of its parameters if it names none.
"""

from __future__ import annotations

#: Windows has none, or not so.
FORKS = "there are no forks"
SIGNALS = "SIGALRM comes at a time of one's choice"
TOOLS = "mypy and pyright say the same everywhere, and are not installed there"

LEFT_OUT: dict[str, str] = {
    "test_fork.py": FORKS,
    "test_typing.py": TOOLS,
    "test_errors.py::test_a_full_disk_is_a_full_error_and_leaves_the_store_usable": "RLIMIT_FSIZE stands in for a small disk",
    "test_interrupts.py::test_signals_that_come_fast_leave_no_transaction_open": SIGNALS,
}


def reason(file: str, test: str) -> str | None:
    """Why a test is left out; None: it is not."""
    for name in (file, f"{file}::{test}", f"{file}::{test.partition('[')[0]}"):
        if name in LEFT_OUT:
            return LEFT_OUT[name]
    return None
