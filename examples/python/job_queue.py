"""A job queue for any number of producers and workers, each in its own process.

    python job_queue.py put NAME...
    python job_queue.py work
    python job_queue.py show
"""

import queue
import sys

import kvstore
from kvstore.recipes import Queue

db = kvstore.open("jobs.db")
mails = Queue(db, "mails", visibility=60, max_attempts=3)


def send(name: str) -> None:
    if name == "nobody":
        raise ValueError("there is no such address")
    print("sending to", name)


def work() -> None:
    while True:
        try:
            message = mails.get(timeout=1)
        except queue.Empty:
            return
        try:
            with message:  # acknowledged at the end; returned to the queue on an exception, or if this process is killed
                send(message.value.decode())
        except ValueError as error:
            print(f"attempt {message.attempts}: {error}")


command, *names = sys.argv[1:] or ["show"]
if command == "put":
    mails.put_many(names)
elif command == "work":
    work()
print(mails.sizes())
for letter in mails.dead_letters():
    print("gave up:", letter.value.decode())
db.close()
