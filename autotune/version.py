"""The version of the package: of its installation, else of the sources."""

RELEASE = "0.3.0"
"""The release of the sources, whose tag is `v0.3.0`."""


def __getattr__(name: str) -> str:
    """`__version__`, which is read when it is first used: `importlib.metadata` takes 20 ms."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import metadata

    try:
        version = metadata.version("tile-autotune")
    except metadata.PackageNotFoundError:
        version = RELEASE
    globals()[name] = version
    return version
