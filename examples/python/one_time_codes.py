"""One-time codes: five minutes, three attempts, used once. Run it: python one_time_codes.py"""

import hmac
import secrets

import kvstore

FIVE_MINUTES = 5 * 60

db = kvstore.open("codes.db")
codes = db.family("codes", create=True, default_ttl=FIVE_MINUTES)
attempts = db.family("attempts", create=True, default_ttl=FIVE_MINUTES)


def send_code(user):
    code = f"{secrets.randbelow(10**6):06}"
    codes[user] = code
    attempts.delete(user)
    return code  # by mail, say


def check_code(user, typed):
    if attempts.incr(user) > 3:
        codes.delete(user)
        return False
    code = codes.get(user)
    if code is None or not hmac.compare_digest(code, typed.encode()):
        return False
    return codes.compare_and_delete(user, code)  # of two that type it at once, one gets in


if __name__ == "__main__":
    code = send_code("ada")
    print(check_code("ada", "wrong"), check_code("ada", code), check_code("ada", code))
    code = send_code("bob")
    print([check_code("bob", "wrong") for _ in range(3)], check_code("bob", code))
