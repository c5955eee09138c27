"""A private PostgreSQL server for the tests, in a temporary directory, on a Unix socket. It is stopped however the tests end.
No fixtures, no tests.

Its clock can be set for each schema: the superuser replaces ``clock_timestamp``, ``statement_timestamp`` and ``now`` by
functions that read the time from a file, if it exists.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

_WATCH = "trap '' INT TERM HUP; read -r line; '{pg_ctl}' -D '{data}' -m immediate -s stop; rm -rf '{folder}'"
_CLOCK = """
ALTER FUNCTION pg_catalog.{name}() RENAME TO real_{name};
CREATE FUNCTION pg_catalog.{name}() RETURNS timestamptz LANGUAGE plpgsql {volatility} PARALLEL SAFE AS $$
DECLARE said text := pg_catalog.pg_read_file('{folder}/clock_' || (SELECT s FROM
    unnest(pg_catalog.current_schemas(false)) AS s WHERE s <> 'pg_catalog' LIMIT 1), 0, 100, true);
BEGIN RETURN CASE WHEN said IS NULL THEN pg_catalog.real_{name}()
    WHEN left(said, 1) IN ('+', '-') THEN pg_catalog.real_{name}() + said::bigint * interval '1 millisecond'
    ELSE timestamptz 'epoch' + said::bigint * interval '1 millisecond' END; END $$;
"""


def programs() -> Path | None:
    """Return the directory of the newest installed server, or None."""
    if "KVSTORE_POSTGRES_BIN" in os.environ:
        return Path(os.environ["KVSTORE_POSTGRES_BIN"])
    installed = [path for path in Path("/usr/lib/postgresql").glob("*/bin/pg_ctl") if path.parts[-3].isdigit()]
    newest = max(installed, key=lambda path: int(path.parts[-3]), default=None) or shutil.which("pg_ctl")
    return Path(newest).parent if newest else None


class Server:
    """A running server."""

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        # The server refuses to run as root.
        self._owner: dict[str, Any] = {"user": "postgres", "group": "postgres"} if os.getuid() == 0 else {}
        self.folder = Path(tempfile.mkdtemp(prefix="kvpy"))
        if self._owner:
            shutil.chown(self.folder, **self._owner)
        self._data = self.folder / "data"
        self._run("initdb", "-A", "trust", "-U", "postgres", "--no-sync", "-E", "UTF8", "--locale", "C", "-D", self._data)
        watch = _WATCH.format(pg_ctl=programs / "pg_ctl", data=self._data, folder=self.folder)
        # Waits for the end of its input, when this process ends or closes it. A process group of its own, because of Ctrl-C.
        self._watchdog = subprocess.Popen(
            ["sh", "-c", watch], cwd="/", stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True, **self._owner,
        )  # fmt: skip
        self.start()
        for name, volatility in ("clock_timestamp", "VOLATILE"), ("statement_timestamp", "STABLE"), ("now", "STABLE"):
            self.sql(_CLOCK.format(name=name, volatility=volatility, folder=self.folder))

    def _run(self, program: str, *arguments: Any) -> None:
        done = subprocess.run(
            [str(self._programs / program), *map(str, arguments)], cwd="/", stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **self._owner,
        )  # fmt: skip
        assert done.returncode == 0, f"{program}: {done.stderr}"

    def start(self) -> None:
        """Start the server, also again after :meth:`stop`."""
        settings = ("fsync=off", "full_page_writes=off", "max_connections=300", "allow_system_table_mods=on")
        options = f"-c listen_addresses= -c unix_socket_directories={self.folder}"
        options = " ".join([options, *(f"-c {setting}" for setting in settings)])
        log = self.folder / "log"
        done = subprocess.run(  # its output would be held open by the server
            [str(self._programs / "pg_ctl"), "-D", str(self._data), "-l", str(log), "-w", "-s", "-o", options, "start"],
            cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **self._owner,
        )  # fmt: skip
        assert done.returncode == 0, log.read_text() if log.exists() else "the server did not start"

    def stop(self) -> None:
        """Stop the server and end all connections."""
        self._run("pg_ctl", "-D", self._data, "-w", "-s", "-m", "fast", "stop")

    def close(self) -> None:
        """Stop the server and remove its directory."""
        assert self._watchdog.stdin is not None
        self._watchdog.stdin.close()
        self._watchdog.wait()

    def sql(self, sql: str) -> str:
        """Run SQL as the superuser, and return the rows as lines."""
        done = subprocess.run(
            [str(self._programs / "psql"), "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-d",
             "postgres", "-h", str(self.folder)],
            input=sql, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def url(self, schema: str, user: str = "postgres") -> str:
        """Return the URL of a store; ``user`` may contain a password after a colon."""
        return f"postgresql://{user}@/postgres?host={self.folder}&schema={schema}"

    def set_clock(self, url: str, time: str | None) -> None:
        """Set the clock that a store sees.

        ``time``: milliseconds since the epoch, at which the clock stands still; with a sign, the offset in milliseconds by which it is
        ahead; None: the real time.
        """
        file = self.folder / f"clock_{schema_of(url)}"
        if time is None:
            file.unlink(missing_ok=True)
            return
        new = file.with_suffix(".new")
        new.write_text(time)
        new.chmod(0o644)
        os.replace(new, file)


def schema_of(url: str) -> str:
    """Return the schema of a URL from :meth:`Server.url`."""
    return url.rpartition("schema=")[2]
