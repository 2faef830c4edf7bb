"""The operands of a call, checked: the problem they pose and where they lie."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from math import gcd
from operator import or_
from typing import Any, NamedTuple

from autotune.errors import ArrayError
from autotune.families.config import Config
from autotune.families.plan import Alignment
from autotune.problem import Problem
from autotune.problem.call import BY_NAME, FURTHER, MATRICES, OPERANDS, Operand
from autotune.runtime import arrays, problems
from autotune.runtime.arrays import ArrayInfo, MatrixMemory
from autotune.runtime.batches import Launches, launches_of
from autotune.runtime.scales import number_memory, scale_memory

Addresses = Mapping[str, int]
"""The addresses of the operands that are present, by name."""

NAMES: Mapping[str, str] = {operand.argument.lower(): operand.name for operand in OPERANDS}
"""The names of the operands by their keywords in Python."""

NOTHING = Config("nothing")
"""The configuration of calls that launch nothing."""


class CallOptions(NamedTuple):
    """The arguments of a call that are no arrays.

    Attributes:
        alpha: factor of the product.
        beta: factor of C.
        activation: the activation or None.
        compute: the precision or None.
        accumulate: how sums of fp8 are added up, or None.
        scale: the granularity of the scales or None.
        dependent: whether it is a programmatic dependent launch.
        cold: whether the operands are cold.
        vendor: whether the vendor's library may multiply.
    """

    alpha: float = 1.0
    beta: float = 0.0
    activation: str | None = None
    compute: str | None = None
    accumulate: str | None = None
    scale: str | None = None
    dependent: bool = False
    cold: bool = False
    vendor: bool = True

    @property
    def signature(self) -> tuple[object, ...]:
        """The options that the operands' checks and the look-up depend on."""
        return self.activation, self.compute, self.accumulate, self.scale, self.cold


DEFAULTS = CallOptions()


class CheckedOperands(NamedTuple):
    """The problem that operands of one signature pose, and how they lie.

    Attributes:
        problem: the problem.
        ordinal: the device that holds the operands.
        memory: where each operand lies, relative to its address.
        pitches: leading dimensions of the matrices.
        strides: distances from one matrix to the next of a batch.
        alignment: the vectors that the operands allow.
        config: the configuration that runs them.
        vendor: whether the vendor's library was measured to be faster, or has to run what no record
            serves.
        offsets: bytes from the operands of the first launch to those of each, by name; there are
            several launches for some batches of several axes, and none for an empty result.
        sums: whether there is anything to sum; where K is 0, the problem's K is 1, for operands of
            zeros.
    """

    problem: Problem
    ordinal: int
    memory: Mapping[str, MatrixMemory]
    pitches: Mapping[str, int]
    strides: Mapping[str, int]
    alignment: Alignment
    config: Config
    vendor: bool
    offsets: tuple[Mapping[str, int], ...] = ({},)
    sums: bool = True


def checked_operands(
    problem: Problem,
    infos: Mapping[str, ArrayInfo],
    addresses: Addresses,
    choose: Callable[[Problem, int, Alignment, bool], tuple[Config, bool]],
) -> CheckedOperands:
    """The operands of a call, checked.

    Args:
        problem: the problem that they pose.
        infos: the operands that are present, by name; A, B and C always are.
        addresses: their addresses.
        choose: returns the configuration for a problem on a device, and whether the vendor's
            library is to run it; it is told the alignment, and whether there is anything to sum.

    Raises:
        ArrayError: if no kernel can take them.
    """
    a, b, out = (infos[name] for name in "abc")
    ordinal = max(map(arrays.check, (a, b)))
    launches = launches_of(a, b, out, gated=problem.gated)
    sums = not (a.empty or b.empty)
    memory = _matrix_memory(problem, launches, ordinal)
    for operand in FURTHER:
        # The scales of operands without elements are not looked at.
        if operand.name in infos and (sums or operand.kind != "scales"):
            memory[operand.name] = _further_memory(operand, problem, infos, memory, ordinal)
    check_addresses(addresses, memory)
    pitches = {row.name: memory[row.name].leading for row in MATRICES if row.name in memory}
    strides = {name: memory[name].stride for name in pitches}
    if out.empty:
        alignment = Alignment(1, 1, 1)
        lie = ordinal, memory, pitches, strides, alignment
        return CheckedOperands(problem, *lie, NOTHING, False, ())
    if not sums:
        ordinal = arrays.check(out, types=arrays.OUTPUT_TYPES)
        pitches |= dict(zip("ab", problem.leading_dimensions, strict=False))
    steps = launches.steps(strides)
    alignment = aligned(problem, pitches, steps, addresses)
    config, vendor = choose(problem, ordinal, alignment, sums)
    offsets = tuple(launches.offsets({row.name: row.element(problem).bytes for row in MATRICES}))
    lie = ordinal, memory, pitches, strides, alignment
    return CheckedOperands(problem, *lie, config, vendor, offsets, sums)


