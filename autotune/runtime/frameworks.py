"""The array libraries: how to read and make their arrays, and their current stream.

No library is imported here: an array can only come from one that the caller has imported, so each
is taken from `sys.modules`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol

from autotune import settings
from autotune.errors import ArrayError
from autotune.problem import SCALE_BLOCK, Problem
from autotune.problem.integers import ceil_div
from autotune.problem.vendor import fused, in_place, is_instance, obstacle, scaled_product
from autotune.runtime.arrays import ArrayInfo, dense


class Framework(Protocol):
    """One array library.

    `read` runs for every array of every call, so it returns only the address and a signature in
    the library's own terms. Two arrays with the same signature have the same description by
    `describe`. A subclass inherits what holds for most: no gradients, no exchange API, no vendor's
    library.
    """

    def read(self, array: Any) -> tuple[int, Hashable]: ...

    def describe(self, array: Any, name: str) -> ArrayInfo: ...

    def records_gradient(self, *arrays: Any) -> bool:  # noqa: ARG002
        """Whether the library would have to differentiate through a matmul of these arrays."""
        return False

    def exports(self, kind: type) -> bool:  # noqa: ARG002
        """Whether the DLPack C exchange API, if arrays of this type have it, tells everything that
        a matmul depends on besides `records_gradient` and `negated`."""
        return False

    @property
    def negated(self) -> Callable[[Any], bool] | None:
        """Tells whether the memory of an array that `exports` has the other sign; None if none
        does."""
        return None

    def stream(self, arrays: Sequence[Any], ordinal: int) -> int:
        """The handle of the caller's current stream on a device (0: the default stream)."""
        ...

    def empty(self, like: Any, shape: tuple[int, ...], dtype: str | None = None) -> Any:
        """A new row-major array on the device of `like`, of its type or of the named one, such as
        `float32`."""
        ...

    def vendor_gemm(
        self, problem: Problem, arrays: Mapping[str, Any], alpha: float, beta: float
    ) -> bool:
        """Enqueues `c = act(alpha scale_a a scale_b b + beta c + bias) + residual` by the vendor's
        library, if the framework offers it as fast and as accurate as the vendor baseline timed it.
        Otherwise returns False and does nothing.

        The `arrays`, all of the framework, have the operands' names in `OPERANDS`.
        """
        del problem, arrays, alpha, beta
        return False


