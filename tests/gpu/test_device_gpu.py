"""The probed GPU, compared with nvidia-smi and the catalogue."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from support.loaded import resident_blocks

from autotune.cuda import bindings, compiler
from autotune.cuda.program import Program
from autotune.device import Device, find
from autotune.errors import DeviceError, MissingError
from autotune.families import registry
from autotune.families.wgmma.tiles import CLUSTERS
from autotune.measure.devices import probe
from autotune.measure.session import Session, pycuda
from autotune.model import space
from autotune.problem import Problem

INDEX = 0


DEEP = Problem(256, 256, 16384, "bf16")
"""A problem whose kernels share K in clusters of every size."""


@pytest.fixture(scope="module")
def device() -> Device:
    try:
        return probe(INDEX)
    except MissingError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def smi() -> list[str]:
    """Name, memory in MiB, highest SM and memory clock in MHz, as nvidia-smi gives them."""
    try:
        # nvidia-smi ignores CUDA_VISIBLE_DEVICES and may number GPUs in another order.
        cuda = bindings.initialised()
    except MissingError as error:
        pytest.skip(str(error))
    address = cuda.cuDeviceGetPCIBusId(16, INDEX)[1].partition(b"\0")[0].decode()
    fields = "name,memory.total,clocks.max.sm,clocks.max.memory"
    command = ["nvidia-smi", "-i", address, f"--query-gpu={fields}"]
    try:
        answer = subprocess.run(
            [*command, "--format=csv,noheader,nounits"], capture_output=True, text=True, check=True
        )
    except FileNotFoundError:
        pytest.skip("no nvidia-smi")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"nvidia-smi does not answer: {error.stdout.strip()}")
    return [field.strip() for field in answer.stdout.split(",")]


def test_name_is_that_of_nvidia_smi(device: Device, smi: list[str]) -> None:
    assert device.name == smi[0]


def test_clocks_are_those_of_nvidia_smi(device: Device, smi: list[str]) -> None:
    assert (device.sm_clock, device.memory_clock) == (int(smi[2]) * 10**6, int(smi[3]) * 10**6)


def test_memory_is_nvidia_smis_less_the_drivers_share(device: Device, smi: list[str]) -> None:
    assert 0.97 < device.memory_bytes / (int(smi[1]) * 2**20) <= 1


def test_limits_are_those_of_the_catalogue(device: Device) -> None:
    try:
        catalogued = find(device.name)
    except DeviceError:
        pytest.skip(f"{device.name} is not in the catalogue")
    # Cards of one model differ in their resident clusters.
    varying = {"memory_bandwidth": 0.0, "memory_bytes": 0, "memory_clock": 0, "clusters": None}
    assert replace(device, **varying) == replace(catalogued, **varying)  # type: ignore[arg-type]


def test_bandwidth_is_that_of_the_catalogue(device: Device) -> None:
    try:
        catalogued = find(device.name)
    except DeviceError:
        pytest.skip(f"{device.name} is not in the catalogue")
    assert device.memory_bandwidth == pytest.approx(catalogued.memory_bandwidth, rel=0.01)


def test_survives_json(device: Device) -> None:
    assert Device.from_json(device.to_json()) == device


def test_absent_gpu_is_named(device: Device) -> None:
    del device
    with pytest.raises(DeviceError, match="no GPU 99; the driver shows"):
        probe(99)


def test_clusters_are_the_drivers_for_kernels_that_fill_an_sm(
    session: Session, programs: Path
) -> None:
    """A kernel declares its cluster, so that the query of `Device.clusters` is not repeated."""
    from cuda.bindings import driver

    checked = session.checked
    if session.device.compute_capability != (9, 0):
        pytest.skip("wgmma needs compute capability 9.0")
    counts: dict[int, int] = {}
    for config in space.feasible(DEEP, session.device, "wgmma").configs:
        launch = registry.plan(config, DEEP).main
        size = CLUSTERS[str(config.values["cluster"])].blocks
        if size == 1 or size in counts:
            continue
        program = compiler.compile(launch.template, session.device.arch, cache=programs)
        assert isinstance(program, Program)
        if resident_blocks(session, program, launch) > 1:
            continue
        module = checked(driver.cuModuleLoadData(program.cubin))
        function = checked(driver.cuModuleGetFunction(module, program.symbol.encode()))
        limit = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        checked(driver.cuFuncSetAttribute(function, limit, launch.shared))
        shape = driver.CUlaunchConfig()
        shape.gridDimX, shape.gridDimY, shape.gridDimZ = size, 1, 1
        shape.blockDimX, shape.blockDimY, shape.blockDimZ = launch.block
        shape.sharedMemBytes = launch.shared
        counts[size] = int(checked(driver.cuOccupancyMaxActiveClusters(function, shape)))
        checked(driver.cuModuleUnload(module))
    assert counts == {size: session.device.resident_clusters(size) for size in (2, 4, 8)}


@pytest.mark.usefixtures("device")
def test_asking_for_clusters_leaves_the_current_context() -> None:
    from cuda.bindings import driver

    before = int(driver.cuCtxGetCurrent()[1])
    assert probe(INDEX, enter=True).knows_clusters
    assert int(driver.cuCtxGetCurrent()[1]) == before


def test_pycuda_reads_the_same_attributes(device: Device) -> None:
    pytest.importorskip("pycuda.driver")
    handle = pycuda().Device(INDEX)
    values = {name: int(getattr(handle, name.lower())) for name in bindings.NAMES}
    described = bindings.describe(handle.name(), handle.total_memory(), values)
    assert replace(described, clusters=device.clusters) == device
