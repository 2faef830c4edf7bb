"""PyTorch and CuPy."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from importlib import import_module
from typing import Any

from autotune import settings
from autotune.errors import ArrayError
from autotune.problem.vendor import fused, in_place, obstacle, scaled_product
from autotune.runtime.arrays import ArrayInfo
from autotune.runtime.frameworks.base import GemmCall, in_elements


class Torch:
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

    def vendor_gemm(self, call: GemmCall) -> bool:
        torch, problem, bias = self._torch, call.problem, call.arrays.get("bias")
        if problem.gated:
            return False  # it was timed with gates apart
        if problem.precision.eight_bit:
            return self._scaled_gemm(call)
        if problem.output != "same" or (call.beta and bias is not None):
            return False
        # TF32 is a setting of the process, which other threads may rely on: never change it here.
        vendor = problem.precision.vendor
        if vendor is None or (
            problem.operand_types[0] == "f32" and tf32_allowed(torch) != (vendor == "tf32")
        ):
            return False
        matrices = call.arrays["a"], call.arrays["b"], call.arrays["c"]
        if (operands := _one_batch_axis(*matrices)) is None:
            return False
        a, b, out = operands
        batched = out.dim() == 3
        if call.alpha == 0:  # a sum without summands, as cuBLAS may multiply NaN by 0
            a, b = a.narrow(-1, 0, 0), b.narrow(-2, 0, 0)
        elif (function := fused(torch, problem)) is not None:
            function(bias, a, b, alpha=call.alpha, out=out)
            return True
        if call.alpha == 1 and call.beta == 0 and bias is None:
            (torch.bmm if batched else torch.mm)(a, b, out=out)
        else:
            added, beta = (out, call.beta) if bias is None else (bias, 1)
            scaled_gemm = torch.baddbmm if batched else torch.addmm
            scaled_gemm(added, a, b, beta=beta, alpha=call.alpha, out=out)
        if problem.activation is not None:
            in_place(torch, problem.activation)(out)
        if (residual := call.arrays.get("residual")) is not None:
            torch.add(out, residual, out=out)
        return True

    def _scaled_gemm(self, call: GemmCall) -> bool:
        """`vendor_gemm` of operands of 8 bits."""
        problem, arrays = call.problem, call.arrays
        out = arrays["c"]
        multiply = scaled_product(self._torch, problem)
        if multiply is None or call.alpha != 1 or call.beta != 0 or out.dim() > 2:
            return False
        scale_a, scale_b = arrays.get("scale_a"), arrays.get("scale_b")
        if scale_a is None and problem.compute != "i8":
            scale_a = scale_b = self._one(out.device)
            if scale_a is None:
                return False
        multiply(arrays["a"], arrays["b"], scale_a, scale_b, arrays.get("bias"), out)
        if problem.activation is not None:
            in_place(self._torch, problem.activation)(out)
        if (residual := arrays.get("residual")) is not None:
            self._torch.add(out, residual, out=out)
        return True

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


class CuPy:
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

    def records_gradient(self, *arrays: Any) -> bool:  # noqa: ARG002
        return False

    def exports(self, kind: type) -> bool:
        return kind is self._cupy.ndarray

    @property
    def negated(self) -> None:
        return None

    def stream(self, arrays: Sequence[Any], ordinal: int) -> int:  # noqa: ARG002
        return int(self._stream(ordinal).ptr)

    def empty(self, like: Any, shape: tuple[int, ...], dtype: str | None = None) -> Any:
        with like.device:
            return self._cupy.empty(shape, dtype=self._dtype(dtype) if dtype else like.dtype)

    def _dtype(self, name: str) -> Any:
        """A dtype by its name."""
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

    def vendor_gemm(self, call: GemmCall) -> bool:
        problem = call.problem
        served = problem.precision.cupy and problem.output == "same"
        if not served or not call.plain or settings.cupy_tf32():
            return False
        self._cupy.matmul(call.arrays["a"], call.arrays["b"], out=call.arrays["c"])
        return True
