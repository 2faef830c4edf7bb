"""The counter of a GPU's energy, and its clock, from NVIDIA's management library (NVML)."""

from __future__ import annotations

from typing import Any, Protocol

from autotune.errors import MissingError, RunnerError


class EnergyCounter(Protocol):
    """The energy and the clock that a GPU states."""

    def millijoules(self) -> int:
        """The energy of the board since its driver was loaded; it moves every 20 to 100 ms.

        Raises:
            RunnerError: if it cannot be read.
        """

    def clock_mhz(self) -> float:
        """The clock of the SMs now; raises as `millijoules`."""


class NvmlCounter:
    """The counter that NVML has of a GPU."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle

    def millijoules(self) -> int:
        try:
            return int(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle))
        except self._nvml.NVMLError as error:
            raise RunnerError(f"NVML no longer states the energy of the GPU: {error}") from error

    def clock_mhz(self) -> float:
        try:
            return float(self._nvml.nvmlDeviceGetClockInfo(self._handle, self._nvml.NVML_CLOCK_SM))
        except self._nvml.NVMLError as error:
            raise RunnerError(f"NVML does not state the clock of the GPU: {error}") from error


def open_counter(bus: str) -> NvmlCounter:
    """The counter of the GPU at a PCI address, such as `0000:3b:00.0`.

    Raises:
        MissingError: if NVML or its Python package is missing, the GPU has no such counter, or is
            partitioned, so that the counter is of several programs.
    """
    try:
        import pynvml
    except ModuleNotFoundError as error:
        raise MissingError(
            f'energies need the Python package of NVML ({error}); run `pip install "tile-autotune'
            '[energy]"`'
        ) from error
    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByPciBusId(bus)
    except pynvml.NVMLError as error:
        raise MissingError(
            f"NVML does not show the GPU at {bus}: {error}; libnvidia-ml.so.1 comes with NVIDIA's "
            "driver, and a container needs the driver capability `utility`"
        ) from error
    if _partitioned(pynvml, handle):
        raise MissingError(
            f"the GPU at {bus} is partitioned (MIG), and its counter of energy is of all parts; "
            "minimise a time, or measure on a whole GPU"
        )
    try:
        pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    except pynvml.NVMLError as error:
        raise MissingError(
            f"NVML has no counter of energy for the GPU at {bus}: {error}; GPUs since compute "
            "capability 7.0 have one, virtual ones may not"
        ) from error
    return NvmlCounter(pynvml, handle)


def _partitioned(nvml: Any, handle: Any) -> bool:
    try:
        return bool(nvml.nvmlDeviceGetMigMode(handle)[0])
    except nvml.NVMLError:
        return False  # the GPU cannot be
