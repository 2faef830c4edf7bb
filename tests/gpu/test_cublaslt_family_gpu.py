"""cuBLASLt's algorithms on a GPU: made again of their integers, verified, tuned, served."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ctypes import byref, c_int, c_uint32, c_uint64
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from attempts import repeated

import autotune
from autotune import runtime
from autotune.api import lookups
from autotune.cuda import cublaslt
from autotune.cuda.compiler import compile
from autotune.cuda.cublaslt import ALIGNMENT, WORKSPACE, CublasLt, HeuristicResult
from autotune.errors import MissingError
from autotune.families import registry
from autotune.families.plan import OWN_RESOURCES, LibraryCall
from autotune.measure import devices
from autotune.measure.baseline import ALGORITHMS
from autotune.measure.bench import GemmBench
from autotune.measure.measurement import Failure, Measurement
from autotune.measure.objective import BestTimes
from autotune.measure.runner import Candidate
from autotune.measure.session import Session
from autotune.problem import Problem
from autotune.records import Record
from autotune.tuning.pipeline import prepare

TEXTS = (
    *(
        "33x7x129:f32:nn",
        "256x300x512:f32:tn",
        "512x512x512:tf32:nt",
        "300x200x100:tf32:tt:batch=3",
    ),
    *("1001x1003x1005:f16:nn", "64x64x8192:f16:tn", "1000x1001x1003:bf16:tt"),
    *("128x128x64:bf16:nt:batch=16", "1x4096x4096:bf16:nt", "512x512x512:bf16:out=f32"),
    *("256x512x1024:bf16:nt:bias_relu", "256x512x512:f16:nn:bias_gelu_tanh"),
    *("256x512x1024:f8:nt:scale=tensor", "256x512x1024:f8:nt:scale=row:fast"),
    "256x512x1024:i8:nt:out=i32",
)

IN_PLACE, OUTPUT_TYPE = 1, 4
"""Reductions that add partial sums in the type of C, which a 16-bit C loses digits by."""


@pytest.fixture(scope="module")
def library(session: Session) -> CublasLt:
    try:
        return session.cublaslt
    except MissingError as error:
        pytest.skip(str(error))


def heuristic(library: CublasLt, problem: Problem) -> list[Any]:
    """The library's own structures of algorithms."""
    product = cublaslt.Descriptors(library, problem, cublaslt.dense(problem))
    preference, count = library.create("MatmulPreference"), c_int()
    library.set("MatmulPreference", preference, 1, c_uint64(WORKSPACE))
    for attribute in range(5, 9):
        library.set("MatmulPreference", preference, attribute, c_uint32(ALIGNMENT))
    results = (HeuristicResult * 16)()
    asked = library.handle, *product.described, preference, 16, results, byref(count)
    library.call("MatmulAlgoGetHeuristic", *asked)
    return [result for result in results[: count.value] if result.state == 0]


def result_of(bench: GemmBench, run: Any) -> bytes:
    """The bytes of C after a run."""
    session, operands = bench._session, bench.operands
    count = operands.c.bytes
    session.fill(operands.c.address, 0, count, 1)
    run()
    content = np.empty(count, np.uint8)
    session.download(content, operands.c.address)
    return content.tobytes()


@pytest.mark.parametrize("text", TEXTS)
def test_algorithm_made_of_its_integers_is_the_same(
    session: Session, library: CublasLt, programs: Path, text: str
) -> None:
    problem = Problem.parse(text)
    if session.device.compute_capability < problem.precision.compute_capability:
        pytest.skip(f"no {problem.compute} on {session.device.name}")
    bench = GemmBench(session, problem, cache=programs)
    bench.warm_up()
    workspace = session.allocate(WORKSPACE)
    values: Mapping[str, float] = {
        **bench.operands.values(1.0, 0.0),
        "workspace": int(workspace),
    }
    results = heuristic(library, problem)
    assert results, "the heuristic has no algorithm"
    for result in results:
        call = LibraryCall(problem, library.attributes(result.algorithm))
        bound = library.bind(call, values)
        assert bound.workspace == result.workspace

        def run(bound: Any = bound) -> None:
            bound.enqueue(values, session.stream, WORKSPACE)

        own = result_of(bench, run)
        bound._algorithm = result.algorithm
        assert result_of(bench, run) == own, call.algorithm


