"""A counter of visits for a server whose workers are forks: gunicorn --preload --workers 4 preloaded:application

The store is opened before the fork, and by each worker anew.
"""

import os

import kvstore


def open_store():
    global db
    db = kvstore.open("visits.db", busy_timeout=30)


open_store()
os.register_at_fork(after_in_child=open_store)


def application(environ, start_response):
    visits = db.incr("visits")
    body = f"visit {visits}, answered by {os.getpid()}\n".encode()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]
