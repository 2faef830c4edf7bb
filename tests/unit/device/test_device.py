from __future__ import annotations

import json
import re
from dataclasses import fields, replace
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.device import (
    SMS,
    Device,
    Sm,
    catalogue,
    entries,
    find,
    fp32_lanes,
    load,
    prediction_slug,
    same_model,
    tensor_rate,
)
from autotune.device.device import least_clusters, listed
from autotune.errors import DeviceError, UsageError

H100 = find("h100")

# Fp32 TFLOP/s outside the tensor cores as NVIDIA's datasheets and whitepapers round them. The B300
# is missing: its datasheet states 75 for all of HGX, at a lower clock than the card's boost.
PEAKS = {
    "gtx-980": 4.98,
    "gtx-1080": 8.87,
    "v100": 15.7,
    "t4": 8.1,
    "rtx-2080-ti": 13.4,
    "a100-40": 19.5,
    "a100-80": 19.5,
    "rtx-3090": 35.58,
    "rtx-4090": 82.6,
    "l4": 30.3,
    "l40s": 91.6,
    "h100-pcie": 51.2,
    "h100-sxm": 67,
    "h200": 67,
    "b200": 75,
    "rtx-5090": 104.8,
    "p100": 10.6,
    "p100-pcie": 9.5,
    "rtx-2060": 6.45,
    "rtx-2070": 7.5,
    "rtx-2080": 10.1,
    "a10": 31.2,
    "a6000": 38.7,
    "rtx-3050": 9.1,
    "rtx-3060": 12.74,
    "rtx-3060-ti": 16.2,
    "rtx-3060-laptop": 10.94,
    "rtx-4060-laptop": 11.61,
    "rtx-5060-laptop": 9.684,
    "rtx-3070": 20.3,
    "rtx-3080": 29.8,
    "orin": 5.3,
    "rtx-4060": 15.1,
    "rtx-4060-ti": 22.06,
    "rtx-4070": 29.15,
    "rtx-4070-ti": 40.09,
    "rtx-4080": 48.7,
    "gh200": 67,
    "rtx-5060": 19.2,
    "rtx-5060-ti": 23.7,
    "rtx-5070": 30.87,
    "rtx-5070-ti": 43.9,
    "rtx-5080": 56.3,
}

# Memory bus widths from the same; NVIDIA rounds the H200's bandwidth down by 2.4 %.
BUS_BITS = {
    "gtx-980": 256,
    "gtx-1080": 256,
    "v100": 4096,
    "t4": 256,
    "rtx-2080-ti": 352,
    "a100-40": 5120,
    "a100-80": 5120,
    "rtx-3090": 384,
    "rtx-4090": 384,
    "l4": 192,
    "l40s": 384,
    "h100-pcie": 5120,
    "h100-sxm": 5120,
    "h200": 6144,
    "b200": 7680,
    "rtx-5090": 512,
    "p100": 4096,
    "p100-pcie": 4096,
    "rtx-2060": 192,
    "rtx-2070": 256,
    "rtx-2080": 256,
    "a10": 384,
    "a6000": 384,
    "rtx-3050": 128,
    "rtx-3060": 192,
    "rtx-3060-ti": 256,
    "rtx-3060-laptop": 192,
    "rtx-4060-laptop": 128,
    "rtx-5060-laptop": 128,
    "rtx-3070": 256,
    "rtx-3080": 320,
    "orin": 256,
    "rtx-4060": 128,
    "rtx-4060-ti": 128,
    "rtx-4070": 192,
    "rtx-4070-ti": 192,
    "rtx-4080": 256,
    "gh200": 6144,
    "b300": 8192,
    "rtx-5060": 128,
    "rtx-5060-ti": 128,
    "rtx-5070": 192,
    "rtx-5070-ti": 256,
    "rtx-5080": 256,
}


