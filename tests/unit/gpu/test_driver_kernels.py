"""Launches of kernels with tensor maps and dependent launches, on a fake `cuda.bindings`."""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from cuda.bindings import driver as bindings
from support.fake_driver import Status
from support.fake_encoder import FakeEncoder

from autotune.cuda.program import Program
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
from autotune.gpu.driver_kernels import DriverKernel
from autotune.gpu.pycuda_session import PyCudaSession
from autotune.runners.base import Candidate

CUBIN, SYMBOL = b"\x7fELF", "kernel"
MODULE, FUNCTION, STREAM = 11, 22, 33
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


class DriverError(Exception):
    """A failed driver call."""


@dataclass
class Driver(FakeEncoder):
    """Fake `cuda.bindings.driver`; a launch reads its arguments as the driver does.

    Attributes:
        types: types of the kernel's arguments.
        refused: the call that fails.
        launched: the function, grid, block, shared memory and stream of each launch.
        dependent: for each launch, whether it is a dependent one.
        addresses: addresses of the arguments of each launch.
        values: values of the arguments of each launch.
        limits: function attributes that were set.
    """

    types: Sequence[ArgumentType] = ()
    refused: str = ""
    launched: list[tuple[Any, ...]] = field(default_factory=list)
    dependent: list[bool] = field(default_factory=list)
    addresses: list[list[int]] = field(default_factory=list)
    values: list[list[Any]] = field(default_factory=list)
    limits: list[tuple[Any, ...]] = field(default_factory=list)
    CUfunction_attribute = SimpleNamespace(
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES="most shared",
        CU_FUNC_ATTRIBUTE_NUM_REGS="registers",
        CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES="shared",
        CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES="local",
    )

    CUlaunchConfig = bindings.CUlaunchConfig
    CUlaunchAttribute = bindings.CUlaunchAttribute
    CUlaunchAttributeID = bindings.CUlaunchAttributeID

    def __post_init__(self) -> None:
        super().__init__()

    def cuModuleLoadData(self, cubin: bytes) -> Any:
        return self._answer("load", MODULE if cubin == CUBIN else None)

    def cuModuleGetFunction(self, module: int, symbol: bytes) -> Any:
        assert (module, symbol) == (MODULE, SYMBOL.encode())
        return self._answer("find", FUNCTION)

    def cuFuncSetAttribute(self, function: int, attribute: str, value: int) -> Any:
        self.limits.append((function, attribute, value))
        return self._answer("limit")

    def cuFuncGetAttribute(self, attribute: str, function: int) -> Any:
        assert function == FUNCTION
        return self._answer("ask", {"registers": 168, "shared": 16, "local": 8}[attribute])

    def cuLaunchKernelEx(self, config: Any, function: int, parameters: int, extra: int) -> Any:
        assert extra == 0
        grid = config.gridDimX, config.gridDimY, config.gridDimZ
        block = config.blockDimX, config.blockDimY, config.blockDimZ
        self.launched.append((function, *grid, *block, config.sharedMemBytes, int(config.hStream)))
        self.dependent.append(_is_dependent(config))
        pointers = (ctypes.c_uint64 * len(self.types)).from_address(parameters)
        self.addresses.append(list(pointers))
        self.values.append([_read(*pair) for pair in zip(self.types, pointers, strict=True)])
        return self._answer("launch")

    def _answer(self, call: str, *values: Any) -> Any:
        refused = call == self.refused
        status = Status.CUDA_ERROR_INVALID_VALUE if refused else Status.CUDA_SUCCESS
        return status, *([None] * len(values) if refused else values)


def _is_dependent(config: Any) -> bool:
    if not config.numAttrs:
        return False
    (attribute,) = config.attrs
    kinds = bindings.CUlaunchAttributeID
    assert attribute.id == kinds.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    return bool(attribute.value.programmaticStreamSerializationAllowed)


def _read(kind: ArgumentType, address: int) -> Any:
    if kind == "tensor_map":
        return ctypes.string_at(address, 128)
    return C_TYPES[kind].from_address(address).value


def raised(answer: tuple[Any, ...]) -> Any:
    status, *values = answer
    if status:
        raise DriverError(status.name)
    return values[0] if values else None


def load(driver: Driver, shared: int = 200_000, dependent: bool = False) -> DriverKernel:
    return DriverKernel.load(
        *(driver, raised, CUBIN, SYMBOL),
        types=driver.types,
        stream=STREAM,
        shared=shared,
        dependent=dependent,
    )


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
    with pytest.raises(DriverError, match="CUDA_ERROR_INVALID_VALUE"):
        load(Driver(types=TYPES, refused=call))


def test_refused_launch_raises() -> None:
    driver = Driver(types=TYPES, refused="launch")
    step = load(driver).step((1, 1, 1), (128, 1, 1), ARGUMENTS)
    with pytest.raises(DriverError, match="CUDA_ERROR_INVALID_VALUE"):
        step()


def test_attribute_is_read_or_raises() -> None:
    driver = Driver(types=TYPES)
    kernel = load(driver)
    assert (kernel.attribute("NUM_REGS"), kernel.attribute("LOCAL_SIZE_BYTES")) == (168, 8)
    driver.refused = "ask"
    with pytest.raises(DriverError):
        kernel.attribute("NUM_REGS")


