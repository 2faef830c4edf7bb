"""The tables of the C library: devices, machine code and launch plans as C constants."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from hashlib import sha256

from autotune.cuda import launches
from autotune.cuda.cublaslt import LibraryProblem
from autotune.cuda.launches import Layout, layout
from autotune.cuda.program import Program
from autotune.export.library import CompiledKernels, ExportedGemm, ExportedLibrary, FallbackKernel
from autotune.export.text import c_string, comment, numbers, table
from autotune.families.plan import Argument, Launch, TensorMap
from autotune.problem import TENSOR_MAP_TYPES, Problem
from autotune.problem.call import MATRICES, OPERANDS, WORDS
from autotune.problem.fields import VALUES

_WORDS_A_LINE = 5


def kernel_indices(library: CompiledKernels) -> dict[str, int]:
    """The index of each program in the table of kernels, by its key."""
    return {key: number for number, key in enumerate(library.programs)}


def kernels(library: CompiledKernels) -> str:
    """The tables of templates/driver.c: devices, machine code, PTX and kernels."""
    programs = library.programs.values()
    portable = [program for program in programs if program.key in library.ptx]
    # After its cubin, a program with PTX has another row, which the first one names.
    rows = {program.key: len(programs) + number for number, program in enumerate(portable)}
    cubins = [(f"CUBIN_{n}", program, program.cubin) for n, program in enumerate(programs)]
    texts = [(f"PTX_{n}", each, library.ptx[each.key] + b"\0") for n, each in enumerate(portable)]
    kernels = [_kernel(library, *image, rows.get(image[1].key, 0)) for image in cubins]
    kernels += [_kernel(library, *image, 0) for image in texts]
    counts = f"DEVICE_COUNT = {len(library.devices)}, WITH_PTX = {int(bool(portable))}"
    devices = (
        f"{{{c_string(device.name)}, {numbers(*device.compute_capability, device.sms)}}}"
        for device in library.devices
    )
    return "\n\n".join(
        (
            f"enum {{ {counts} }};",
            table("Device", "DEVICES", devices),
            *(_code(*image) for image in (*cubins, *texts)),
            table("Kernel", "KERNELS", kernels),
        )
    )


def _kernel(library: CompiledKernels, name: str, program: Program, code: bytes, ptx: int) -> str:
    digest = ", ".join(f"0x{byte:02x}" for byte in sha256(code).digest())
    shared = max(
        launch.shared for launch, launched in library.launches if launched.key == program.key
    )
    last = numbers(shared, shared + program.shared, ptx)
    return f"{{{name}, {len(code)}, {{{digest}}}, {c_string(program.symbol)}, {last}}}"


def _code(name: str, program: Program, code: bytes) -> str:
    """Machine code or PTX as little-endian words of 8 bytes, which also aligns it."""
    padded = code + bytes(-len(code) % 8)
    words = [f"0x{word:x}" for (word,) in struct.iter_unpack("<Q", padded)]
    lines = (
        ", ".join(words[at : at + _WORDS_A_LINE]) for at in range(0, len(words), _WORDS_A_LINE)
    )
    title = comment(f"{program.template.label} for {program.arch}, by {program.compiler}")
    return f"{title}\nstatic const uint64_t {name}[] = {{\n" + ",\n".join(lines) + "};"


# In the order of the enumerations of templates/gemm.c.
_TYPES = ("tensor_map", "pointer", "i32", "i64", "f32")
_NUMBER = "number"
_WORDS = (_NUMBER, *WORDS, "m", "n", "k")
_VECTORS = tuple(operand for operand in OPERANDS if operand.kind != "matrix")
_COUNTS = {"vector": "each_column", "scales": "each_scale", "number": "one"}
# The words that distinguish kinds of gemm, in the order of gemm.c; values in the order of gemm.h.
_KIND = {
    name: VALUES[name]
    for name in ("compute", "layout", "epilogue", "output", "scale", "accumulate", "e5m2")
}


def kind(problem: Problem) -> int:
    """The words of a problem as one number, in the encoding of gemm.c."""
    number = 0
    for legal, code in zip(_KIND.values(), codes(problem), strict=True):
        number = number * len(legal) + code
    return number


def codes(problem: Problem) -> tuple[int, ...]:
    """The words of a problem as the enumerations of gemm.h number them."""
    return tuple(legal.index(getattr(problem, name)) for name, legal in _KIND.items())


def words() -> str:
    """The words of launch plans, the operands among them, and how a product's fields give them."""
    names = ", ".join(name.upper() for name in (*_WORDS, "words"))
    lines = [f"enum {{ {names} }};"]
    for name, values in (
        ("MATRICES", [row.name for row in MATRICES]),
        ("LEADING", [row.pitch for row in MATRICES]),
        ("STRIDES", [row.stride for row in MATRICES]),
        ("VECTORS", [row.name for row in _VECTORS]),
        ("COUNTS", [_COUNTS[row.kind] for row in _VECTORS]),
    ):
        lines.append(table("int", name, (value.upper() for value in values)))
    counts = f"MATRIX_COUNT = {len(MATRICES)}, VECTOR_COUNT = {len(_VECTORS)}"
    return "\n".join([*lines[:1], f"enum {{ {counts} }};", *lines[1:]])


