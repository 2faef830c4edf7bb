"""Every rung of the ladder that the GPU runs computes the right C."""

from __future__ import annotations

from pathlib import Path

import pytest
from candidate_samples import candidate

from autotune.families import registry
from autotune.families.ladder import LAYOUTS, RUNGS, Rung
from autotune.families.plan import Alignment
from autotune.measure.bench import GemmBench
from autotune.measure.session import Session
from autotune.measure.verify import Passed
from autotune.model import space
from autotune.problem import Problem

SHAPES = ((512, 512, 512), (1024, 768, 320), (37, 53, 71), (1, 130, 3))


@pytest.mark.parametrize("rung", RUNGS, ids=lambda rung: rung.name)
def test_rung_computes_the_gemm(rung: Rung, session: Session, programs: Path) -> None:
    ran = 0
    for shape in SHAPES:
        problem = Problem(*shape, rung.compute, LAYOUTS[rung.compute])
        config = rung.config(session.device)
        if space.rejection(config, problem, session.device) is not None:
            continue
        plan = registry.plan(config, problem, Alignment.dense(problem))
        outcome = GemmBench(session, problem, cache=programs).verify(
            candidate(plan, session.device, programs)
        )
        assert isinstance(outcome, Passed), f"{problem}: {outcome}"
        ran += 1
    if not ran:
        pytest.skip(f"{session.device.name} does not run it")
    assert ran == (4 if rung.edges else 2)
