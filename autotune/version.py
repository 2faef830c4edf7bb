"""The version of the package: of its installation, else of the sources."""

from __future__ import annotations

RELEASE = "0.3.0"
"""The release that the sources belong to, whose tag is `v0.3.0`."""


def __getattr__(name: str) -> str:
    """`__version__`, such as `0.3.0`, or `0.3.0+g12c0a354` if a later commit is installed.

    It is read at its first use: importing `importlib.metadata` takes a fifth of the start.
    """
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import metadata

    try:
        version = metadata.version("tile-autotune")
    except metadata.PackageNotFoundError:
        version = RELEASE
    globals()[name] = version
    return version
