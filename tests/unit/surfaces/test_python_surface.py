"""Python that others call or implement: `kernel.launch`, `autotune.testing` and the `Runner` port.

`tests/unit/runtime` has what `kernel.launch` does with residuals, scales and results in fp8.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import partial
from typing import get_args

import numpy as np
import pytest
from support import surfaces
from support.runtime_case import Case

from autotune import testing
from autotune.cuda.program import Program
from autotune.families.config import Config
from autotune.families.plan import LaunchPlan, Resources
from autotune.measure.measurement import Energy, Evidence, Failure, Measurement, Stage
from autotune.measure.objective import BestTimes, ObjectiveText
from autotune.measure.runner import Candidate, RowReference, Runner
from autotune.problem import Problem
from autotune.problem.call import LaunchWords
from autotune.runtime import Kernel

VALUES = (
    *(Candidate, Measurement, Failure, BestTimes, RowReference, Energy),
    *(Config, LaunchPlan, Program, Resources),
)
"""What the methods of a runner take and return."""
WORDS = {"Evidence": Evidence, "Objective": ObjectiveText, "Stage": Stage}


def members(kind: type) -> Iterator[str]:
    """A line for each public name of a class: attributes, properties, fixtures and methods."""
    for name, annotation in inspect.get_annotations(kind).items():
        yield f"{name}: {annotation}"
    for name, value in vars(kind).items():
        if name.startswith("_"):
            continue
        if isinstance(value, property) and value.fget is not None:
            yield f"property {name}{inspect.signature(value.fget)}"
        elif inspect.isfunction(inspect.unwrap(value)):
            word = "fixture" if hasattr(value, "__wrapped__") else "def"
            yield f"{word} {name}{inspect.signature(inspect.unwrap(value))}"


def values() -> Iterator[str]:
    """A line for each field of the values of the port, and for each of its words."""
    for value in VALUES:
        yield f"class {value.__name__}"
        required = inspect.signature(value).parameters
        for field in fields(value):
            optional = required[field.name].default is not inspect.Parameter.empty
            yield f"    {field.name}: {field.type}{' = ...' if optional else ''}"
    for name, word in WORDS.items():
        yield f"{name}: {', '.join(get_args(word))}"


def contracts() -> Iterator[str]:
    """The contract suites with their attributes, fixtures and tests."""
    for name in sorted(testing.__all__):
        yield f"class {name}"
        yield from (f"    {line}" for line in sorted(members(getattr(testing, name))))


def parameters() -> Iterator[str]:
    """The parameters of `kernel.launch`: those with a place in order, then the keywords."""
    own = [*inspect.signature(Kernel.launch).parameters.values()][1:]
    yield from (str(it) for it in own if it.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD)
    keywords = {it.name for it in own if it.kind is inspect.Parameter.KEYWORD_ONLY}
    yield from (f"{name} (keyword)" for name in sorted(keywords | {*LaunchWords.__annotations__}))


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("kernel-launch.txt", parameters),
        ("testing.txt", contracts),
        ("runner-port.txt", partial(members, Runner)),
        ("runner-values.txt", values),
    ],
)
def test_python_surface_is_as_held(name: str, lines: Callable[[], Iterator[str]]) -> None:
    surfaces.hold(name, [*lines()])


def test_launch_takes_pitches_strides_and_factors() -> None:
    case = Case()
    kernel = Kernel(case.runtime, Problem(5, 7, 3, batch=2, epilogue="bias_relu"), 0)
    a, b, c = case.matrix(2, 6, 10), case.matrix(2, 4, 8), case.matrix(2, 5, 9)
    bias, before = case.matrix(7), c.copy()
    kernel.launch(
        *(a.ctypes.data, b.ctypes.data, c.ctypes.data, 77),
        lda=10,
        ldb=8,
        ldc=9,
        stride_a=60,
        stride_b=32,
        stride_c=45,
        alpha=2.0,
        beta=0.5,
        bias=bias.ctypes.data,
        dependent=True,
        scale_a=0,
        scale_b=0,
        residual=0,
        ldr=None,
        stride_r=None,
        scale_result=0,
        amax=0,
    )
    product = 2 * (a[:, :5, :3] @ b[:, :3, :7]) + 0.5 * before[:, :, :7] + bias
    assert np.allclose(c[:, :, :7], np.maximum(product, 0), rtol=1e-5, atol=1e-5)
    assert np.array_equal(c[:, :, 7:], before[:, :, 7:])
    (launch,) = case.cuda.launches
    assert (launch.stream, launch.dependent) == (77, True)
