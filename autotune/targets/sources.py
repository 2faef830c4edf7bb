"""The meaning of `device=` and `--device`.

The text, or the value in Python, decides how times are obtained:

    gpu, gpu:1, 1       measured on the first or another GPU of this machine; `cuda`, `cuda:1` and
                        `torch.device("cuda:1")` mean the same
    replay:h100         replayed from a recording that the package ships
    replay:a.json.gz    replayed from a file, or a folder such as replay:./trials
    h100, file.json     measured if this machine has that GPU, else predicted; a device of the
                        catalogue, a file or a `Device`
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from operator import index
from pathlib import Path
from typing import Protocol, SupportsIndex

from autotune import device as devices
from autotune.device import Device
from autotune.errors import DeviceError


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
        return devices.load(text if "/" in text or text.endswith(".json") else f"./{text}")
    text = str(device)
    if text[: len(_REPLAY)].lower() == _REPLAY:  # the catalogue ignores case too
        name = text[len(_REPLAY) :]
        path = "." in name or "/" in name
        return ReplayedFile(Path(name).expanduser()) if path else ReplayedGpu(name.lower())
    return devices.load(text)


def local_gpu(device: DeviceLike) -> LocalGpu | None:
    """The GPU of this machine that a device names; None if it names something else.

    Raises:
        DeviceError: for a negative number, or a value of another type.
    """
    if isinstance(device, Path | Device):
        return None
    if isinstance(device, SupportsIndex) and not isinstance(device, bool):
        return _numbered(device)
    of_torch = type(device).__name__ == "device" and hasattr(device, "index")
    if not isinstance(device, str) and not of_torch:
        raise DeviceError(f"device is {device!r}; give its name, such as 'h100', or a file's path")
    match = _GPU.fullmatch(str(device))
    if of_torch and match is None:
        raise DeviceError(f"device is {device}; give a GPU, such as cuda:0")
    return LocalGpu(int(match[1] or 0)) if match else None


def _numbered(device: SupportsIndex) -> LocalGpu:
    try:
        number = index(device)
    except TypeError:  # an array
        number = -1
    if number < 0:
        raise DeviceError(f"device is {device}; give the number of a GPU, 0 or more")
    return LocalGpu(number)


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
