"""A fake `pynvml`: one GPU with a counter of energy, or none."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

BUS = "0000:3b:00.0"
"""The PCI address of the fake GPU."""


class NVMLError(Exception):
    """The error class of `pynvml`."""


class FakeNvml(ModuleType):
    """The functions that the package calls.

    Attributes:
        missing: names of functions that fail.
        partitioned: whether the GPU is in MIG mode.
        shown: what the counter shows, in millijoules; every look adds a watt for a second.
    """

    NVMLError = NVMLError
    NVML_CLOCK_SM = 1

    def __init__(self, *missing: str, partitioned: bool = False) -> None:
        super().__init__("pynvml")
        self.missing, self.partitioned, self.shown = set(missing), partitioned, 0

    def nvmlInit(self) -> None:
        self._called("nvmlInit")

    def nvmlDeviceGetHandleByPciBusId(self, bus: str) -> str:
        self._called("nvmlDeviceGetHandleByPciBusId")
        if bus != BUS:
            raise NVMLError("Not Found")
        return f"handle of {bus}"

    def nvmlDeviceGetMigMode(self, handle: str) -> list[int]:
        self._called("nvmlDeviceGetMigMode", handle)
        return [int(self.partitioned), 0]

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:
        self._called("nvmlDeviceGetTotalEnergyConsumption", handle)
        self.shown += 1000
        return self.shown

    def nvmlDeviceGetClockInfo(self, handle: str, clock: int) -> int:
        self._called("nvmlDeviceGetClockInfo", handle)
        assert clock == self.NVML_CLOCK_SM
        return 1755

    def _called(self, name: str, handle: str = f"handle of {BUS}") -> None:
        assert handle == f"handle of {BUS}"
        if name in self.missing:
            raise NVMLError("Not Supported")


def install(nvml: FakeNvml | None, monkeypatch: pytest.MonkeyPatch) -> FakeNvml | None:
    """Puts the fake in place of `pynvml`; None is a machine without the package."""
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    return nvml
