"""The energy of one run of a kernel, and the least of several."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from autotune.runners.estimates import TIE

Joules = Annotated[float, Meta(gt=0, lt=1e9)]
Watts = Annotated[float, Meta(gt=0, lt=1e6)]
Megahertz = Annotated[float, Meta(ge=0, lt=1e6)]


@dataclass(frozen=True)
class Energy:
    """The energy that the whole board takes for one run, of runs back to back.

    Attributes:
        joules: joules a run, the mean of two windows.
        spread_j: half the difference of the two.
        power_w: mean power in watts.
        clock_mhz: mean clock of the SMs in MHz.
    """

    joules: Joules
    spread_j: Annotated[float, Meta(ge=0, lt=1e9)]
    power_w: Watts
    clock_mhz: Megahertz

    def tied(self, rival: Energy) -> bool:
        """Whether two energies differ by at most 0.5 %."""
        return abs(self.joules - rival.joules) <= TIE * min(self.joules, rival.joules)
