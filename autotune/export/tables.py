"""The tables of the C library: the launch plans as C constants."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256

from autotune.compiler import Program
from autotune.driver import tensor_maps
from autotune.export.library import ExportedGemm, ExportedLibrary, FallbackKernel
from autotune.families.plan import Argument, Launch, TensorMap
from autotune.problem import TENSOR_MAP_TYPES, Problem
from autotune.problem.fields import VALUES

# In the order of the enumerations of templates/gemm.c.
_TYPES = ("tensor_map", "pointer", "i32", "i64", "f32")
_WORDS = (
    *("", "a", "b", "c", "bias", "workspace", "counters", "lda", "ldb", "ldc"),
    *("stride_a", "stride_b", "stride_c", "alpha", "beta", "m", "n", "k", "scale_a", "scale_b"),
    *("residual", "ldr", "stride_r", "b_ready"),
)
# The words that distinguish kinds of gemm, in the order of gemm.c; values in the order of gemm.h.
_KIND = {
    name: VALUES[name]
    for name in ("compute", "layout", "epilogue", "output", "scale", "accumulate", "e5m2")
}
_WORD_BYTES = 8
_WORDS_A_LINE = 5


def kind(problem: Problem) -> int:
    """The words of a problem as one number, in the encoding of gemm.c."""
    number = 0
    for legal, code in zip(_KIND.values(), codes(problem), strict=True):
        number = number * len(legal) + code
    return number


def codes(problem: Problem) -> tuple[int, ...]:
    """The words of a problem as the enumerations of gemm.h number them."""
    return tuple(legal.index(getattr(problem, name)) for name, legal in _KIND.items())


def tables(library: ExportedLibrary) -> str:
    """All tables, in C."""
    return _TableWriter(library).text()


def shapes(library: ExportedLibrary) -> str:
    """The exported problems, as a table for the example program."""
    problems = dict.fromkeys(gemm.problem for gemm in library.gemms)
    return _table("Shape", "SHAPES", map(_shape, problems))


class _TableWriter:
    """Writes the tables, and numbers the maps, arguments and launches that plans refer to."""

    def __init__(self, library: ExportedLibrary) -> None:
        self._library = library
        self._numbers = {key: number for number, key in enumerate(library.programs)}
        self._maps: dict[TensorMap, int] = {}
        self._arguments: list[str] = []
        self._launches: list[str] = []

    def text(self) -> str:
        library = self._library
        gemms = sorted(library.gemms, key=self._order)
        plans = [self._plan(gemm) for gemm in gemms]
        generals = [self._general(fallback) for fallback in library.fallbacks]
        counts = {
            "DEVICE_COUNT": len(library.devices),
            "PLAN_COUNT": len(plans),
            "GENERAL_COUNT": len(generals),
            "COUNTER_COUNT": library.counters,
            "ARGUMENT_LIMIT": max(len(launch.arguments) for launch, _ in library.launches),
            "MAP_LIMIT": max(1, *(_map_count(launch) for launch, _ in library.launches)),
        }
        return "\n\n".join(
            (
                "enum { "
                + ", ".join(f"{name} = {count}" for name, count in counts.items())
                + " };",
                _table("Device", "DEVICES", (self._device(n) for n in range(len(library.devices)))),
                *(cubin_table(n, program) for n, program in enumerate(library.programs.values())),
                _table("Kernel", "KERNELS", map(self._kernel, library.programs.values())),
                _table("Map", "MAPS", map(_map, self._maps)),
                _table("Argument", "ARGUMENTS", self._arguments),
                _table("Launch", "LAUNCHES", self._launches),
                _table("Plan", "PLANS", plans),
                _table("Plan", "GENERALS", generals),
            )
        )

    def _order(self, gemm: ExportedGemm) -> tuple[int, ...]:
        problem = gemm.problem
        sizes = problem.m, problem.n, problem.k, problem.batch
        return self._device_number(gemm), kind(problem), *sizes

    def _device_number(self, gemm: ExportedGemm) -> int:
        return self._library.devices.index(gemm.device)

    def _device(self, number: int) -> str:
        device = self._library.devices[number]
        return f"{{{c_string(device.name)}, {_numbers(*device.compute_capability, device.sms)}}}"

    def _kernel(self, program: Program) -> str:
        digest = ", ".join(f"0x{byte:02x}" for byte in sha256(program.cubin).digest())
        shared = max(
            launch.shared
            for launch, launched in self._library.launches
            if launched.key == program.key
        )
        number = self._numbers[program.key]
        return (
            f"{{CUBIN_{number}, {len(program.cubin)}, {{{digest}}}, {c_string(program.symbol)}, "
            f"{shared}}}"
        )

    def _plan(self, gemm: ExportedGemm) -> str:
        problem, plan, align = gemm.problem, gemm.plan, gemm.alignment
        first = len(self._launches)
        for launch, program in zip(plan.launches, gemm.programs, strict=True):
            self._add(launch, program, launch.grid, (0, 0))
        device = self._device_number(gemm)
        sizes = problem.m, problem.n, problem.k, problem.batch
        counted = int(plan.counters > 0)
        alignment = _numbers(align.a, align.b, align.c)
        return (
            f"{{{_numbers(device, *sizes, kind(problem))}, {{{alignment}}}, "
            f"{_numbers(first, len(plan.launches), plan.workspace, counted)}, "
            f"{c_string(str(plan.config))}, {c_string(gemm.answer.how)}}}"
        )

    def _general(self, fallback: FallbackKernel) -> str:
        general, align = fallback.general, fallback.general.alignment
        first = len(self._launches)
        self._add(general.launch, fallback.program, (0, 0, 0), general.tile)
        first_device = next(
            number
            for number, device in enumerate(self._library.devices)
            if device.compute_capability == fallback.compute_capability
        )
        return (
            f"{{{_numbers(first_device, 0, 0, 0, 0, kind(general.problem))}, "
            f"{{{_numbers(align.a, align.b, align.c)}}}, {_numbers(first, 1, 0, 0)}, "
            f'{c_string(str(general.config))}, "general"}}'
        )

    def _add(
        self, launch: Launch, program: Program, grid: Sequence[int], tile: Sequence[int]
    ) -> None:
        first = len(self._arguments)
        self._arguments += [self._argument(argument) for argument in launch.arguments]
        self._launches.append(
            f"{{{self._numbers[program.key]}, {{{_numbers(*grid)}}}, "
            f"{{{_numbers(*launch.block)}}}, {launch.shared}, {{{_numbers(*tile)}}}, "
            f"{_numbers(first, len(launch.arguments))}}}"
        )

    def _argument(self, argument: Argument) -> str:
        """An argument. Its number is whole: the only floats, `alpha` and `beta`, are symbols."""
        value = argument.value
        word = 0
        if isinstance(value, TensorMap):
            value = self._maps.setdefault(value, len(self._maps))
        elif isinstance(value, str):
            word, value = _WORDS.index(value), 0
        elif not isinstance(value, int):
            raise TypeError(f"a kernel takes the number {value!r}; C tables hold whole ones")
        return f"{{{_numbers(_TYPES.index(argument.type), word, value)}}}"


def _map(tensor_map: TensorMap) -> str:
    words, steps = [], []
    for step in (tensor_map.pitch, tensor_map.stride):
        words.append(_WORDS.index(step) if isinstance(step, str) else 0)
        steps.append(0 if isinstance(step, str) else step)
    base, type = _WORDS.index(tensor_map.base), TENSOR_MAP_TYPES[tensor_map.type].number
    kinds = base, type, tensor_map.element_bytes
    sizes = tensor_map.columns, tensor_map.rows, tensor_map.batch
    numbers = tensor_map.offset, *sizes, *steps
    return (
        f"{{{_numbers(*kinds, tensor_maps.SWIZZLES[tensor_map.swizzle], *words, *numbers)}, "
        f"{{{_numbers(*tensor_map.box)}}}}}"
    )


def _map_count(launch: Launch) -> int:
    return sum(isinstance(argument.value, TensorMap) for argument in launch.arguments)


def _shape(problem: Problem) -> str:
    return f"{{{_numbers(problem.m, problem.n, problem.k, problem.batch, *codes(problem))}}}"


def cubin_table(number: int, program: Program) -> str:
    """Machine code as little-endian words of 8 bytes, which also aligns it."""
    padded = program.cubin + bytes(-len(program.cubin) % _WORD_BYTES)
    words = [
        f"0x{int.from_bytes(padded[at : at + _WORD_BYTES], 'little'):x}"
        for at in range(0, len(padded), _WORD_BYTES)
    ]
    lines = (
        ", ".join(words[at : at + _WORDS_A_LINE]) for at in range(0, len(words), _WORDS_A_LINE)
    )
    title = f"/* {program.template.label} for {program.arch}, by {program.compiler} */"
    return f"{title}\nstatic const uint64_t CUBIN_{number}[] = {{\n" + ",\n".join(lines) + "};"


def _table(kind: str, name: str, rows: Iterable[str]) -> str:
    """A constant array. C has no empty arrays, so an empty one gets one element of zeros."""
    lines = ",\n".join(f"    {row}" for row in rows)
    if not lines:
        return f"static const {kind} {name}[1] = NO_ROWS;"
    return f"static const {kind} {name}[] = {{\n{lines}}};"


def _numbers(*values: int) -> str:
    return ", ".join(map(str, values))


def c_string(text: str) -> str:
    """A C string literal; bytes other than plain ASCII are octal escapes."""
    plain = (
        chr(byte) if 32 <= byte < 127 and chr(byte) not in '"\\?' else f"\\{byte:03o}"
        for byte in text.encode()
    )
    return '"' + "".join(plain) + '"'
