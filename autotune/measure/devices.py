"""The meaning of `device=` and `--device`, and the GPUs of this machine.

The text, or the value in Python, decides how times are obtained:

    gpu, gpu:1, 1       measured on the first or another GPU of this machine; `cuda`, `cuda:1` and
                        `torch.device("cuda:1")` mean the same
    replay:h100         replayed from a recording that the package ships; of the kernel
                        `examples/stencil.py`: replay:stencil
    replay:a.json.gz    replayed from a file, or a folder such as replay:./trials
    h100, file.json     measured if this machine has that GPU, else predicted; a device of the
                        catalogue, a file or a `Device`
"""

from __future__ import annotations

import operator
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, SupportsIndex

from autotune import device as catalogue
from autotune.cuda import bindings
from autotune.device import Device
from autotune.errors import DeviceError, MissingError, UsageError
from autotune.measure import recording
from autotune.measure.recording import Recording
from autotune.problem import Problem


def probe(index: int = 0, *, enter: bool = False) -> Device:
    """The identity and limits of GPU `index`, as its driver states them; to `enter` it creates a
    context where only that tells its resident clusters.

    Raises:
        MissingError: if `cuda.bindings`, the driver or a GPU is missing.
        DeviceError: if there is no GPU of that index.
    """
    cuda = bindings.initialised()
    present = int(_call(cuda.cuDeviceGetCount))
    if not 0 <= index < present:
        raise DeviceError(f"no GPU {index}; the driver shows {present}, numbered from 0")
    return bindings.described(cuda, _call, index, enter=enter)


def count() -> int:
    """Number of GPUs that the driver shows.

    Raises:
        MissingError: if `cuda.bindings`, the driver or a GPU is missing.
    """
    return int(_call(bindings.initialised().cuDeviceGetCount))


def _call(function: Callable[..., tuple[Any, ...]], *arguments: Any) -> Any:
    status, *values = function(*arguments)
    if status:
        raise DeviceError(f"the driver does not describe the GPU: {function.__name__}: {status!r}")
    return values[0]


class TorchDevice(Protocol):
    """A device of PyTorch, such as `torch.device("cuda:1")`."""

    @property
    def type(self) -> str: ...

    @property
    def index(self) -> int | None: ...


DeviceLike = str | SupportsIndex | Path | Device | TorchDevice
"""A device as text, as a GPU's number, as a device of PyTorch, as the path of a device file or as a
`Device`."""

DEFAULT = "gpu"
ALL = "all"
"""All GPUs of this machine, as `devices`."""

_REPLAY = "replay:"
_GPU = re.compile(r"(?:gpu|cuda)(?::(\d{1,9}))?", re.IGNORECASE)


@dataclass(frozen=True)
class LocalGpu:
    """A GPU of this machine, by its number."""

    index: int


@dataclass(frozen=True)
class ReplayedGpu:
    """The GPU of a shipped recording, by the recording's name."""

    name: str


@dataclass(frozen=True)
class ReplayedFile:
    """The GPU of the user's own recordings: a file, or a folder with a file for each problem."""

    path: Path


Replayed = ReplayedGpu | ReplayedFile
Source = LocalGpu | Replayed | Device


def source_of(device: DeviceLike) -> Source:
    """The source that a device stands for.

    Raises:
        DeviceError: if there is no such device, or the value is of another type.
    """
    if isinstance(device, Device):
        return device
    if (gpu := local_gpu(device)) is not None:
        return gpu
    if isinstance(device, Path):
        text = str(device)
        return catalogue.load(text if "/" in text or text.endswith(".json") else f"./{text}")
    text = str(device)
    if text[: len(_REPLAY)].lower() == _REPLAY:  # the catalogue ignores case too
        name = text[len(_REPLAY) :]
        path = "." in name or "/" in name
        if not path and (own := recording.ROOT / f"{name.lower()}{recording.SUFFIX}").is_file():
            return ReplayedFile(own)  # of a user kernel
        return ReplayedFile(Path(name).expanduser()) if path else ReplayedGpu(name.lower())
    return catalogue.load(text)


