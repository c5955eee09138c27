"""Django's session backend tests, run with our sessions. Copied into Django's tests as sessions_tests/test_kvstore.py.
"""

import os
import tempfile

from django.contrib.sessions.backends.cache import SessionStore as CacheSession
from django.conf import settings
from django.contrib.sessions.middleware import SessionMiddleware
from django.core import management
from django.http import HttpResponse
from django.test import SimpleTestCase, override_settings

from kvstore.contrib.django.sessions import SessionStore

from .tests import SessionMiddlewareTests, SessionTestsMixin

FOLDER = tempfile.mkdtemp()


@override_settings(SESSION_KVSTORE_PATH=os.path.join(FOLDER, "sessions.db"))
class KVStoreSessionTests(SessionTestsMixin, SimpleTestCase):
    backend = SessionStore

    @override_settings(SESSION_ENGINE="kvstore.contrib.django.sessions")
    def test_clearsessions_command(self):
        """As in the tests of the file and database backends."""
        family = SessionStore._storage().family()
        family.clear()
        self.session["foo"] = "bar"
        self.session.set_expiry(3600)
        self.session.save()
        other = self.backend()
        other["foo"] = "bar"
        other.set_expiry(0.001)
        other.save()
        while len(family) > 1:
            pass
        management.call_command("clearsessions")
        self.assertEqual(family.count(expired=True), 1)


@override_settings(
    SESSION_ENGINE="kvstore.contrib.django.sessions", SESSION_KVSTORE_PATH=os.path.join(FOLDER, "middleware.db")
)
class KVStoreSessionMiddlewareTests(SessionMiddlewareTests):
    def test_empty_session_saved(self):
        """As in the database backend's test, which inspects the table at the end."""

        def get_response(request):
            request.session["foo"] = "bar"
            return HttpResponse("Session test")

        def get_response_empty(request):
            request.session["foo"] = "bar"
            del request.session["foo"]
            return HttpResponse("Session test")

        request = self.request_factory.get("/")
        SessionMiddleware(get_response)(request)
        key = request.session.session_key
        request = self.request_factory.get("/")
        request.COOKIES[settings.SESSION_COOKIE_NAME] = key
        response = SessionMiddleware(get_response_empty)(request)
        self.assertIn(settings.SESSION_COOKIE_NAME, response.cookies)
        self.assertEqual(dict(SessionStore(key).items()), {})
        self.assertIs(SessionStore().exists(key), True)


@override_settings(
    CACHES={
        "default": {
            "BACKEND": "kvstore.contrib.django.cache.KVStoreCache",
            "LOCATION": os.path.join(FOLDER, "cache.db"),
        }
    }
)
class KVStoreCacheSessionTests(SessionTestsMixin, SimpleTestCase):
    """Django's cache-based sessions, in our cache."""

    backend = CacheSession
