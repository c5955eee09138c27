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
    "test_aio.py::test_a_transaction_and_a_store_in_memory_are_the_parents_after_a_fork": FORKS,
    "test_aio.py::test_the_child_of_a_fork_opens_it_anew": FORKS,
    "test_aio.py::test_it_notices_that_its_file_has_another_name": "an open file cannot have another name",
    "test_aio_mishaps.py::test_many_calls_wait_once_for_a_file_that_is_kept_locked": FORKS,
    "test_aio_mishaps.py::test_threads_wait_once_for_a_file_that_is_kept_locked": FORKS,
    "test_docs.py::test_the_python_programs_of_the_documents_run[bindings/python/README.md]": "its session has a fork in it",
    "test_encryption.py::test_it_is_carried_to_other_processes[fork]": METHOD,
    "test_errors.py::test_a_full_disk_is_a_full_error_and_leaves_the_store_usable": "RLIMIT_FSIZE stands in for a small disk",
    "test_examples.py::test_the_pool_works_however_its_workers_are_started[forkserver]": METHOD,
    "test_import.py::test_the_source_is_not_touched": MODES,
    "test_interrupts.py::test_signals_that_come_fast_leave_no_transaction_open": SIGNALS,
    "test_iteration.py::test_a_signal_ends_a_list_of_many_rows": SIGNALS,
    "test_no_crash.py::test_it_does_not_crash_the_interpreter[a_handler_that_closes_the_store]": SIGNALS,
    "test_no_crash.py::test_it_does_not_crash_the_interpreter[interrupts_around_the_begin_of_a_transaction]": SIGNALS,
    "test_no_crash.py::test_it_does_not_crash_the_interpreter[signal_handlers_that_use_the_store]": SIGNALS,
    "test_pickle.py::test_a_pool_works_with_stores_and_families_that_it_is_passed[fork]": METHOD,
    "test_pickle.py::test_a_pool_works_with_stores_and_families_that_it_is_passed[forkserver]": METHOD,
    "test_pickle.py::test_a_path_that_is_no_utf_8_travels": "paths are UTF-8",
    "test_pickle.py::test_stores_that_were_pickled_are_one_object_in_one_process_as_long_as_it_is_used": COUNTS,
    "test_recipes_carried.py::test_in_a_process_that_is_spawned[forkserver]": METHOD,
    "test_recipes_carried.py::test_in_children_of_a_fork_while_threads_of_the_parent_use_them": FORKS,
    "test_recipes_locks.py::test_a_child_of_a_fork_holds_nothing_of_its_parents": FORKS,
    "test_store.py::test_the_file_is_private_as_the_umask_says": MODES,
    "test_threads.py::test_the_connections_of_threads_that_have_ended_are_closed": COUNTS,
    "test_threads.py::test_threads_one_after_the_other_open_no_more_than_they_need": COUNTS,
}


#: Also skipped under wine.
UNDER_WINE: dict[str, str] = {
    "test_pickle.py::test_an_executor_of_spawned_workers_works_with_a_store_that_it_is_passed": (
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
