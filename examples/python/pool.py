"""A pool of processes that fill one store. Run it: python pool.py"""

import hashlib
import multiprocessing

import kvstore

db = kvstore.open("hashes.db", codec=kvstore.TEXT, busy_timeout=30)


def work(number):
    key = f"hash:{number}"
    if key not in db:  # an earlier run has done it
        db.put(key, hashlib.sha256(str(number).encode()).hexdigest(), ttl=3600)
        db.incr("computed")
    return number


if __name__ == "__main__":
    with multiprocessing.Pool(4) as pool:
        done = sum(1 for _ in pool.imap_unordered(work, range(200), chunksize=10))
    print(done, "done,", len(db.keys(prefix="hash:")), "kept,", db["computed"], "computed")