def local_gpu(device: DeviceLike) -> LocalGpu | None:
    """The GPU of this machine that a device names; None if it names something else.

    Raises:
        DeviceError: for a negative number, or a value of another type.
    """
    if isinstance(device, Path | Device):
        return None
    if isinstance(device, SupportsIndex) and not isinstance(device, bool):
        with suppress(TypeError):  # an array
            if (number := operator.index(device)) >= 0:
                return LocalGpu(number)
        raise DeviceError(f"device is {device}; give the number of a GPU, 0 or more")
    of_torch = type(device).__name__ == "device" and hasattr(device, "index")
    if not isinstance(device, str) and not of_torch:
        raise DeviceError(f"device is {device!r}; give its name, such as 'h100', or a file's path")
    match = _GPU.fullmatch(str(device))
    if of_torch and match is None:
        raise DeviceError(f"device is {device}; give a GPU, such as cuda:0")
    return LocalGpu(int(match[1] or 0)) if match else None


def gpu_numbers(devices: str | Iterable[DeviceLike]) -> list[int] | None:
    """The numbers of several GPUs of this machine, as in `0,1`, `cuda:0,cuda:1` or a list; None for
    anything else."""
    words = devices.split(",") if isinstance(devices, str) else [*devices]
    numbers = [_gpu_number(word) for word in words]
    legal = [number for number in numbers if number is not None]
    return legal if legal and len(legal) == len(numbers) else None


def _gpu_number(word: DeviceLike) -> int | None:
    stripped = word.strip() if isinstance(word, str) else word
    if isinstance(stripped, str) and re.fullmatch(r"[0-9]{1,9}", stripped):
        return int(stripped)
    try:
        gpu = local_gpu(stripped)
    except DeviceError:
        return None
    return None if gpu is None else gpu.index


def option(device: DeviceLike) -> str:
    """The end of a command line that is about the device, such as ` --device h100`; empty for the
    default."""
    return "" if device == DEFAULT else f" --device {spelled(device)}"


def spelled(device: DeviceLike) -> str:
    """The device as `--device` takes it in a shell."""
    if isinstance(device, str | Path | Device):
        return shlex.quote(device.name if isinstance(device, Device) else str(device))
    gpu = local_gpu(device)
    return f"gpu:{gpu.index}" if gpu else str(device)


def recorded_device(source: Replayed) -> Device:
    """The device of a recording.

    Raises:
        NotFoundError: if there is no such recording.
        AutotuneError: if its file is broken.
    """
    if isinstance(source, ReplayedFile):
        return recording.device_in(source.path)
    first, *_ = recording.names().get(source.name, (Problem(1, 1, 1),))
    return recording.find(source.name, first).device


def recording_of(problem: Problem, device: DeviceLike) -> Recording | None:
    """The recording of a problem; None if the device is not that of a recording.

    Raises:
        NotFoundError: if there is no such recording or it does not hold the problem.
        AutotuneError: if the file is broken.
    """
    source = source_of(device)
    if isinstance(source, ReplayedFile):
        return recording.find_in(source.path, problem)
    return recording.find(source.name, problem) if isinstance(source, ReplayedGpu) else None


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
    """The number of this machine's first GPU of that model.

    Raises:
        DeviceError: if there is none.
        MissingError: without a driver or a GPU.
    """
    index = 0
    try:
        while probe(index).slug != device.slug:
            index += 1
    except DeviceError as error:
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


@contextmanager
def suggesting() -> Iterator[None]:
    """Adds devices that need no GPU to the message of a missing driver or GPU."""
    try:
        yield
    except MissingError as error:
        raise MissingError(
            f"{error}; or give another device: --device replay:h100 for recorded times, "
            "--device h100 for predicted times"
        ) from error


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


@contextmanager
def explained() -> Iterator[None]:
    """If measuring fails for lack of a GPU, also reports any other missing dependency."""
    try:
        yield
    except MissingError:
        with suggesting():
            probe(0)
        raise


def _every() -> Iterator[int]:
    yield 0  # opened before the others are counted
    yield from range(1, count())
