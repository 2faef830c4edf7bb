"""`autotune.policy`: which calls follow a policy, and how a bound call keeps it."""

from __future__ import annotations

import asyncio
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextvars import copy_context
from functools import lru_cache
from typing import Any

import pytest
from support.fake_dlpack import Exchange
from support.fake_frameworks import FakeTorch, Tensor
from support.native_library import built_library
from support.runtime_case import NAIVE, SPLIT, TYPED, Case

import autotune
from autotune import runtime, settings
from autotune.errors import FrozenError, UsageError
from autotune.problem import Problem
from autotune.runtime import Kernel
from autotune.settings import DEFAULT_POLICY, Mode, Policy, PolicyChanges

SHAPE = 4, 8, 16


@pytest.fixture
def case(monkeypatch: pytest.MonkeyPatch) -> Case:
    """A runtime whose kernel for cold operands is another one."""
    case = Case(config=TYPED, config_cold=SPLIT)
    case.cuda.make_context()
    monkeypatch.setattr(runtime, "current", lru_cache(lambda: case.matmul))
    return case


def launches(case: Case, act: Callable[[], object]) -> list[bool]:
    """Whether each launch of an action is dependent."""
    before = len(case.cuda.launches)
    act()
    return [launch.dependent for launch in case.cuda.launches[before:]]


# The block.


def test_block_changes_the_policy_around_it() -> None:
    with autotune.policy(cold=True) as outer:
        assert settings.policy() is outer == Policy(cold=True)
        with autotune.policy(dependent=True):
            assert settings.policy() == Policy(cold=True, dependent=True)
            with autotune.policy(Policy(vendor=False), verify=True):
                assert settings.policy() == Policy(vendor=False, verify=True)
        assert settings.policy() is outer
    assert settings.policy() is DEFAULT_POLICY


def test_block_ends_with_an_error() -> None:
    with pytest.raises(ZeroDivisionError), autotune.policy(frozen=True):
        raise ZeroDivisionError
    assert (settings.policy(), settings.mode()) == (Policy(), Mode())


def test_policy_holds_for_its_thread_and_task() -> None:
    seen: list[Policy] = []

    async def look() -> None:
        with autotune.policy(cold=True):
            await asyncio.sleep(0)
            seen.append(settings.policy())

    async def both() -> None:
        task = asyncio.create_task(look())
        await asyncio.sleep(0)
        seen.append(settings.policy())
        await task

    with autotune.policy(dependent=True):
        thread = threading.Thread(target=lambda: seen.append(settings.policy()))
        # Another test's browser may have left its loop running in this thread.
        task = threading.Thread(target=copy_context().run, args=(asyncio.run, both()))
        for each in (thread, task):
            each.start()
            each.join()
    assert seen == [Policy(), Policy(dependent=True), Policy(dependent=True, cold=True)]


@pytest.mark.parametrize(("frozen", "missing"), [(True, "vendor"), ("raise", "raise")])
def test_frozen_block_holds_for_all_threads(frozen: Any, missing: str) -> None:
    seen: list[Mode] = []
    with autotune.policy(frozen=frozen):
        thread = threading.Thread(target=lambda: seen.append(settings.mode()))
        thread.start()
        thread.join()
        with autotune.policy(cold=True):  # stays frozen
            seen.append(settings.mode())
    assert seen == [Mode("frozen", missing)] * 2
    assert settings.mode() == Mode()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tune": "slow"}, "tune is 'slow'; give True, False or 'quick'"),
        ({"frozen": "quick"}, "frozen is 'quick'; give True, False or 'raise'"),
        ({"vendor": "no"}, "vendor is 'no'; give True or False"),
        ({"dependent": None}, "dependent is None; give True or False"),
    ],
)
def test_other_values_are_refused(changes: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message), autotune.policy(**changes):
        pass
    assert (settings.policy(), settings.mode()) == (Policy(), Mode())


def test_other_names_are_refused() -> None:
    with pytest.raises(TypeError, match="no field 'hot'; it has tune, vendor, cold, "):
        autotune.policy(hot=True).__enter__()  # type: ignore[call-arg]
    with pytest.raises(UsageError, match=r"the policy is 'cold'; give an autotune\.Policy"):
        autotune.policy("cold").__enter__()  # type: ignore[arg-type]


def test_keywords_are_the_fields() -> None:
    assert PolicyChanges.__annotations__.keys() == Policy.__annotations__.keys()


# Calls.


@pytest.fixture(params=[False, True], ids=["python", "native"])
def arrays(
    request: pytest.FixtureRequest,
    case: Case,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Any,
) -> Iterator[tuple[Any, ...]]:
    """A, B and C, which machine code recognises or not."""
    if not request.param:
        yield case.operands(*SHAPE)
        return
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    monkeypatch.setattr(Tensor, "__dlpack_c_exchange_api__", Exchange().capsule, raising=False)
    torch = FakeTorch(case.cuda)
    torch.records = False
    monkeypatch.setitem(sys.modules, "torch", torch)
    with built_library(tmp_path):
        yield tuple(torch.on("cuda:0", operand.host) for operand in case.operands(*SHAPE))


