"""The kernels of `cuda_src/verify.cu` that a problem takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autotune.families.plan import Constant, Template
from autotune.families.shared.arguments import each_type, epilogue, scale, transposes
from autotune.problem import ELEMENT_TYPES, Problem


@dataclass(frozen=True)
class VerifyTemplates:
    """The kernels of `verify.cu` for one problem.

    Attributes:
        fills, checks: `fill` and `check` by the types of buffers.
        reference, compare, compare_exact: those kernels.
        factors: `fill_exact` for A and for B.
        scales: `fill_scales` for A and for B; none without scales.
    """

    fills: Mapping[str, Template]
    checks: Mapping[str, Template]
    reference: Template
    compare: Template
    compare_exact: Template
    factors: tuple[Template, ...]
    scales: tuple[Template, ...]

    @property
    def all(self) -> tuple[Template, ...]:
        """All of them, each once."""
        buffers = *self.fills.values(), *self.checks.values()
        operands = *self.factors, *self.scales
        return *buffers, self.reference, self.compare, self.compare_exact, *operands


def templates_of(problem: Problem) -> VerifyTemplates:
    """The kernels of `verify.cu` for a problem."""
    type_a, type_b, output = each_type(problem)
    of_results = problem.output_type, problem.bias_element.name
    types = dict.fromkeys(("f32", *problem.operand_types, *of_results))
    fills, checks = (
        {type: _template(name, ("TYPE", ELEMENT_TYPES[type].number)) for type in types}
        for name in ("fill", "check")
    )
    sides = ((0, type_a[1]), (1, type_b[1]))
    return VerifyTemplates(
        fills,
        checks,
        _template("reference", type_a, type_b, scale(problem), *transposes(problem)),
        _template("compare", output, epilogue(problem)),
        _template("compare_exact", output, epilogue(problem), scale(problem)),
        tuple(_template("fill_exact", ("TYPE", type), ("B", b)) for b, type in sides),
        tuple(
            _template("fill_scales", ("B", b)) for b, _ in sides if problem.scale_shapes is not None
        ),
    )


def _template(kernel: str, *arguments: tuple[str, Constant]) -> Template:
    return Template("verify.cu", kernel, arguments)
