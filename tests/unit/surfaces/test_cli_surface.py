"""The command line's help, exit statuses, and the keys and types of what its verbs print as JSON.

`VERBS` and `STATUSES` are the only places with verbs and options: a verb that is renamed or folded
into another changes its words there, and its snapshot stays.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support import surfaces
from support.command_line import own_machine, run
from support.exported_library import fake_build
from support.fake_runner import ORIGIN, tiled
from support.help_pages import pages
from support.sample_cache import SMALL, TUNED
from support.sample_recording import DEVICE, PROBLEM
from support.sample_records import H100, SQUARE, entry, record
from support.sample_user_kernels import KernelRunner, recorded

from autotune.cuda import compiler
from autotune.device import find
from autotune.measure import devices, targets
from autotune.measure.measurement import Energy, Measurement
from autotune.measure.without_gpu import ReplayRunner
from autotune.problem import Problem
from autotune.records import Record, Store, ranges
from autotune.report import doctor
from autotune.report.doctor import Check
from autotune.user_kernels import bench

SNAPSHOT = "command-line.json"
SHAPE, HERE = PROBLEM.shape, ("--device", DEVICE)
UNTUNED = "64x64x64", "--device", "t4"
SPEC = """
import numpy as np
from autotune import Search
KERNEL = {
    "source": "template <int THREADS, int EACH> __global__ void fill(float* x) { *x = EACH; }",
    "name": "fill",
    "parameters": {"THREADS": (32, 64), "EACH": (1,)},
    "grid": 1,
    "block": lambda p: p["THREADS"],
    "arguments": [np.zeros(64, np.float32)],
    "reference": lambda out: [out + 1],
    "search": Search(trials=1),
}
"""

VERBS: dict[str, tuple[str, ...]] = {
    "doctor": ("doctor",),
    "device": ("device", "h100"),
    "devices of the catalogue": ("device", "--list"),
    "limits of an SM": ("device", "sm_90"),
    "occupancy of tiles": ("occupancy", "h100", "--tile-width", "8,16"),
    "occupancy of tiles, two devices": ("occupancy", "h100", "t4", "--tile-width", "8,16"),
    "occupancy of a kernel": ("occupancy", "h100", "--threads", "256", "--registers", "40"),
    "occupancy of a sweep": ("occupancy", "h100", "--threads", "64..512", "--registers", "40"),
    "tuned problem": ("tune", SHAPE, *HERE, "--trials", "3", "--quiet"),
    "tuned problems": ("tune", SHAPE, "64x64x64", *HERE, "--trials", "3", "--quiet"),
    "tuned problem of one family": (
        *("tune", SHAPE, *HERE, "--family", "tiled", "--trials", "3", "--quiet"),
    ),
    "tuned kernel": ("tune", "{folder}/spec.py", "--quiet"),
    "best": ("best", SHAPE, *HERE),
    "best of an untuned problem": ("best", *UNTUNED),
    "best with cold times and energies": (
        *("best", "512x512x512", *HERE, "--objective", "energy"),
    ),
    "explained winner": ("best", SHAPE, *HERE, "--why"),
    "explained configuration": (
        *("best", "64x64x64", "--why", "tiled:tile_width=16", "--device", "t4"),
    ),
    "explained illegal configuration": (
        *("best", "64x64x64", "--why", "tiled:tile_width=99", "--device", "t4"),
    ),
    "trials": ("best", SHAPE, *HERE, "--trials"),
    "ladder": ("ladder", "256", "--device", "h100"),
    "report of a problem": ("report", SHAPE, *HERE),
    "report of several": ("report",),
    "exported problem": ("export", SHAPE, *HERE, "--out", "{folder}/library"),
    "exported kernel": ("export", "saxpy", "--format", "h", "--out", "{folder}/kernel"),
    "check": ("check", SHAPE, "--against", "{folder}/bundle.jsonl.xz", *HERE, "--min", "0.5"),
    "cache": ("cache", "list"),
    "problems of the cache": ("cache", "list", "--problems"),
    "bundle": ("cache", "export", "{folder}/other.jsonl.xz"),
    "imported bundle": ("cache", "import", "{folder}/bundle.jsonl.xz"),
    "merged cache": ("cache", "import", "{folder}/another"),
    "verified cache": ("cache", "verify"),
    "pruned cache": ("cache", "prune", "superseded", "--dry-run"),
    "fingerprint": ("cache", "list", "--fingerprint", *HERE),
}
"""The command of each surface; `--json` is added."""

MAPS = "params", "rejected", "metrics", "shapes", "values", "failures", "others", "sources"
"""Keys of objects whose keys are data."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a machine without a GPU, whose cache has a record of every kind."""
    root = tmp_path_factory.mktemp("machine")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTOTUNE_SHIPPED_DIR", str(root / "shipped"))
        cache = own_machine(patch, root)
        patch.setattr(targets, "here", lambda: replace(ORIGIN, compiler="NVRTC 13.0"))
        patch.setattr(compiler, "compile", lambda template, arch, **_: fake_build(template, arch))
        checks = [Check("Python", ok, "3.12", "install it") for ok in (True, False, None)]
        patch.setattr(doctor, "checks", lambda: checks)
        patch.setattr(bench, "open_kernel_runner", lambda *_, **__: Opened())
        _fill(Store(cache), root)
        yield root


