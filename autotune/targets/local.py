"""The GPUs of this machine: which there are, and which are meant."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from autotune.device import Device
from autotune.errors import DeviceError, MissingError, RunnerError, UsageError

ALL = "all"


def numbered(numbers: str | Sequence[int]) -> Iterable[int]:
    """The numbers of GPUs that `0,1`, `all` or a sequence stands for; `all` asks the driver for
    how many there are once the first has been taken.

    Raises:
        UsageError: for anything else, and for a number that is there twice.
    """
    if numbers == ALL:
        return _every()
    listed = numbers.split(",") if isinstance(numbers, str) else [str(one) for one in numbers]
    if not listed or not all(re.fullmatch(r"\s*[0-9]{1,9}\s*", one) for one in listed):
        raise UsageError(f"GPUs are {numbers!r}; give their numbers, such as 0,1, or all")
    indices = [int(one) for one in listed]
    if len(set(indices)) < len(indices):
        raise UsageError(f"GPUs are {numbers!r}, one of them twice; give each once")
    return indices


def index_of(device: Device) -> int:
    """The number of this machine's first GPU of that model.

    Raises:
        DeviceError: if there is none.
        MissingError: without PyCUDA, a driver or a GPU.
    """
    from autotune import gpu

    index = 0
    while gpu.probe(index).slug != device.slug:
        index += 1
    return index


def running_on(device: Device) -> int:
    """The number of this machine's first GPU of that model, found without PyCUDA.

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
    """The number of this machine's first GPU of that model, if it can measure on one."""
    try:
        return index_of(device)
    except (DeviceError, MissingError):
        return None


def probe(index: int) -> Device:
    """GPU `index`.

    Raises:
        MissingError: without a driver or a GPU; it says which devices need none.
        DeviceError: if there is no GPU of that index.
    """
    from autotune import gpu, runtime

    try:
        return gpu.probe(index)
    except MissingError:
        # Only measuring needs PyCUDA.
        try:
            return runtime.probe(index)
        except MissingError as error:
            raise MissingError(
                f"{error}; or give another device: --device replay:h100 for recorded times, "
                "--device h100 for predicted ones"
            ) from error


def driver_version() -> str:
    """The CUDA version that the driver supports, such as `13.0`; empty without a driver."""
    try:
        from cuda.bindings import driver

        status, version = driver.cuDriverGetVersion()
    except (ImportError, RuntimeError):  # without the bindings, without the driver
        return ""
    return "" if status or not version else f"{version // 1000}.{version % 1000 // 10}"


def check_alike(found: Mapping[int, Device]) -> None:
    """Refuses GPUs of several models: times of one say nothing of the other.

    Raises:
        DeviceError: with the names of two.
    """
    (index, first), *others = found.items()
    for other, device in others:
        if device.slug != first.slug:
            raise DeviceError(
                f"GPU {index} is {first.name}, GPU {other} is {device.name}; give GPUs of one model"
            )


@contextmanager
def explained() -> Iterator[None]:
    """Says what else there is where what measures misses a GPU: that may not be all it misses."""
    try:
        yield
    except MissingError:
        probe(0)
        raise


def _every() -> Iterator[int]:
    from autotune import gpu

    yield 0  # which is opened before the others are counted
    yield from range(1, gpu.count())