# As deviceQuery prints it; published specifications of these cards say otherwise.
L2_BYTES = {"rtx-3060": 2359296, "rtx-3060-ti": 3145728, "rtx-5060": 25165824}


def test_l2_is_the_driver_s() -> None:
    assert {key: catalogue()[key].l2_bytes for key in L2_BYTES} == L2_BYTES


@pytest.mark.parametrize("key", PEAKS)
def test_catalogue_peaks_match_the_datasheets(key: str) -> None:
    assert catalogue()[key].peak_fp32 == pytest.approx(PEAKS[key] * 1e12, rel=0.01)


@pytest.mark.parametrize("key", PEAKS)
def test_peak_is_two_flop_a_lane_a_clock(key: str) -> None:
    device = catalogue()[key]
    lanes = device.sms * fp32_lanes(device.compute_capability)

    assert device.peak_fp32 == 2 * lanes * device.sm_clock


@pytest.mark.parametrize("key", BUS_BITS)
def test_bandwidth_is_two_transfers_a_clock_over_the_bus(key: str) -> None:
    device = catalogue()[key]
    transferred = 2 * device.memory_clock * BUS_BITS[key] / 8

    assert device.memory_bandwidth == pytest.approx(transferred, rel=0.03)


def test_every_value_names_its_source() -> None:
    unsourced = [
        (key, name)
        for key, entry in entries().items()
        for name in ("sms", "l2_bytes", "memory_bytes", "sm_clock", "memory_bandwidth")
        if len(entry.sources.get(name, "")) < 15
    ]
    assert unsourced == []


def test_every_source_is_used() -> None:
    used = {source for entry in entries().values() for source in entry.sources.values()}

    assert set(listed()["sources"].values()) == used


def test_only_textbook_devices_have_an_sm_of_their_own() -> None:
    own = [
        key
        for key, device in catalogue().items()
        if any(
            getattr(device, field.name)
            != getattr(SMS.get(device.compute_capability), field.name, 0)
            for field in fields(Sm)
        )
    ]
    assert own == [key for key, device in catalogue().items() if device.granularity is not None]


def test_each_card_is_a_model_of_its_own() -> None:
    pairs = combinations(catalogue().items(), 2)

    assert [(a, b) for (a, first), (b, card) in pairs if same_model(first, card)] == []


def test_every_card_has_a_plausible_balance() -> None:
    """FLOP per byte at the fp32 peak: 11 on a V100, 82 on an RTX 4090."""
    cards = {key: card for key, card in catalogue().items() if card.granularity is None}
    balances = {key: card.peak_fp32 / card.memory_bandwidth for key, card in cards.items()}

    assert {key: flop for key, flop in balances.items() if not 8 < flop < 110} == {}


def test_h100_is_the_measured_one() -> None:
    """Read from the card: driver 580, 132 SMs at 1980 MHz."""
    assert (
        H100.sms,
        H100.sm_clock,
        H100.shared_per_sm,
        H100.shared_per_block_optin,
        H100.reserved_shared_per_block,
        H100.l2_bytes,
        H100.memory_bandwidth,
    ) == (132, 1_980_000_000, 233472, 232448, 1024, 50 * 2**20, 3.35e12)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("h100", "h100-sxm"),
        ("H100 SXM", "h100-sxm"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("RTX 4090", "rtx-4090"),
        ("4090", "rtx-4090"),
        ("geforce_rtx_2080ti", "rtx-2080-ti"),
        ("GeForce GTX 980", "gtx-980"),
        ("Tesla T4", "t4"),
        ("NVIDIA T4", "t4"),
        ("a100", "a100-80"),
        ("A100 40GB", "a100-40"),
        ("NVIDIA RTX A6000", "a6000"),
        ("Jetson AGX Orin", "orin"),
        ("NVIDIA GeForce RTX 4060 Laptop GPU", "rtx-4060-laptop"),
        ("RTX 5060 Ti", "rtx-5060-ti"),
        ("textbook-d", "textbook-d"),
        ("Device D", "textbook-d"),
        ("textbook 4.8", "textbook-4.8"),
        ("PMPP 5.12", "textbook-4.8"),
    ],
)
def test_find_ignores_case_spaces_dashes_and_prefixes(text: str, key: str) -> None:
    assert find(text) == catalogue()[key]


