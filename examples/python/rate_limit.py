"""Five login attempts per minute and user, counted over all processes that use the file.

    python rate_limit.py USER PASSWORD
"""

import sys

import kvstore
from kvstore.recipes import RateLimiter

if len(sys.argv) != 3:
    sys.exit("usage: python rate_limit.py USER PASSWORD")
user, password = sys.argv[1:]

with kvstore.open("logins.db") as db:
    logins = RateLimiter(db, "logins", limit=5, period=60)
    decision = logins.hit(user)
    if not decision.allowed:
        sys.exit(f"too many tries; come back in {decision.retry_after:.0f} seconds")
    if password != "secret":
        sys.exit(f"wrong password; {decision.remaining} tries left")
    logins.reset(user)
    print("welcome,", user)
