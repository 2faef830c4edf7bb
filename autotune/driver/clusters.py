"""How many clusters are resident at once on a GPU of this machine: its driver says it.

The driver is asked once for each card and version of it; the cache keeps the answer, so that what
has no context on the GPU knows it too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from autotune import files, settings
from autotune.device import CLUSTER_SIZES, Device
from autotune.device.listed import Clusters
from autotune.errors import AutotuneError, RunnerError
from autotune.files import limits

FOLDER = "clusters"
"""The folder of the cache that keeps the answers: a file for each card and version of a driver."""

# The kernel of `data/idle` for architectures that are not there; the driver compiles it in 20 to
# 60 ms.
_PTX = b"""\
.version 7.8
.target sm_90
.address_size 64
.visible .entry idle() { ret; }
\0"""
_THREADS = 128


def with_clusters(cuda: Any, device: Device, ordinal: int, *, enter: bool = False) -> Device:
    """A GPU of this machine with the numbers of clusters that its driver states.

    The driver is asked where the cache keeps no answer and the process has a context on the GPU.
    The device is unchanged if it has no clusters, or its driver is not asked or does not answer.

    Args:
        cuda: `cuda.bindings.driver`, initialised, or a stand-in.
        device: the GPU without clusters.
        ordinal: its number.
        enter: asks also where the process has no context on the GPU; to create its primary one
            takes some tenths of a second.
    """
    if not device.has_clusters:
        return device
    try:
        path = _path(cuda, ordinal)
        if (kept := _kept(path, device)) is not None:
            return kept
        with _context(cuda, ordinal, enter) as entered:
            if not entered:
                return device
            stated = query_clusters(cuda, device)
    except (RuntimeError, RunnerError):  # no driver, or no answer
        return device
    _keep(path, stated)
    return replace(device, clusters=stated, clusters_expected=False)


def query_clusters(cuda: Any, device: Device) -> Clusters:
    """Resident clusters of 2, 4 and 8 blocks that take all the shared memory of a block.

    `cuOccupancyMaxActiveClusters` answers for the GPU of the current context. The thread may be
    capturing a graph.

    Args:
        cuda: `cuda.bindings.driver` or a stand-in.
        device: that GPU; it has clusters.

    Raises:
        RunnerError: if the driver does not answer.
    """
    limit = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    relaxed = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    shared = device.shared_per_block_optin
    mode = _checked(cuda.cuThreadExchangeStreamCaptureMode(relaxed))
    try:
        module = _checked(cuda.cuModuleLoadData(_idle(device)))
        try:
            function = _checked(cuda.cuModuleGetFunction(module, b"idle"))
            _checked(cuda.cuFuncSetAttribute(function, limit, shared))
            two, four, eight = (
                int(_checked(cuda.cuOccupancyMaxActiveClusters(function, configuration)))
                for configuration in (_configuration(cuda, size, shared) for size in CLUSTER_SIZES)
            )
        finally:
            _checked(cuda.cuModuleUnload(module))
    finally:
        _checked(cuda.cuThreadExchangeStreamCaptureMode(mode))
    return two, four, eight


def _idle(device: Device) -> bytes:
    """A kernel that does nothing, for a device; `scripts/idle_kernels.py` makes its cubins."""
    major, minor = device.compute_capability
    folder = resources.files("autotune") / "data" / "idle"
    versions = (folder / f"sm_{major}{older}.cubin" for older in range(minor, -1, -1))
    return next((path.read_bytes() for path in versions if path.is_file()), _PTX)


def _configuration(cuda: Any, size: int, shared: int) -> Any:
    """The `CUlaunchConfig` of one cluster of `size` blocks with `shared` bytes each."""
    attribute = cuda.CUlaunchAttribute()
    attribute.id = cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    dimensions = attribute.value.clusterDim
    dimensions.x, dimensions.y, dimensions.z = size, 1, 1
    configuration = cuda.CUlaunchConfig()
    configuration.gridDimX, configuration.gridDimY, configuration.gridDimZ = size, 1, 1
    configuration.blockDimX, configuration.blockDimY, configuration.blockDimZ = _THREADS, 1, 1
    configuration.sharedMemBytes = shared
    configuration.attrs, configuration.numAttrs = [attribute], 1
    return configuration


@contextmanager
def _context(cuda: Any, ordinal: int, enter: bool) -> Iterator[bool]:
    """Makes a context on a GPU current within a `with` block: the thread's own, else the primary
    one if it exists or is to be entered. Yields whether there is one."""
    handle = _checked(cuda.cuDeviceGet(ordinal))
    status, current = cuda.cuCtxGetDevice()
    if not status and int(current) == int(handle):
        yield True
        return
    status, _, active = cuda.cuDevicePrimaryCtxGetState(handle)
    if not enter and (status or not active):
        yield False
        return
    primary = _checked(cuda.cuDevicePrimaryCtxRetain(handle))
    try:
        _checked(cuda.cuCtxPushCurrent(primary))
        try:
            yield True
        finally:
            cuda.cuCtxPopCurrent()
    finally:
        cuda.cuDevicePrimaryCtxRelease(handle)


def _path(cuda: Any, ordinal: int) -> Path:
    """The file of a card's answer. A part of a card (MIG) has a UUID of its own."""
    identify = getattr(cuda, "cuDeviceGetUuid_v2", cuda.cuDeviceGetUuid)
    uuid = _checked(identify(_checked(cuda.cuDeviceGet(ordinal)))).bytes
    version = _checked(cuda.cuDriverGetVersion())
    return settings.cache_place() / FOLDER / f"{bytes(uuid).hex()}-{version}.json"


def _kept(path: Path, device: Device) -> Device | None:
    """The device with a kept answer; None if there is none that the device can have."""
    try:
        clusters = json.loads(files.read(path, limits.DEVICE))
        return Device.from_json({**device.to_json(), "clusters": clusters})
    except (OSError, ValueError, AutotuneError):
        return None


def _keep(path: Path, stated: Clusters) -> None:
    """Keeps an answer; where it cannot be kept, the next process asks again."""
    if not settings.mode().frozen:
        with suppress(OSError, AutotuneError):
            files.ensure(path.parent)
            files.write_whole(path, json.dumps(stated).encode(), durable=False)


def _checked(answer: tuple[Any, ...]) -> Any:
    """The value of a call of the driver, without its status."""
    status, *values = answer
    if status:
        raise RunnerError(f"the driver does not state its resident clusters: {status!r}")
    return values[0] if values else None