def _matrix_memory(problem: Problem, launches: Launches, ordinal: int) -> dict[str, MatrixMemory]:
    """Where A, B and C lie, checked.

    Raises:
        ArrayError: if no kernel can take them.
    """
    a, b, out, _ = launches
    assert out is not None
    memory_a, memory_b = (
        arrays.memory_of(matrix, letter)[1]
        for matrix, letter in zip((a, b), problem.layout, strict=True)
    )
    shape = problems.result_shape(a, b, problem.epilogue)
    memory_c = arrays.check_out(out, shape, ordinal)
    memory = launches.memory({"a": memory_a, "b": memory_b, "c": memory_c})
    arrays.check_disjoint(out, memory["c"], shape)
    return memory


def _further_memory(
    operand: Operand,
    problem: Problem,
    infos: Mapping[str, ArrayInfo],
    memory: Mapping[str, MatrixMemory],
    ordinal: int,
) -> MatrixMemory:
    """Where an operand beside A, B and C lies, checked.

    Raises:
        ArrayError: if the problem does not have it, or no kernel can take it.
    """
    info = infos[operand.name]
    if operand.kind == "matrix":
        return arrays.check_residual(info, infos["c"], memory["c"], ordinal)
    if operand.kind == "scales":
        return scale_memory(info, ordinal)
    if operand.kind == "vector":
        dtype = operand.element(problem).dtype
        return arrays.check_vector(info, operand.count(problem), ordinal, dtype)
    lies = number_memory(info, ordinal)
    if not operand.present(problem):
        raise ArrayError(
            f"scale_result and amax are for a result in fp8; this one is "
            f"{problem.output_element.dtype}"
        )
    return lies


def named_operands(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """The operands of a call by their names in `OPERANDS`, from arrays by their keywords; what is
    None is left out.

    Raises:
        TypeError: for a keyword that no operand has.
    """
    try:
        return {NAMES[word]: array for word, array in arrays.items() if array is not None}
    except KeyError as error:
        raise TypeError(f"a matmul has no argument {error}") from None


def aligned(
    problem: Problem,
    pitches: Mapping[str, int],
    strides: Mapping[str, int],
    addresses: Addresses,
) -> Alignment:
    """The vectors that operands allow; matrices in the place of C share one width.

    Args:
        problem: the problem.
        pitches: leading dimensions of the matrices.
        strides: distances from one of each to the next of a batch.
        addresses: addresses of the operands.
    """

    def each(combine: Callable[[int, int], int], values: Mapping[str, int]) -> tuple[int, int, int]:
        a, b, c = (
            reduce(combine, [values.get(row.name, 0) for row in MATRICES if row.place == place])
            for place in range(3)
        )
        return a, b, c

    # What divides both addresses divides the bits that are set in either.
    lie = each(gcd, pitches), each(or_, addresses), problems.sizes(problem), each(gcd, strides)
    return Alignment.of(*lie)


def check_factors(problem: Problem, alpha: float, beta: float) -> None:
    """Refuses factors of a product in int32, which is an exact sum, and of gates."""
    if problem.has_factors or (alpha, beta) == (1, 0):
        return
    if problem.gated:
        product, otherwise = f"{problem.epilogue}", "leave them out"
    else:
        product, otherwise = f"a product in {problem.output_element.dtype}", "give another out"
    raise ArrayError(
        f"alpha is {alpha}, beta {beta}; {product} takes alpha=1 and beta=0: {otherwise}"
    )


def check_addresses(addresses: Addresses, memory: Mapping[str, MatrixMemory]) -> None:
    """Refuses operands that do not start at a multiple of their element size."""
    for name, lies in memory.items():
        if (address := addresses.get(name, 0)) % lies.element_bytes:
            raise ArrayError(
                f"{BY_NAME[name].argument} is at {address:#x}, no multiple of its "
                f"{lies.element_bytes}-byte elements: copy it"
            )


def refuse_overlap(checked: CheckedOperands, addresses: Addresses) -> None:
    """Refuses an output that shares elements with another operand."""
    out, of_out = addresses["c"], checked.memory["c"]
    if not of_out.extent:
        return
    for name, lies in checked.memory.items():
        if name == "c" or not lies.extent or not (address := addresses.get(name, 0)):
            continue
        if arrays.overlap(address, lies, out, of_out):
            argument = BY_NAME[name].argument
            raise ArrayError(f"out at {out:#x} overlaps {argument} at {address:#x}; give another")
