"""A site with server-side sessions and cached pages: flask --app flask_site run

    pip install flask flask-session flask-caching cachelib
"""

import datetime

from flask import Flask, session
from flask_caching import Cache
from flask_session import Session

from kvstore.contrib.cachelib import KVStoreCache

app = Flask(__name__)
app.config.update(
    SESSION_TYPE="cachelib",
    SESSION_CACHELIB=KVStoreCache("site.db", family="sessions"),
    PERMANENT_SESSION_LIFETIME=datetime.timedelta(days=14),
    CACHE_TYPE="kvstore.contrib.flask_caching.KVStoreCache",
    CACHE_KVSTORE_PATH="site.db",
)
Session(app)
cache = Cache(app)


@app.get("/")
def visits():
    session["visits"] = session.get("visits", 0) + 1
    return f"visit {session['visits']}"


@app.get("/report")
@cache.cached(timeout=60)
def report():
    return f"made at {datetime.datetime.now().isoformat()}"
