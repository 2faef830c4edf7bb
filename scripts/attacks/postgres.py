"""A PostgreSQL server of its own for the campaign, if the programs are installed."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import randrange

PLACES = ("/usr/lib/postgresql/*/bin", "/usr/local/pgsql/bin", "/opt/homebrew/opt/postgresql*/bin")
USER = "autotune"


class NoServerError(Exception):
    """There is no server, for the reason in the message."""


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[str]:
    """The URL of an empty database; the server is stopped at the end.

    Raises:
        NoServerError: if PostgreSQL or a driver of it is missing, or the server does not start.
    """
    programs = _programs()
    driver = _driver()
    data, port = folder / "data", randrange(20_000, 60_000)
    owner = _owner(folder)
    authentication = ("--auth=trust", f"--username={USER}", "--no-sync")
    _run([programs / "initdb", "-D", data, *authentication], owner)
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c fsync=off -k {folder}"
    control: list[Path | str] = [programs / "pg_ctl", "-D", data]
    _run([*control, "-w", "-l", folder / "log", "-o", options, "start"], owner)
    try:
        yield f"postgresql+{driver}://{USER}@127.0.0.1:{port}/postgres"
    finally:
        with contextlib.suppress(NoServerError):
            _run([*control, "-m", "immediate", "stop"], owner)


def _programs() -> Path:
    """The folder of the server's programs."""
    found = shutil.which("initdb")
    folders = [Path(found).parent] if found else []
    folders += [path for place in PLACES for path in sorted(Path("/").glob(place[1:]))]
    for folder in folders:
        if (folder / "initdb").exists() and (folder / "pg_ctl").exists():
            return folder
    raise NoServerError("PostgreSQL is not installed: no initdb")


def _driver() -> str:
    """A driver of PostgreSQL for SQLAlchemy."""
    from importlib.util import find_spec

    for name in ("psycopg2", "psycopg"):
        if find_spec(name) is not None:
            return name
    raise NoServerError("no driver of PostgreSQL: neither psycopg2 nor psycopg")


def _owner(folder: Path) -> str | None:
    """The user that the server runs as, who then owns the folder: it refuses to run as root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            user = pwd.getpwnam(name)
            os.chown(folder, user.pw_uid, user.pw_gid)
            for parent in folder.parents:  # a folder of mkdtemp lets nobody else pass
                if parent.stat().st_mode & 0o001 == 0:
                    parent.chmod(parent.stat().st_mode | 0o011)
            return name
    raise NoServerError("this is root, and there is no user to run PostgreSQL as")


def _run(command: Sequence[Path | str], owner: str | None) -> None:
    result = subprocess.run(
        command,
        user=owner,
        group=None if owner is None else pwd.getpwnam(owner).pw_gid,
        extra_groups=None if owner is None else [],
        cwd="/",
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        check=False,
        timeout=60,
    )
    if result.returncode:
        raise NoServerError(f"{Path(command[0]).name}: {result.stderr.strip()[-200:]}")
