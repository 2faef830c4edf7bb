"""Every kernel, with every way to share K, compiles for every supported architecture."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from support.paths import ROOT

from autotune import device
from autotune.cuda.compiler import compile
from autotune.cuda.program import Program
from autotune.families import registry
from autotune.families.config import Config, Value
from autotune.families.family import CUDA_CORES
from autotune.families.plan import Launch
from autotune.families.shared.quantizing import Quantizing
from autotune.model import space
from autotune.occupancy import by_registers
from autotune.problem import ELEMENT_TYPES, Problem
from autotune.records import shipped
from autotune.user_kernels.guarded_arrays import COUNT_CHANGED, TYPES, comparison_of

DEVICES = {
    "sm_75": "t4",
    "sm_80": "a100",
    "sm_86": "rtx 3090",
    "sm_89": "l4",
    "sm_90": "h100",
    "sm_100": "b200",
    "sm_120": "rtx 5090",
}
# Parameters that differ from `PLAIN`.
K_SHARING: dict[str, dict[str, Value]] = {
    "separate, packed": {"split_k": 2, "reduction": "separate", "pack": "ab"},
    "fused, sliced": {"split_k": 2, "reduction": "fused", "slices": 2},
    "stream, in chunks": {"reduction": "stream", "chunks": 2},
}
# Every way for two architectures, another one for each other.
SHARED = [
    (way, arch)
    for number, way in enumerate(K_SHARING)
    for place, arch in enumerate(DEVICES)
    if arch in ("sm_75", "sm_90") or place % len(K_SHARING) == number
]
PLAIN = Config.parse(
    "simt:bm=64,bn=64,wm=32,wn=64,tm=8,tn=8,slices=1,bk=8,copy=staged,stages=2,fragments=2,"
    "min_blocks=1,split_k=1,reduction=none,workers=0,chunks=1,pack=none,group=1,fence=1,order=snake"
)


TENSOR_CORES = ("tf32", "tf32x3", "f16", "bf16")
MMA = [
    (compute, arch)
    for arch in DEVICES
    for compute in (TENSOR_CORES if arch != "sm_75" else ("f16",))
]
# Pairs of types, scales, outputs and layouts of 8-bit operands, each compiled where it is served.
FP8 = (
    "f8:nt",
    "f8:nn:scale=row:bias_gelu",
    "f8e5:nt:e5m2=b:fast:out=f32",
    "f8e5:tn:e5m2=ab:scale=tensor:out=f16:residual",
    "f8e5:nt:scale=block",
)
INT8 = ("i8:nt:out=i32", "i8:tt:scale=row:bias")
MMA_OF_8_BITS = [
    *((text, arch) for arch in DEVICES if arch != "sm_75" for text in INT8),
    *((text, arch) for arch in ("sm_89", "sm_90", "sm_100", "sm_120") for text in FP8),
]
# Types, granularity, sizes and vectors.
QUANTISING = (
    ("f16", "i8", "row", 16, 4096, 8),
    ("bf16", "e4m3", "row", 16, 4096, 8),
    ("f32", "e5m2", "row", 16, 4096, 4),
    ("f32", "i8", "block", 16, 4096, 4),
    ("bf16", "e4m3", "tensor", 16, 4096, 8),
    ("f16", "e5m2", "row", 4096, 1024, 8),
    ("bf16", "i8", "row", 16, 333, 1),
)
# Variants of the wgmma kernel, each with a problem small enough to compile quickly.
WGMMA: dict[str, tuple[str, dict[str, Value]]] = {
    "staged": ("136x72x200:bf16:nn:bias", {"store": "staged"}),
    "fused, packed": ("133x71x1027:f16:tt:out=f32", {"reduction": "fused", "cluster": "1x1"}),
    "transposed": ("24x200x1032:bf16:tn:gelu", {"swap": 1}),
    "stream": ("1088x1030x2049:bf16:nn:residual", {"reduction": "stream"}),
    "gates": ("136x144x200:bf16:nt:swiglu", {"store": "staged"}),
    "pingpong": ("2048x2048x512:f16:nt", {"schedule": "pingpong", "bm": 64}),
    "cluster": ("2048x2048x512:bf16:nt", {"cluster": "1x2", "bm": 128}),
    "cluster along K": ("128x512x8192:bf16:nn", {"cluster": "1x1x4", "reduction": "none"}),
    "clusters along K": ("64x64x65536:f16:tn", {"cluster": "1x1x8", "reduction": "fused"}),
    "copied into whole lines": ("4200x4200x520:bf16:nn", {"pack": "lines"}),
    "from shared memory": ("136x72x200:tf32:nt", {"source": "shared"}),
    "from registers": ("136x72x200:tf32:tt", {"source": "registers"}),
    "split in the kernel": ("136x72x1032:tf32x3:nt", {"low": "kernel", "promote": 2}),
    "split by a pass": ("133x71x203:tf32x3:nn", {"low": "pass"}),
}


def check(launches: Iterable[Launch], arch: str) -> None:
    for launch in launches:
        program = compile(launch.template, arch, cache=None)
        assert isinstance(program, Program), program.reason
        assert program.arch == (f"{arch}a" if launch.template.specific else arch)


@pytest.mark.parametrize("arch", DEVICES)
@pytest.mark.parametrize(
    "family",
    [family.name for family in registry.FAMILIES.values() if family.precisions == CUDA_CORES],
)
def test_cuda_core_family_compiles(family: str, arch: str) -> None:
    problem, target = Problem(16, 64, 4096), device.find(DEVICES[arch])
    config = space.feasible(problem, target, family).configs[0]
    check(registry.plan(config, problem).launches, target.arch)


@pytest.mark.parametrize("arch", DEVICES)
def test_quantising_compiles_without_local_memory(arch: str) -> None:
    # Each architecture compiles another kind.
    kind = QUANTISING[[*DEVICES].index(arch)]
    source, target, scale, rows, columns, vector = kind
    types = ELEMENT_TYPES[source], ELEMENT_TYPES[target]
    for launch in Quantizing(*types, scale, rows, columns, vector=vector).plan().launches:
        program = compile(launch.template, arch, cache=None)
        assert isinstance(program, Program), program.reason
        assert program.local == 0


@pytest.mark.parametrize("arch", DEVICES)
def test_comparison_of_user_arrays_compiles(arch: str) -> None:
    pairs = [*zip(TYPES, TYPES, strict=True), ("float16", "float64"), ("complex64", "complex128")]
    place = [*DEVICES].index(arch)  # each architecture compiles other types
    templates = [comparison_of(*map(np.dtype, pair)) for pair in pairs[place :: len(DEVICES)]]
    for template in (COUNT_CHANGED, *templates):
        program = compile(template, arch, cache=None)
        assert isinstance(program, Program), program.reason
        assert program.local == 0


@pytest.mark.parametrize(("compute", "arch"), MMA)
def test_mma_compiles(compute: str, arch: str) -> None:
    # Each case takes another part of the space; tiles are small because the problem is.
    problem, target = Problem(136, 24, 1000, compute), device.find(DEVICES[arch])
    configs = space.feasible(problem, target, "mma").configs
    config = configs[len(configs) * MMA.index((compute, arch)) // len(MMA)]
    check(registry.plan(config, problem).launches, target.arch)


@pytest.mark.parametrize(("text", "arch"), MMA_OF_8_BITS)
def test_mma_of_8_bits_compiles(text: str, arch: str) -> None:
    problem, target = Problem.parse(f"136x24x1000:{text}"), device.find(DEVICES[arch])
    configs = space.feasible(problem, target, "mma").configs
    place = MMA_OF_8_BITS.index((text, arch))
    config = configs[len(configs) * place // len(MMA_OF_8_BITS)]
    check(registry.plan(config, problem).launches, target.arch)


@pytest.mark.parametrize("way", WGMMA)
def test_wgmma_compiles(way: str) -> None:
    (text, values), target = WGMMA[way], device.find("h100")
    problem = Problem.parse(text)
    configs = space.feasible(problem, target, "wgmma").configs
    config = next(item for item in configs if values.items() <= item.values.items())
    check(registry.plan(config, problem).launches, target.arch)


@pytest.mark.parametrize(("way", "arch"), SHARED)
def test_simt_compiles_with_every_way_to_share_k(way: str, arch: str) -> None:
    target = device.find(DEVICES[arch])
    workers = target.sms if K_SHARING[way]["reduction"] == "stream" else 0
    # 90 tiles with edges, which do not fill whole waves; A is K-major, rows of B have odd length.
    problem = Problem(513, 577, 8192)
    config = Config.of("simt", {**PLAIN.values, **K_SHARING[way], "workers": workers})
    assert space.rejection(config, problem, target) is None
    check(registry.plan(config, problem).launches, target.arch)


def test_shipped_simt_winners_stay_in_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_SHIPPED_DIR", str(ROOT / "autotune" / "data" / "shipped"))
    card = device.find("h100")
    records = [item for item in shipped.records(card) if item.entries[0].config.family == "simt"]
    records.sort(key=lambda item: item.entries[0].resources.registers, reverse=True)
    for record in records[:3]:
        used = record.entries[0].resources
        template = registry.plan(record.entries[0].config, record.problem).main.template
        program = compile(template, "sm_90", cache=None, here=True)
        assert isinstance(program, Program), program.reason
        assert program.local == 0, (record.problem, program.registers)
        now, then = (by_registers(card, used.threads, n.registers) for n in (program, used))
        assert (now or 0) >= (then or 0), (record.problem, program.registers)