class Opened(KernelRunner):
    """A runner of user kernels with a driver."""

    driver = "13.0"


def _fill(store: Store, root: Path) -> None:
    assert run("tune", SHAPE, *HERE, "--sampler", "exhaustive", "--quiet") == 0
    assert run("cache", "export", str(root / "bundle.jsonl.xz")) == 0
    (root / "spec.py").write_text(SPEC)
    for source in ("0lder", "0ld"):
        store.save(record(entry(16, 900.0), entry(32, 800.0), problem=SMALL, source=source))
    own = record(problem=replace(SMALL, compute="tf32"))
    store.save(replace(own, provenance=replace(own.provenance, driver="12.8")))
    store.save(metered())
    store.save(recorded())
    ranges.save(store.root, TUNED)
    store.path(H100, replace(SQUARE, compute="f16")).write_bytes(b"{}")
    Store(root / "another").save(record(baseline_us=800.0))


def metered() -> Record:
    """A record with cold times and energies, of cuBLAS too."""
    energy = Energy(0.002, 1e-5, 400.0, 1500.0)
    times = [
        Measurement(time_us, 0.1, 20, 1.2 * time_us, 1e-4, 1e-3, 1e-6, 0.2, energy)
        for time_us in (9.0, 9.5, 9.02)
    ]
    problem = Problem(512, 512, 512)
    entries = [
        replace(entry(width, 9.0), config=tiled(width), measurement=time)
        for width, time in zip((16, 32), times, strict=False)
    ]
    return replace(record(*entries, problem=problem), baseline=times[2])


@pytest.mark.parametrize("surface", VERBS)
def test_json_keeps_its_keys_and_types(
    surface: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if surface == "tuned kernel":
        monkeypatch.setattr(devices, "probe", lambda _=0: find("h100"))
    capsys.readouterr()
    run(*(word.format(folder=folder) for word in VERBS[surface]), "--json")
    out, err = capsys.readouterr()
    assert out, err
    surfaces.hold(SNAPSHOT, surfaces.shape_of(json.loads(out), MAPS), surface)


def test_help_of_every_verb_is_as_held() -> None:
    surfaces.hold("help.txt", pages())


def test_every_held_surface_has_a_verb() -> None:
    assert surfaces.surfaces_of(SNAPSHOT) == sorted(VERBS)


STATUSES: dict[str, tuple[int, tuple[str, ...]]] = {
    "done": (0, ("best", SHAPE, *HERE)),
    "help": (0, ("--help",)),
    "version": (0, ("--version",)),
    "a predicted best": (0, ("best", *UNTUNED)),
    "a broken cache": (1, ("cache", "verify")),
    "a slower kernel": (
        *(1, ("check", SHAPE, "--against", "{folder}/bundle.jsonl.xz", *HERE, "--min", "2")),
    ),
    "no GPU": (1, ("tune", SHAPE)),
    "a folder that is a file": (1, ("export", SHAPE, *HERE, "--out", "{folder}/spec.py")),
    "no verb": (2, ("nosuch",)),
    "no such option": (2, ("best", SHAPE, "--nosuch")),
    "a malformed shape": (2, ("best", "64x64", *HERE)),
    "an unknown device": (2, ("best", SHAPE, "--device", "nosuch")),
    "an unknown configuration": (2, ("best", SHAPE, "--why", "nosuch", *HERE)),
    "no shape": (2, ("tune", *HERE)),
    "no recording": (3, ("tune", "64x64x64", *HERE)),
    "no trials": (3, ("best", "8x8x8", "--trials", *HERE)),
    "nothing to report": (3, ("report", "8x8x8", *HERE, "--out", "{folder}/page.html")),
    "no record to export": (*(3, ("cache", "export", "{folder}/none.jsonl.xz", "8x8x8")),),
    "a shape that no bundle has": (
        *(3, ("check", "64x64x64", "--against", "{folder}/bundle.jsonl.xz", *HERE)),
    ),
    "interrupted": (130, ("tune", SHAPE, *HERE, "--sampler", "exhaustive")),
}
"""The exit status of each outcome, with a command that has it."""


@pytest.mark.parametrize("outcome", STATUSES)
def test_outcome_keeps_its_exit_status(
    outcome: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    status, words = STATUSES[outcome]
    if status == 130:
        monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(folder / "interrupted"))
        monkeypatch.setattr(ReplayRunner, "measure", interrupt)
    assert run(*(word.format(folder=folder) for word in words)) == status
    del capsys
