"""Programmatic dependent launch as an option of calls, kernels and bound gemms."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from support.runtime_case import NAIVE, SPLIT, Case

from autotune.errors import UsageError
from autotune.families.config import Config
from autotune.problem import Problem
from autotune.runtime import Kernel
from autotune.settings import Policy

Call = Callable[[Case, bool], None]
"""Runs a product of a problem of 4x8x16, as a dependent launch or not."""


def matmul(case: Case, dependent: bool) -> None:
    case.matmul(*case.operands(4, 8, 16), policy=Policy(dependent=dependent))


def kernel(case: Case, dependent: bool) -> None:
    loaded(case)(*case.operands(4, 8, 16), policy=Policy(dependent=dependent))


def bound(case: Case, dependent: bool) -> None:
    loaded(case).bind(*case.operands(4, 8, 16), policy=Policy(dependent=dependent))()


def addresses(case: Case, dependent: bool) -> None:
    a, b, c = (operand.host.ctypes.data for operand in case.operands(4, 8, 16))
    loaded(case).launch(a, b, c, dependent=dependent)


CALLS = matmul, kernel, bound, addresses


def loaded(case: Case) -> Kernel:
    return Kernel(case.runtime, Problem(4, 8, 16), 0)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("config", [NAIVE, SPLIT], ids=str)
def test_launches_are_dependent_where_asked(config: Config, call: Call) -> None:
    case = Case(config=config)
    for dependent in (False, True, False):
        case.cuda.launches.clear()
        call(case, dependent)
        followers = [] if config is NAIVE else [True]
        assert [launch.dependent for launch in case.cuda.launches] == [dependent, *followers]


def test_older_device_launches_no_follower_dependently() -> None:
    case = Case(config=SPLIT)
    case.cuda.attributes["COMPUTE_CAPABILITY_MAJOR"] = 8
    matmul(case, False)
    assert [launch.dependent for launch in case.cuda.launches] == [False, False]


def test_launches_are_independent_by_default() -> None:
    case = Case()
    arrays = case.operands(4, 8, 16)
    case.matmul(*arrays)
    loaded(case).bind(*arrays)()
    loaded(case).launch(*(array.host.ctypes.data for array in arrays))
    assert not any(launch.dependent for launch in case.cuda.launches)


def test_one_kernel_serves_both_launches_on_a_stream() -> None:
    case = Case()
    a, b, c = (operand.host.ctypes.data for operand in case.operands(4, 8, 16))
    gemm = loaded(case)
    for dependent in (True, False, True, False):
        gemm.launch(a, b, c, 7, dependent=dependent)
    assert [launch.dependent for launch in case.cuda.launches] == [True, False, True, False]


def test_repeated_dependent_call_prepares_nothing() -> None:
    case = Case()
    a, b, out = case.operands(4, 8, 16)
    case.matmul(a, b, out, policy=Policy(dependent=True))
    calls = case.calls(lambda: case.matmul(a, b, out, policy=Policy(dependent=True)))
    assert calls.count("cuLaunchKernelEx") == 1
    assert "cuLibraryLoadData" not in calls
    assert np.allclose(out.host, a.host @ b.host, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("call", CALLS)
def test_older_device_refuses_dependent_launch(call: Call) -> None:
    case = Case()
    case.cuda.attributes["COMPUTE_CAPABILITY_MAJOR"] = 8
    message = r"needs compute capability 9\.0; NVIDIA H100 80GB HBM3 has 8\.0"
    with pytest.raises(UsageError, match=message):
        call(case, True)
    call(case, False)
    assert len(case.cuda.launches) == 1
