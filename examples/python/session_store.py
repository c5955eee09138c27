"""Sessions that expire half an hour after their last use. Run it: python session_store.py"""

import secrets

import kvstore

HALF_AN_HOUR = 30 * 60

db = kvstore.open("sessions.db")
sessions = db.family("sessions", create=True, default_ttl=HALF_AN_HOUR, codec=kvstore.JSON)


def log_in(user):
    token = secrets.token_urlsafe(32)
    sessions[token] = {"user": user, "cart": []}
    return token


def session_of(token):
    """Returns the session and extends it by half an hour; None if it does not exist or has expired."""
    return sessions.get_and_touch(token)


def save(token, session):
    sessions.put(token, session, if_present=True)  # only if the session was not closed meanwhile


def log_out(token):
    sessions.delete(token)


if __name__ == "__main__":
    token = log_in("ada")
    session = session_of(token)
    session["cart"].append("tea")
    save(token, session)
    print(session_of(token), "for", round(sessions.ttl(token) / 60), "minutes")
    log_out(token)
    save(token, session)
    print(session_of(token))
