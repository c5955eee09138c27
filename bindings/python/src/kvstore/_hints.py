"""The advice on errors in Python's words, for each hint of the library.

The library names what failed in words that fit every language, and what to do about it as a number
(``KVSTORE_HINT_*``). This module has the text of each number. Must not import anything of the
package but the native module.
"""

from __future__ import annotations

import enum
from typing import Optional

from kvstore._kvstore import lib as _lib


class Hint(enum.IntEnum):
    """Advice on an :class:`Error`: what to do about it. See :attr:`Error.hint`.

    The values are the ``KVSTORE_HINT_*`` constants of kvstore.h. :attr:`advice` is the text that
    ends the message of the error. Later versions may add members.
    """

    RETRY = _lib.KVSTORE_HINT_RETRY
    RAISE_BUSY_TIMEOUT = _lib.KVSTORE_HINT_RAISE_BUSY_TIMEOUT
    ROLL_BACK = _lib.KVSTORE_HINT_ROLL_BACK
    RUN_TRANSACTION_AGAIN = _lib.KVSTORE_HINT_RUN_TRANSACTION_AGAIN
    END_TRANSACTION = _lib.KVSTORE_HINT_END_TRANSACTION
    BEGIN_TRANSACTION = _lib.KVSTORE_HINT_BEGIN_TRANSACTION
    USE_WRITE_TRANSACTION = _lib.KVSTORE_HINT_USE_WRITE_TRANSACTION
    OPEN_FOR_WRITING = _lib.KVSTORE_HINT_OPEN_FOR_WRITING
    OPEN_AGAIN = _lib.KVSTORE_HINT_OPEN_AGAIN
    CLOSE_OTHER_HANDLES = _lib.KVSTORE_HINT_CLOSE_OTHER_HANDLES
    USE_SECOND_HANDLE = _lib.KVSTORE_HINT_USE_SECOND_HANDLE
    CHECK_INTEGRITY = _lib.KVSTORE_HINT_CHECK_INTEGRITY
    REPAIR = _lib.KVSTORE_HINT_REPAIR
    RECOVER = _lib.KVSTORE_HINT_RECOVER
    CHECK_PERMISSIONS = _lib.KVSTORE_HINT_CHECK_PERMISSIONS
    FREE_DISK_SPACE = _lib.KVSTORE_HINT_FREE_DISK_SPACE
    GIVE_PASSWORD = _lib.KVSTORE_HINT_GIVE_PASSWORD
    OMIT_PASSWORD = _lib.KVSTORE_HINT_OMIT_PASSWORD
    ENCRYPT = _lib.KVSTORE_HINT_ENCRYPT
    REKEY = _lib.KVSTORE_HINT_REKEY
    BUILD_WITH_ENCRYPTION = _lib.KVSTORE_HINT_BUILD_WITH_ENCRYPTION
    BUILD_WITH_SERVER = _lib.KVSTORE_HINT_BUILD_WITH_SERVER
    RAISE_SIZE_LIMIT = _lib.KVSTORE_HINT_RAISE_SIZE_LIMIT
    RAISE_MAX_VALUE_SIZE = _lib.KVSTORE_HINT_RAISE_MAX_VALUE_SIZE
    CREATE_FAMILY = _lib.KVSTORE_HINT_CREATE_FAMILY
    OPEN_FAMILY = _lib.KVSTORE_HINT_OPEN_FAMILY
    CLOSE_FAMILY = _lib.KVSTORE_HINT_CLOSE_FAMILY
    CLEAR_FAMILY = _lib.KVSTORE_HINT_CLEAR_FAMILY
    TRACK_WRITES = _lib.KVSTORE_HINT_TRACK_WRITES
    CHANGE_EVICTION = _lib.KVSTORE_HINT_CHANGE_EVICTION
    PURGE_YOURSELF = _lib.KVSTORE_HINT_PURGE_YOURSELF
    STOP_CLEANER = _lib.KVSTORE_HINT_STOP_CLEANER
    COPY_TO_STORE = _lib.KVSTORE_HINT_COPY_TO_STORE
    RESUME_COPY = _lib.KVSTORE_HINT_RESUME_COPY
    USE_SHORTER_KEY = _lib.KVSTORE_HINT_USE_SHORTER_KEY
    REPAIR_FILE = _lib.KVSTORE_HINT_REPAIR_FILE
    GIVE_TTL = _lib.KVSTORE_HINT_GIVE_TTL

    @property
    def advice(self) -> str:
        """The advice as text."""
        return ADVICE[self]


