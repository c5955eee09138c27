"""One of several processes makes the report: start this in two terminals, or as a cron job on every worker.

    python lock.py [SECONDS]
"""

import sys
import time

import kvstore
from kvstore.recipes import Lock

seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 5.0

with kvstore.open("jobs.db") as db:
    # Renewed while this process runs; if it is killed, the lock is free after a minute.
    lock = Lock(db, "report", ttl=60, renew=True)
    if not lock.acquire(blocking=False):
        print("another process makes the report")
        sys.exit(1)
    print("making the report", flush=True)
    time.sleep(seconds)  # the work
    with db.transaction():
        if lock.owned():  # checked in the transaction that writes, so no other process can take the lock meanwhile
            db["report"] = f"made under number {lock.fencing_token}"
    lock.release()
    print("done")
