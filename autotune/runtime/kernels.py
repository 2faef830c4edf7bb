"""Kernels loaded in one configuration: that of a problem, and those of the user."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from autotune.cuda.launches import Dependence
from autotune.cuda.program import Program
from autotune.cuda.symbols import placed
from autotune.errors import ArrayError, UsageError
from autotune.families.config import Config
from autotune.families.plan import Alignment, LaunchPlan
from autotune.lookup.answer import How
from autotune.measure.objective import HOT, Objective
from autotune.problem import SWIGLU, Problem
from autotune.problem.call import (
    FURTHER,
    MATRICES,
    ArrayText,
    Call,
    KernelCall,
    Operand,
    driver_value,
    dtype_text,
)
from autotune.records.kernel_record import determined, structure_bytes, word_of
from autotune.runtime.arrays import ArrayInfo, MatrixMemory, check_dense, is_dense
from autotune.runtime.launcher import Enqueue, Executable, Gpu
from autotune.runtime.matmul import KEPT_CALLS, Matmul, Operands
from autotune.runtime.operands import (
    CallOptions,
    CheckedOperands,
    aligned,
    check_factors,
    named_operands,
)
from autotune.runtime.state import Runtime
from autotune.settings import Policy
from autotune.settings import policy as current_policy

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Unpack

    from autotune.problem.call import LaunchWords

KEPT_LAUNCHES = 256
"""Calls of a user kernel with the same addresses and numbers that stay bound."""

_BITS = {"uint8": 1, "uint16": 2}
"""Recorded element types that stand for any type of as many bytes, which NumPy may lack."""

_LAUNCH_WORDS = {
    *(operand.argument for operand in FURTHER),
    *(word for matrix in MATRICES for word in (matrix.pitch, matrix.stride)),
}
"""The keywords of `LaunchWords`."""


class Kernel(Matmul):
    """The kernel of one problem on one GPU, with its configuration chosen and loaded.

    Attributes:
        problem: the problem it computes.
        config: the configuration it runs, even if the problem is tuned again later.
        how: how that configuration was found (see `lookup.Answer`).
        plan: its launches for operands without gaps.
    """

    def __init__(
        self,
        runtime: Runtime,
        problem: Problem,
        ordinal: int,
        objective: Objective = HOT,
        library: bool = True,
    ) -> None:
        super().__init__(runtime)
        answer = runtime.answer(problem, ordinal, objective, library)
        self.problem = problem
        self.config = answer.config
        self.how: How = answer.how
        self._output, self._layout = problem.output, problem.layout
        self._ordinal = ordinal
        self._launches: dict[Any, Enqueue] = {}
        self.plan = self._aligned(Alignment.dense(problem)).plan

    def bind(
        self,
        a: Any,
        b: Any,
        out: Any,
        alpha: float = 1.0,
        beta: float = 0.0,
        bias: Any = None,
        policy: Policy | None = None,
        **further: Any,
    ) -> Callable[[], None]:
        """The kernel bound to these arrays: a function without arguments, which enqueues the gemm
        on the caller's current stream and checks nothing.

        It keeps the arrays alive. Their contents may change; address, shape and strides must not.
        The policy and the further operands, such as `scale_a`, are those of `autotune.matmul`.

        Raises:
            ArrayError: as a call with these arrays.
            UsageError: for `dependent` on a device below compute capability 9.0.
        """
        kept = named_operands({"a": a, "b": b, "out": out, "bias": bias, **further})
        options = CallOptions(alpha, beta, policy=policy or current_policy())
        if options.policy.verify:
            self._verify(kept, options)
        gemm = self._find(kept, options)
        assert gemm is not None  # as cuBLAS never chooses for it, and arrays are not empty
        enqueue, ordinal, arrays = gemm.enqueue, gemm.ordinal, (*kept.values(),)
        stream = self.runtime.framework(a, "A").stream

        def bound() -> None:
            enqueue(stream(arrays, ordinal))

        return bound

    def launch(
        self,
        a: int,
        b: int,
        c: int,
        stream: int = 0,
        *,
        alpha: float = 1.0,
        beta: float = 0.0,
        dependent: bool = False,
        **words: Unpack[LaunchWords],
    ) -> None:
        """Enqueues the gemm of matrices at addresses on a stream. Only alignment and strides are
        checked; the addresses are trusted.

        Args:
            a: the address of A.
            b: the address of B.
            c: the address of C.
            stream: the handle of the stream; 0 is the default stream.
            alpha: factor of the product.
            beta: factor of C.
            dependent: as in `autotune.Policy`; the current policy is not read.
            words: leading dimensions `lda`, `ldb`, `ldc` and `ldr`, and strides `stride_a`,
                `stride_b`, `stride_c` and `stride_r` from one matrix of a batch to the next, in
                elements; None, the default, is without gaps, and a stride of 0 for A or B one
                matrix for the whole batch. The addresses of what the problem has besides, such as
                `bias`; 0 is none (see `FurtherArrays`).

        Raises:
            UsageError: for `dependent` on a device below compute capability 9.0.
            ArrayError: for a leading dimension shorter than a row, a misaligned address, a missing
                bias, scale or residual, or one that the problem does not have.
            RunnerError: if the driver refuses the launch.
        """
        key = a, b, c, alpha, beta, dependent, *words.items()
        enqueue = self._launches.get(key)
        if enqueue is None:
            if len(self._launches) >= KEPT_CALLS:
                self._launches.clear()
            enqueue = self._bind_at({"a": a, "b": b, "c": c}, dict(words), alpha, beta, dependent)
            self._launches[key] = enqueue
        enqueue(stream)

    def _bind_at(
        self,
        addresses: dict[str, int],
        words: Mapping[str, Any],
        alpha: float,
        beta: float,
        dependent: bool,
    ) -> Enqueue:
        """The function that enqueues the gemm of matrices at addresses."""
        problem = self.problem
        check_factors(problem, alpha, beta)
        if unknown := [*words.keys() - _LAUNCH_WORDS]:
            raise TypeError(f"a launch has no argument {unknown[0]!r}")
        addresses |= {row.name: words.get(row.argument, 0) for row in FURTHER}
        pitches, strides = {}, {}
        for row in MATRICES:
            if not row.present(problem):
                continue
            pitch, stride = words.get(row.pitch), words.get(row.stride)
            least, rows = problem.leading_dimensions[row.place], problem.stored_rows[row.place]
            pitches[row.name] = least if pitch is None else pitch
            dense = rows * pitches[row.name] if stride is None else stride
            strides[row.name] = 0 if problem.batch == 1 else dense
        self._check_launch(addresses, pitches, strides)
        executable = self._aligned(aligned(problem, pitches, strides, addresses))
        call = Call(addresses, pitches, strides, alpha, beta)
        return executable.bind(call, Dependence(dependent)).enqueue

    def _check_launch(
        self,
        addresses: Mapping[str, int],
        pitches: Mapping[str, int],
        strides: Mapping[str, int],
    ) -> None:
        """Refuses operands that the problem's kernels would misread."""
        problem = self.problem
        for row in MATRICES[:3]:
            address, pitch = addresses[row.name], pitches[row.name]
            least, size = problem.leading_dimensions[row.place], row.element(problem).bytes
            if pitch < least or address % size:
                raise ArrayError(
                    f"{row.name.upper()} at {address:#x} has leading dimension {pitch}; it takes "
                    f"{least} or more, and an address that is a multiple of {size}"
                )
        pitch, stride = pitches["c"], strides["c"]
        memory = MatrixMemory(problem.m, problem.width, pitch, problem.batch, stride)
        if min(strides.values()) < 0 or not memory.disjoint:
            raise ArrayError(
                f"strides {tuple(strides.values())[:3]} of A, B and C: none may be negative, and "
                f"the {problem.batch} matrices of C, {problem.m} rows of {problem.width} that are "
                f"{pitch} apart, must not overlap"
            )
        for row in FURTHER:
            _check_pointer(row, addresses[row.name], problem)
        for row in MATRICES[3:]:
            least = problem.leading_dimensions[row.place]
            if row.name in pitches and pitches[row.name] < least:
                raise ArrayError(
                    f"{row.name} has leading dimension {pitches[row.name]}; it takes {least} or "
                    "more"
                )

    def _stated(self, options: CallOptions) -> CallOptions:
        own = self.problem
        return options._replace(
            activation=options.activation or (SWIGLU if own.gated else own.activation),
            compute=options.compute or own.compute,
            scale=options.scale or own.scale,
            accumulate=options.accumulate or own.accumulate,
        )

    def _problem(
        self, infos: Mapping[str, ArrayInfo], options: CallOptions, output: str | None = None
    ) -> Problem:
        own, a, b = self.problem, infos["a"], infos["b"]
        if a.empty or b.empty:
            raise ArrayError(f"A is {a.shape}, B {b.shape}; this kernel is for {own}")
        problem = super()._problem(infos, options, output)
        if problem != own:
            raise ArrayError(f"the operands make a product {problem}; this kernel is for {own}")
        if a.ordinal != self._ordinal:
            raise ArrayError(
                f"A is on CUDA device {a.ordinal}; this kernel is for device {self._ordinal}"
            )
        return problem

    def _choice(
        self, checked: CheckedOperands, options: CallOptions, operands: Operands
    ) -> tuple[Config, bool]:
        """The kernel's own configuration, never cuBLAS's own choice: the caller asked for the
        kernel."""
        del checked, options, operands
        return self.config, False

    def _aligned(self, alignment: Alignment) -> Executable:
        return self.runtime.executable(self.config, self.problem, self._ordinal, alignment)


