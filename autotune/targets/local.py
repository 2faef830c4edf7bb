"""The GPUs of this machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from autotune.device import Device
from autotune.errors import DeviceError, MissingError, RunnerError, UsageError
from autotune.targets.sources import DeviceLike, gpu_numbers

ALL = "all"


def numbered(numbers: str | Sequence[DeviceLike]) -> Iterable[int]:
    """The GPU numbers that `0,1`, `cuda:0,cuda:1`, `all` or a sequence stands for. `all` asks the
    driver for their count after the first number has been consumed.

    Raises:
        UsageError: for anything else, and for a repeated number.
    """
    if numbers == ALL:
        return _every()
    indices = gpu_numbers(numbers)
    if indices is None:
        raise UsageError(f"GPUs are {numbers!r}; give their numbers, such as 0,1, or all")
    if len(set(indices)) < len(indices):
        raise UsageError(f"GPUs are {numbers!r}, one of them twice; give each once")
    return indices


def index_of(device: Device) -> int:
    """The number of this machine's first GPU of that model, to measure on.

    Raises:
        DeviceError: if there is none.
        MissingError: without a driver or a GPU.
    """
    from autotune import gpu

    index = 0
    while gpu.probe(index).slug != device.slug:
        index += 1
    return index


def running_on(device: Device) -> int:
    """The number of this machine's first GPU of that model, to run kernels on.

    Raises:
        DeviceError: if there is none.
        MissingError: without a driver or a GPU.
    """
    from autotune import runtime

    index = 0
    try:
        while runtime.probe(index).slug != device.slug:
            index += 1
    except RunnerError as error:
        raise DeviceError(
            f"{device.name} is not in this machine; give `gpu` or the number of a GPU"
        ) from error
    return index


def present(device: Device) -> int | None:
    """The number of this machine's first GPU of that model, or None if it cannot measure on one."""
    try:
        return index_of(device)
    except (DeviceError, MissingError):
        return None


def probe(index: int) -> Device:
    """The identity and limits of a GPU, by its number.

    Raises:
        MissingError: without a driver or a GPU; the message names devices that need none.
        DeviceError: if there is no GPU of that number.
    """
    from autotune import gpu

    try:
        return gpu.probe(index)
    except MissingError as error:
        raise MissingError(
            f"{error}; or give another device: --device replay:h100 for recorded times, "
            "--device h100 for predicted ones"
        ) from error


def entered(index: int) -> Device:
    """A GPU by its number, with what only a context on it tells, which is created if it has to be.

    Raises:
        AutotuneError: as `probe`.
    """
    from autotune import gpu

    probed = probe(index)
    return probed if probed.knows_clusters else gpu.probe(index, enter=True)


def option_here() -> str:
    """The `--device` that an example needs on this machine: that of a recording without a GPU."""
    try:
        probe(0)
    except MissingError:
        return " --device replay:h100"
    return ""


def driver_version() -> str:
    """The CUDA version that the driver supports, such as `13.0`; empty without a driver."""
    try:
        from cuda.bindings import driver

        status, version = driver.cuDriverGetVersion()
    except (ImportError, RuntimeError):  # no bindings, or no driver
        return ""
    return "" if status or not version else f"{version // 1000}.{version % 1000 // 10}"


def cublas_version() -> str:
    """The version of cuBLAS, such as `13.0.0`; empty if it is not installed."""
    from autotune.gpu import cublas

    return cublas.version()


def check_alike(devices: Mapping[int, Device]) -> None:
    """Checks that GPUs are of one model: times on one model do not predict those on another.

    Raises:
        DeviceError: if they are not; with the names of two.
    """
    (first_index, first), *rest = devices.items()
    for index, device in rest:
        if device.slug != first.slug:
            raise DeviceError(
                f"GPU {first_index} is {first.name}, GPU {index} is {device.name}; give GPUs of "
                "one model"
            )


@contextmanager
def explained() -> Iterator[None]:
    """If measuring fails for lack of a GPU, also reports any other missing dependency."""
    try:
        yield
    except MissingError:
        probe(0)
        raise


def _every() -> Iterator[int]:
    from autotune import gpu

    yield 0  # opened before the others are counted
    yield from range(1, gpu.count())
