"""Configurations of `wgmma` with small problems, for the tests on the CPU."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotune.families.config import Config
from autotune.problem import Problem
from support.host_cases import Case, case_of
from support.host_cuda import Program, build

Values = Mapping[str, int | str]
Keywords = tuple[Mapping[str, Any], ...]

PLAIN: Values = {
    **{"swap": 0, "bm": 128, "bn": 64, "consumers": 2, "schedule": "cooperative"},
    **{"min_blocks": 1, "source": "shared", "low": "none", "pack": "needed", "bk": 64},
    **{"promote": 0, "cluster": "1x1", "split_k": 1, "reduction": "none", "workers": 0},
    **{"store": "direct", "stages": 3, "group": 1},
}
REGISTERS: Values = {"source": "registers", "bk": 32}
SPLIT: Values = {**REGISTERS, "low": "kernel", "promote": 2}
SCALED: Keywords = ({}, {"alpha": 1.5, "beta": 0.5}, {"beta": -2.0, "padding": (8, 16, 24)})


@dataclass(frozen=True)
class Sample:
    """A problem, the values of its configuration that differ from `PLAIN`, and the keywords of
    `case_of` for each case."""

    problem: str
    config: Values = field(default_factory=dict)
    keywords: Keywords = ({},)

    def __str__(self) -> str:
        changes = ",".join(f"{name}={value}" for name, value in self.config.items())
        return f"{self.problem} {changes or 'plain'}"

    @property
    def cases(self) -> list[Case]:
        """A case for each set of keywords."""
        return [self._case(keywords) for keywords in self.keywords]

    @property
    def without_product(self) -> list[Case]:
        """The first case with an alpha of 0; none if the problem takes no alpha."""
        case = self._case({**self.keywords[0], "alpha": 0.0, "beta": 0.5})
        return [case] if case.problem.has_factors else []

    def _case(self, keywords: Mapping[str, Any]) -> Case:
        config = Config("wgmma", tuple({**PLAIN, **self.config}.items()))
        return case_of(config, Problem.parse(self.problem), **keywords)


def built(samples: Iterable[Sample], host_objects: Path) -> Program:
    """The kernels of all cases of the samples, compiled for the CPU."""
    launches = (
        launch for sample in samples for case in sample.cases for launch in case.plan.launches
    )
    return build((launch.template for launch in launches), host_objects)
