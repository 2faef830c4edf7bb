"""Chooses the library that a session calls the driver through."""

from __future__ import annotations

from autotune import settings
from autotune.gpu.bindings_session import BindingsSession
from autotune.gpu.pycuda_session import PyCudaSession
from autotune.gpu.session import Session


def open_session(index: int = 0) -> Session:
    """A session on GPU `index`: through PyCUDA where it can be imported, else `cuda.bindings`.

    `AUTOTUNE_SESSION` names one of the two.

    Raises:
        MissingError: if the library, the driver or a GPU is missing.
        DeviceError: if there is no GPU of that index.
    """
    name = settings.session() or ("pycuda" if _has_pycuda() else "bindings")
    return PyCudaSession(index) if name == "pycuda" else BindingsSession(index)


def _has_pycuda() -> bool:
    """Whether PyCUDA can be imported; a build for another toolkit cannot."""
    try:
        import pycuda.driver  # noqa: F401
    except ImportError:
        return False
    return True
