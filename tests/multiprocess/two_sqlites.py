"""Python's sqlite3 and libkvstore in one process, on one store. When one of them closes a file, the
locks of the other must remain, as a third process checks, and no commit may be lost.

    two_sqlites.py LIBRARY PROGRAM MODE [COMMITS]

PROGRAM is tests/c/multiprocess_two_sqlites.c, which runs as the third process. Without COMMITS: every
lock held by either library, while the other closes a file. With COMMITS: each library commits this
number of times, in turns.
"""

import ctypes
import os
import random
import sqlite3
import subprocess
import sys
import time

STORE = "store.db"
OK, BUSY = 0, 5
kv = ctypes.CDLL(sys.argv[1])
program, mode = sys.argv[2], sys.argv[3]
kv.kvstore_errmsg.restype = ctypes.c_char_p
kv.kvstore_free.argtypes = [ctypes.c_void_p]
# A KVStoreConfig: journalMode, syncLevel (off: nothing here cuts the power); all else is zero.
CONFIG = (ctypes.c_int * 100)(1 if mode == "wal" else 2, 3)


class Ours:
    def __init__(self):
        self.handle = ctypes.c_void_p()
        patiently(lambda: kv.kvstore_open_v2(STORE.encode(), ctypes.byref(self.handle), CONFIG))

    def run(self, function, *arguments):
        patiently(lambda: self.try_to(function, *arguments), self.handle)

    def try_to(self, function, *arguments):
        return getattr(kv, function)(self.handle, *arguments)

    def put(self, key, value):
        self.run("kvstore_put", key, len(key), value, len(value))

    def get(self, key):
        value, length = ctypes.c_void_p(), ctypes.c_int()
        self.run("kvstore_get", key, len(key), ctypes.byref(value), ctypes.byref(length))
        found = ctypes.string_at(value, length.value)
        kv.kvstore_free(value)
        return found

    def begin(self, write):
        self.run("kvstore_begin", write)

    def commit(self):
        self.run("kvstore_commit")

    def close(self):
        assert kv.kvstore_close(self.handle) == OK


class Stock:
    def __init__(self):
        self.db = sqlite3.connect(STORE, isolation_level=None, timeout=0)
        self.run("PRAGMA synchronous = OFF")

    def try_to(self, sql, *arguments):
        try:
            self.rows = self.db.execute(sql, arguments).fetchall()
            return OK
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise
            return BUSY

    def run(self, sql, *arguments):
        patiently(lambda: self.try_to(sql, *arguments))
        return self.rows

    def put(self, key, value):
        self.run('INSERT OR REPLACE INTO "data:default"(key, value) VALUES (?, ?)', key, value)

    def get(self, key):
        return self.run('SELECT value FROM "data:default" WHERE key = ?', key)[0][0]

    def begin(self, write):
        self.run("BEGIN IMMEDIATE" if write else "BEGIN")

    def commit(self):
        self.run("COMMIT")

    def close(self):
        self.db.close()


def patiently(call, handle=None):
    since = time.monotonic()
    while (code := call()) == BUSY and time.monotonic() - since < 30:
        time.sleep(0.0002)
    assert code == OK, (code, kv.kvstore_errmsg(handle))


def third(*role):
    subprocess.run([program, *role], check=True, timeout=60)


def holds():
    for holder, other in (Ours, Stock), (Stock, Ours):
        for write in (0, 1):
            for closing in "the other's", "the other's second", "its own second", "its own":
                print(f"{mode}: {holder.__name__} holds, write {write}: closed is {closing}", flush=True)
                first = Ours()
                first.put(b"probe", b"at first")
                first.close()
                held = holder()
                second = (other if "other" in closing else holder)() if "second" in closing else None
                if second:
                    second.get(b"probe")
                held.begin(write)
                held.get(b"probe")
                if write:
                    held.put(b"probe", b"mine")
                if second is None:
                    second = (other if "other" in closing else holder)()
                    second.get(b"probe")
                second.close()
                third("look-wal" if mode == "wal" else "look-delete", "write" if write else "read")
                assert held.get(b"probe") == (b"mine" if write else b"at first")
                held.commit()
                held.close()
                third("unlocked")
                third("free", mode)


def commits(number):
    """Each adds 1 to a counter of its own, which must be what it was; a third process writes, too."""
    seed = int(os.environ.get("KVSTORE_SEED", "1"))
    chance = random.Random(seed)
    Ours().close()
    writer = subprocess.Popen([program, "third", mode, str(seed)])
    connections = {b"ours": Ours(), b"stock": Stock()}
    for connection, key in (connections[b"ours"], b"ours"), (connections[b"ours"], b"stock"):
        connection.put(key, b"0")
    for n in range(1, number + 1):
        for key, connection in connections.items():
            connection.begin(1)
            found = int(connection.get(key))
            assert found == n - 1, f"{key}: {found} in place of {n - 1}: commits are lost"
            connection.put(key, str(n).encode())
            connection.commit()
            if chance.random() < 0.1:  # pandas.read_sql, a debugger, ...
                other = chance.choice([Ours, Stock])()
                assert int(other.get(key)) == n
                other.close()
            if chance.random() < 0.02:
                connection.close()
                connections[key] = type(connection)()
    for connection in connections.values():
        connection.close()
    third("stop")
    assert writer.wait(60) == 0
    third("verify", mode)
    third("unlocked")
    last = sqlite3.connect(STORE)
    assert last.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    print(f"{mode}: {number} commits by each")


if len(sys.argv) > 4:
    commits(int(sys.argv[4]))
else:
    holds()
