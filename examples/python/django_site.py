"""A Django site in one file, with its sessions and cache in kvstore: python django_site.py runserver

    pip install django
"""

import sys
import time

from django.conf import settings

settings.configure(
    DEBUG=True,
    SECRET_KEY="change me",
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    MIDDLEWARE=["django.contrib.sessions.middleware.SessionMiddleware"],
    SESSION_ENGINE="kvstore.contrib.django.sessions",
    SESSION_KVSTORE_PATH="sessions.db",
    CACHES={
        "default": {
            "BACKEND": "kvstore.contrib.django.cache.KVStoreCache",
            "LOCATION": "cache.db",
            "TIMEOUT": 60,
        }
    },
)

from django.core.cache import cache  # noqa: E402
from django.http import HttpResponse  # noqa: E402
from django.urls import path  # noqa: E402
from django.views.decorators.cache import cache_page  # noqa: E402


def visits(request):
    request.session["visits"] = request.session.get("visits", 0) + 1
    cache.add("visits", 0, timeout=None)
    return HttpResponse(f"visit {request.session['visits']} of {cache.incr('visits')}")


@cache_page(60)
def report(request):
    return HttpResponse(f"made at {time.time()}")


urlpatterns = [path("", visits), path("report", report)]

if __name__ == "__main__":
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