def _check_pointer(operand: Operand, address: int, problem: Problem) -> None:
    """Refuses the address of an operand beside A, B and C if it is missing, lies between two
    elements, or if the problem does not have the operand."""
    present, size = operand.present(problem), operand.element(problem).bytes
    missing = present and not address and not operand.optional
    if missing or (address and not present) or address % size:
        wanted = f"an address that is a multiple of {size}" if present else "none: 0"
        raise ArrayError(f"{operand.argument} is at {address:#x}; {problem} takes {wanted}")


class TunedKernel:
    """A user kernel in one configuration, loaded on a GPU. Calling it launches it, or several
    kernels in their order.

    Attributes:
        call: the arguments that it was tuned for.
        config: the values of its parameters.
        plan: its launches; grid, block and shared memory below are those of the main one.
        program: the machine code of that, with its registers and shared memory.
    """

    def __init__(
        self,
        runtime: Runtime,
        ordinal: int,
        call: KernelCall,
        plan: LaunchPlan,
        *programs: Program,
        constants: Mapping[str, NDArray[Any]] | None = None,
    ) -> None:
        if constants:
            gpu = runtime.gpu(ordinal)
            programs = tuple(_filled(program, constants, gpu) for program in programs)
        self.call, self.plan, self.program = call, plan, programs[plan.product]
        self.config: Config = plan.config
        self._runtime, self._ordinal, self._programs = runtime, ordinal, programs
        self._executables = {plan.main.grid: Executable(runtime.gpu(ordinal), plan, programs)}
        self._checked: set[Any] = set()
        self._bound: dict[Any, Enqueue] = {}
        self._words: dict[str, str] = {
            word_of(place): text.partition("=")[0]
            for place, text in enumerate(call.arguments)
            if place not in determined(call.arguments)
        }
        self._names = [*self._words.values()]

    @property
    def grid(self) -> tuple[int, int, int]:
        """Blocks along x, y and z."""
        return self.plan.main.grid

    @property
    def block(self) -> tuple[int, int, int]:
        """Threads of a block along x, y and z."""
        return self.plan.main.block

    @property
    def shared(self) -> int:
        """Bytes of dynamic shared memory."""
        return self.plan.main.shared

    def __call__(
        self,
        *arguments: Any,
        stream: Any = None,
        grid: tuple[int, int, int] | None = None,
    ) -> None:
        """Enqueues its launches on the caller's current stream, and does not wait for them.

        Args:
            arguments: for each array that it was tuned with an array of the same type, shape and
                order on this GPU, without gaps, of PyTorch, CuPy, PyCUDA or another library with
                DLPack or `__cuda_array_interface__`; an array of structures may be one of bytes,
                with a last axis for the bytes of a structure. For each number a number, for each
                structure one of NumPy with the same fields, for each texture the handle of a
                texture object. Scratch memory and numbers that depend on the configuration are left
                out.
            stream: another stream: one of these libraries, or its handle.
            grid: blocks along x, y and z for arrays of other shapes, which are then not compared;
                not for several kernels.

        Raises:
            ArrayError: for another number of arguments, another type or shape, an array with gaps
                or on another device, a number that its type does not hold, or a grid for several
                kernels.
            RunnerError: if the driver refuses the launch.
        """
        if len(arguments) != len(self._names):
            raise ArrayError(
                f"{self.call} takes {len(self._names)} arguments, not {len(arguments)}"
            )
        if grid is not None and len(self.plan.launches) > 1:
            raise ArrayError(f"{self.call} has several kernels; call it without grid")
        arrays: list[Any] = []
        values: list[int | float | bytes] = []
        for place, argument in enumerate(arguments):
            if self._names[place].endswith("]"):
                arrays.append(argument)
                values.append(self._address(place, argument, grid is None))
            else:
                values.append(_number(self._names[place], argument, place))
        handle = self._stream(arrays) if stream is None else _handle(stream)
        self._enqueue(tuple(values), grid or self.grid)(handle)

    def _address(self, place: int, array: Any, shaped: bool) -> int:
        """The address of an array, which is checked when its signature is new."""
        framework = self._runtime.framework(array, word_of(place))
        address, signature = framework.read(array)
        key = place, shaped, type(framework), signature
        if key not in self._checked:
            self._check(place, framework.describe(array, word_of(place)), shaped)
            if len(self._checked) >= KEPT_LAUNCHES:
                self._checked.clear()
            self._checked.add(key)
        return address

    def _check(self, place: int, operand: ArrayInfo, shaped: bool) -> None:
        name, wanted, fortran = ArrayText.of(self._names[place])
        actual = _dtype_of(operand.dtype)
        if operand.ordinal != self._ordinal:
            raise ArrayError(
                f"{operand.name} is on {_device(operand.ordinal)}; the kernel is loaded on CUDA "
                f"device {self._ordinal}: move the array, or load it there by kernel(device=...)"
            )
        if (size := structure_bytes(name)) and actual[0] == "uint8":
            wanted = *wanted, size
        elif actual[0] not in (name, f"void{8 * size}") and _BITS.get(name) != actual[1]:
            raise ArrayError(f"{operand.name} is {actual[0]}; the kernel takes {name}")
        if fortran and not is_dense(operand.shape[::-1], operand.strides[::-1]):
            raise ArrayError(
                f"{operand.name} of shape {operand.shape} has strides {operand.strides}; the "
                "kernel takes it in Fortran order, where the first index varies fastest"
            )
        if shaped and operand.shape != wanted:
            raise ArrayError(
                f"{operand.name} has the shape {operand.shape}; the kernel was tuned for {wanted}: "
                "tune it for yours, or give the grid for it"
            )
        if not fortran:
            check_dense(operand)

    def _stream(self, arrays: Sequence[Any]) -> int:
        """The current stream of the library of the first array."""
        if not arrays:
            return 0
        framework = self._runtime.framework(arrays[0], word_of(0))
        return framework.stream(arrays, self._ordinal)

    def _enqueue(self, values: tuple[Any, ...], grid: tuple[int, int, int]) -> Enqueue:
        key = values, grid
        enqueue = self._bound.get(key)
        if enqueue is None:
            if len(self._bound) >= KEPT_LAUNCHES:
                self._bound.clear()
            words = dict(zip(self._words, values, strict=True))
            try:
                enqueue = self._executable(grid).bind_words(words)
            except struct.error as error:
                raise ArrayError(f"a number of {self.call} does not fit: {error}") from error
            self._bound[key] = enqueue
        return enqueue

    def _executable(self, grid: tuple[int, int, int]) -> Executable:
        executable = self._executables.get(grid)
        if executable is None:
            launch = replace(self.plan.main, grid=grid)
            plan = replace(self.plan, launches=(launch,))
            executable = Executable(self._runtime.gpu(self._ordinal), plan, self._programs)
            self._executables[grid] = executable
        return executable