@pytest.mark.parametrize("key", catalogue())
def test_every_device_is_found_by_key_and_by_driver_name(key: str) -> None:
    device = catalogue()[key]

    assert find(key) == find(device.name) == device


def test_unknown_device_lists_near_matches() -> None:
    with pytest.raises(DeviceError, match=r"'h1000'; did you mean .*h100-sxm.* JSON file"):
        find("h1000")


@pytest.mark.parametrize("text", ["sm_86", "SM_86"])
def test_compute_capability_is_no_card(text: str) -> None:
    with pytest.raises(DeviceError, match=r"sm_86 is a compute capability.*a10 or .*rtx-3090"):
        find(text)


@pytest.mark.parametrize("text", ["", "rtx", "nvidia"])
def test_bare_prefix_is_unknown(text: str) -> None:
    with pytest.raises(DeviceError, match="unknown device"):
        find(text)


@pytest.mark.parametrize("key", catalogue())
def test_json_goes_both_ways(key: str) -> None:
    device = catalogue()[key]

    assert Device.from_json(json.loads(json.dumps(device.to_json()))) == device


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"colour": "green", "age": 3}, "unknown device fields: age, colour"),
        ({"sms": "132"}, "sms is '132'; it must be a whole number"),
        ({"sms": True}, "sms is True; it must be a whole number"),
        ({"sms": 132.5}, r"sms is 132\.5; it must be a whole number"),
        ({"warp_size": 0}, "warp_size is 0; it must be a whole number >= 32"),
        ({"warp_size": 4096}, "warp_size is 4096; it must be a whole number <= 32"),
        ({"l2_bytes": -1}, "l2_bytes is -1; it must be a whole number >= 0"),
        ({"memory_bandwidth": float("nan")}, "memory_bandwidth is nan; it must be a number >= 1"),
        ({"memory_bandwidth": float("inf")}, "memory_bandwidth is inf; it must be a number <= 1e"),
        ({"sm_clock": 10**400}, r"sm_clock is 10000.*\.\.\.; it must be a whole number <= 1"),
        (
            {"threads_per_sm": 512},
            "threads_per_block is 1024; it must be at most threads_per_sm, 512",
        ),
        (
            {"shared_per_sm": 65536},
            "shared_per_block_optin is 232448; it must be at most shared_per",
        ),
        (
            {"name": "\N{GREEK CAPITAL LETTER OMEGA}"},
            "name is 'Ω'; it must be a text with a letter",
        ),
        ({"name": 5}, "name is 5; it must be a text"),
        ({"name": ""}, "name is ''; it must be a text with a letter"),
        (
            {"compute_capability": [9]},
            r"compute_capability is \[9\]; it must be a list of length 2",
        ),
        (
            {"compute_capability": [9, "0"]},
            r"compute_capability\[1\] is '0'; it must be a whole number",
        ),
        (
            {"clusters": [66, 34, 16]},
            "clusters states 34 clusters of 4 blocks that fill an SM; 132 SMs hold at most 33",
        ),
        ({"clusters": [66, 33]}, r"clusters is \[66, 33\]; it must be a list of length 3"),
        ({"clusters": [66, -1, 16]}, r"clusters\[1\] is -1; it must be a whole number >= 0"),
        ({"granularity": "1"}, "granularity is '1'; it must be a whole number or null"),
    ],
)
def test_wrong_field_is_named(change: dict[str, object], message: str) -> None:
    with pytest.raises(DeviceError, match=message):
        Device.from_json(H100.to_json() | change)


