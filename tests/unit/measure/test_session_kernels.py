"""Launches of kernels with tensor maps and dependent launches, on a fake `cuda.bindings`."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver as bindings
from support.fake_driver import Status
from support.fake_encoder import FakeEncoder

from autotune.cuda import symbols
from autotune.cuda.program import Program
from autotune.cuda.symbols import Variable
from autotune.cuda.textures import Texture
from autotune.device import find
from autotune.families.config import Config
from autotune.families.plan import (
    Argument,
    ArgumentType,
    Launch,
    LaunchPlan,
    Resources,
    Template,
    TensorMap,
)
from autotune.families.shared.arguments import struct as struct_of
from autotune.measure.runner import Candidate
from autotune.measure.session import BindingsSession, CudaError, LoadedKernel

CUBIN, SYMBOL = b"\x7fELF", "kernel"
MODULE, FUNCTION, STREAM, TEXTURE = 11, 22, 33, 44
ADDRESSES = {b"_Z1w": 1 << 16, b"_ZN1f1sE": 1 << 17}
"""The address of each variable of the module."""
SIZES = {"tensor_map": 128, "pointer": 8, "i32": 4, "i64": 8, "f32": 4}
C_TYPES: dict[str, Any] = {
    **{"pointer": ctypes.c_uint64, "i32": ctypes.c_int32},
    **{"i64": ctypes.c_int64, "f32": ctypes.c_float},
}
MAP = TensorMap(
    base="a",
    offset=0,
    type="bf16",
    columns=64,
    rows=64,
    batch=1,
    pitch="lda",
    stride="stride_a",
    box=(64, 64),
    swizzle=128,
)


@dataclass
class Driver(FakeEncoder):
    """Fake `cuda.bindings.driver`; a launch reads its arguments as the driver does.

    Attributes:
        types: types of the kernel's arguments.
        refused: the call that fails.
        launched: the function, grid, block, shared memory and stream of each launch.
        dependent: for each launch, whether it is a dependent one.
        cooperative: for each launch, whether it is a cooperative one.
        addresses: addresses of the arguments of each launch.
        values: values of the arguments of each launch.
        limits: function attributes that were set.
        uploads: address and bytes of each copy to the device.
        textures: address of the memory of each texture object.
    """

    types: Sequence[ArgumentType] = ()
    refused: str = ""
    launched: list[tuple[Any, ...]] = field(default_factory=list)
    dependent: list[bool] = field(default_factory=list)
    cooperative: list[bool] = field(default_factory=list)
    addresses: list[list[int]] = field(default_factory=list)
    values: list[list[Any]] = field(default_factory=list)
    limits: list[tuple[Any, ...]] = field(default_factory=list)
    uploads: list[tuple[int, bytes]] = field(default_factory=list)
    textures: list[int] = field(default_factory=list)
    CUfunction_attribute = SimpleNamespace(
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES="most shared",
    )

    CUlaunchConfig = bindings.CUlaunchConfig
    CUlaunchAttribute = bindings.CUlaunchAttribute
    CUlaunchAttributeID = bindings.CUlaunchAttributeID
    CUresult = bindings.CUresult
    CUarray_format, CUresourcetype = bindings.CUarray_format, bindings.CUresourcetype
    CUaddress_mode, CUfilter_mode = bindings.CUaddress_mode, bindings.CUfilter_mode
    CUDA_RESOURCE_DESC = bindings.CUDA_RESOURCE_DESC
    CUDA_TEXTURE_DESC = bindings.CUDA_TEXTURE_DESC

    def __post_init__(self) -> None:
        super().__init__()

    def cuGetErrorString(self, _: object) -> tuple[int, bytes]:
        return 0, b"refused"

    def cuModuleLoadData(self, cubin: bytes) -> Any:
        return self._answer("load", MODULE if cubin == CUBIN else None)

    def cuModuleGetFunction(self, module: int, symbol: bytes) -> Any:
        assert (module, symbol) == (MODULE, SYMBOL.encode())
        return self._answer("find", FUNCTION)

    def cuFuncSetAttribute(self, function: int, attribute: str, value: int) -> Any:
        self.limits.append((function, attribute, value))
        return self._answer("limit")

    def cuModuleGetGlobal(self, module: int, symbol: bytes) -> Any:
        assert module == MODULE
        return self._answer("variable", ADDRESSES[symbol], 8)

    def cuMemcpyHtoDAsync(self, address: int, source: int, size: int, stream: int) -> Any:
        assert stream == STREAM
        self.uploads.append((address, ctypes.string_at(source, size)))
        return self._answer("upload")

    def cuTexObjectCreate(self, resource: Any, texture: Any, view: None) -> Any:
        assert (texture.flags, view) == (0, None)
        self.textures.append(int(resource.res.pitch2D.devPtr))
        return self._answer("texture", TEXTURE)

    def cuLaunchKernelEx(self, config: Any, function: int, parameters: int, extra: int) -> Any:
        assert extra == 0
        grid = config.gridDimX, config.gridDimY, config.gridDimZ
        block = config.blockDimX, config.blockDimY, config.blockDimZ
        self.launched.append((function, *grid, *block, config.sharedMemBytes, int(config.hStream)))
        self.dependent.append(_has(config, DEPENDENT))
        self.cooperative.append(_has(config, COOPERATIVE))
        pointers = (ctypes.c_uint64 * len(self.types)).from_address(parameters)
        self.addresses.append(list(pointers))
        self.values.append([_read(*pair) for pair in zip(self.types, pointers, strict=True)])
        return self._answer("launch")

    def _answer(self, call: str, *values: Any) -> Any:
        refused = call == self.refused
        status = Status.CUDA_ERROR_INVALID_VALUE if refused else Status.CUDA_SUCCESS
        return status, *([None] * len(values) if refused else values)


DEPENDENT = bindings.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
COOPERATIVE = bindings.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
VALUES_OF = {DEPENDENT: "programmaticStreamSerializationAllowed", COOPERATIVE: "cooperative"}


def _has(config: Any, kind: Any) -> bool:
    if not config.numAttrs:
        return False
    (attribute,) = config.attrs
    assert getattr(attribute.value, VALUES_OF[attribute.id]) == 1
    return bool(attribute.id == kind)


def _read(kind: ArgumentType, address: int) -> Any:
    if kind == "tensor_map":
        return ctypes.string_at(address, 128)
    return C_TYPES[kind].from_address(address).value


def session_on(driver: Driver) -> BindingsSession:
    session = object.__new__(BindingsSession)
    session._bindings, session.stream, session._stream = driver, STREAM, STREAM
    session.device = find("a100")
    return session


def load(driver: Driver, shared: int = 200_000, dependent: bool = False) -> LoadedKernel:
    return session_on(driver).load(PROGRAM, driver.types, shared, dependent=dependent)


FIRST, SECOND = bytes(range(128)), bytes(range(128, 256))
TYPES: tuple[ArgumentType, ...] = (
    *("tensor_map", "tensor_map", "pointer", "i32", "i64", "i32", "f32", "i32", "pointer"),
)
ARGUMENTS = (FIRST, SECOND, 2**48 + 16, -7, -(2**40), 2**31 - 1, 0.5, 3, 2**63)


def test_load_opts_in_to_dynamic_shared_memory() -> None:
    driver = Driver(types=TYPES)
    kernel = load(driver)
    assert driver.limits == [(FUNCTION, "most shared", 200_000)]
    assert (kernel.function, kernel.shared) == (FUNCTION, 200_000)


def test_launch_passes_each_argument_by_pointer() -> None:
    driver = Driver(types=TYPES)
    load(driver).step((132, 2, 3), (384, 1, 1), ARGUMENTS)()
    assert driver.launched == [(FUNCTION, 132, 2, 3, 384, 1, 1, 200_000, STREAM)]
    assert driver.values == [list(ARGUMENTS)]


@pytest.mark.parametrize("dependent", [False, True])
def test_kernel_makes_dependent_launches_if_it_is_to(dependent: bool) -> None:
    driver = Driver(types=TYPES)
    step = load(driver, dependent=dependent).step((132, 2, 3), (384, 1, 1), ARGUMENTS)
    step()
    step()
    assert driver.dependent == [dependent] * 2


def test_cooperative_launch_has_its_attribute_alone() -> None:
    driver = Driver(types=("pointer",))
    session = session_on(driver)
    session.device = find("h100")
    config = Config("user", ())
    launch = replace(PLAIN, cooperative=True)
    plan = LaunchPlan(config, (PLAIN, launch), dependent=False)
    session.bind(Candidate(config, plan, (PROGRAM, PROGRAM), Resources(256, 8, 0)))(VALUES)()
    assert (driver.dependent, driver.cooperative) == ([False, False], [False, True])


def test_arguments_are_aligned_for_their_types() -> None:
    driver = Driver(types=TYPES)
    kernel = load(driver)
    steps = [kernel.step((1, 1, 1), (128, 1, 1), ARGUMENTS) for _ in range(8)]
    for step in steps:
        step()
    alignments = [64 if kind == "tensor_map" else SIZES[kind] for kind in TYPES]
    for addresses in driver.addresses:
        aligned = [at % alignment == 0 for at, alignment in zip(addresses, alignments, strict=True)]
        assert aligned == [True] * len(TYPES)
        ends = [at + SIZES[kind] for at, kind in zip(addresses, TYPES, strict=True)]
        assert all(end <= after for end, after in zip(ends[:-1], addresses[1:], strict=True))


def test_step_repeats_the_launch_with_its_arguments() -> None:
    driver = Driver(types=TYPES)
    kernel = load(driver)
    first = kernel.step((1, 1, 1), (128, 1, 1), ARGUMENTS)
    second = kernel.step((2, 1, 1), (128, 1, 1), (SECOND, FIRST, *ARGUMENTS[2:]))
    assert driver.launched == []
    for step in (first, second, first):
        step()
    assert [launch[1] for launch in driver.launched] == [1, 2, 1]
    assert [values[0] for values in driver.values] == [FIRST, SECOND, FIRST]


@pytest.mark.parametrize("call", ["load", "find", "limit"])
def test_failed_load_raises(call: str) -> None:
    with pytest.raises(CudaError, match="CUDA_ERROR_INVALID_VALUE"):
        load(Driver(types=TYPES, refused=call))


def test_refused_launch_raises() -> None:
    driver = Driver(types=TYPES, refused="launch")
    step = load(driver).step((1, 1, 1), (128, 1, 1), ARGUMENTS)
    with pytest.raises(CudaError, match="CUDA_ERROR_INVALID_VALUE"):
        step()


def test_value_out_of_range_is_not_launched() -> None:
    driver = Driver(types=("tensor_map", "i32"))
    with pytest.raises(struct.error, match="format requires"):
        load(driver).step((1, 1, 1), (1, 1, 1), (FIRST, 2**31))


PLAIN = Launch(
    Template("pack.cu", "pack"), (5, 1, 1), (256, 1, 1), 0, (Argument("pointer", "workspace"),)
)
MAPPED = Launch(
    Template("wgmma.cu", "wgmma"),
    (2, 1, 1),
    (384, 1, 1),
    1000,
    (Argument("tensor_map", MAP), Argument("pointer", "workspace"), Argument("i32", 7)),
)
PROGRAM = Program(
    template=PLAIN.template,
    arch="sm_90a",
    cubin=CUBIN,
    symbol=SYMBOL,
    registers=168,
    shared=0,
    local=0,
    spills=0,
    barriers=6,
    compiler="NVRTC 13.0",
    key="",
    log="",
)
VALUES = {"a": 4096, "lda": 64, "stride_a": 0, "workspace": 512}


def test_run_makes_all_launches_of_a_plan() -> None:
    driver = Driver(types=("tensor_map", "pointer", "i32"))
    session = session_on(driver)
    config = Config("wgmma", ())
    plan = LaunchPlan(config, (MAPPED, MAPPED), product=1)
    candidate = Candidate(config, plan, (PROGRAM, PROGRAM), Resources(384, 168, 1000))
    run = session.bind(candidate)(VALUES)
    assert driver.launched == []
    run()
    assert driver.limits == [(FUNCTION, "most shared", 1000)] * 2
    assert driver.launched == [(FUNCTION, 2, 1, 1, 384, 1, 1, 1000, STREAM)] * 2
    _, (encoded, *rest) = driver.values
    assert encoded[8:16] == b"\xff\xff\xdf\xff\xff\xff\xff\xff"  # of a small tensor: bit 21 is off
    assert (rest, driver.calls[0].address) == ([512, 7], 4096)


def test_session_passes_a_struct_as_one_parameter() -> None:
    driver = Driver(types=("i32", "i32"))
    session = session_on(driver)
    schedule = struct_of("Schedule", group=Argument("i32", 5), start=Argument("i64", "lda"))
    launch = replace(PLAIN, arguments=(schedule, Argument("i32", 7)))
    config = Config("gemv", ())
    plan = LaunchPlan(config, (launch,))
    run = session.bind(Candidate(config, plan, (PROGRAM,), Resources(256, 40, 0)))(VALUES)
    run()
    assert driver.values == [[5, 7]]
    start, after = driver.addresses[0]
    assert (ctypes.c_int64.from_address(start + 8).value, after - start) == (64, 16)


@pytest.mark.parametrize(("device", "available"), [("a100", False), ("h100", True)])
def test_session_launches_followers_of_a_plan_dependently(device: str, available: bool) -> None:
    driver = Driver(types=("pointer",))
    session = session_on(driver)
    session.device = find(device)
    config = Config("simt", ())
    plan = LaunchPlan(config, (PLAIN, PLAIN, PLAIN), product=1)
    candidate = Candidate(config, plan, (PROGRAM,) * 3, Resources(256, 40, 0))
    session.bind(candidate)(VALUES)()
    assert driver.dependent == [False, available, available]


def test_structure_is_passed_as_its_bytes() -> None:
    driver, content = Driver(types=("pointer", "i32", "i32")), bytes(range(12))
    kernel = session_on(driver).load(PROGRAM, ("pointer", 12, "i32"), 0)
    step = kernel.step((1, 1, 1), (32, 1, 1), (4096, content, 7))  # owns the arguments
    step()
    _, at, _ = driver.addresses[-1]
    assert (ctypes.string_at(at, 12), driver.values[-1][2]) == (content, 7)


VARIABLES = [Variable("w", "_Z1w", 8), Variable("f::s", "_ZN1f1sE", 4)]


def test_constants_are_uploaded_when_a_program_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symbols, "constants", lambda _: VARIABLES)
    driver = Driver(types=("pointer",))
    session, (w, s) = session_on(driver), (np.arange(8, dtype=np.uint8), np.full(4, 7, np.uint8))
    config = Config("k", ())
    candidate = Candidate(config, LaunchPlan(config, (PLAIN,)), (PROGRAM,), Resources(256, 40, 0))
    session.bind(candidate, {"w": w, "f::s": s, "left out": w})
    assert driver.uploads == [
        (ADDRESSES[b"_Z1w"], w.tobytes()),
        (ADDRESSES[b"_ZN1f1sE"], s.tobytes()),
    ]


def test_constant_larger_than_its_variable_fails_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symbols, "constants", lambda _: VARIABLES)
    with pytest.raises(CudaError, match="constant w is given 9 bytes, the variable has 8"):
        session_on(Driver()).load(PROGRAM, (), 0, constants={"w": np.zeros(9, np.uint8)})


def test_texture_object_reads_the_uploaded_array() -> None:
    driver = Driver()
    session = session_on(driver)
    memory: Any = 1 << 20
    session.allocate = lambda size: memory + size  # type: ignore[method-assign]
    texture = Texture(np.arange(6, dtype=np.float32).reshape(2, 3))
    made = session.texture(texture)
    assert driver.uploads == [(memory + 1024, texture.content().tobytes())]
    assert (made.handle, driver.textures) == (TEXTURE, [memory + 1024])


def test_failed_status_is_the_error_of_the_session() -> None:
    driver = Driver(refused="limit")
    with pytest.raises(CudaError, match="CUDA_ERROR_INVALID_VALUE"):
        load(driver)
    assert session_on(driver).checked((Status.CUDA_SUCCESS, 5)) == 5