def _filled(program: Program, constants: Mapping[str, NDArray[Any]], gpu: Gpu) -> Program:
    """A program that is loaded apart from others, with the contents of its variables."""
    try:
        contents = placed(program, constants)
    except ValueError as error:
        raise UsageError(str(error)) from error
    digest = sha256(program.key.encode())
    for symbol, array in contents:
        digest.update(symbol.encode() + array.tobytes())
    filled = replace(program, key=digest.hexdigest())
    gpu.kernel(filled, contents)
    return filled


def _number(name: str, value: Any, place: int) -> int | float | bytes:
    """A number or structure as the driver takes it, in the type of that NumPy name."""
    if name.startswith("struct"):
        import numpy as np

        if not isinstance(value, np.void) or dtype_text(value.dtype) != name:
            raise ArrayError(
                f"{word_of(place)} is {value!r}; the kernel takes the NumPy structure {name}"
            )
        return driver_value(value)
    number = hasattr(value, "__float__") or isinstance(value, complex)
    if not number or getattr(value, "ndim", False):
        raise ArrayError(f"{word_of(place)} is {type(value).__name__}; the kernel takes a {name}")
    if name == "float16" or name.startswith("complex"):
        import numpy as np

        return driver_value(np.dtype(name).type(value))
    if isinstance(value, complex) or (not name.startswith("float") and int(value) != value):
        raise ArrayError(f"{word_of(place)} is {value!r}; the kernel takes a {name}")
    return float(value) if name.startswith("float") else int(value)


def _dtype_of(name: str) -> tuple[str, int]:
    """An element type's name and its bytes; NumPy may lack it, as it does bfloat16."""
    import numpy as np

    try:
        dtype = np.dtype(name)
    except TypeError:
        return name, 2 if name == "bfloat16" else 1
    return dtype.name, dtype.itemsize


def _device(ordinal: int | None) -> str:
    return "the CPU" if ordinal is None else f"CUDA device {ordinal}"


def _handle(stream: Any) -> int:
    """The handle of a stream of PyTorch, CuPy or PyCUDA, or of `cuda.core`."""
    for name in ("cuda_stream", "ptr", "handle"):
        stream = getattr(stream, name, stream)
    return int(stream)
