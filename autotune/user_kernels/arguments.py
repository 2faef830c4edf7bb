"""The arguments of a user kernel: their types in a call and in a plan, their copies on the host.

Arrays of the caller's library become NumPy arrays and back. No library is imported here: an array
can only come from one that the caller has imported.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.cuda.textures import Texture
from autotune.errors import UsageError
from autotune.families.plan import SCALARS, Argument
from autotune.problem.call import ArrayText, KernelCall, driver_value, dtype_text, shortened
from autotune.problem.vendor import is_instance, obstacle
from autotune.records.kernel_record import SCRATCH, VALUE, argument_type, scratch_word, word_of
from autotune.user_kernels.results import Array, in_memory_order
from autotune.user_kernels.steps import Computed, Scratch

ContentOf = Mapping[str, Any]
"""The contents of `__constant__` variables: a NumPy array or number by each name in C++."""


def call_of(
    name: str, arguments: Sequence[object], constants: ContentOf | None = None
) -> KernelCall:
    """The call of a kernel with these arguments and `constants`.

    Raises:
        UsageError: for an argument that is neither an array, a NumPy number nor a texture.
    """
    texts = (_text(f"argument {place}", argument) for place, argument in enumerate(arguments))
    contents = sorted(constants_of(constants).items())
    variables = (f"{variable}:{_text(variable, array)}" for variable, array in contents)
    return KernelCall(name, tuple(texts), tuple(variables))


def constants_of(constants: ContentOf | None) -> dict[str, Array]:
    """The contents of variables as NumPy arrays without gaps, in the order of their memory.

    Raises:
        UsageError: for anything but arrays and NumPy numbers by their names.
    """
    contents = {}
    for name, content in dict(constants or {}).items():
        host = on_host(content, f"constant {name}")
        if not isinstance(host, np.ndarray | np.generic):
            raise UsageError(f"constant {name} is {host!r}; give a NumPy array or number")
        _text(f"constant {name}", host := np.asarray(host))
        contents[str(name).removeprefix("::")] = in_memory_order(host)
    return contents


def launch_arguments(arguments: Sequence[object]) -> tuple[Argument, ...]:
    """The arguments in the form of a plan.

    Raises:
        UsageError: as `call_of`.
    """
    return tuple(
        Argument(argument_type(_text(f"argument {place}", argument)), _value_of(place, argument))
        for place, argument in enumerate(arguments)
    )


def _value_of(place: int, argument: object) -> str | int | float | bytes:
    """A number as it is launched, or the word for what has an address or a handle by then."""
    if isinstance(argument, np.generic):
        return driver_value(argument)
    if isinstance(argument, Computed):
        return 0
    return scratch_word(place) if isinstance(argument, Scratch) else word_of(place)


def _text(where: str, argument: object) -> str:
    if isinstance(argument, Texture):
        return str(argument)
    if isinstance(argument, np.ndarray):
        _check(where, argument)
    if isinstance(argument, np.ndarray) or foreign(argument):
        return str(described(argument, where))
    if isinstance(argument, np.generic) and _legal(argument.dtype):
        return f"{dtype_text(argument.dtype)}={_value(argument)}"
    if isinstance(argument, Scratch):
        return f"{argument.element.name}{SCRATCH}"
    if isinstance(argument, Computed) and argument.dtype is not None:
        return f"{argument.dtype.name}{VALUE}"
    if isinstance(argument, type) and issubclass(argument, np.generic):
        return f"{np.dtype(argument).name}{VALUE}"
    raise UsageError(
        f"{where} is {argument!r}; give a NumPy array, or one of PyTorch, CuPy or PyCUDA, an "
        "autotune.Texture, or a number or structure with the type of the kernel's parameter, such "
        "as numpy.int32(4096)"
    )


def _legal(dtype: np.dtype[Any]) -> bool:
    """Whether kernels take elements of that type: a number, or a structure of numbers."""
    if dtype.subdtype is not None:
        return _legal(dtype.subdtype[0])
    if dtype.names is not None:
        return all(_legal(dtype[name]) for name in dtype.names)
    return dtype.name in SCALARS and dtype.isnative


def _value(number: np.generic) -> str:
    """A number, or the members of a structure."""
    if number.dtype.kind != "V":
        return repr(number.item())
    text = " ".join(repr(number.item()).split())
    return text if shortened(text) == text else shortened(number.tobytes().hex())


def _check(where: str, array: Array) -> None:
    if not _legal(array.dtype):
        raise UsageError(
            f"{where} is an array of {array.dtype}; give one of {', '.join(SCALARS)}, or of "
            "structures of these, or the bits of what NumPy does not have as numpy.uint16"
        )
    if not array.size:
        raise UsageError(f"{where} is an array of shape {array.shape}; give at least an element")


Function = Callable[..., Any]


def foreign(argument: object) -> bool:
    """Whether an argument is an array of another library than NumPy."""
    if isinstance(argument, np.ndarray | np.generic):
        return False
    return any(
        hasattr(argument, name) for name in ("__cuda_array_interface__", "__dlpack__", "gpudata")
    )


def described(argument: Any, where: str = "array") -> ArrayText:
    """The element type, shape and order of an array of any library.

    Raises:
        UsageError: for an array with gaps; it calls the array `where`.
    """
    shape = tuple(int(size) for size in argument.shape)
    if is_instance(argument, "torch", "Tensor"):
        name = str(argument.dtype).removeprefix("torch.")
        size, strides = 1, argument.stride()  # as if elements were bytes
    else:
        interface = getattr(argument, "__cuda_array_interface__", {})
        dtype = np.dtype(getattr(argument, "dtype", None) or interface["typestr"])
        name, size = dtype_text(dtype), dtype.itemsize
        strides = getattr(argument, "strides", None) or interface.get("strides")
    if strides is None:
        return ArrayText(name, shape)
    # Only its flags are read, none of its elements.
    flags = np.lib.stride_tricks.as_strided(np.empty(1, f"V{size}"), shape, strides).flags
    if not (flags.c_contiguous or flags.f_contiguous):
        raise UsageError(
            f"{where} is an array of shape {shape} and strides {tuple(strides)}, and a kernel "
            "is given memory without gaps; copy it in the order that the kernel indexes: "
            "numpy.ascontiguousarray, where the last index varies fastest, or "
            "numpy.asfortranarray, where the first does"
        )
    return ArrayText(name, shape, flags.f_contiguous and not flags.c_contiguous)


def on_host(argument: Any, where: str) -> Any:
    """An argument with its contents in the host's memory, in their order; other arguments as they
    are.

    Raises:
        UsageError: for an array whose elements NumPy lacks, that offers no copy, or that has gaps
            or no memory of its own; it calls the array `where`.
    """
    if not foreign(argument):
        return argument
    tensor = is_instance(argument, "torch", "Tensor")
    if tensor and (reason := obstacle(sys.modules["torch"], argument)) is not None:
        raise UsageError(f"{where} {reason}")
    fortran = described(argument, where).fortran
    if tensor:
        try:
            return argument.numpy(force=True)  # carries lazy operations out
        except TypeError as error:
            raise UsageError(
                f"{where} is a tensor of {argument.dtype}, which NumPy lacks; give its "
                "bits: .view(torch.uint16), or .view(torch.uint8) for 8-bit types"
            ) from error
    for name in ("get", "copy_to_host"):  # CuPy and PyCUDA; Numba
        if callable(copy := getattr(argument, name, None)):
            return np.asfortranarray(copy()) if fortran else copy()  # CuPy's are in C order
    if hasattr(argument, "__array__"):
        return np.asarray(argument)
    raise UsageError(
        f"{where} is a {type(argument).__qualname__}, which offers no copy on the host; "
        "give a NumPy array"
    )


def on_hosts(arguments: Sequence[Any]) -> list[Any]:
    """Each argument as by `on_host`."""
    return [on_host(argument, f"argument {place}") for place, argument in enumerate(arguments)]


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
    if is_instance(argument, "torch", "Tensor"):
        return sys.modules["torch"].from_numpy(host).to(argument.device)
    if is_instance(argument, "cupy", "ndarray"):
        with argument.device:
            return sys.modules["cupy"].asarray(host)
    if is_instance(argument, "pycuda.gpuarray", "GPUArray"):
        return sys.modules["pycuda.gpuarray"].to_gpu(host)
    return host
