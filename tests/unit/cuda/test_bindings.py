"""Asking the driver for resident clusters, on a stand-in that counts what is open."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cuda.bindings import driver
from support.fake_driver import H100 as ATTRIBUTES
from support.fake_driver import MEMORY, FakeCuda

from autotune.cuda import bindings
from autotune.cuda.bindings import NAMES, describe, query_clusters, with_clusters
from autotune.device import Device, catalogue, find
from autotune.errors import RunnerError

H100 = find("h100")
COUNTS = {2: 66, 4: 32, 8: 15}
STATED = (66, 32, 15)
REFUSED = driver.CUresult.CUDA_ERROR_NOT_SUPPORTED


class FakeOccupancy:
    """The driver's functions that a query calls, with the structures of the real bindings.

    Attributes:
        refused: a function that fails.
        active: whether the GPU's primary context exists.
        open: contexts and modules that are retained, current or loaded.
        shared: bytes of shared memory that the kernel may take.
        version: of the driver.
        uuid: of the card.
        queries: how often it was asked for clusters.
        compiled: whether it had to compile the kernel.
    """

    CUfunction_attribute = driver.CUfunction_attribute
    CUlaunchAttribute = driver.CUlaunchAttribute
    CUlaunchAttributeID = driver.CUlaunchAttributeID
    CUlaunchConfig = driver.CUlaunchConfig
    CUstreamCaptureMode = driver.CUstreamCaptureMode

    def __init__(self, refused: str = "", *, active: bool = True) -> None:
        self.refused, self.active = refused, active
        self.open: list[str] = []
        self.shared = 0
        self.version = 13_000
        self.uuid = b"a card's UUID..."
        self.queries = 0
        self.compiled = False

    def __getattr__(self, name: str) -> Any:
        """A function of the driver that does nothing but succeed, or is refused."""
        if name == "cuDeviceGetUuid_v2":  # as the bindings of CUDA 13, which do not have it
            raise AttributeError(name)
        return lambda *_: self._answer(name, 7)

    def _answer(self, name: str, value: int | None) -> tuple[Any, ...]:
        return (REFUSED, None) if name == self.refused else (driver.CUresult.CUDA_SUCCESS, value)

    def cuDriverGetVersion(self) -> Any:
        return self._answer("cuDriverGetVersion", self.version)

    def cuDeviceGetUuid(self, _: int) -> Any:
        return driver.CUresult.CUDA_SUCCESS, SimpleNamespace(bytes=self.uuid)

    def cuCtxGetDevice(self) -> Any:
        return driver.CUresult.CUDA_ERROR_INVALID_CONTEXT, None

    def cuDevicePrimaryCtxGetState(self, _: int) -> Any:
        return driver.CUresult.CUDA_SUCCESS, 0, int(self.active)

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

    def cuThreadExchangeStreamCaptureMode(self, mode: Any) -> Any:
        if mode == driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED:
            self.open.append("relaxed")
        else:
            self.open.remove("relaxed")
        return driver.CUresult.CUDA_SUCCESS, "as before"

    def cuModuleLoadData(self, image: bytes) -> Any:
        assert "current" in self.open
        assert "relaxed" in self.open, "a capture would not allow it"
        assert image.startswith(b"\x7fELF") or image.endswith(b"\0"), "PTX ends with a zero"
        self.compiled = not image.startswith(b"\x7fELF")
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
        self.queries += 1
        return self._answer("cuOccupancyMaxActiveClusters", COUNTS[cluster.x])

    def _opened(self, name: str, opened: str) -> Any:
        if name != self.refused:
            self.open.append(opened)
        return self._answer(name, 7)


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of kept answers."""
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(bindings, "FOLDER", "clusters")
    return tmp_path / "cache" / "clusters"


def counts(fake: FakeOccupancy, device: Device = H100, *, enter: bool = False) -> object:
    """The clusters of a device after its driver, the fake, could be asked."""
    return with_clusters(fake, device, 0, enter=enter).clusters


def test_clusters_are_those_of_the_driver() -> None:
    fake = FakeOccupancy()
    card = with_clusters(fake, H100, 0)

    assert (card.clusters, card.knows_clusters) == (STATED, True)
    assert fake.shared == H100.shared_per_block_optin
    assert fake.open == []


@pytest.mark.parametrize("card", [card for card in catalogue().values() if card.has_clusters])
def test_driver_compiles_nothing_for_a_listed_card(card: Device) -> None:
    fake = FakeOccupancy()
    fake.open.append("current")
    query_clusters(fake, card)

    assert not fake.compiled


