"""A PostgreSQL server of the tests' own, where one is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

USER = "nobody"
"""Runs the server if the tests run as root, which the server refuses."""


class PostgresServer:
    """A running server with an empty database, reached by a socket in its folder.

    Attributes:
        url: of the database.
    """

    def __init__(self, programs: Path, folder: Path) -> None:
        self._programs, self._folder = programs, folder
        self.url = f"postgresql+psycopg2://tuner@/postgres?host={folder}"
        self._call("initdb", "-A", "trust", "-U", "tuner", "--no-sync")
        settings = f"listen_addresses=''\nunix_socket_directories='{folder}'\nfsync=off\n"
        with (folder / "data" / "postgresql.conf").open("a") as file:
            file.write(settings)
        self.start()

    def start(self) -> None:
        """Starts the server and waits until it answers."""
        self._call("pg_ctl", "-l", str(self._folder / "log"), "-w", "start")

    def crash(self) -> None:
        """Ends the server and its connections at once."""
        self._call("pg_ctl", "-m", "immediate", "-w", "stop")

    def _call(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [self._programs / program, "-D", str(self._folder / "data"), *arguments],
            check=True,
            stdout=subprocess.DEVNULL,
            user=USER if os.getuid() == 0 else None,
            cwd=self._folder,
        )


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    """A server; the test is skipped where none is installed."""
    programs = _programs()
    if programs is None or find_spec("psycopg2") is None:
        pytest.skip("PostgreSQL or its driver psycopg2 is not installed")
    folder = Path(tempfile.mkdtemp(prefix="autotune-postgres-"))
    if os.getuid() == 0:
        shutil.chown(folder, USER)
    server = PostgresServer(programs, folder)
    try:
        yield server
    finally:
        server.crash()
        shutil.rmtree(folder)


def _programs() -> Path | None:
    """The folder of the server's programs, which most systems leave out of the path."""
    found = shutil.which("initdb")
    folders = [Path(found).parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return next((folder for folder in reversed(folders) if (folder / "pg_ctl").exists()), None)
