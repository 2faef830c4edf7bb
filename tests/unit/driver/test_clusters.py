"""Asking the driver for resident clusters, on a stand-in that counts what is open."""

from __future__ import annotations

from typing import Any

import pytest
from cuda import bindings
from cuda.bindings import driver

from autotune.device import Device, find
from autotune.driver.clusters import query_clusters, with_clusters
from autotune.errors import RunnerError

H100 = find("h100")
COUNTS = {2: 66, 4: 32, 8: 15}
REFUSED = driver.CUresult.CUDA_ERROR_NOT_SUPPORTED


class FakeOccupancy:
    """The driver's functions that a query calls, with the structures of the real bindings.

    Attributes:
        refused: a function that fails.
        open: contexts and modules that are retained, current or loaded.
        shared: bytes of shared memory that the kernel may take.
    """

    CUfunction_attribute = driver.CUfunction_attribute
    CUlaunchAttribute = driver.CUlaunchAttribute
    CUlaunchAttributeID = driver.CUlaunchAttributeID
    CUlaunchConfig = driver.CUlaunchConfig

    def __init__(self, refused: str = "") -> None:
        self.refused = refused
        self.open: list[str] = []
        self.shared = 0

    def __getattr__(self, name: str) -> Any:
        """A function of the driver that does nothing but succeed, or is refused."""
        return lambda *_: self._answer(name, 7)

    def _answer(self, name: str, value: int | None) -> tuple[Any, ...]:
        return (REFUSED, None) if name == self.refused else (driver.CUresult.CUDA_SUCCESS, value)

    def cuDevicePrimaryCtxRetain(self, handle: int) -> Any:
        assert handle == 7
        return self._opened("cuDevicePrimaryCtxRetain", "retained")

    def cuDevicePrimaryCtxRelease(self, _: int) -> Any:
        self.open.remove("retained")
        return (driver.CUresult.CUDA_SUCCESS,)

    def cuCtxPushCurrent(self, _: int) -> Any:
        return self._opened("cuCtxPushCurrent", "current")

    def cuCtxPopCurrent(self) -> Any:
        self.open.remove("current")
        return driver.CUresult.CUDA_SUCCESS, 7

    def cuModuleLoadData(self, image: bytes) -> Any:
        assert "current" in self.open
        assert image.endswith(b"\0"), "the driver reads up to a zero"
        return self._opened("cuModuleLoadData", "module")

    def cuModuleUnload(self, _: int) -> Any:
        self.open.remove("module")
        return (driver.CUresult.CUDA_SUCCESS,)

    def cuFuncSetAttribute(self, _: int, attribute: Any, value: int) -> Any:
        limits = driver.CUfunction_attribute
        assert attribute == limits.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        self.shared = value
        return self._answer("cuFuncSetAttribute", None)

    def cuOccupancyMaxActiveClusters(self, _: int, configuration: Any) -> Any:
        (attribute,) = configuration.attrs
        cluster = attribute.value.clusterDim
        assert attribute.id == driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        assert (configuration.numAttrs, cluster.y, cluster.z) == (1, 1, 1)
        assert (configuration.gridDimX, configuration.gridDimY) == (cluster.x, 1)
        assert configuration.sharedMemBytes == self.shared
        return self._answer("cuOccupancyMaxActiveClusters", COUNTS[cluster.x])

    def _opened(self, name: str, opened: str) -> Any:
        if name != self.refused:
            self.open.append(opened)
        return self._answer(name, 7)


def asked(fake: FakeOccupancy, device: Device, monkeypatch: pytest.MonkeyPatch) -> Device:
    """The device after its driver, the fake, was asked."""
    monkeypatch.setattr(bindings, "driver", fake)
    return with_clusters(device, 0)


def test_clusters_are_those_of_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeOccupancy()

    assert asked(fake, H100, monkeypatch).clusters == (66, 32, 15)
    assert fake.shared == H100.shared_per_block_optin
    assert fake.open == []


@pytest.mark.parametrize(
    "refused",
    [
        *("cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuCtxPushCurrent"),
        *("cuModuleLoadData", "cuModuleGetFunction", "cuFuncSetAttribute"),
        "cuOccupancyMaxActiveClusters",
    ],
)
def test_refusal_leaves_the_device_and_nothing_open(
    refused: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeOccupancy(refused)

    assert asked(fake, H100, monkeypatch) is H100
    assert fake.open == []


def test_older_device_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    a100 = find("a100")

    assert asked(FakeOccupancy("cuInit"), a100, monkeypatch) is a100


def test_machine_without_a_driver_leaves_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: int) -> None:
        raise RuntimeError("Failed to dlopen libcuda.so.1")

    fake = FakeOccupancy()
    monkeypatch.setattr(fake, "cuInit", missing, raising=False)

    assert asked(fake, H100, monkeypatch) is H100


def test_refused_query_names_the_status() -> None:
    fake = FakeOccupancy("cuOccupancyMaxActiveClusters")
    fake.open.append("current")

    with pytest.raises(RunnerError, match=r"clusters: .*CUDA_ERROR_NOT_SUPPORTED"):
        query_clusters(fake, H100)