def given() -> str:
    """The statements that copy the operands' addresses from a product's fields to their words."""
    lines = [
        f"given->words[{row.name.upper()}] = (int64_t)(uintptr_t)p->{row.field};"
        for row in OPERANDS
    ]
    lines += [
        f"leading[{place}] = p->{row.pitch}, stride[{place}] = p->{row.stride};"
        for place, row in enumerate(MATRICES)
    ]
    return "\n    ".join(lines)


def tables(library: ExportedLibrary) -> str:
    """The launch plans, in C."""
    return _TableWriter(library).text()


def algorithms(library: ExportedLibrary) -> str:
    """The recorded algorithms of cuBLASLt, and the index of each plan's, or -1."""
    gemms = _TableWriter(library).sorted_gemms()
    called = [gemm for gemm in gemms if gemm.calls_library]
    indices = (str(called.index(gemm) if gemm.calls_library else -1) for gemm in gemms)
    return "\n\n".join(
        (
            f"enum {{ LT_COUNT = {len(called)} }};",
            table("LtRecord", "LT_RECORDS", map(_algorithm, called)),
            table("short", "LT_NUMBERS", indices),
        )
    )


def _algorithm(gemm: ExportedGemm) -> str:
    """The row of a gemm's algorithm."""
    assert gemm.algorithm is not None
    told, algorithm = LibraryProblem.of(gemm.problem), gemm.algorithm.call.algorithm
    major, minor, patch = map(int, gemm.algorithm.version.split("."))
    version = 10000 * major + 100 * minor + patch
    number, *settings = algorithm
    return (
        f"{{{numbers(version, told.compute, told.factor)}, {{{numbers(*told.operations)}}}, "
        f"{{{numbers(*told.types)}}}, {numbers(told.epilogue, int(told.fast), number)}, "
        f"{{{numbers(*settings)}}}}}"
    )


def shapes(library: ExportedLibrary) -> str:
    """The exported problems, as a table for the programs that run them all."""
    rows = (
        f"{{{c_string(str(p))}, {numbers(p.m, p.n, p.k, p.batch, *codes(p))}}}"
        for p in dict.fromkeys(gemm.problem for gemm in library.gemms)
    )
    return table("Shape", "SHAPES", rows)