#: The text of each hint.
ADVICE: dict[Hint, str] = {
    Hint.RETRY: "retry later",
    Hint.RAISE_BUSY_TIMEOUT: "retry, or open the store with a longer busy_timeout=",
    Hint.ROLL_BACK: "call rollback() of the transaction, or leave its block with an exception",
    Hint.RUN_TRANSACTION_AGAIN: "run the whole block of the transaction again, with its reads",
    Hint.END_TRANSACTION: "end the open transaction first",
    Hint.BEGIN_TRANSACTION: "begin one with transaction() first",
    Hint.USE_WRITE_TRANSACTION: "end the snapshot first, or use transaction() instead",
    Hint.OPEN_FOR_WRITING: "open the store without read_only=",
    Hint.OPEN_AGAIN: "close the store and open it again",
    Hint.CLOSE_OTHER_HANDLES: "close it in all other objects and processes, then retry",
    Hint.USE_SECOND_HANDLE: "open a second store for use inside callbacks",
    Hint.CHECK_INTEGRITY: (
        "call integrity_check(); if SQLite's part of it passes, repair() fixes the store; otherwise "
        "restore a backup, or save what can be read with kvstore.recover()"
    ),
    Hint.REPAIR: (
        "call repair(); if it fails, restore a backup, or save what can be read with kvstore.recover()"
    ),
    Hint.RECOVER: "restore a backup, or save what can be read with kvstore.recover()",
    Hint.CHECK_PERMISSIONS: (
        "change the owner or the permissions; on a read-only file system, open the store with "
        "read_only=True, or open a copy"
    ),
    Hint.FREE_DISK_SPACE: (
        "free disk space and retry; if there is space, the file is damaged: call integrity_check()"
    ),
    Hint.GIVE_PASSWORD: "open the store with its password= or raw_key=",
    Hint.OMIT_PASSWORD: "open the store without password= and raw_key=, or encrypt it in place by opening it with encrypt=True",
    Hint.ENCRYPT: "encrypt it with encrypt()",
    Hint.REKEY: "change its password with rekey()",
    Hint.BUILD_WITH_ENCRYPTION: "install a build for which kvstore.encryption_available is True",
    Hint.BUILD_WITH_SERVER: "install a build for which kvstore.remote_available is True",
    Hint.RAISE_SIZE_LIMIT: "delete keys, or raise the limit with limit()",
    Hint.RAISE_MAX_VALUE_SIZE: "open the store with a larger max_value_size=, or split the value",
    Hint.CREATE_FAMILY: "create it with family(name, create=True)",
    Hint.OPEN_FAMILY: "open it with family(name)",
    Hint.CLOSE_FAMILY: "close its Family objects first",
    Hint.CLEAR_FAMILY: "delete its keys with clear()",
    Hint.TRACK_WRITES: "set its write_tracking to True first",
    Hint.CHANGE_EVICTION: "choose another policy with limit() first",
    Hint.PURGE_YOURSELF: "call purge_step() instead",
    Hint.STOP_CLEANER: "call stop_cleaner() first",
    Hint.COPY_TO_STORE: "use copy_to()",
    Hint.RESUME_COPY: (
        'finish that copy with the command "kvstore copy --resume", or call drop_family() for its '
        "progress family in the target"
    ),
    Hint.USE_SHORTER_KEY: "use a shorter key, such as a hash of it",
    Hint.GIVE_TTL: "give a duration as ttl=",
    Hint.REPAIR_FILE: "run the command 'kvstore repair' on the file; if it fails, restore a backup, or save what"
    " can be read with kvstore.recover()",
}

#: Replaces the advice on a transaction that another thread has open on a shared connection.
OPEN_IN_ANOTHER_THREAD = (
    "wait until another thread has ended it; all threads of this store share one connection, because it "
    "is in memory or was opened with exclusive=True"
)


def hint_of(number: int) -> Optional[Hint]:
    """Return the Hint for a ``KVSTORE_HINT_*`` number; None for KVSTORE_HINT_NONE."""
    try:
        return Hint(number)
    except ValueError:
        return None
