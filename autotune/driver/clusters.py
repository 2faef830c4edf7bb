"""Asks the driver how many clusters are resident at once on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from autotune.device import CLUSTER_SIZES, Device
from autotune.errors import RunnerError

# A kernel that does nothing, for every architecture with clusters; the driver compiles it.
_PTX = b"""\
.version 7.8
.target sm_90
.address_size 64
.visible .entry idle() { ret; }
\0"""
_THREADS = 128


def with_clusters(device: Device, ordinal: int) -> Device:
    """A GPU of this machine with the numbers of clusters that its driver states.

    It is unchanged if it has no clusters or the driver does not answer. The driver needs the GPU's
    primary context; if the process has none yet, creating it takes some tenths of a second.
    """
    if not device.has_clusters:
        return device
    try:
        from cuda.bindings import driver as cuda

        with _primary_context(cuda, ordinal):
            return replace(device, clusters=query_clusters(cuda, device))
    except (ImportError, RuntimeError, RunnerError):  # no bindings, no driver, or no answer
        return device


def query_clusters(cuda: Any, device: Device) -> tuple[int, int, int]:
    """Resident clusters of 2, 4 and 8 blocks that take all the shared memory of a block.

    `cuOccupancyMaxActiveClusters` answers for the GPU of the current context.

    Args:
        cuda: `cuda.bindings.driver` or a stand-in.
        device: that GPU; it has clusters.

    Raises:
        RunnerError: if the driver does not answer.
    """
    limit = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    shared = device.shared_per_block_optin
    module = _checked(cuda.cuModuleLoadData(_PTX))
    try:
        function = _checked(cuda.cuModuleGetFunction(module, b"idle"))
        _checked(cuda.cuFuncSetAttribute(function, limit, shared))
        two, four, eight = (
            int(_checked(cuda.cuOccupancyMaxActiveClusters(function, configuration)))
            for configuration in (_configuration(cuda, size, shared) for size in CLUSTER_SIZES)
        )
    finally:
        _checked(cuda.cuModuleUnload(module))
    return two, four, eight


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
def _primary_context(cuda: Any, ordinal: int) -> Iterator[None]:
    """Makes the primary context of a GPU current within a `with` block."""
    _checked(cuda.cuInit(0))
    handle = _checked(cuda.cuDeviceGet(ordinal))
    context = _checked(cuda.cuDevicePrimaryCtxRetain(handle))
    try:
        _checked(cuda.cuCtxPushCurrent(context))
        try:
            yield
        finally:
            cuda.cuCtxPopCurrent()
    finally:
        cuda.cuDevicePrimaryCtxRelease(handle)


def _checked(answer: tuple[Any, ...]) -> Any:
    """The value of a call of the driver, without its status."""
    status, *values = answer
    if status:
        raise RunnerError(f"the driver does not state its resident clusters: {status!r}")
    return values[0] if values else None