class _TableWriter:
    """Writes the tables, and numbers the maps, arguments and launches that plans refer to."""

    def __init__(self, library: ExportedLibrary) -> None:
        self._library = library
        self._indices = kernel_indices(library)
        self._maps: dict[TensorMap, int] = {}
        self._arguments: list[str] = []
        self._launches: list[str] = []

    def text(self) -> str:
        library = self._library
        plans = [self._plan(gemm) for gemm in self.sorted_gemms()]
        generals = [self._general(fallback) for fallback in library.fallbacks]
        counts = {
            "PLAN_COUNT": len(plans),
            "GENERAL_COUNT": len(generals),
            "COUNTER_COUNT": library.counters,
            "PARAMETER_LIMIT": max(len(launch.arguments) for launch, _ in library.launches),
            "PARAMETER_BYTES": max([1, *(_packed(launch).size for launch, _ in library.launches)]),
            "LAUNCH_LIMIT": max([1, *(len(gemm.plan.launches) for gemm in library.gemms)]),
            "MAP_LIMIT": max(1, *(_map_count(launch) for launch, _ in library.launches)),
        }
        return "\n\n".join(
            (
                "enum { "
                + ", ".join(f"{name} = {count}" for name, count in counts.items())
                + " };",
                table("Map", "MAPS", map(_map, self._maps)),
                table("Argument", "ARGUMENTS", self._arguments),
                table("Launch", "LAUNCHES", self._launches),
                table("Plan", "PLANS", plans),
                table("Plan", "GENERALS", generals),
            )
        )

    def sorted_gemms(self) -> list[ExportedGemm]:
        """The gemms in the order of the table of plans."""

        def order(gemm: ExportedGemm) -> tuple[int, ...]:
            p = gemm.problem
            return self._device_number(gemm), kind(p), p.m, p.n, p.k, p.batch

        return sorted(self._library.gemms, key=order)

    def _device_number(self, gemm: ExportedGemm) -> int:
        return self._library.devices.index(gemm.device)

    def _plan(self, gemm: ExportedGemm) -> str:
        problem, plan, align = gemm.problem, gemm.plan, gemm.alignment
        first = len(self._launches)
        for launch, program in zip(plan.launches, gemm.programs, strict=True):
            self._add(launch, program, launch.grid, (0, 0))
        device = self._device_number(gemm)
        sizes = problem.m, problem.n, problem.k, problem.batch
        counted = int(plan.counters > 0)
        alignment = numbers(align.a, align.b, align.c)
        return (
            f"{{{numbers(device, *sizes, kind(problem))}, {{{alignment}}}, "
            f"{numbers(first, len(plan.launches), plan.workspace, counted)}, "
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
            f"{{{numbers(first_device, 0, 0, 0, 0, kind(general.problem))}, "
            f"{{{numbers(align.a, align.b, align.c)}}}, {numbers(first, 1, 0, 0)}, "
            f'{c_string(str(general.config))}, "general"}}'
        )

    def _add(
        self, launch: Launch, program: Program, grid: Sequence[int], tile: Sequence[int]
    ) -> None:
        first = len(self._arguments)
        rows = self._rows(launch)
        self._arguments += rows
        self._launches.append(
            f"{{{self._indices[program.key]}, {{{numbers(*grid)}}}, "
            f"{{{numbers(*launch.block)}}}, {launch.shared}, {{{numbers(*tile)}}}, "
            f"{numbers(first, len(rows))}}}"
        )

    def _rows(self, launch: Launch) -> list[str]:
        """A row for each tensor map, for each plain argument and for each member of a struct."""
        packed = _packed(launch)
        offsets = [0] * _map_count(launch) + [*packed.cells]
        starts = {*packed.parameters}
        return [
            self._row(cell, cell.type == "tensor_map" or offset in starts, offset)
            for cell, offset in zip(launch.cells, offsets, strict=True)
        ]

    def _row(self, argument: Argument, starts: bool, offset: int) -> str:
        """An argument. Its number is whole: the only floats, `alpha` and `beta`, are symbols."""
        value = argument.value
        word = 0
        if isinstance(value, TensorMap):
            value = self._maps.setdefault(value, len(self._maps))
        elif isinstance(value, str):
            word, value = _WORDS.index(value), 0
        elif not isinstance(value, int):
            raise TypeError(f"a kernel takes the number {value!r}; C tables hold whole numbers")
        return f"{{{numbers(_TYPES.index(argument.type), word, int(starts), offset, value)}}}"


def _map(tensor_map: TensorMap) -> str:
    words, steps = [], []
    for step in (tensor_map.pitch, tensor_map.stride):
        words.append(_WORDS.index(step) if isinstance(step, str) else 0)
        steps.append(0 if isinstance(step, str) else step)
    base, type = _WORDS.index(tensor_map.base), TENSOR_MAP_TYPES[tensor_map.type].number
    kinds = base, type, tensor_map.element_bytes
    sizes = tensor_map.columns, tensor_map.rows, tensor_map.batch
    offsets = tensor_map.offset, *sizes, *steps
    return (
        f"{{{numbers(*kinds, launches.SWIZZLES[tensor_map.swizzle], *words, *offsets)}, "
        f"{{{numbers(*tensor_map.box)}}}}}"
    )


def _packed(launch: Launch) -> Layout:
    """The parameters behind the tensor maps in memory."""
    return layout(tuple(type for type in launch.parameters if type != "tensor_map"))


def _map_count(launch: Launch) -> int:
    return sum(isinstance(argument.value, TensorMap) for argument in launch.arguments)
