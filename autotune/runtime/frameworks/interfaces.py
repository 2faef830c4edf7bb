"""Arrays that are recognised by the protocol they offer: `__cuda_array_interface__` or DLPack."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from autotune.errors import ArrayError
from autotune.runtime.arrays import ANYWHERE, ArrayInfo
from autotune.runtime.frameworks.base import GemmCall, dense, in_elements

# NumPy's array interface has no letter for bfloat16 and fp8, so it cannot describe such arrays.
_KINDS = {"<f4": "float32", "<f2": "float16", "|i1": "int8", "<i4": "int32"}
# dlpack.h: the device types kDLCUDA and kDLCUDAManaged, and the number of the legacy stream.
_DLPACK_CUDA = (2, 13)
_LEGACY_STREAM = 1


class CudaArrayInterface:
    """Anything with version 2 or 3 of `__cuda_array_interface__`.

    It cannot make arrays. Its stream is the one that an operand names, else the legacy default
    stream.
    """

    def __init__(self, ordinal: Callable[[int], int | None]) -> None:
        self._ordinal = ordinal

    def read(self, array: Any) -> tuple[int, Hashable]:
        interface = array.__cuda_array_interface__
        address, read_only = interface["data"]
        masked = interface.get("mask") is not None
        layout = interface["shape"], interface.get("strides"), interface["typestr"]
        return address, (*layout, read_only, masked, self._ordinal(address))

    def describe(self, array: Any, name: str) -> ArrayInfo:
        interface = array.__cuda_array_interface__
        if interface.get("mask") is not None:
            raise ArrayError(f"{name} has a mask, which the kernels ignore; fill it in first")
        shape, kind = tuple(interface["shape"]), interface["typestr"]
        address, read_only = interface["data"]
        in_bytes = interface.get("strides")
        strides = in_elements(in_bytes, int(kind[2:]), name) if in_bytes else dense(shape)
        dtype = _KINDS.get(kind, kind)
        ordinal = self._ordinal(address)
        if ordinal is None and 0 in shape:
            ordinal = ANYWHERE
        return ArrayInfo(name, shape, strides, dtype, ordinal, read_only)

    def records_gradient(self, *arrays: Any) -> bool:  # noqa: ARG002
        return False

    def exports(self, kind: type) -> bool:  # noqa: ARG002
        return False

    @property
    def negated(self) -> None:
        return None

    def stream(self, arrays: Sequence[Any], ordinal: int) -> int:  # noqa: ARG002
        interfaces = (getattr(array, "__cuda_array_interface__", {}) for array in arrays)
        handles = {
            handle for interface in interfaces if (handle := interface.get("stream")) is not None
        }
        if len(handles) > 1:
            raise ArrayError(
                f"the operands are on different streams {sorted(handles)}; bring them onto one"
            )
        return int(handles.pop()) if handles else 0

    def empty(self, like: Any, shape: tuple[int, ...], dtype: str | None = None) -> Any:  # noqa: ARG002
        raise ArrayError(f"{type(like).__qualname__} cannot be allocated here; give out={shape}")

    def vendor_gemm(self, call: GemmCall) -> bool:  # noqa: ARG002
        return False


class PyCuda(CudaArrayInterface):
    """PyCUDA's GPUArray, which has no current stream: everything is on the default stream."""

    def __init__(self, gpuarray: Any, ordinal: Callable[[int], int | None]) -> None:
        super().__init__(ordinal)
        self._gpuarray = gpuarray

    def empty(self, like: Any, shape: tuple[int, ...], dtype: str | None = None) -> Any:
        if dtype is not None and dtype not in _KINDS.values():
            raise ArrayError(f"PyCUDA has no {dtype}; give out= or another out_dtype=")
        return self._gpuarray.empty(shape, dtype=dtype or like.dtype, allocator=like.allocator)


class DLPack(CudaArrayInterface):
    """Any other array with DLPack: read on the legacy default stream, and never allocated here."""

    def __init__(self) -> None:
        super().__init__(lambda _: None)

    def read(self, array: Any) -> tuple[int, Hashable]:
        view = _view(array)
        layout = view.shape, view.strides, str(view.dtype)
        return view.ptr, (*layout, view.readonly, dlpack_ordinal(array))

    def describe(self, array: Any, name: str) -> ArrayInfo:
        view, ordinal = _view(array), dlpack_ordinal(array)
        strides = view.strides or dense(view.shape)
        return ArrayInfo(name, view.shape, strides, str(view.dtype), ordinal, view.readonly)

    def stream(self, arrays: Sequence[Any], ordinal: int) -> int:  # noqa: ARG002
        return 0


def _view(array: Any) -> Any:
    """A view of an array with DLPack; pending work on it precedes the legacy default stream's."""
    from cuda.core.utils import StridedMemoryView

    return StridedMemoryView.from_dlpack(array, stream_ptr=_LEGACY_STREAM)


def dlpack_ordinal(array: Any) -> int | None:
    """The CUDA device that holds an array with DLPack; None if it is not on one."""
    kind, ordinal = array.__dlpack_device__()
    return int(ordinal) if int(kind) in _DLPACK_CUDA else None
