"""The counter of energy: found by the PCI address, or a line that says what is missing."""

from __future__ import annotations

import pytest
from support import fake_gpu, fake_nvml, fake_pycuda
from support.fake_gpu import FakeGpu
from support.fake_nvml import BUS, FakeNvml

from autotune.errors import MissingError, RunnerError
from autotune.measure.energy import open_counter
from autotune.measure.session import BindingsSession, PyCudaSession, Session


def test_counter_states_energy_and_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_nvml.install(FakeNvml(), monkeypatch)
    counter = open_counter(BUS)
    first = counter.millijoules()
    assert (counter.millijoules() - first, counter.clock_mhz()) == (1000, 1755.0)


@pytest.mark.parametrize(
    ("nvml", "message"),
    [
        (None, r'Python package of NVML .* run `pip install "tile-autotune\[energy\]"`'),
        (FakeNvml("nvmlInit"), rf"NVML does not show the GPU at {BUS}: Not Supported; libnvidia"),
        (FakeNvml("nvmlDeviceGetHandleByPciBusId"), "the driver capability `utility`"),
        (FakeNvml(partitioned=True), r"is partitioned \(MIG\), and its counter"),
        (
            FakeNvml("nvmlDeviceGetTotalEnergyConsumption"),
            "no counter of energy for the GPU at .*: Not Supported; GPUs since compute capability",
        ),
    ],
    ids=["no package", "no library", "hidden", "MIG", "no counter"],
)
def test_missing_counter_says_what_is_missing(
    nvml: FakeNvml | None, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_nvml.install(nvml, monkeypatch)
    with pytest.raises(MissingError, match=message):
        open_counter(BUS)


def test_gpu_without_partitions_has_a_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_nvml.install(FakeNvml("nvmlDeviceGetMigMode"), monkeypatch)
    assert open_counter(BUS).millijoules() > 0


@pytest.mark.parametrize("name", ["millijoules", "clock_mhz"])
def test_counter_that_fails_later_is_no_candidates_fault(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml = FakeNvml()
    fake_nvml.install(nvml, monkeypatch)
    counter = open_counter(BUS)
    nvml.missing |= {"nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetClockInfo"}
    with pytest.raises(RunnerError, match=r"NVML .*: Not Supported"):
        getattr(counter, name)()


@pytest.mark.parametrize("kind", [PyCudaSession, BindingsSession])
def test_session_finds_its_gpu_by_the_pci_address(
    kind: type[Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_pycuda.install(fake_gpu.install(FakeGpu(), monkeypatch), monkeypatch)
    fake_nvml.install(FakeNvml(), monkeypatch)
    with kind(0) as session:
        assert open_counter(session.pci_address()).clock_mhz() == 1755.0