def test_missing_fields_are_named() -> None:
    with pytest.raises(DeviceError, match="missing device fields: name, sms; add them"):
        Device.from_json({k: v for k, v in H100.to_json().items() if k not in ("name", "sms")})


def test_load_takes_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(H100.to_json() | {"name": "Mine"}))

    assert load(str(path)).name == "Mine"


def test_load_takes_a_catalogue_name() -> None:
    assert load("h100") == H100


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b"[]", b"{}", b""])
def test_broken_device_file_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.json"
    path.write_bytes(content)

    with pytest.raises(DeviceError, match=r"broken\.json"):
        load(str(path))


def test_missing_file_is_named() -> None:
    with pytest.raises(DeviceError, match=r"/nowhere/gpu\.json"):
        load("/nowhere/gpu.json")


@pytest.mark.parametrize(
    ("key", "compute", "tflops", "clock"),
    [
        # NVIDIA's architecture whitepapers and datasheets, dense, with the clock of the figure.
        ("v100", "f16", 125, 1530),
        ("t4", "f16", 65, 1590),
        ("rtx-2080-ti", "f16", 53.8, 1545),
        ("a100-80", "bf16", 312, 1410),
        ("a100-80", "tf32", 156, 1410),
        ("rtx-3090", "f16", 71, 1695),
        ("rtx-3090", "tf32", 35.6, 1695),
        ("rtx-4090", "bf16", 165.2, 2520),
        ("rtx-4090", "tf32", 82.6, 2520),
        ("l4", "f16", 121, 2040),
        ("l40s", "f16", 362, 2520),
        ("h100-sxm", "bf16", 989.4, 1830),
        ("h100-sxm", "tf32", 494.7, 1830),
        ("h100-pcie", "f16", 756, 1620),
        ("rtx-5090", "f16", 209.5, 2407),
        ("a10", "f16", 125, 1695),
        ("a6000", "f16", 154.8, 1800),
        ("rtx-3080", "f16", 59.5, 1710),
        ("rtx-4080", "f16", 97.5, 2505),
        ("rtx-5080", "f16", 112.6, 2617),
        ("gh200", "bf16", 989.4, 1830),
    ],
)
def test_tensor_core_rates_match_the_whitepapers(
    key: str, compute: str, tflops: float, clock: float
) -> None:
    rate = catalogue()[key].tensor_rate(compute)
    assert rate
    reached = catalogue()[key].sms * rate * 2 * clock * 1e6
    assert reached == pytest.approx(tflops * 1e12, rel=0.02)


@pytest.mark.parametrize(
    ("capability", "compute"),
    [((6, 1), "f16"), ((7, 5), "bf16"), ((7, 0), "tf32"), ((7, 5), "tf32x3"), ((9, 0), "f32")],
)
def test_some_precisions_have_no_tensor_cores(capability: tuple[int, int], compute: str) -> None:
    assert tensor_rate(capability, compute) is None


def test_unlisted_architecture_has_the_previous_rate() -> None:
    assert tensor_rate((12, 1), "bf16") == tensor_rate((12, 0), "bf16")


def test_tf32x3_has_a_third_of_the_tf32_peak() -> None:
    assert H100.peak("tf32x3") == pytest.approx(H100.peak("tf32") / 3)


@pytest.mark.parametrize(("key", "compute"), [("rtx-3090", "tf32x3"), ("t4", "tf32")])
def test_peak_is_at_least_that_of_fp32_units(key: str, compute: str) -> None:
    assert catalogue()[key].peak(compute) == catalogue()[key].peak_fp32


def test_16_bit_peak_is_at_the_boost_clock() -> None:
    assert H100.peak("bf16") == 132 * 2048 * 2 * 1.98e9


CLUSTERED = replace(H100, clusters=(66, 32, 15))