def test_call_follows_the_block_and_its_own_policy(case: Case, arrays: tuple[Any, ...]) -> None:
    for _ in range(2):  # the second time they are warm
        with autotune.policy(dependent=True):
            assert launches(case, lambda: autotune.matmul(*arrays)) == [True]
            assert launches(case, lambda: autotune.matmul(*arrays, policy=Policy())) == [False]
        assert launches(case, lambda: autotune.matmul(*arrays)) == [False]
        cold = launches(case, lambda: autotune.matmul(*arrays, policy=Policy(cold=True)))
        assert len(cold) == 2  # split-K


def test_warm_calls_of_two_policies_look_nothing_up(case: Case, arrays: tuple[Any, ...]) -> None:
    policies = Policy(), Policy(cold=True), Policy(dependent=True), Policy(vendor=False)
    for policy in policies:
        autotune.matmul(*arrays, policy=policy)
    before = len(case.looked_up), len(case.plans)
    for policy in policies:
        with autotune.policy(policy):
            autotune.matmul(*arrays)
    assert (len(case.looked_up), len(case.plans)) == before
    assert len(case.matmul._bound) == len(policies)


def test_kernel_follows_the_block(case: Case) -> None:
    with autotune.policy(cold=True):
        kernel = autotune.kernel(*SHAPE)
    assert kernel.config == SPLIT
    assert autotune.kernel(*SHAPE).config == TYPED
    assert autotune.kernel(*SHAPE, policy=Policy(cold=True)).config == SPLIT
    del case


def test_calls_of_a_kernel_follow_the_block(case: Case) -> None:
    kernel, arrays = Kernel(case.runtime, Problem(*SHAPE), 0), case.operands(*SHAPE)
    addresses = [array.host.ctypes.data for array in arrays]
    with autotune.policy(dependent=True):
        assert launches(case, lambda: kernel(*arrays)) == [True]
        assert launches(case, kernel.bind(*arrays)) == [True]
        assert launches(case, lambda: kernel.launch(*addresses)) == [False]


def test_call_is_checked_where_it_is_bound(case: Case, arrays: tuple[Any, ...]) -> None:
    wrong = Policy(vendor="no")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="vendor is 'no'"):
        autotune.matmul(*arrays, policy=wrong)
    assert case.cuda.launches == []


@pytest.mark.parametrize("word", ["cold", "dependent", "tune", "vendor", "verify"])
def test_earlier_keyword_names_the_policy(case: Case, word: Any) -> None:
    multiply: Any = autotune.matmul
    with pytest.raises(TypeError, match=rf"give policy=autotune\.Policy\({word}=\.\.\.\)"):
        multiply(*case.operands(*SHAPE), **{word: True})


# Frozen calls.


@pytest.fixture
def modes(case: Case, monkeypatch: pytest.MonkeyPatch) -> list[Mode]:
    """The modes in which a call asked for the process's matmul."""
    seen: list[Mode] = []

    def current() -> Any:
        seen.append(settings.mode())
        return case.matmul

    monkeypatch.setattr(current, "cache_clear", lambda: None, raising=False)
    monkeypatch.setattr(runtime, "current", current)
    return seen


def test_frozen_call_is_alone_in_its_mode(case: Case, modes: list[Mode]) -> None:
    arrays = case.operands(*SHAPE)
    autotune.matmul(*arrays, policy=Policy(frozen=True))
    autotune.matmul(*arrays, policy=Policy(frozen="raise"))
    autotune.matmul(*arrays)
    assert modes == [Mode("frozen"), Mode("frozen", "raise"), Mode()]


def test_frozen_call_stays_in_a_stricter_mode(case: Case, modes: list[Mode]) -> None:
    arrays = case.operands(*SHAPE)
    with autotune.policy(frozen="raise"):
        autotune.matmul(*arrays, policy=Policy(frozen=True))
    with autotune.policy(frozen=True):
        autotune.matmul(*arrays, policy=Policy(frozen="raise"))
    assert modes == [Mode("frozen", "raise")] * 2


def test_frozen_kernel_compiles_nothing(monkeypatch: pytest.MonkeyPatch, case: Case) -> None:
    monkeypatch.setattr(case.runtime, "mode", Mode("frozen"))
    case.config = None
    with pytest.raises(FrozenError, match="4x8x16:f32:nn is not recorded"):
        autotune.kernel(*SHAPE, policy=Policy(frozen=True, tune=True))
    assert settings.mode() == Mode()


def test_verified_call_checks_the_kernel(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[Any] = []
    monkeypatch.setattr(case.runtime, "verify", lambda config, *_: checked.append(config))
    case.config = NAIVE
    kernel, arrays = Kernel(case.runtime, Problem(*SHAPE), 0), case.operands(*SHAPE)
    with autotune.policy(verify=True):
        autotune.matmul(*arrays)
        kernel(*arrays)
        kernel.bind(*arrays)
    assert checked == [NAIVE] * 3
