"""The CUDA driver through `cuda.bindings`: initialised, and asked for its GPUs.

How many clusters are resident at once only the driver of a GPU knows. It is asked once for each
card and version of it; the cache keeps the answer, so that what has no context on the GPU knows it
too.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from autotune import files, settings
from autotune.device import CLUSTER_SIZES, Device, fp32_lanes
from autotune.device.device import Clusters
from autotune.errors import AutotuneError, MissingError, RunnerError
from autotune.files import limits

_LIMITS = {
    "sms": "MULTIPROCESSOR_COUNT",
    "warp_size": "WARP_SIZE",
    "registers_per_block": "MAX_REGISTERS_PER_BLOCK",
    "registers_per_sm": "MAX_REGISTERS_PER_MULTIPROCESSOR",
    "shared_per_block": "MAX_SHARED_MEMORY_PER_BLOCK",
    "shared_per_block_optin": "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
    "shared_per_sm": "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR",
    "reserved_shared_per_block": "RESERVED_SHARED_MEMORY_PER_BLOCK",
    "threads_per_block": "MAX_THREADS_PER_BLOCK",
    "threads_per_sm": "MAX_THREADS_PER_MULTIPROCESSOR",
    "blocks_per_sm": "MAX_BLOCKS_PER_MULTIPROCESSOR",
    "l2_bytes": "L2_CACHE_SIZE",
}
"""The fields of `Device` that the driver reports as they are."""

NAMES = (
    *("COMPUTE_CAPABILITY_MAJOR", "COMPUTE_CAPABILITY_MINOR", *_LIMITS.values()),
    *("CLOCK_RATE", "MEMORY_CLOCK_RATE", "GLOBAL_MEMORY_BUS_WIDTH"),
)
"""The attributes that describe a device: `CU_DEVICE_ATTRIBUTE_<name>` of the driver."""


def describe(name: str, memory_bytes: int, values: Mapping[str, int]) -> Device:
    """The device with these values of the attributes in `NAMES`, in the driver's units.

    Clocks are in kHz, the bus width in bits. Memory transfers on both clock edges, so the peak
    bandwidth is 2 x memory clock x bus width / 8 (bytes/s). The fp32 peak is
    SMs x lanes x 2 x SM clock (FLOP/s).
    """
    capability = values["COMPUTE_CAPABILITY_MAJOR"], values["COMPUTE_CAPABILITY_MINOR"]
    sm_clock, memory_clock = 1000 * values["CLOCK_RATE"], 1000 * values["MEMORY_CLOCK_RATE"]
    limits: dict[str, Any] = {field: values[attribute] for field, attribute in _LIMITS.items()}
    return Device(
        name=name,
        compute_capability=capability,
        memory_bytes=memory_bytes,
        sm_clock=sm_clock,
        memory_clock=memory_clock,
        memory_bandwidth=2 * memory_clock * values["GLOBAL_MEMORY_BUS_WIDTH"] / 8,
        peak_fp32=float(limits["sms"] * fp32_lanes(capability) * 2 * sm_clock),
        **limits,
    )


INSTALL = (
    "run `pip install 'tile-autotune[cu13]'`"
    if sys.platform == "linux"
    else "NVIDIA has it for Linux alone, so compile and measure there or in WSL"
)
"""The advice where NVIDIA's packages are missing."""

Call = Callable[..., Any]
"""Calls a function of the driver with arguments; returns its values, or raises if it fails."""


def initialised() -> Any:
    """`cuda.bindings.driver`, initialised.

    Raises:
        MissingError: if there is no `cuda.bindings`, no driver or no GPU.
    """
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise MissingError(f"cuda.bindings cannot be imported ({error}); {INSTALL}") from error
    try:
        (status,) = driver.cuInit(0)
    except RuntimeError as error:
        raise MissingError(
            "no CUDA driver: libcuda.so.1 was not found; install NVIDIA's driver (580 or newer)"
        ) from error
    if status:
        raise MissingError(f"no usable GPU: cuInit gave {status.name}; nvidia-smi says more")
    return driver


def described(cuda: Any, call: Call, ordinal: int, *, enter: bool = False) -> Device:
    """The identity and limits of a GPU, which needs no context.

    Resident clusters are those that its driver stated, or states to a process with a context on it;
    to `enter` creates one. See `with_clusters`.
    """
    device = call(cuda.cuDeviceGet, ordinal)
    name = call(cuda.cuDeviceGetName, 256, device)
    kinds = cuda.CUdevice_attribute
    values = {
        name: int(
            call(cuda.cuDeviceGetAttribute, getattr(kinds, f"CU_DEVICE_ATTRIBUTE_{name}"), device)
        )
        for name in NAMES
    }
    memory = int(call(cuda.cuDeviceTotalMem, device))
    described = describe(name.partition(b"\0")[0].decode(), memory, values)
    return with_clusters(cuda, described, ordinal, enter=enter)


def worded(cuda: Any, status: Any) -> str:
    """A status of the driver in words."""
    result = cuda.CUresult(status)
    _, text = cuda.cuGetErrorString(result)
    return f"{result.name}: {(text or b'').decode()}"


def entry_point(cuda: Any, name: str, since: int) -> int:
    """The address of a function of the driver.

    Args:
        cuda: `cuda.bindings.driver` or a stand-in.
        name: as `cuda.h` has it, without a version.
        since: the CUDA version that introduced this form of it, such as 12000.

    Raises:
        RunnerError: if the driver does not have it.
    """
    status, function, *_ = cuda.cuGetProcAddress(name.encode(), since, 0)
    if status or not function:
        raise RunnerError(
            f"the driver has no {name}; update it: it came with CUDA {since // 1000}."
            f"{since % 1000 // 10}"
        )
    return int(function)


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
    """A kernel that does nothing, for a device; `scripts/fit/derived.py idle` makes its cubins."""
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
