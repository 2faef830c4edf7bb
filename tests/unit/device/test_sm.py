"""The limits of SMs, against what NVIDIA publishes for each compute capability."""

from __future__ import annotations

import pytest

from autotune.device import SMS, sm_named
from autotune.errors import DeviceError
from autotune.occupancy import ARCHITECTURES

# CUDA C++ Programming Guide, Technical Specifications per Compute Capability: resident blocks,
# warps and threads of an SM, registers of an SM and a block in units of 1024, shared memory of an
# SM and a block in KB.
PUBLISHED = {
    (5, 0): (32, 64, 2048, 64, 64, 64, 48),
    (5, 2): (32, 64, 2048, 64, 64, 96, 48),
    (6, 0): (32, 64, 2048, 64, 64, 64, 48),
    (6, 1): (32, 64, 2048, 64, 64, 96, 48),
    (7, 0): (32, 64, 2048, 64, 64, 96, 96),
    (7, 5): (16, 32, 1024, 64, 64, 64, 64),
    (8, 0): (32, 64, 2048, 64, 64, 164, 163),
    (8, 6): (16, 48, 1536, 64, 64, 100, 99),
    (8, 7): (16, 48, 1536, 64, 64, 164, 163),
    (8, 9): (24, 48, 1536, 64, 64, 100, 99),
    (9, 0): (32, 64, 2048, 64, 64, 228, 227),
    (10, 0): (32, 64, 2048, 64, 64, 228, 227),
    (10, 3): (32, 64, 2048, 64, 64, 228, 227),
    (11, 0): (24, 48, 1536, 64, 64, 228, 227),
    (12, 0): (24, 48, 1536, 64, 64, 100, 99),
    (12, 1): (24, 48, 1536, 64, 64, 100, 99),
}


@pytest.mark.parametrize("capability", PUBLISHED)
def test_limits_are_those_that_nvidia_publishes(capability: tuple[int, int]) -> None:
    sm = SMS[capability]

    assert PUBLISHED[capability] == (
        sm.blocks_per_sm,
        sm.threads_per_sm // sm.warp_size,
        sm.threads_per_sm,
        sm.registers_per_sm / 1024,
        sm.registers_per_block / 1024,
        sm.shared_per_sm / 1024,
        sm.shared_per_block_optin / 1024,
    )


def test_occupancy_knows_every_listed_sm() -> None:
    assert SMS.keys() == ARCHITECTURES.keys() == PUBLISHED.keys()


def test_largest_carve_out_is_the_sms_shared_memory() -> None:
    sizes = {
        capability: rules.carve_outs[-1] * 1024
        for capability, rules in ARCHITECTURES.items()
        if rules.carve_outs
    }

    assert sizes == {capability: SMS[capability].shared_per_sm for capability in sizes}


@pytest.mark.parametrize("text", ["sm_86", " SM_86 "])
def test_sm_is_named_as_the_compiler_does(text: str) -> None:
    sm = sm_named(text)

    assert sm
    assert (sm.name, sm.compute_capability) == ("sm_86", (8, 6))


@pytest.mark.parametrize("text", ["h100", "sm_", "sm86", "86"])
def test_other_texts_name_no_sm(text: str) -> None:
    assert sm_named(text) is None


def test_unknown_sm_lists_the_known() -> None:
    with pytest.raises(DeviceError, match=r"'sm_35'; give one of sm_50, .* sm_121"):
        sm_named("sm_35")


@pytest.mark.parametrize("text", ["sm_90", "SM_90a", "compute_90", "compute_90a", "9.0"])
def test_compute_capability_has_several_spellings(text: str) -> None:
    assert sm_named(text) == SMS[9, 0]
