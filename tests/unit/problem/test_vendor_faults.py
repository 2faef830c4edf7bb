"""The faults of cuBLAS that release notes state: which versions, GPUs and problems they touch."""

from __future__ import annotations

import pytest

from autotune.problem import Problem
from autotune.problem.vendor_faults import ALGORITHM, MENDED, drops_tail, known_fault

HOPPER = (9, 0)
DEEP = Problem(64, 64, 11528, "bf16")
"""K = 9 * 1280 + 8, and 1280 is a multiple of a stage of 64."""


@pytest.mark.parametrize("version", ["12.6.3", "12.9.2", "13.1.0", "13.4.1", "13.7.0", "13.6.2.16"])
def test_faulty_versions_are_named(version: str) -> None:
    fault = known_fault(version, HOPPER, DEEP)
    assert fault is not None
    assert f"cuBLAS {version} " in fault
    assert "K = 11528" in fault
    assert "13.8.0" in fault


@pytest.mark.parametrize("version", ["", "12.4.5", "12.6.1", "13.8.0", "13.10.0", "14.0.0"])
def test_other_versions_have_no_known_fault(version: str) -> None:
    assert known_fault(version, HOPPER, DEEP) is None


@pytest.mark.parametrize(
    ("capability", "touched"),
    [
        *(((9, 0), True), ((10, 0), True), ((10, 3), True), ((11, 0), True)),
        *(((8, 0), False), ((8, 9), False), ((12, 0), False)),
    ],
)
def test_only_stated_compute_capabilities_are_touched(
    capability: tuple[int, int], touched: bool
) -> None:
    assert (known_fault("13.1.0", capability, DEEP) is not None) == touched


@pytest.mark.parametrize(
    ("k", "split", "stage", "dropped"),
    [
        *((11528, 9, 64, True), (11528, 9, 128, True), (57608, 45, 64, True)),
        (11528, 8, 64, False),  # 1441 each, without a rest
        (11528, 7, 64, False),  # 1646 each, no multiple of a stage
        (11520, 9, 64, False),  # no rest
        (11528, 1, 64, False),
        (11528, 0, 64, False),
        (53, 60, 64, False),  # nothing for each
    ],
)
def test_condition_of_the_release_notes(k: int, split: int, stage: int, dropped: bool) -> None:
    assert drops_tail(k, split, stage) == dropped


def test_known_algorithm_decides_by_its_own_split() -> None:
    def fault(**known: int) -> str | None:
        return known_fault("13.1.0", HOPPER, DEEP, **known)

    assert fault(split_k=9, algorithm=ALGORITHM)
    assert not fault(split_k=8, algorithm=ALGORITHM)
    assert not fault(split_k=9, algorithm=23)
    assert not fault(split_k=1)


def test_unknown_split_touches_what_any_split_could() -> None:
    assert known_fault("13.1.0", HOPPER, Problem(64, 64, 8201, "f16"))
    assert not known_fault("13.1.0", HOPPER, Problem(64, 64, 4096, "f16"))
    assert not known_fault("13.1.0", HOPPER, Problem(64, 64, 53, "f16"))


def test_padded_k_of_the_library_counts() -> None:
    assert known_fault("13.1.0", HOPPER, Problem(64, 64, 11521, "bf16"), 9)
    assert not known_fault("13.1.0", HOPPER, Problem(64, 64, 11521, "f8"), 9)  # padded to 11536


def test_newest_version_is_not_faulty() -> None:
    assert known_fault(".".join(map(str, MENDED)), HOPPER, DEEP, 9, algorithm=ALGORITHM) is None
