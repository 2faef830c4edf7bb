"""The algorithms of cuBLASLt, which compete with the package's kernels.

No rules enumerate them: on the GPU that measures, the library's heuristic lists the algorithms of a
problem (`cuda.cublaslt`). A configuration holds the integers of an algorithm, from which the same
version of the library makes it again. Its plan has a call of the library in place of launches. The
library alone knows the threads, the registers and the shared memory that the call takes.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import NoReturn

from autotune.device import Device
from autotune.errors import ConfigError
from autotune.families.config import Config
from autotune.families.family import Family, ParameterFunction, Rule, Values, parameter_from
from autotune.families.plan import Algorithm, Alignment, LaunchPlan, LibraryCall
from autotune.families.summation import Summation, unordered
from autotune.problem import Problem

NAME = "cublaslt"


def _any(_problem: Problem, _device: Device) -> Values:
    """One value that stands for all: recorded configurations may have any integer."""
    return (0,)


@dataclass
class CublasLtParams:
    """The attributes of an algorithm by their numbers in `cublasLtMatmulAlgoConfigAttributes_t`,
    and the bytes of workspace that it takes on its problem."""

    id: int = parameter_from(_any, for_speed=True)
    tile: int = parameter_from(_any, for_speed=True)
    split_k: int = parameter_from(_any, for_speed=True)
    reduction: int = parameter_from(_any, for_speed=True)
    swizzle: int = parameter_from(_any, for_speed=True)
    custom: int = parameter_from(_any, for_speed=True)
    stages: int = parameter_from(_any, for_speed=True)
    inner: int = parameter_from(_any, for_speed=True)
    cluster: int = parameter_from(_any, for_speed=True)
    workspace: int = parameter_from(_any, for_speed=True)


def fault(problem: Problem) -> str | None:
    """The part of a problem that the library cannot fuse or store; None if its heuristic may be
    asked."""
    if problem.activation not in (None, "relu", "gelu_tanh") or not problem.epilogue.elementwise:
        return f"cuBLASLt fuses no {problem.epilogue}"
    if problem.activation == "gelu_tanh" and problem.output_type == "f32":
        return "cuBLASLt's GELU is not as accurate as fp32"
    if problem.compute == "i8" and problem.output != "i32":
        return "cuBLASLt gives products of int8 as int32 alone"
    if problem.has_fp8_output:
        return "an fp8 C is not asked of cuBLASLt"
    return None


def config_of(algorithm: Algorithm, workspace: int) -> Config:
    """The configuration of an algorithm, with the bytes of workspace that it takes."""
    return Config.of(NAME, {**algorithm._asdict(), "workspace": workspace})


def _unknown(*_: object) -> NoReturn:
    raise ConfigError(f"{NAME} has no resources and no work to predict; they are the library's own")


def _plan(config: Config, p: CublasLtParams, problem: Problem, alignment: Alignment) -> LaunchPlan:
    """One call of the library, which checks the alignment itself."""
    del alignment
    *attributes, workspace = astuple(p)
    call = LibraryCall(problem, Algorithm(*attributes))
    return LaunchPlan(config, (), workspace, library=call)


FAMILIES = (
    Family(
        name=NAME,
        params=CublasLtParams,
        sources=(),
        precisions=("f32", "tf32", "tf32x3", "f16", "bf16", "f8", "f8e5", "i8"),
        order=100,
        rules=(
            Rule("library", lambda _p, problem, _device: fault(problem)),
            Rule(
                "heuristic",
                lambda *_: "the library's heuristic lists its algorithms on the GPU that measures",
                for_speed=True,
            ),
        ),
        resources=_unknown,
        block_work=_unknown,
        launch_plan=_plan,
        # Unknown sums, which no prediction refuses: verification measures their error.
        summation=ParameterFunction(lambda *_: Summation(0.0)),
        summation_order=ParameterFunction(unordered),
        tensor_cores=True,
    ),
)