@pytest.mark.parametrize("text", TEXTS)
def test_verifier_accepts_algorithms_that_sum_in_fp32(
    session: Session, library: CublasLt, programs: Path, text: str
) -> None:
    problem = Problem.parse(text)
    if session.device.compute_capability < problem.precision.compute_capability:
        pytest.skip(f"no {problem.compute} on {session.device.name}")
    assert library.version == cublaslt.version()
    bench = GemmBench(session, problem, cache=programs)
    bench.warm_up()
    outcomes = {}
    for config in bench.algorithms():
        plan = registry.plan(config, problem)
        outcomes[config] = bench.verify(Candidate(config, plan, (), OWN_RESOURCES))
    refused = {
        str(config): outcome
        for config, outcome in outcomes.items()
        if isinstance(outcome, Failure)
        and (problem.output_bytes > 2 or config.integer("reduction") not in (IN_PLACE, OUTPUT_TYPE))
    }
    assert not refused


@pytest.mark.parametrize("text", TEXTS)
def test_thorough_verifier_accepts_the_first_algorithm(
    session: Session, library: CublasLt, programs: Path, text: str
) -> None:
    problem = Problem.parse(text)
    if session.device.compute_capability < problem.precision.compute_capability:
        pytest.skip(f"no {problem.compute} on {session.device.name}")
    assert library.version == cublaslt.version()
    bench = GemmBench(session, problem, cache=programs)
    bench.warm_up()
    config = bench.algorithms()[0]
    assert (
        bench.examine(Candidate(config, registry.plan(config, problem), (), OWN_RESOURCES)) is None
    )


@pytest.mark.timing
def test_algorithms_are_timed_without_the_host(
    session: Session, library: CublasLt, programs: Path
) -> None:
    problem = Problem.parse("1000x1000x1000:bf16")  # its algorithms have kernels of their own
    assert library.version == cublaslt.version()
    bench = GemmBench(session, problem, cache=programs)
    bench.warm_up()
    best = BestTimes(1.0, 1.0)  # against these a first time stands
    for config in bench.algorithms():
        plan = registry.plan(config, problem)
        outcome = bench.measure(Candidate(config, plan, (), OWN_RESOURCES), best)
        assert isinstance(outcome, Measurement), outcome
        # Loading takes the host 2000 us or more, a call 30 to 100 us.
        assert outcome.time_us < 30, config


@pytest.fixture(scope="module", params=["512x512x512:bf16:nt", "64x1024x4096:f16:nn"])
def tuned(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Record]:
    """The record of a search in a cache of its own."""
    try:
        devices.probe()
    except MissingError as error:
        pytest.skip(str(error))
    if not cublaslt.version():
        pytest.skip("no cuBLASLt")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        runtime.current.cache_clear()
        yield autotune.tune(request.param, seconds=15)
    runtime.current.cache_clear()


def test_record_has_the_best_algorithm_and_its_version(tuned: Record) -> None:
    assert tuned.library is not None
    assert tuned.library_version == cublaslt.version()
    assert f"cuBLASLt {cublaslt.version()}: " in str(tuned)


@pytest.mark.timing
def test_answer_is_no_slower_than_the_best_of_cublaslt(
    session: Session, programs: Path, tuned: Record
) -> None:
    bench = GemmBench(session, tuned.problem, cache=programs)
    best = tuned.best.config
    plan = registry.plan(best, tuned.problem)
    runner: Any = SimpleNamespace(device=tuned.device, resources=lambda _: None)
    build = partial(compile, cache=programs)
    ready = prepare(plan, runner, build)
    assert isinstance(ready, Candidate), ready

    def attempt() -> None:
        outcomes = bench.compare([ready], [ALGORITHMS])
        ours = outcomes.pop(str(best))
        assert isinstance(ours, Measurement), ours
        theirs = [each for each in outcomes.values() if isinstance(each, Measurement)]
        fastest = min(theirs, key=lambda each: each.time_us)
        assert ours.time_us <= 1.01 * fastest.time_us + ours.spread_us + fastest.spread_us

    repeated(attempt)


def test_another_version_falls_back_to_a_kernel(
    tuned: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cublaslt, "version", lambda: "1.2.3")
    answer = lookups.choose(tuned.problem, device=tuned.device)
    assert answer.config.family != "cublaslt"
    assert ("but 1.2.3 is loaded" in answer.note) == tuned.best.library
