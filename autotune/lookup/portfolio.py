"""The portfolio: configurations of which one or another serves any shape well.

`data/portfolio.json` lists them for each architecture and precision, in the order in which they
cover drawn and recorded problems best (`scripts/portfolio.py`). A look-up predicts these few and
the entries of the nearest records, rather than thousands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from functools import cache
from importlib import resources

import msgspec

from autotune.device import Device
from autotune.families import registry
from autotune.families.config import Config
from autotune.model import cost
from autotune.model.legality import Legality, for_compute
from autotune.model.space import Adaptation, sample
from autotune.problem import Problem

FEWEST = 24
"""Members that suit a problem; with fewer, those come too that are only thought to be slow."""
FEWEST_OF_FAMILY = 8
"""Members of a family that suit a problem; with fewer, others of it are repaired until there are as
many.

On 99 drawn shapes for an H200 the choice of a look-up takes 1.5 % longer than the best of all
configurations by the cost model, 15 % at worst, and a choice takes 10 ms longer than without
repairs, which choose kernels that take 2.6 % longer, 35 % at worst.
"""


def candidates(problem: Problem, device: Device) -> list[Config]:
    """The members, adapted to the problem; if none can run, a survey of all configurations."""
    adaptation = Adaptation(problem, device)
    adapted = {config: adaptation(config) for config in members_of(problem, device)}
    suiting = dict.fromkeys(filter(None, adapted.values()))
    left = [config for config, fitting in adapted.items() if fitting is None]
    suiting |= _repaired(left, adaptation, suiting)
    suiting |= _narrow(problem, device, Counter(config.family for config in suiting))
    if len(suiting) < FEWEST:
        suiting |= dict.fromkeys(filter(Legality(problem, device), left))
    return [*suiting] or sample(problem, device)


def _repaired(
    configs: Iterable[Config], adaptation: Adaptation, suiting: Collection[Config]
) -> dict[Config, None]:
    """Repaired configurations of the families of which too few suit the problem."""
    counts = Counter(config.family for config in suiting)
    repaired: dict[Config, None] = {}
    for config in configs:
        if counts[config.family] < FEWEST_OF_FAMILY:
            fitting = adaptation.repaired(config)
            if fitting is not None and fitting not in repaired and fitting not in suiting:
                repaired[fitting] = None
                counts[config.family] += 1
    return repaired


def _narrow(problem: Problem, device: Device, counts: Counter[str]) -> dict[Config, None]:
    """The best configurations, by the cost model, of narrow families that suit the problem although
    too few of their members do. At 16x16x500000 in fp32 `gemv` takes 23 us, `simt` 40."""
    few = (
        name
        for name in registry.tuned(problem)
        if registry.find(name).narrow and counts[name] < FEWEST_OF_FAMILY
    )
    ranked = (cost.rank(sample(problem, device, name), problem, device) for name in few)
    return {config: None for best in ranked for _, config in best[:FEWEST_OF_FAMILY]}


def members_of(problem: Problem, device: Device) -> list[Config]:
    """The members for the precision on the architecture, those that cover most first."""
    arch = _listed(device)
    lists = _lists().get(arch, {})
    # Kernels of twins differ in the type alone, so that one list serves both.
    texts = lists.get(problem.compute) or lists.get(str(problem.precision.twin), [])
    return [for_compute(config, problem) for config in map(_parsed, texts)]


def _listed(device: Device) -> str:
    """The listed architecture whose programs are nearest: that of the device, else the closest of
    the same major version; without any, its own."""
    major = device.compute_capability[0]
    kin = [arch for arch in _lists() if arch[3:-1] == str(major)]
    minor = device.compute_capability[1]
    return min(kin, key=lambda arch: abs(int(arch[-1]) - minor), default=device.arch)


@cache
def _parsed(text: str) -> Config:
    return Config.parse(text)


@cache
def _lists() -> dict[str, dict[str, list[str]]]:
    """Texts of configurations by architecture and precision."""
    data = resources.files("autotune") / "data" / "portfolio.json"
    return msgspec.json.decode(data.read_bytes(), type=dict[str, dict[str, list[str]]])
