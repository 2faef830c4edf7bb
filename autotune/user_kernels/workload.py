"""The call that a user kernel is tuned for, the results expected of it, and their comparison.

Arrays of the caller's library become NumPy arrays and back. No library is imported here: an array
can only come from one that the caller has imported.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import UsageError
from autotune.families.plan import SCALARS, Argument
from autotune.problem.call import KernelCall
from autotune.problem.vendor import obstacle
from autotune.records.kernel_record import word_of

DTYPES = (*SCALARS, "complex64", "complex128")
"""The element types of arrays."""


TIME_LIMIT_S = 20.0
"""Seconds that a configuration may take by default."""


@dataclass(frozen=True)
class Verification:
    """The comparison of a user kernel's results with the expected ones.

        autotune.tune_kernel(..., verify=autotune.Verification(rtol=1e-3))

    Attributes:
        rtol: relative tolerance of an element; by default 1e-2 in float16, 1e-4 in float32, 1e-9
            in float64, and 0 for whole numbers.
        atol: absolute tolerance, added to it; by default `rtol` times the mean absolute element.
        time_limit: seconds for one configuration, verification and all samples together; one that
            takes longer is not tried again.

    Raises:
        UsageError: for a tolerance that is not a number from 0 on, or a time limit of 0 seconds or
            less.
    """

    rtol: float | None = None
    atol: float | None = None
    time_limit: float = TIME_LIMIT_S

    def __post_init__(self) -> None:
        for name, value in (("rtol", self.rtol), ("atol", self.atol)):
            if value is not None and not 0 <= value < math.inf:
                raise UsageError(f"{name} is {value!r}; give a number of at least 0")
        if not self.time_limit > 0:
            raise UsageError(f"time_limit is {self.time_limit!r}; give more than 0 seconds")


@dataclass(frozen=True, eq=False)
class ArrayArgument:
    """An array argument.

    Attributes:
        place: its position among the arguments, from 0.
        before: the contents before the kernel runs. For an array that the kernel only writes, every
            element differs from the expected one.
        expected: the contents it must leave; None for no change.
        written: whether the kernel only writes it, as far as the reference tells.
    """

    place: int
    before: Array
    expected: ExpectedArray | None
    written: bool = False

    @property
    def name(self) -> str:
        """The symbol for its address in a plan."""
        return word_of(self.place)


@dataclass(frozen=True, eq=False)
class Workload:
    """One call of a kernel, with its arguments and the expected results.

    Attributes:
        call: the kernel's name and the types of the arguments.
        arguments: the arguments in a plan, with symbols for the addresses of arrays.
        buffers: the array arguments.
        verified: the configuration whose results are expected; empty if a reference gave them.
    """

    call: KernelCall
    arguments: tuple[Argument, ...]
    buffers: tuple[ArrayArgument, ...]
    verified: str = ""

    def __str__(self) -> str:
        return str(self.call)

    @property
    def bytes(self) -> int:
        """Bytes of all arrays together."""
        return sum(buffer.before.nbytes for buffer in self.buffers)


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


def workload(
    name: str,
    arguments: Sequence[object],
    reference: Reference,
    verify: Verification,
) -> Workload:
    """A call and the results that the reference expects of it.

    If the contents of an output make no difference to the reference, the kernel is taken only to
    write it; any other output, and every one of results given as such, is an input too. A
    function runs once, and once more for each output.

    Args:
        name: the name of the kernel.
        arguments: NumPy arrays without gaps, and NumPy numbers.
        reference: see `Reference`.
        verify: has the tolerances.

    Raises:
        UsageError: for invalid arguments or expected arrays.
    """
    call, in_plan = call_of(name, arguments), launch_arguments(arguments)
    results = run_reference(reference, arguments)
    outputs = {
        place: expected_array(place, result, argument, verify)
        for place, (result, argument) in enumerate(zip(results, arguments, strict=True))
        if result is not None
    }
    if not outputs:
        raise UsageError(
            "the reference expects every argument to stay as it is, which a kernel that does "
            "nothing fulfils; return the expected array in the place of each output"
        )
    buffers = []
    for place, argument in enumerate(arguments):
        if isinstance(argument, np.ndarray):
            expected = outputs.get(place)
            read = not callable(reference) or reads(reference, arguments, place, results)
            if expected is None or read:
                buffers.append(ArrayArgument(place, as_bytes(argument.copy()), expected))
            else:
                poison = different(expected.values.astype(argument.dtype))
                buffers.append(ArrayArgument(place, as_bytes(poison), expected, written=True))
    return Workload(call, in_plan, tuple(buffers))


def unverified(name: str, arguments: Sequence[object]) -> Workload:
    """A call without expected results; `with_results` adds them.

    Raises:
        UsageError: as `call_of`.
    """
    buffers = (
        ArrayArgument(place, as_bytes(argument.copy()), None)
        for place, argument in enumerate(arguments)
        if isinstance(argument, np.ndarray)
    )
    return Workload(call_of(name, arguments), launch_arguments(arguments), tuple(buffers))


def with_results(
    work: Workload,
    results: Sequence[Array],
    verified: str,
    verify: Verification,
) -> Workload:
    """A call that expects the results of one of its configurations.

    Args:
        work: the call.
        results: the contents that the configuration left in each array.
        verified: the configuration.
        verify: has the tolerances.

    Raises:
        UsageError: if it changed no array, or left NaN in one.
    """
    buffers = []
    for buffer, result in zip(work.buffers, results, strict=True):
        bits = result.view(np.uint8), buffer.before.view(np.uint8)
        if np.array_equal(*bits):
            buffers.append(buffer)
            continue
        expected = expected_array(buffer.place, result, buffer.before, verify, verified)
        buffers.append(replace(buffer, expected=expected))
    if all(buffer.expected is None for buffer in buffers):
        raise UsageError(
            f"{verified} runs but changes no array, so that nothing can be verified against it; "
            "give a reference, or outputs with other contents"
        )
    return replace(work, buffers=tuple(buffers), verified=verified)


def _text(place: int, argument: object) -> str:
    if isinstance(argument, np.ndarray):
        _check(place, argument)
        return f"{argument.dtype.name}[{','.join(map(str, argument.shape))}]"
    if isinstance(argument, np.generic) and argument.dtype.name in SCALARS:
        return f"{argument.dtype.name}={argument.item()!r}"
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


CHUNK = 1 << 20
"""Elements compared at a time, which bounds the memory of the intermediate arrays."""


@dataclass(frozen=True, eq=False)
class ExpectedArray:
    """The array a kernel has to leave: each element within `atol + rtol |value|` of its value.

    Infinities have to be equal, and so do all elements if `rtol` and `atol` are 0.
    """

    values: NDArray[Any]
    rtol: float
    atol: float


@dataclass(frozen=True)
class Comparison:
    """An array compared with the expected one. The worst element is the one whose error is the
    largest multiple of its tolerance.

    Attributes:
        wrong: number of elements beyond their tolerance.
        error: largest absolute error; NaN if a result is NaN.
        allowed: tolerance of the worst element.
        place: index of the worst element.
        actual: its value.
        desired: its expected value.
        difference: sum of the squares of the errors, over finite elements.
        square: sum of the squares of the expected values, over the same elements.
    """

    wrong: int
    error: float
    allowed: float
    place: tuple[int, ...]
    actual: complex
    desired: complex
    difference: float
    square: float


def compare(actual: NDArray[Any], expected: ExpectedArray) -> Comparison:
    """Compares arrays of one shape, in double precision."""
    flat, desired = actual.reshape(-1), expected.values.reshape(-1)
    wrong, error, difference, square = 0, 0.0, 0.0, 0.0
    worst, at, limit = -1.0, 0, 0.0
    for start in range(0, flat.size, CHUNK):
        part = slice(start, start + CHUNK)
        errors, allowed, bad = _errors(flat[part], desired[part], expected)
        wrong += int(bad.sum())
        error = max(error, float(errors.max()), key=_nan_last)
        ratios = np.where(bad, np.inf, errors / np.where(allowed > 0, allowed, 1.0))
        if ratios.max() > worst:
            at, worst = start + int(ratios.argmax()), float(ratios.max())
            limit = float(allowed[at - start])
        sizes = np.abs(desired[part].astype(np.complex128))
        finite = np.isfinite(errors) & np.isfinite(sizes)
        difference += float(np.square(errors[finite]).sum())
        square += float(np.square(sizes[finite]).sum())
    place = tuple(int(index) for index in np.unravel_index(at, actual.shape))
    values = flat[at].item(), desired[at].item()
    return Comparison(wrong, error, limit, place, *values, difference, square)


def _nan_last(error: float) -> float:
    """The key that sorts NaN behind all numbers."""
    return math.inf if math.isnan(error) else error


def _errors(
    actual: NDArray[Any], desired: NDArray[Any], expected: ExpectedArray
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """The absolute errors, their tolerances, and which errors exceed them."""
    wide = np.complex128 if "c" in (actual.dtype.kind, desired.dtype.kind) else np.float64
    different = actual != desired
    with np.errstate(all="ignore"):
        errors = np.where(different, np.abs(actual.astype(wide) - desired.astype(wide)), 0.0)
        sizes = np.abs(desired.astype(wide))
        # Only an infinity equals an infinity: no tolerance there.
        allowed = np.where(np.isfinite(sizes), expected.atol + expected.rtol * sizes, 0.0)
    return errors, allowed, different & ~((errors <= allowed) & (allowed > 0))


Array = NDArray[Any]
Reference = Callable[..., Sequence[Any]] | Sequence[Any]
"""Expected results: an array for each argument, or None for an argument that the kernel must not
change; or a function that returns them, called with the arguments: their arrays are copies."""

# Tolerance relative to the size of an element: a multiple of the rounding error that a sum of a few
# thousand terms has when their order changes.
RTOL = {"float16": 1e-2, "float32": 1e-4, "float64": 1e-9, "complex64": 1e-4, "complex128": 1e-9}


def run_reference(reference: Reference, arguments: Sequence[object]) -> list[Any]:
    """The results of the reference, run on copies of the arguments."""
    if not callable(reference):
        return _as_results(reference, arguments)
    copies = [
        argument.copy() if isinstance(argument, np.ndarray) else argument for argument in arguments
    ]
    return _as_results(reference(*copies), arguments)


def _as_results(results: object, arguments: Sequence[object]) -> list[Any]:
    if not isinstance(results, list | tuple) or len(results) != len(arguments):
        count = f"{len(results)}" if isinstance(results, list | tuple) else type(results).__name__
        raise UsageError(
            f"the reference returned {count} for {len(arguments)} arguments; return a list with "
            "the expected array of each output, and None for every other argument"
        )
    return list(results)


def expected_array(
    place: int,
    result: object,
    argument: object,
    verify: Verification,
    source: str = "the reference",
) -> ExpectedArray:
    """The array that is expected at a position, checked; `source` says by whom."""
    values = np.array(result)
    if not isinstance(argument, np.ndarray) or values.shape != argument.shape:
        shape = f"shape {argument.shape}" if isinstance(argument, np.ndarray) else "a number"
        raise UsageError(
            f"{source} expects shape {values.shape} in argument {place}, which has {shape}; "
            "return None for arguments that are not outputs, and arrays of the arguments' shapes"
        )
    if not _holds(argument.dtype, values):
        raise UsageError(
            f"{source} expects {values.dtype} in argument {place}, an array of "
            f"{argument.dtype}, which cannot hold it; return that type"
        )
    if count := int(np.isnan(values).sum()):
        raise UsageError(
            f"{source} expects NaN in {count} elements of argument {place}: nothing can be "
            "verified against that; choose arguments whose result is a number"
        )
    share = RTOL.get(argument.dtype.name, 0.0) if verify.rtol is None else verify.rtol
    if (atol := verify.atol) is None:
        sizes = np.abs(values[np.isfinite(values)]).astype(np.float64)
        atol = share * float(sizes.mean()) if sizes.size else 0.0
    return ExpectedArray(as_bytes(np.ascontiguousarray(values)), share, atol)


def as_bytes(array: Array) -> Array:
    """An array of bool viewed as bytes, as a kernel may leave values other than 0 and 1."""
    return array.view(np.uint8) if array.dtype == np.bool_ else array


def _holds(dtype: np.dtype[Any], values: Array) -> bool:
    """Whether an array of that type can hold the values; floating-point types may round them."""
    if values.dtype.kind not in "iubfc":
        return False
    if dtype.kind in "fc":
        return np.can_cast(values.dtype, dtype, "same_kind")
    return values.dtype.kind in "iub" and bool((values.astype(dtype) == values).all())


def reads(
    reference: Callable[..., Sequence[Any]],
    arguments: Sequence[object],
    place: int,
    results: Sequence[Any],
) -> bool:
    """Whether the contents of the array at `place` make a difference to the reference."""
    changed = list(arguments)
    array = changed[place]
    assert isinstance(array, np.ndarray)
    changed[place] = different(array)
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            again = run_reference(reference, changed)
    except Exception:  # it read the changed contents and failed on them
        return True
    pairs = zip(results, again, strict=True)
    return any(not np.array_equal(first, second) for first, second in pairs if first is not None)


def different(array: Array) -> Array:
    """An array of that type and shape that differs from `array` in every element."""
    if array.dtype.kind in "fc":
        return np.full_like(array, np.nan)
    return ~array
