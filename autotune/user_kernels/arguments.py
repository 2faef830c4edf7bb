"""The arguments of a user kernel: their types in a call and in a plan, their copies on the host.

Arrays of the caller's library become NumPy arrays and back. No library is imported here: an array
can only come from one that the caller has imported.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import UsageError
from autotune.families.plan import SCALARS, Argument
from autotune.problem.call import KernelCall
from autotune.problem.vendor import obstacle
from autotune.records.kernel_record import SCRATCH, VALUE, scratch_word, word_of
from autotune.user_kernels.results import Array
from autotune.user_kernels.steps import Computed, Scratch

DTYPES = (*SCALARS, "complex64", "complex128")
"""The element types of arrays."""


def call_of(name: str, arguments: Sequence[object]) -> KernelCall:
    """The call of a kernel with these arguments.

    Raises:
        UsageError: for an argument that is neither a NumPy array nor a NumPy number.
    """
    texts = (_text(place, argument) for place, argument in enumerate(arguments))
    return KernelCall(name, tuple(texts))


def launch_arguments(arguments: Sequence[object]) -> tuple[Argument, ...]:
    """The arguments in the form of a plan.

    Raises:
        UsageError: as `call_of`.
    """
    return tuple(_argument(place, argument) for place, argument in enumerate(arguments))


def _text(place: int, argument: object) -> str:
    if isinstance(argument, np.ndarray):
        _check(place, argument)
        return f"{argument.dtype.name}[{','.join(map(str, argument.shape))}]"
    if isinstance(argument, np.generic) and argument.dtype.name in SCALARS:
        return f"{argument.dtype.name}={argument.item()!r}"
    if isinstance(argument, Scratch):
        return f"{argument.element.name}{SCRATCH}"
    if isinstance(argument, Computed) and argument.dtype is not None:
        return f"{argument.dtype.name}{VALUE}"
    if isinstance(argument, type) and issubclass(argument, np.generic):
        return f"{np.dtype(argument).name}{VALUE}"
    if foreign(argument):
        name, shape = described(argument)
        return f"{name}[{','.join(map(str, shape))}]"
    raise UsageError(
        f"argument {place} is {argument!r}; give a NumPy array, or one of PyTorch, CuPy or PyCUDA, "
        "or a number with the type of the "
        f"kernel's parameter, such as numpy.int32({'n' if place else '4096'})"
    )


def _check(place: int, array: Array) -> None:
    if array.dtype.name not in DTYPES or not array.dtype.isnative:
        raise UsageError(
            f"argument {place} is an array of {array.dtype}; give one of {', '.join(DTYPES)}, or "
            "the bits of what NumPy does not have as numpy.uint16"
        )
    if not array.flags.c_contiguous or not array.size:
        raise UsageError(
            f"argument {place} is an array of shape {array.shape} and strides {array.strides}; "
            "give one with at least an element and without gaps (numpy.ascontiguousarray)"
        )


def _argument(place: int, argument: object) -> Argument:
    if isinstance(argument, np.ndarray):
        return Argument("pointer", word_of(place))
    if isinstance(argument, Scratch):
        return Argument("pointer", scratch_word(place))
    if isinstance(argument, Computed) and argument.dtype is not None:
        return Argument(SCALARS[argument.dtype.name], 0)
    assert isinstance(argument, np.generic)
    name = argument.dtype.name
    bits = argument.view(np.uint16) if name == "float16" else argument
    value = bits.item()
    return Argument(SCALARS[name], int(value) if isinstance(value, bool) else value)


Function = Callable[..., Any]


def foreign(argument: object) -> bool:
    """Whether an argument is an array of another library than NumPy."""
    if isinstance(argument, np.ndarray | np.generic):
        return False
    return any(
        hasattr(argument, name) for name in ("__cuda_array_interface__", "__dlpack__", "gpudata")
    )


def described(argument: Any) -> tuple[str, tuple[int, ...]]:
    """The name of the element type and the shape of an array of another library."""
    if _torch_tensor(argument):
        return str(argument.dtype).removeprefix("torch."), tuple(argument.shape)
    dtype = getattr(argument, "dtype", None)
    if dtype is None:
        dtype = argument.__cuda_array_interface__["typestr"]
    return np.dtype(dtype).name, tuple(int(size) for size in argument.shape)


def on_host(argument: Any, place: int) -> Any:
    """An argument with its contents in the host's memory; other arguments as they are.

    Raises:
        UsageError: for an array whose elements NumPy lacks, that offers no copy, or that has no
            memory of its own.
    """
    if not foreign(argument):
        return argument
    if _torch_tensor(argument):
        if (reason := obstacle(sys.modules["torch"], argument)) is not None:
            raise UsageError(f"argument {place} {reason}")
        try:
            return argument.numpy(force=True)  # carries lazy operations out
        except TypeError as error:
            raise UsageError(
                f"argument {place} is a tensor of {argument.dtype}, which NumPy lacks; give its "
                "bits: .view(torch.uint16), or .view(torch.uint8) for 8-bit types"
            ) from error
    for name in ("get", "copy_to_host"):  # CuPy and PyCUDA; Numba
        if callable(copy := getattr(argument, name, None)):
            return copy()
    if hasattr(argument, "__array__"):
        return np.asarray(argument)
    raise UsageError(
        f"argument {place} is a {type(argument).__qualname__}, which offers no copy on the host; "
        "give a NumPy array"
    )


def on_hosts(arguments: Sequence[Any]) -> list[Any]:
    """Each argument as by `on_host`."""
    return [on_host(argument, place) for place, argument in enumerate(arguments)]


def in_own_library(reference: Function, arguments: Sequence[Any]) -> Function:
    """A reference for the caller's arrays as a function of NumPy arrays, and with their results."""

    def on_own_arrays(*copies: NDArray[Any]) -> object:
        results = reference(
            *(_like(argument, copy) for argument, copy in zip(arguments, copies, strict=True))
        )
        if not isinstance(results, list | tuple):
            return results
        return on_hosts(results)

    return on_own_arrays if any(map(foreign, arguments)) else reference


def _like(argument: Any, host: Any) -> Any:
    """A copy of a NumPy array in the library, and on the device, of an argument."""
    if not foreign(argument):
        return host
    if _torch_tensor(argument):
        return sys.modules["torch"].from_numpy(host).to(argument.device)
    if _is_instance(argument, "cupy", "ndarray"):
        with argument.device:
            return sys.modules["cupy"].asarray(host)
    if _is_instance(argument, "pycuda.gpuarray", "GPUArray"):
        return sys.modules["pycuda.gpuarray"].to_gpu(host)
    return host


def _torch_tensor(argument: object) -> bool:
    return _is_instance(argument, "torch", "Tensor")


def _is_instance(argument: object, module: str, kind: str) -> bool:
    return isinstance(argument, getattr(sys.modules.get(module), kind, ()))
