"""A pool of processes that fill one store. Run it: python pool.py"""

import hashlib
import multiprocessing

import kvstore


def open_store():
    """Runs once in each worker."""
    global db
    db = kvstore.open("hashes.db", busy_timeout=30)


def work(number):
    key = f"hash:{number}"
    if key not in db:  # an earlier run has done it
        db[key, 3600] = hashlib.sha256(str(number).encode()).hexdigest()
        db.incr("computed")
    return number


if __name__ == "__main__":
    with multiprocessing.Pool(4, initializer=open_store) as pool:
        done = sum(1 for _ in pool.imap_unordered(work, range(200), chunksize=10))
    with kvstore.open("hashes.db") as db:
        print(done, "done,", len(db.keys(prefix="hash:")), "kept,", int(db["computed"]), "computed")