def test_value_out_of_range_is_not_launched() -> None:
    driver = Driver(types=("tensor_map", "i32"))
    with pytest.raises(struct.error, match="format requires"):
        load(driver).step((1, 1, 1), (1, 1, 1), (FIRST, 2**31))


@dataclass
class Function:
    """A PyCUDA function."""

    log: list[str]

    def set_attribute(self, attribute: str, value: int) -> None:
        self.log.append(f"{attribute} {value}")

    def prepare(self, formats: str) -> None:
        self.log.append(formats)

    def prepared_async_call(self, *arguments: Any, shared_size: int) -> None:
        self.log.append(f"launch {arguments[3:]} {shared_size}")

    def get_attribute(self, attribute: str) -> int:
        return {"NUM_REGS": 40, "SHARED_SIZE_BYTES": 4, "LOCAL_SIZE_BYTES": 0}[attribute]


@pytest.fixture
def driver() -> Driver:
    return Driver(types=("tensor_map", "pointer", "i32"))


@pytest.fixture
def opened(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> tuple[PyCudaSession, list[str]]:
    """A session whose PyCUDA logs the use of its functions."""
    log: list[str] = []
    names = ("MAX_DYNAMIC_SHARED_SIZE_BYTES", "NUM_REGS", "SHARED_SIZE_BYTES", "LOCAL_SIZE_BYTES")
    cuda: Any = ModuleType("pycuda.driver")
    cuda.function_attribute = SimpleNamespace(**{name: name for name in names})
    cuda.module_from_buffer = lambda _: SimpleNamespace(get_function=lambda _: Function(log))
    cuda.LogicError = DriverError
    package: Any = ModuleType("pycuda")
    package.driver = cuda
    monkeypatch.setitem(sys.modules, "pycuda", package)
    monkeypatch.setitem(sys.modules, "pycuda.driver", cuda)
    session = object.__new__(PyCudaSession)
    session._cuda, session._bindings = cuda, driver
    session._stream, session.stream = None, STREAM
    session.device = find("a100")
    return session, log


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


def test_session_uses_pycuda_only_without_tensor_maps(
    opened: tuple[PyCudaSession, list[str]], driver: Driver
) -> None:
    session, log = opened
    config = Config("wgmma", ())
    plan = LaunchPlan(config, (PLAIN, MAPPED), product=1)
    candidate = Candidate(config, plan, (PROGRAM, PROGRAM), Resources(384, 168, 1000))
    run = session.bind(candidate)(VALUES)
    assert driver.launched == []
    run()
    assert log == ["MAX_DYNAMIC_SHARED_SIZE_BYTES 0", "P", "launch (512,) 0"]
    assert driver.launched == [(FUNCTION, 2, 1, 1, 384, 1, 1, 1000, STREAM)]
    ((encoded, *rest),) = driver.values
    assert encoded[8:16] == b"\xff\xff\xdf\xff\xff\xff\xff\xff"  # of a small tensor: bit 21 is off
    assert (rest, driver.calls[0].address) == ([512, 7], 4096)


def test_session_passes_a_struct_as_one_parameter(
    opened: tuple[PyCudaSession, list[str]], driver: Driver
) -> None:
    session, log = opened
    schedule = struct_of("Schedule", group=Argument("i32", 5), start=Argument("i64", "lda"))
    launch = replace(PLAIN, arguments=(schedule, Argument("i32", 7)))
    config, driver.types = Config("gemv", ()), ("i32", "i32")
    plan = LaunchPlan(config, (launch,))
    run = session.bind(Candidate(config, plan, (PROGRAM,), Resources(256, 40, 0)))(VALUES)
    run()
    assert (log, driver.values) == ([], [[5, 7]])
    start, after = driver.addresses[0]
    assert (ctypes.c_int64.from_address(start + 8).value, after - start) == (64, 16)


@pytest.mark.parametrize(("device", "available"), [("a100", False), ("h100", True)])
def test_session_launches_followers_of_a_plan_dependently(
    opened: tuple[PyCudaSession, list[str]], driver: Driver, device: str, available: bool
) -> None:
    session, log = opened
    session.device, driver.types = find(device), ("pointer",)
    config = Config("simt", ())
    plan = LaunchPlan(config, (PLAIN, PLAIN, PLAIN), product=1)
    candidate = Candidate(config, plan, (PROGRAM,) * 3, Resources(256, 40, 0))
    session.bind(candidate)(VALUES)()
    by_pycuda = sum(line.startswith("launch") for line in log)
    assert (by_pycuda, driver.dependent) == ((1, [True, True]) if available else (3, []))


def test_resources_come_from_the_driver(
    opened: tuple[PyCudaSession, list[str]],
) -> None:
    session, _ = opened
    assert session.resources(PROGRAM, PLAIN) == Resources(256, 40, 4, local=0, barriers=6)
    assert session.resources(PROGRAM, MAPPED) == Resources(384, 168, 1016, local=8, barriers=6)


def test_cuda_bindings_error_is_raised_as_pycuda_error(
    opened: tuple[PyCudaSession, list[str]], driver: Driver
) -> None:
    session, _ = opened
    driver.refused = "ask"
    with pytest.raises(DriverError, match=r"CUDA_ERROR_INVALID_VALUE \(1\)"):
        session.checked(driver.cuFuncGetAttribute("local", FUNCTION))
    assert session.checked((Status.CUDA_SUCCESS, 5)) == 5
