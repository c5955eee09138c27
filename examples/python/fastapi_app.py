"""An API with an expiring login and a rate limit: fastapi run fastapi_app.py

    pip install "fastapi[standard]"

FastAPI runs a ``def`` route in a thread, so its calls of the store may block.
"""

import secrets
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, Header, HTTPException, Query

import kvstore

ONE_HOUR = 3600


@asynccontextmanager
async def lifespan(app):
    with kvstore.open("api.db") as app.state.db:
        app.state.tokens = app.state.db.family("tokens", create=True, default_ttl=ONE_HOUR, codec=kvstore.TEXT)
        app.state.requests = app.state.db.family("requests", create=True)
        yield


app = FastAPI(lifespan=lifespan)


def current_user(authorization: Annotated[str, Header()] = "") -> str:
    token = authorization.removeprefix("Bearer").strip()
    user = app.state.tokens.get_and_touch(token) if token else None  # a key cannot be empty
    if not user:
        raise HTTPException(401, "log in")
    if app.state.requests.incr(user, ttl=60) > 100:  # in the minute that began with the first
        raise HTTPException(429, "too many requests", {"Retry-After": str(round(app.state.requests.ttl(user) or 1))})
    return user


@app.post("/login")
def login(user: Annotated[str, Query(min_length=1)]) -> dict[str, str]:
    token = secrets.token_urlsafe(32)
    app.state.tokens[token] = user
    return {"token": token}


@app.get("/me")
def me(user: Annotated[str, Depends(current_user)]) -> dict[str, str]:
    return {"user": user}
