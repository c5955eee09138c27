"""Caches a slow function for all processes, also across runs. Run it twice.

    python cache_decorator.py CITY...
"""

import sys
import time

import kvstore
from kvstore.recipes import Tags, memoize

db = kvstore.open("cache.db")
tags = Tags(db)


# A result is fresh for ten minutes. Shortly before the end, and for an hour after it, callers get the cached
# result at once while a thread recomputes it.
@memoize(db, ttl=600, early=1.0, stale=3600)
def forecast(city: str) -> str:
    print("computing for", city)
    time.sleep(0.1)
    return f"sunny in {city}"


for city in sys.argv[1:]:
    if city == "--forget":  # all that was computed here, whatever the city
        print("forgot", tags.invalidate("forecasts"))
    else:
        print(forecast(city))
        tags.add(forecast.cache_key(city), "forecasts")
db.close()