def in_elements(strides: Sequence[int], itemsize: int, name: str) -> tuple[int, ...]:
    """Strides in elements, from strides in bytes.

    Raises:
        ArrayError: if a stride is not a whole number of elements; it calls the array `name`.
    """
    if any(stride % itemsize for stride in strides):
        raise ArrayError(
            f"{name} has strides of {tuple(strides)} bytes, not multiples of its {itemsize}-byte "
            "elements: copy it"
        )
    return tuple(stride // itemsize for stride in strides)


class Torch(Framework):
    """PyTorch tensors."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._grad_enabled = torch.is_grad_enabled
        self._ones: dict[Any, Any] = {}
        # The documented function makes a Stream object, which takes longer than a launch.
        raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
        self._stream: Callable[[int], int] = raw or (
            lambda ordinal: torch.cuda.current_stream(ordinal).cuda_stream
        )

    def read(self, array: Any) -> tuple[int, Hashable]:
        try:
            address, recorded = array.data_ptr(), array.requires_grad and self._grad_enabled()
            layout = array.shape, array.stride(), array.dtype, array.device
            conjugated = array.dtype.is_complex and array.is_conj()
            lazy = not address or array.is_neg() or conjugated
        except (RuntimeError, ValueError):
            return 0, None  # `describe` refuses it
        return address, (*layout, recorded, lazy)

    def describe(self, array: Any, name: str) -> ArrayInfo:
        if (reason := obstacle(self._torch, array) or _lazy(array)) is not None:
            raise ArrayError(f"{name} {reason}")
        device = array.device
        return ArrayInfo(
            name,
            tuple(array.shape),
            tuple(array.stride()),
            str(array.dtype).removeprefix("torch."),
            device.index if device.type == "cuda" else None,
            recorded=array.requires_grad and self._grad_enabled(),
        )

    def records_gradient(self, *arrays: Any) -> bool:
        if not self._grad_enabled():
            return False
        # Arrays may be of another library. A loop takes half the time of any(); each call runs it.
        for array in arrays:  # noqa: SIM110
            if getattr(array, "requires_grad", False):
                return True
        return False

    def exports(self, kind: type) -> bool:
        # The memory of other subclasses may not be a plain tensor's.
        return kind in (self._torch.Tensor, self._torch.nn.Parameter)

    @property
    def negated(self) -> Callable[[Any], bool]:
        is_neg: Callable[[Any], bool] = self._torch.Tensor.is_neg
        return is_neg

    def stream(self, arrays: Sequence[Any], ordinal: int) -> int:  # noqa: ARG002
        return self._stream(ordinal)

    def empty(self, like: Any, shape: tuple[int, ...], dtype: str | None = None) -> Any:
        if dtype is None:
            return like.new_empty(shape)
        return like.new_empty(shape, dtype=getattr(self._torch, dtype))

    def vendor_gemm(
        self, problem: Problem, arrays: Mapping[str, Any], alpha: float, beta: float
    ) -> bool:
        torch, bias = self._torch, arrays.get("bias")
        if problem.gated:
            return False  # it was timed with gates apart
        if problem.precision.eight_bit:
            return (alpha, beta) == (1, 0) and self._scaled_gemm(problem, arrays)
        if problem.output != "same" or (beta and bias is not None):
            return False
        # TF32 is a setting of the process, which other threads may rely on: never change it here.
        vendor = problem.precision.vendor
        if vendor is None or (
            problem.operand_types[0] == "f32" and tf32_allowed(torch) != (vendor == "tf32")
        ):
            return False
        if (operands := _one_batch_axis(arrays["a"], arrays["b"], arrays["c"])) is None:
            return False
        a, b, out = operands
        batched = out.dim() == 3
        if alpha == 0:  # a sum without summands, as cuBLAS may multiply NaN by 0
            a, b = a.narrow(-1, 0, 0), b.narrow(-2, 0, 0)
        elif (function := fused(torch, problem)) is not None:
            function(bias, a, b, alpha=alpha, out=out)
            return True
        if (alpha, beta) == (1, 0) and bias is None:
            (torch.bmm if batched else torch.mm)(a, b, out=out)
        else:
            added, factor = (out, beta) if bias is None else (bias, 1)
            scaled_gemm = torch.baddbmm if batched else torch.addmm
            scaled_gemm(added, a, b, beta=factor, alpha=alpha, out=out)
        self._finish(problem, arrays)
        return True

    def _scaled_gemm(self, problem: Problem, arrays: Mapping[str, Any]) -> bool:
        """`vendor_gemm` of operands of 8 bits."""
        out = arrays["c"]
        multiply = scaled_product(self._torch, problem)
        if multiply is None or out.dim() > 2:
            return False
        scale_a, scale_b = arrays.get("scale_a"), arrays.get("scale_b")
        if scale_a is None and problem.compute != "i8":
            scale_a = scale_b = self._one(out.device)
            if scale_a is None:
                return False
        multiply(arrays["a"], arrays["b"], scale_a, scale_b, arrays.get("bias"), out)
        self._finish(problem, arrays)
        return True

    def _finish(self, problem: Problem, arrays: Mapping[str, Any]) -> None:
        """Applies the activation to the output, and adds the residual."""
        out, residual = arrays["c"], arrays.get("residual")
        if problem.activation is not None:
            in_place(self._torch, problem.activation)(out)
        if residual is not None:
            self._torch.add(out, residual, out=out)

    def _one(self, device: Any) -> Any:
        """The number 1 on a device; None if it would have to be made while a graph is captured,
        whose memory later replays reuse."""
        number = self._ones.get(device)
        if number is None and not self._torch.cuda.is_current_stream_capturing():
            number = self._torch.ones((), dtype=self._torch.float32, device=device)
            self._ones[device] = number
        return number


def _lazy(tensor: Any) -> str | None:
    """The operation that PyTorch has put off, so that the memory does not hold the elements, and
    what to do; None without one."""
    if tensor.is_neg():
        return "is lazily negated (is_neg), its memory has the other sign; give .resolve_neg()"
    if tensor.is_conj():
        return "is lazily conjugated (is_conj), its memory is not; give .resolve_conj()"
    return None


def _one_batch_axis(a: Any, b: Any, out: Any) -> tuple[Any, Any, Any] | None:
    """The tensors of a matmul as matrices, or as batches of equal length; None if that would copy
    the output. As in `torch.matmul`, operands may be copied if there are several batch axes."""
    if out.dim() == 2:
        return a, b, out
    shape = out.shape[:-2]
    a, b = (
        matrix if matrix.shape[:-2] == shape else matrix.expand(*shape, -1, -1) for matrix in (a, b)
    )
    if len(shape) == 1:
        return a, b, out
    try:
        flat = out.view(-1, *out.shape[-2:])
    except RuntimeError:
        return None
    return a.flatten(0, -3), b.flatten(0, -3), flat


def tf32_allowed(torch: Any) -> bool:
    """Whether PyTorch's settings allow tf32 for float32 matmuls on GPUs."""
    settings = torch.backends.cuda.matmul
    try:
        # From 2.9 on, reading the old setting raises once both have been set.
        return bool(settings.fp32_precision == "tf32")
    except AttributeError:
        return bool(settings.allow_tf32)


class CuPy(Framework):
    """CuPy arrays."""

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self._stream = cupy.cuda.get_current_stream

    def read(self, array: Any) -> tuple[int, Hashable]:
        data = array.data
        return data.ptr, (array.shape, array.strides, array.dtype, data.device_id)

    def describe(self, array: Any, name: str) -> ArrayInfo:
        strides = in_elements(array.strides, array.dtype.itemsize, name)
        return ArrayInfo(name, array.shape, strides, array.dtype.name, array.data.device_id)

    def exports(self, kind: type) -> bool:
        return kind is self._cupy.ndarray

    def stream(self, arrays: Sequence[Any], ordinal: int) -> int:  # noqa: ARG002
        return int(self._stream(ordinal).ptr)

    def empty(self, like: Any, shape: tuple[int, ...], dtype: str | None = None) -> Any:
        with like.device:
            return self._cupy.empty(shape, dtype=self._dtype(dtype) if dtype else like.dtype)

    def _dtype(self, name: str) -> Any:
        dtype = getattr(self._cupy, name, None)
        if dtype is not None:
            return dtype
        try:
            ml_dtypes: Any = import_module("ml_dtypes")
        except ImportError as error:
            raise ArrayError(
                f"CuPy has no {name} without ml_dtypes; install it, or give out= or out_dtype="
            ) from error
        return getattr(ml_dtypes, name)

    def vendor_gemm(
        self, problem: Problem, arrays: Mapping[str, Any], alpha: float, beta: float
    ) -> bool:
        served = problem.precision.cupy and problem.output == "same" and problem.epilogue.plain
        if not served or (alpha, beta) != (1, 0) or settings.cupy_tf32():
            return False
        self._cupy.matmul(arrays["a"], arrays["b"], out=arrays["c"])
        return True


# NumPy's array interface has no letter for bfloat16 and fp8, so it cannot describe such arrays.
_KINDS = {"<f4": "float32", "<f2": "float16", "|i1": "int8", "<i4": "int32"}
# dlpack.h: the device types kDLCUDA and kDLCUDAManaged, and the number of the legacy stream.
_DLPACK_CUDA = (2, 13)
_LEGACY_STREAM = 1


class CudaArrayInterface(Framework):
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
        return ArrayInfo(name, shape, strides, dtype, self._ordinal(address), read_only)

    def stream(self, arrays: Sequence[Any], ordinal: int) -> int:  # noqa: ARG002
        interfaces = (getattr(array, "__cuda_array_interface__", {}) for array in arrays)
        handles = {
            handle for interface in interfaces if (handle := interface.get("stream")) is not None
        }
        if len(handles) > 1:
            raise ArrayError(
                f"the operands are on different streams {sorted(handles)}; bring them onto one "
                "stream"
            )
        return int(handles.pop()) if handles else 0

    def empty(self, like: Any, shape: tuple[int, ...], dtype: str | None = None) -> Any:  # noqa: ARG002
        raise ArrayError(f"{type(like).__qualname__} cannot be allocated here; give out={shape}")


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


def own_scale_b(b: Any, scale_b: Any) -> Any:
    """The scales of B of a call of `torch._scaled_mm` for `autotune.matmul`, where A is quantised
    on the way in.

    Raises:
        ArrayError: for scales of another shape.
    """
    shape, (k, n) = tuple(scale_b.shape), b.shape
    of_blocks = ceil_div(k, SCALE_BLOCK), ceil_div(n, SCALE_BLOCK)
    if shape == (1, n) or set(shape) <= {1}:
        return scale_b
    if shape == of_blocks:
        return scale_b.t().contiguous()
    raise ArrayError(
        f"scale_b is {shape}; a B of {(k, n)} takes one number, {(1, n)} or {of_blocks}"
    )


def own_scales(a: Any, b: Any, scale_a: Any, scale_b: Any) -> tuple[Any, Any]:
    """The scales of a call of `torch._scaled_mm`, for `autotune.matmul`.

    PyTorch takes one number for each tensor, (m, 1) and (1, n) for rows and columns, or, for blocks
    of 1 x 128 and 128 x 128, (m, ceil(k / 128)) and (ceil(k / 128), ceil(n / 128)). Those for
    blocks are transposed here, which moves nothing if they are stored as PyTorch demands: column
    by column.

    Raises:
        ArrayError: for scales of other shapes.
    """
    shapes = tuple(scale_a.shape), tuple(scale_b.shape)
    (m, k), n = a.shape, b.shape[1]
    blocks = ceil_div(k, SCALE_BLOCK)
    of_blocks = (m, blocks), (blocks, ceil_div(n, SCALE_BLOCK))
    of_rows = (m, 1), (1, n)
    if shapes == of_rows or all(set(shape) <= {1} for shape in shapes):
        return scale_a, scale_b
    if shapes == of_blocks:
        return scale_a.t().contiguous(), scale_b.t().contiguous()
    legal = "one number each, {} and {}, or {} and {}".format(*of_rows, *of_blocks)
    raise ArrayError(
        f"scale_a is {shapes[0]}, scale_b {shapes[1]}; a product of ({m}, {k}) and ({k}, {n}) "
        f"takes {legal}"
    )


def framework_of(array: Any, name: str, ordinal: Callable[[int], int | None]) -> Framework:
    """The library that an array is from.

    Args:
        array: anything.
        name: its name in messages.
        ordinal: gives the device that holds an address.

    Raises:
        ArrayError: if it is not an array on a GPU, or a tensor without its elements in its memory.
    """
    if is_instance(array, "torch", "Tensor"):
        torch = sys.modules["torch"]
        if (reason := obstacle(torch, array)) is not None:
            raise ArrayError(f"{name} {reason}")
        return Torch(torch)
    if is_instance(array, "cupy", "ndarray"):
        return CuPy(sys.modules["cupy"])
    if is_instance(array, "pycuda.gpuarray", "GPUArray"):
        return PyCuda(sys.modules["pycuda.gpuarray"], ordinal)
    if hasattr(array, "__cuda_array_interface__"):
        return CudaArrayInterface(ordinal)
    if hasattr(array, "__dlpack_device__") and dlpack_ordinal(array) is not None:
        return DLPack()
    kind = f"{type(array).__module__}.{type(array).__qualname__}"
    raise ArrayError(
        f"{name} is a {kind}, which is not on a CUDA device; give an array of PyTorch, CuPy, "
        "PyCUDA or another with __cuda_array_interface__ or DLPack"
    )
