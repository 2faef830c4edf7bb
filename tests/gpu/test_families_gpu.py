"""Every family computes odd shapes of every kind correctly, with the stated resources."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from candidate_samples import (
    MANY,
    FamilySample,
    candidate,
    plan_of,
    sample_of,
    serving,
    with_values,
)
from problem_cases import BATCHED, CASES, FINISHED, Case
from support.loaded import resident_blocks, resources
from support.served_precisions import SERVED

from autotune.device import Device
from autotune.families.config import Config, Value
from autotune.measure.bench import GemmBench
from autotune.measure.runner import Candidate
from autotune.measure.session import Session
from autotune.measure.verify import Passed
from autotune.model import space
from autotune.occupancy import occupancy
from autotune.problem import LAYOUTS, PRECISIONS, Problem

Samples = Mapping[str, FamilySample]


ALL = (*CASES, *BATCHED, *FINISHED)


ANY_SHAPE = {"naive", "tiled", "simt", "wgmma"}
"""Families with a configuration for every problem, if they run on the device at all."""


HOPPER = (9, 0)


TILES = (
    "simt:bm=64,bn=64,wm=32,wn=32,tm=8,tn=4,slices=1,bk=16,copy=async,stages=3,fragments=2,"
    "min_blocks=1,split_k={split_k},reduction={reduction},workers={workers},chunks=1,pack=none,"
    "group=1,fence=0,order=rows"
)


SHARED = ("separate", "fused", "stream", "gemv")
"""Ways to share K among blocks of the CUDA-core families."""


FUSED: Mapping[str, Value] = {"reduction": "fused", "cluster": "1x1"}


STREAM: Mapping[str, Value] = {"reduction": "stream"}


PINGPONG: Mapping[str, Value] = {"schedule": "pingpong"}


WIDE: Mapping[str, Value] = {"cluster": "2x1", "schedule": "cooperative"}


HIGH: Mapping[str, Value] = {"cluster": "1x2", "schedule": "cooperative"}


DEEP: Mapping[str, Value] = {"cluster": "1x1x4", "reduction": "none"}


DEEPER: Mapping[str, Value] = {"cluster": "1x1x2", "reduction": "fused"}


TOGETHER: tuple[tuple[str, str, Mapping[str, Value]], ...] = (
    ("wgmma", "250x190x2050:bf16:nn:batch=3", FUSED),
    ("wgmma", "250x190x2050:f16:nt:out=f32", FUSED),
    ("wgmma", "1001x999x1003:tf32x3:nt", FUSED),
    ("wgmma", "1088x1030x2049:bf16:nn", STREAM),
    ("wgmma", "1001x999x1003:tf32:nt", STREAM),
    ("wgmma", "2049x2047x515:bf16:nt", PINGPONG),
    ("wgmma", "1025x1023x130:f16:nn:batch=3", PINGPONG),
    ("wgmma", "1999x2047x515:tf32:nt", PINGPONG),
    ("wgmma", "1001x999x1003:tf32x3:nt", PINGPONG),
    ("wgmma", "2049x2047x515:bf16:nt", WIDE),
    ("wgmma", "1001x999x1003:tf32x3:nt", WIDE),
    ("wgmma", "1025x1023x130:bf16:nn:batch=3", HIGH),
    ("wgmma", "1999x2047x515:tf32:nt", HIGH),
    ("wgmma", "250x190x2050:bf16:nn:batch=3", DEEP),
    ("wgmma", "250x190x2050:tf32:nt", DEEP),
    ("wgmma", "250x190x2050:bf16:nn:batch=3", DEEPER),
    *(("wgmma", "1001x997x515:bf16:nt", {"cluster": form}) for form in ("1x4", "4x1", "2x2")),
    *(("wgmma", "509x505x515:f16:nn", {"cluster": form}) for form in ("2x4", "4x2")),
    *(("wgmma", "250x254x8190:bf16:nt", {"cluster": form}) for form in ("1x2x2", "2x1x4")),
    ("wgmma", "250x254x8190:bf16:nt", {"cluster": "2x2", "reduction": "fused"}),
    ("wgmma", "1025x1023x2047:bf16:nt", {"cluster": "1x2", "reduction": "stream"}),
    ("wgmma", "61x4099x1027:bf16:nt", {"source": "streamed"}),
    ("wgmma", "1000x1004x1008:tf32x3:nt", {"low": "kernel"}),
    ("wgmma", "1001x999x131:tf32x3:nt", {"min_blocks": 2}),
    ("wgmma", "2049x2047x67:bf16:nt", {"min_blocks": 3}),
    ("mma", "250x190x2050:bf16:nn:batch=3", {"split_k": 4}),
    ("mma", "250x190x2050:tf32:tn", {"split_k": 3}),
    ("mma", "250x190x2050:tf32x3:nt", {"split_k": 4}),
    ("mma", "1001x999x1003:f16:tn", {"pack": "ab"}),
    ("mma", "250x190x2050:tf32x3:tt", {"slices": 4}),
    ("wgmma", "250x190x4098:f8:nt:scale=row:batch=3", FUSED),
    ("wgmma", "1088x1030x2049:f8:nt:scale=block", STREAM),
    ("wgmma", "1088x1030x2049:i8:nt:out=i32", STREAM),
    ("wgmma", "2049x2047x515:f8e5:nt:e5m2=b:scale=block", PINGPONG),
    ("wgmma", "2049x2047x515:f8:nn:fast:scale=tensor", WIDE),
    ("wgmma", "1999x2047x515:f8:nt:scale=block", HIGH),
    ("wgmma", "250x190x4098:f8:nt:scale=block:batch=3", DEEP),
    ("wgmma", "250x190x4098:i8:nt:scale=row:batch=3", DEEP),
    ("wgmma", "250x190x4098:i8:tn:out=i32:batch=3", DEEPER),
    ("mma", "250x190x2050:f8:nt:scale=row:batch=3", {"split_k": 4}),
    ("mma", "250x190x2050:f8e5:tt:e5m2=ab:scale=block", {"split_k": 3}),
    ("mma", "250x190x2050:i8:nn:out=i32", {"slices": 2}),
)
"""Ways in which blocks and warps of the tensor-core families cooperate: family, problem, and the
parameters that select the way."""


def shared(way: str, batch: int, device: Device) -> tuple[Config, Problem]:
    """A configuration with this k_sharing, and a problem whose tiles overhang."""
    if way == "gemv":
        text = "gemv:rows=8,columns=4,depth=8,across=32,ways=4,split_k=8,stages=3"
        return Config.parse(text), Problem(7, 4001, 4099, batch=batch)
    if way == "stream":
        if batch > 1:
            pytest.skip("stream-K workers share a single matrix")
        text = TILES.format(split_k=1, reduction=way, workers=device.sms)
        return Config.parse(text), Problem(1001, 999, 1003)
    text = TILES.format(split_k=6, reduction=way, workers=0)
    return Config.parse(text), Problem(250, 190, 2050, batch=batch)


def different_results(
    prepared: Candidate, problem: Problem, session: Session, programs: Path
) -> int:
    """Number of different results of 50 runs on the same inputs, after verification."""
    bench = GemmBench(session, problem, cache=programs)
    # Matrices of a batch that wrongly shared counters or workspace would fail here.
    outcome = bench.verify(prepared)
    assert isinstance(outcome, Passed), f"{prepared.plan.config}: {outcome}"
    operands = bench.operands
    run, c = session.bind(prepared)(operands.values(1.0, 0.0)), np.empty(operands.c.bytes, np.uint8)
    results = set()
    for _ in range(50):
        run()
        session.synchronize()
        session.download(c, operands.c.address)
        results.add(c.tobytes())
    return len(results)


@pytest.fixture
def samples(case: Case, session: Session, programs: Path) -> Samples:
    """The sample of each family that serves the case."""
    families = serving(case.problem)
    return {family: sample_of(case, family, session.device, programs) for family in families}


@pytest.mark.parametrize("compute", SERVED)
def test_cases_cover_sixty_shapes_layouts_and_outputs(compute: str) -> None:
    problems = [case.problem for case in CASES if case.problem.compute == compute]
    precision = PRECISIONS[compute]
    outputs = {"same", *(element.name for element in precision.outputs[1:])}
    assert len({problem.shape for problem in problems}) >= 60
    assert {problem.layout for problem in problems} == {*LAYOUTS}
    assert {problem.output for problem in problems} == outputs
    assert {problem.scale for problem in problems} == {*precision.scales}
    pairs = {(problem.layout, problem.scale) for problem in problems}
    assert len(pairs) == len(LAYOUTS) * len(precision.scales)


@pytest.mark.parametrize("case", ALL, ids=str)
def test_every_family_computes_the_gemm(
    case: Case, session: Session, programs: Path, samples: Samples
) -> None:
    bench = GemmBench(
        session,
        case.problem,
        leading_dimensions=case.leading_dimensions,
        strides=case.strides,
        cache=programs,
    )
    wrong = {
        str(config): reason
        for sample in samples.values()
        for config, reason in sample.failed.items()
    }
    for sample in samples.values():
        outcomes = {str(ready.config): bench.verify(ready) for ready in sample.candidates}
        wrong |= {
            name: str(outcome)
            for name, outcome in outcomes.items()
            if not isinstance(outcome, Passed)
        }
    assert wrong == {}
    needed = ANY_SHAPE - ({"wgmma"} if session.device.compute_capability != HOPPER else set())
    idle = {family: sample for family, sample in samples.items() if not sample.candidates}
    missing = [name for name, sample in idle.items() if sample.legal >= MANY or name in needed]
    assert [name for name in missing if not too_inaccurate(case, name, session.device)] == []


def too_inaccurate(case: Case, family: str, device: Device) -> bool:
    """Whether the problem has kernels of the family, none of them accurate enough.

    At a K of a few dozen the split of tf32x3 alone makes the error that is allowed, and at a K of 1
    what the tensor cores cut off a sum of fp8 exceeds that of an fp32 result.
    """
    found = space.feasible(case.problem, device, family)
    return not found.configs and "accuracy" in found.rejected


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("way", SHARED)
def test_cuda_core_results_are_reproducible(
    way: str, batch: int, session: Session, programs: Path
) -> None:
    config, problem = shared(way, batch, session.device)
    prepared = candidate(plan_of(config, Case(problem)), session.device, programs)
    assert different_results(prepared, problem, session, programs) == 1


@pytest.mark.parametrize(("family", "text", "values"), TOGETHER, ids=str)
def test_tensor_core_results_are_reproducible(
    family: str, text: str, values: Mapping[str, Value], session: Session, programs: Path
) -> None:
    if family == "wgmma" and session.device.compute_capability != HOPPER:
        pytest.skip("wgmma needs compute capability 9.0")
    case = Case(Problem.parse(text))
    if session.device.tensor_rate(case.problem.compute) is None:
        pytest.skip(f"no tensor cores for {case.problem.compute}")
    prepared = with_values(case, family, values, session.device, programs)
    assert different_results(prepared, case.problem, session, programs) == 1


@pytest.mark.parametrize("case", ALL[::5], ids=str)
def test_occupancy_is_the_drivers(session: Session, samples: Samples) -> None:
    ours, drivers = {}, {}
    for item in _candidates(samples):
        for launch, program in zip(item.plan.launches, item.programs, strict=True):
            key = f"{item.config} {launch.template.label}"
            drivers[key] = resident_blocks(session, program, launch)
            ours[key] = occupancy(
                session.device,
                threads=launch.threads,
                registers=program.registers,
                shared=program.shared + launch.shared,
                barriers=program.barriers,
            ).blocks_per_sm
    assert ours == drivers


@pytest.mark.parametrize("case", ALL[::5], ids=str)
def test_compiled_resources_are_the_drivers(session: Session, samples: Samples) -> None:
    compiled = _candidates(samples)
    drivers = [
        resources(session, item.programs[item.plan.product], item.plan.main) for item in compiled
    ]
    assert [item.resources for item in compiled] == drivers


def _candidates(samples: Samples) -> list[Candidate]:
    return [candidate for sample in samples.values() for candidate in sample.candidates]
