"""Django sessions in a file. Each session expires by its TTL; ``clearsessions`` removes expired
ones.

In the settings::

    SESSION_ENGINE = "kvstore.contrib.django.sessions"
    SESSION_KVSTORE_PATH = "/var/lib/site/sessions.db"
    SESSION_KVSTORE_OPTIONS = {"SYNC": "full"}      # as OPTIONS of the cache; FAMILY is "django_sessions"

The file is created on first use, with missing directories. As in Django's database backend,
sessions are signed and serialized by SESSION_SERIALIZER (JSON).
"""

from __future__ import annotations

from typing import Any, Optional

from django.conf import settings
from django.contrib.sessions.backends.base import CreateError, SessionBase, UpdateError
from django.core.exceptions import ImproperlyConfigured

from kvstore import InvalidError
from kvstore.contrib._storage import Storage
from kvstore.contrib._timeouts import ttl_of
from kvstore.contrib.django.cache import storage_of


class SessionStore(SessionBase):
    """A Django session backend that stores sessions in a file. The module describes its settings.
    """

    @classmethod
    def _storage(cls) -> Storage:
        path = getattr(settings, "SESSION_KVSTORE_PATH", None)
        if not path:
            raise ImproperlyConfigured("SESSION_KVSTORE_PATH is not set: give the path of the file for sessions")
        options = dict(getattr(settings, "SESSION_KVSTORE_OPTIONS", None) or {})
        return storage_of(path, options, options.pop("FAMILY", "django_sessions"))

    def load(self) -> dict[str, Any]:
        data = self._read(self.session_key)
        if data is None:
            self._session_key: Optional[str] = None
            return {}
        session: dict[str, Any] = self.decode(data.decode(errors="replace"))  # an invalid one is empty
        return session

    def exists(self, session_key: Optional[str]) -> bool:
        return self._read(session_key) is not None

    def _read(self, session_key: Optional[str]) -> Optional[bytes]:
        try:
            return self._storage().family().get(session_key) if session_key else None
        except InvalidError:
            return None  # the session key is too long to exist

    def create(self) -> None:
        while True:
            self._session_key = self._get_new_session_key()
            try:
                self.save(must_create=True)
            except CreateError:
                continue
            self.modified = True
            return

    def save(self, must_create: bool = False) -> None:
        if self.session_key is None:
            self.create()
            return
        data = self.encode(self._get_session(no_load=must_create))
        # A TTL and not an expiry time: a server has its own clock. A session that has expired
        # already gets a time long past.
        ttl = ttl_of(self.get_expiry_age())
        expires_at = 0 if ttl is None else None
        family = self._storage().family()
        if not family.put(
            self.session_key, data, ttl, expires_at, if_absent=must_create, if_present=not must_create
        ):
            raise CreateError if must_create else UpdateError

    def delete(self, session_key: Optional[str] = None) -> None:
        key = self.session_key if session_key is None else session_key
        if key:
            self._storage().family().delete(key)

    @classmethod
    def clear_expired(cls) -> None:
        cls._storage().family().purge_expired()
