"""The tests that are skipped on Windows, with the reasons. Used by conftest.py. Tests that need something that is not installed
(a server, the module resource) skip themselves.

A key is a test file, or FILE::TEST, which includes all parameters unless it names some.
"""

from __future__ import annotations

FORKS = "there are no forks"
METHOD = "processes are started by spawn alone"
SIGNALS = "there is no SIGALRM, and no other that comes to a process like it"
COUNTS = "counts its open files in /proc"
MODES = "files have no modes, and there is no umask"

LEFT_OUT: dict[str, str] = {
    "test_fork.py": FORKS,
    "test_typing.py": "mypy and pyright say the same everywhere, and are not installed there",
    "test_aio.py::test_transaction_and_memory_store_stay_with_forking_parent": FORKS,
    "test_aio.py::test_forked_child_reopens_store": FORKS,
    "test_aio.py::test_renamed_file_raises_store_io_error": "an open file cannot have another name",
    "test_aio_mishaps.py::test_concurrent_calls_wait_once_for_locked_file": FORKS,
    "test_aio_mishaps.py::test_concurrent_threads_wait_once_for_locked_file": FORKS,
    "test_docs.py::test_python_programs_of_documents_run[bindings/python/README.md]": "its session has a fork in it",
    "test_encryption.py::test_encrypted_store_is_passed_to_other_processes[fork]": METHOD,
    "test_errors.py::test_full_disk_raises_error_and_store_stays_usable": "RLIMIT_FSIZE stands in for a small disk",
    "test_examples.py::test_pool_example_works_with_every_start_method[forkserver]": METHOD,
    "test_import.py::test_source_is_not_changed": MODES,
    "test_interrupts.py::test_rapid_signals_leave_no_transaction_open": SIGNALS,
    "test_iteration.py::test_signal_interrupts_list_of_many_rows": SIGNALS,
    "test_no_crash.py::test_misuse_does_not_crash_interpreter[handler_closes_store]": SIGNALS,
    "test_no_crash.py::test_misuse_does_not_crash_interpreter[interrupts_around_the_begin_of_a_transaction]": SIGNALS,
    "test_no_crash.py::test_misuse_does_not_crash_interpreter[signal_handlers_that_use_the_store]": SIGNALS,
    "test_pickle.py::test_pool_accepts_stores_and_families_as_arguments[fork]": METHOD,
    "test_pickle.py::test_pool_accepts_stores_and_families_as_arguments[forkserver]": METHOD,
    "test_pickle.py::test_pickle_keeps_non_utf_8_path": "paths are UTF-8",
    "test_pickle.py::test_unpickled_stores_are_one_shared_object_while_in_use": COUNTS,
    "test_recipes_carried.py::test_recipes_work_in_spawned_process[forkserver]": METHOD,
    "test_recipes_carried.py::test_recipes_work_in_child_forked_during_use_by_threads": FORKS,
    "test_recipes_locks.py::test_forked_child_does_not_hold_parent_locks": FORKS,
    "test_store.py::test_file_mode_follows_umask": MODES,
    "test_threads.py::test_connections_of_ended_threads_are_closed": COUNTS,
    "test_threads.py::test_successive_threads_reuse_connections": COUNTS,
}


#: Also skipped under wine.
UNDER_WINE: dict[str, str] = {
    "test_pickle.py::test_spawned_executor_accepts_store_as_argument": (
        "under wine 8 an executor of spawned processes gives nothing back, also without kvstore"
    ),
}


def is_wine() -> bool:
    import ctypes

    return hasattr(ctypes, "windll") and hasattr(ctypes.windll.ntdll, "wine_get_version")


def reason(file: str, test: str) -> str | None:
    """Return why a test is skipped, or None."""
    for name in (file, f"{file}::{test}", f"{file}::{test.partition('[')[0]}"):
        if name in LEFT_OUT:
            return LEFT_OUT[name]
        if name in UNDER_WINE and is_wine():
            return UNDER_WINE[name]
    return None