def test_driver_compiles_the_kernel_for_a_new_architecture() -> None:
    fake = FakeOccupancy()
    fake.open.append("current")
    query_clusters(fake, replace(H100, compute_capability=(13, 1)))

    assert fake.compiled


def test_driver_is_asked_once_a_card() -> None:
    fake = FakeOccupancy()

    assert [counts(fake), counts(fake)] == [STATED, STATED]
    assert fake.queries == 3


def test_kept_answer_needs_no_context() -> None:
    counts(FakeOccupancy())

    assert counts(FakeOccupancy(active=False)) == STATED


@pytest.mark.parametrize(("attribute", "other"), [("uuid", b"another's UUID.."), ("version", 1)])
def test_other_card_or_driver_is_asked_anew(attribute: str, other: object) -> None:
    counts(FakeOccupancy())
    fake = FakeOccupancy()
    setattr(fake, attribute, other)

    assert counts(fake) == STATED
    assert fake.queries == 3


@pytest.mark.parametrize("text", ["", "[66, 33]", "[66, 99, 15]", "{}", "[66, 32, 15"])
def test_kept_answer_of_no_card_is_asked_anew(text: str, kept: Path) -> None:
    counts(FakeOccupancy())
    (answer,) = kept.iterdir()
    answer.write_text(text)

    assert counts(FakeOccupancy()) == STATED


def test_process_without_a_context_creates_none() -> None:
    fake = FakeOccupancy(active=False)

    assert with_clusters(fake, H100, 0) is H100
    assert fake.queries == 0


def test_context_is_created_where_it_is_asked_for() -> None:
    assert counts(FakeOccupancy(active=False), enter=True) == STATED


def test_frozen_mode_asks_and_writes_nothing(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_MODE", "frozen")

    assert counts(FakeOccupancy()) == STATED
    assert not kept.exists()


def test_cache_that_cannot_be_written_does_no_harm(kept: Path) -> None:
    kept.parent.mkdir(parents=True)
    kept.write_text("a file in the way")

    assert counts(FakeOccupancy()) == STATED


@pytest.mark.parametrize(
    "refused",
    [
        *("cuDeviceGet", "cuDriverGetVersion", "cuDevicePrimaryCtxRetain", "cuCtxPushCurrent"),
        *("cuModuleLoadData", "cuModuleGetFunction", "cuFuncSetAttribute"),
        "cuOccupancyMaxActiveClusters",
    ],
)
def test_refusal_leaves_the_device_and_nothing_open(refused: str) -> None:
    fake = FakeOccupancy(refused)

    assert with_clusters(fake, H100, 0) is H100
    assert fake.open == []


def test_older_device_is_not_asked() -> None:
    a100 = find("a100")

    assert with_clusters(FakeOccupancy("cuDeviceGet"), a100, 0) is a100


def test_probed_gpu_has_the_clusters_of_its_driver() -> None:
    def call(function: Any, *arguments: Any) -> Any:
        return function(*arguments)[1]

    fake = FakeCuda()
    assert bindings.described(fake, call, 1).clusters is None
    fake.make_context(1)
    assert bindings.described(fake, call, 1).clusters == (66, 31, 15)


def test_refused_query_names_the_status() -> None:
    fake = FakeOccupancy("cuOccupancyMaxActiveClusters")
    fake.open.append("current")

    with pytest.raises(RunnerError, match=r"clusters: .*CUDA_ERROR_NOT_SUPPORTED"):
        query_clusters(fake, H100)


def test_driver_has_every_attribute() -> None:
    driver = pytest.importorskip("cuda.bindings.driver")
    assert [
        n for n in NAMES if not hasattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{n}")
    ] == []


def test_bandwidth_counts_both_edges_of_the_memory_clock() -> None:
    # NVIDIA's H100 SXM data sheet: 3.35 TB/s.
    bandwidth = describe("H100", MEMORY, ATTRIBUTES).memory_bandwidth
    assert bandwidth == pytest.approx(3.35e12, rel=0.002)


def test_peak_counts_a_fused_multiply_add_twice() -> None:
    # NVIDIA's H100 SXM data sheet: 67 TFLOP/s in fp32.
    assert describe("H100", MEMORY, ATTRIBUTES).peak_fp32 == pytest.approx(67e12, rel=0.002)


def test_limits_are_those_of_the_driver() -> None:
    device = describe("H100", MEMORY, ATTRIBUTES)
    limits = device.shared_per_block_optin, device.reserved_shared_per_block, device.blocks_per_sm
    assert limits == (232448, 1024, 32)
