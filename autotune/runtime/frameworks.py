"""The array libraries: how each one's arrays are read and made, and its current stream.

None of them is imported here. An array can only come from a library that the caller has
imported, so each is taken from `sys.modules`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

from autotune.errors import ArrayError
from autotune.runtime.arrays import Operand

# NumPy's array interface has no letter for bfloat16, so that such an array cannot be told there.
_KINDS = {"<f4": "float32", "<f2": "float16"}


class Framework(Protocol):
    """One array library.

    `read` is made for every array of every call and so gives no more than has to be looked at:
    the address, and a signature in the library's own terms. Two arrays with the same signature
    have the same description by `describe`.
    """

    def read(self, array: Any) -> tuple[int, Hashable]: ...

    def describe(self, array: Any, name: str) -> Operand: ...

    def stream(self, arrays: Sequence[Any], ordinal: int) -> int:
        """The handle of the caller's current stream on a device (0: the default stream)."""
        ...

    def empty(self, like: Any, shape: tuple[int, ...], wide: bool) -> Any:
        """A new row-major array beside another, of its type, or fp32 if it is to be `wide`."""
        ...


def framework_of(array: Any, name: str, ordinal: Callable[[int], int | None]) -> Framework:
    """The library that an array is from.

    Args:
        array: anything.
        name: what messages call it.
        ordinal: gives the device that holds an address.

    Raises:
        ArrayError: if it is not an array on a GPU.
    """
    if _is(array, "torch", "Tensor"):
        return Torch(sys.modules["torch"])
    if _is(array, "cupy", "ndarray"):
        return CuPy(sys.modules["cupy"])
    if _is(array, "pycuda.gpuarray", "GPUArray"):
        return PyCuda(sys.modules["pycuda.gpuarray"], ordinal)
    if hasattr(array, "__cuda_array_interface__"):
        return Interface(ordinal)
    kind = f"{type(array).__module__}.{type(array).__qualname__}"
    raise ArrayError(
        f"{name} is a {kind}, which is not on a CUDA device; give an array of PyTorch, CuPy, "
        "PyCUDA or another with __cuda_array_interface__"
    )


class Torch:
    """PyTorch tensors."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._records = torch.is_grad_enabled
        # The documented way makes a Stream object, which takes longer than a launch.
        raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
        self._stream: Callable[[int], int] = raw or (
            lambda ordinal: torch.cuda.current_stream(ordinal).cuda_stream
        )

    def read(self, array: Any) -> tuple[int, Hashable]:
        recorded = array.requires_grad and self._records()
        return array.data_ptr(), (array.shape, array.stride(), array.dtype, array.device, recorded)

    def describe(self, array: Any, name: str) -> Operand:
        device = array.device
        return Operand(
            name,
            tuple(array.shape),
            tuple(array.stride()),
            str(array.dtype).removeprefix("torch."),
            device.index if device.type == "cuda" else None,
            recorded=array.requires_grad and self._records(),
        )

    def stream(self, arrays: Sequence[Any], ordinal: int) -> int:  # noqa: ARG002
        return self._stream(ordinal)

    def empty(self, like: Any, shape: tuple[int, ...], wide: bool) -> Any:
        dtype = self._torch.float32 if wide else like.dtype
        return self._torch.empty(shape, dtype=dtype, device=like.device)


class CuPy:
    """CuPy arrays."""

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self._stream = cupy.cuda.get_current_stream

    def read(self, array: Any) -> tuple[int, Hashable]:
        data = array.data
        return data.ptr, (array.shape, array.strides, array.dtype, data.device_id)

    def describe(self, array: Any, name: str) -> Operand:
        strides = _elements(array.strides, array.dtype.itemsize, name)
        return Operand(name, array.shape, strides, array.dtype.name, array.data.device_id)

    def stream(self, arrays: Sequence[Any], ordinal: int) -> int:  # noqa: ARG002
        return int(self._stream(ordinal).ptr)

    def empty(self, like: Any, shape: tuple[int, ...], wide: bool) -> Any:
        with like.device:
            return self._cupy.empty(shape, dtype=self._cupy.float32 if wide else like.dtype)


class Interface:
    """Anything with version 2 or 3 of `__cuda_array_interface__`.

    It cannot make arrays. Its stream is the one that an operand names, else the legacy default
    stream.
    """

    def __init__(self, ordinal: Callable[[int], int | None]) -> None:
        self._ordinal = ordinal

    def read(self, array: Any) -> tuple[int, Hashable]:
        seen = array.__cuda_array_interface__
        address, read_only = seen["data"]
        masked = seen.get("mask") is not None
        layout = seen["shape"], seen.get("strides"), seen["typestr"]
        return address, (*layout, read_only, masked, self._ordinal(address))

    def describe(self, array: Any, name: str) -> Operand:
        seen = array.__cuda_array_interface__
        if seen.get("mask") is not None:
            raise ArrayError(f"{name} has a mask, which the kernels ignore; fill it in first")
        shape, kind, (address, read_only) = tuple(seen["shape"]), seen["typestr"], seen["data"]
        in_bytes = seen.get("strides")
        strides = _elements(in_bytes, int(kind[2:]), name) if in_bytes else _dense(shape)
        dtype = _KINDS.get(kind, kind)
        return Operand(name, shape, strides, dtype, self._ordinal(address), read_only)

    def stream(self, arrays: Sequence[Any], ordinal: int) -> int:  # noqa: ARG002
        seen = (getattr(array, "__cuda_array_interface__", {}) for array in arrays)
        handles = {handle for one in seen if (handle := one.get("stream")) is not None}
        if len(handles) > 1:
            raise ArrayError(
                f"the operands are on different streams {sorted(handles)}; bring them onto one"
            )
        return int(handles.pop()) if handles else 0

    def empty(self, like: Any, shape: tuple[int, ...], wide: bool) -> Any:  # noqa: ARG002
        raise ArrayError(f"{type(like).__qualname__} cannot be allocated here; give out={shape}")


class PyCuda(Interface):
    """PyCUDA's GPUArray, which has no current stream: everything is on the default stream."""

    def __init__(self, gpuarray: Any, ordinal: Callable[[int], int | None]) -> None:
        super().__init__(ordinal)
        self._gpuarray = gpuarray

    def empty(self, like: Any, shape: tuple[int, ...], wide: bool) -> Any:
        dtype = "float32" if wide else like.dtype
        return self._gpuarray.empty(shape, dtype=dtype, allocator=like.allocator)


def _is(array: Any, module: str, kind: str) -> bool:
    return isinstance(array, getattr(sys.modules.get(module), kind, ()))


def _elements(strides: Sequence[int], itemsize: int, name: str) -> tuple[int, ...]:
    if any(stride % itemsize for stride in strides):
        raise ArrayError(
            f"{name} has strides of {tuple(strides)} bytes, not multiples of its {itemsize}-byte "
            "elements: copy it"
        )
    return tuple(stride // itemsize for stride in strides)


def _dense(shape: Sequence[int]) -> tuple[int, ...]:
    strides, size = [], 1
    for extent in reversed(shape):
        strides.append(size)
        size *= extent
    return tuple(reversed(strides))