def resident(device: Device) -> tuple[int, ...]:
    """Its resident clusters of 2, 4 and 8 blocks."""
    return tuple(device.resident_clusters(size) for size in (2, 4, 8))


def test_resident_clusters_are_those_the_driver_stated() -> None:
    assert [CLUSTERED.resident_clusters(size) for size in (1, 2, 4, 8)] == [132, 66, 32, 15]
    assert [CLUSTERED.cluster_sms(size) for size in (1, 2, 4, 8)] == [132, 132, 128, 120]


def test_older_devices_have_no_clusters() -> None:
    a100 = find("a100")

    assert not a100.has_clusters
    assert [a100.cluster_sms(size) for size in (1, 2, 4, 8)] == [108, 0, 0, 0]


@pytest.mark.parametrize("size", [0, 3, 16])
def test_other_cluster_sizes_are_refused(size: int) -> None:
    with pytest.raises(UsageError, match=f"a cluster of {size} blocks; give 1, 2, 4 or 8"):
        CLUSTERED.cluster_sms(size)


def test_clusters_go_through_json() -> None:
    assert Device.from_json(json.loads(json.dumps(CLUSTERED.to_json()))) == CLUSTERED


def test_json_of_earlier_versions_is_written_and_read() -> None:
    unasked = replace(H100, clusters=None)

    assert "clusters" not in unasked.to_json()
    assert Device.from_json(unasked.to_json()) == unasked


def test_cards_of_one_model_may_differ_in_clusters() -> None:
    assert same_model(CLUSTERED, replace(H100, clusters=(66, 31, 16)))


def test_predictions_follow_from_the_clusters() -> None:
    mine = replace(H100, name="Mine", clusters=None)
    slugs = {prediction_slug(replace(mine, clusters=n)) for n in (None, (66, 32, 15), (66, 31, 15))}

    assert len(slugs) == 3
    assert prediction_slug(mine) == "mine-dd62c359"


@pytest.mark.parametrize("key", ["h100", "h200", "gh200"])
def test_card_that_nobody_asked_has_its_models_clusters(key: str) -> None:
    unasked = replace(find(key), name="renamed", clusters=None)

    assert resident(unasked) == (66, 30, 15)
    assert not unasked.knows_clusters


def test_stated_clusters_stand_before_the_models() -> None:
    stated = replace(H100, clusters=(66, 32, 16), clusters_expected=False)

    assert resident(stated) == (66, 32, 16)
    assert stated.knows_clusters


@pytest.mark.parametrize(
    ("capability", "sms", "least"),
    [
        ((9, 0), 114, (57, 25, 9)),  # 8 GPCs: 16 or 48 of the SMs may be idle
        ((9, 0), 78, (39, 16, 4)),  # a card that is not listed, such as an H20
        ((12, 0), 84, (42, 18, 6)),  # 7 GPCs of 12 SMs
    ],
)
def test_unknown_clusters_are_those_of_the_worst_card(
    capability: tuple[int, int], sms: int, least: tuple[int, ...]
) -> None:
    assert resident(replace(H100, compute_capability=capability, sms=sms, clusters=None)) == least


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12))
def test_no_card_has_fewer_clusters_than_the_worst(tpcs: list[int]) -> None:
    actual = [sum(2 * count // size for count in tpcs) for size in (2, 4, 8)]
    least = least_clusters(2 * sum(tpcs), len(tpcs))

    assert all(few <= count for few, count in zip(least, actual, strict=True))


def test_listed_cards_with_clusters_name_their_source() -> None:
    clustered = [entry for entry in entries().values() if entry.device.has_clusters]

    assert len(clustered) >= 13
    for entry in clustered:
        assert entry.device.clusters, entry.key
        assert re.match(r"typical: |the least on ", entry.sources["clusters"]), entry.key
        assert not entry.device.knows_clusters, entry.key


def test_clusters_of_a_device_file_are_known() -> None:
    assert Device.from_json(H100.to_json()).knows_clusters
