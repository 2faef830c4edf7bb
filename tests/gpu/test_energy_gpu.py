"""Energies are those of the board: power within its limits, and repeatable."""

from __future__ import annotations

from pathlib import Path

import pytest
from attempts import repeated
from candidate_samples import candidate, plan_of
from problem_cases import Case

from autotune.errors import MissingError
from autotune.families.config import Config
from autotune.measure.bench import GemmBench
from autotune.measure.energy import open_counter
from autotune.measure.measurement import Energy, Measurement
from autotune.measure.session import Session
from autotune.problem import Problem

pytestmark = pytest.mark.timing

KILO = Problem(1024, 1024, 1024)
CONFIGS = (
    Config.parse("tiled:tile_width=16,specialized=0"),
    Config.parse("naive:mapping=uncoalesced,block=16"),
)


@pytest.fixture
def bench(session: Session, programs: Path) -> GemmBench:
    try:
        open_counter(session.pci_address())
    except MissingError as error:
        pytest.skip(str(error))
    return GemmBench(session, KILO, cache=programs)


def test_energy_is_power_times_time(bench: GemmBench, session: Session, programs: Path) -> None:
    candidates = [
        candidate(plan_of(config, Case(KILO, (0, 0, 0))), session.device, programs)
        for config in CONFIGS
    ]
    answer = bench.energies(candidates, False)
    assert not isinstance(answer, str), answer
    for made, energy in zip(candidates, answer[0], strict=True):
        measured = bench.measure(made, None)
        assert isinstance(energy, Energy), energy
        assert isinstance(measured, Measurement), measured
        assert 20 < energy.power_w < 2_000
        assert 100 < energy.clock_mhz < 4_000
        back_to_back_us = 1e6 * energy.joules / energy.power_w
        assert back_to_back_us == pytest.approx(measured.time_us, rel=0.2)


def test_energies_repeat_within_their_spread(
    bench: GemmBench, session: Session, programs: Path
) -> None:
    config = CONFIGS[0]
    made = candidate(plan_of(config, Case(KILO, (0, 0, 0))), session.device, programs)

    def attempt() -> None:
        answer = bench.energies([made, made], False)
        assert not isinstance(answer, str), answer
        first, second = (each.joules for each in answer[0] if isinstance(each, Energy))
        assert first == pytest.approx(second, rel=0.05)

    repeated(attempt)
