"""A visit counter for a server that forks its workers after loading: gunicorn --preload --workers 4 preloaded:application"""

import os

import kvstore

db = kvstore.open("visits.db", busy_timeout=30)


def application(environ, start_response):
    visits = db.incr("visits")
    body = f"visit {visits}, answered by {os.getpid()}\n".encode()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]
