"""`autotune cache`: what each verb prints and does, and its exit status."""

from __future__ import annotations

import getpass
import json
import lzma
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.command_line import answer, printed, run
from support.fake_runner import ORIGIN, FakeRunner, compiled
from support.full_disk import small_files
from support.logged import logs
from support.sample_cache import SMALL, TUNED, entries_of
from support.sample_records import H100, SQUARE, entry, record
from support.sample_user_kernels import kernel

from autotune.cuda import compiler, cublaslt
from autotune.device import find
from autotune.families.config import Config
from autotune.files import limits
from autotune.measure import devices, targets
from autotune.measure.measurement import Evidence
from autotune.measure.recording import Origin
from autotune.measure.targets import Target
from autotune.problem import Problem
from autotune.problem.call import KernelCall
from autotune.records import KernelRecord, Record, Store, bundle, codec, exchange, inventory, ranges
from autotune.records.inventory import Stamped
from autotune.records.kernel_record import Geometry, KernelEntry, KernelLaunch
from autotune.records.ranges import Segment

T4 = find("t4")


WIDE = Problem(64, 128, 64, "bf16")


@pytest.fixture(autouse=True)
def store(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The cache, on a machine with the driver and compiler of `record`."""
    monkeypatch.setattr(targets, "here", lambda: replace(ORIGIN, compiler="NVRTC 13.0"))
    return Store(cache)


@pytest.fixture
def another(tmp_path: Path) -> Store:
    """Another cache."""
    return Store(tmp_path / "other")


def failure(capsys: pytest.CaptureFixture[str], *arguments: str, status: int) -> str:
    """The standard error of a command line that fails."""
    assert run(*arguments) == status
    return capsys.readouterr().err


# list


def test_cache_without_a_verb_lists_the_cache(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    store.save(record())
    store.save(record(problem=SMALL, evidence="predicted"))
    lines = [line.split() for line in printed(capsys, "cache").splitlines()]
    assert [line[:-1] for line in lines if H100.name.split()[1] in line] == [
        [*f"{H100.name}, measured".split(), "1"],
        [*f"{H100.name}, predicted".split(), "1"],
    ]


def test_list_json_counts_files_and_bytes(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    store.save(record(source="0ld"))
    store.save(record())
    ranges.save(store.root, TUNED)
    data = answer(capsys, "cache", "list")
    sizes = [path.stat().st_size for path in store.root.rglob("*json*")]
    assert data["bytes"] == sum(sizes)
    counted = {"device": H100.name, "files": 1}
    assert data["records"] == [
        counted | {"evidence": "measured", "bytes": _size(store, "records")},
        counted | {"evidence": "ranges, measured", "bytes": _size(store, "ranges")},
    ]


def _size(store: Store, folder: str) -> int:
    (path,) = (store.root / folder).rglob("*.json")
    return path.stat().st_size


def test_listing_does_not_create_the_cache(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert answer(capsys, "cache", "list")["bytes"] == 0
    assert not store.root.exists()


# export


def _exported(path: Path) -> list[str]:
    content = bundle.loads(path.read_bytes())
    return [
        *(str(record.problem) for record in content.records),
        *(str(tuned) for tuned in content.ranges),
    ]


def test_export_writes_all_records_and_ranges(store: Store, tmp_path: Path) -> None:
    saved = [store.save(record(problem=problem)) for problem in (SMALL, SQUARE)]
    ranges.save(store.root, TUNED)
    assert run("cache", "export", str(tmp_path / "all.json")) == 0
    content = bundle.loads((tmp_path / "all.json").read_bytes())
    assert content == bundle.Bundle(tuple(saved), (TUNED,))


def test_import_reads_any_number_of_exported_records(
    store: Store, another: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle, "CHUNK", 3)
    monkeypatch.setattr(limits, "BUNDLE", 4_000)  # a bundle takes 1,400 bytes
    for number in range(1, 11):
        store.save(record(problem=Problem(64 * number, 64, 64)))
    path = tmp_path / "all.jsonl.xz"
    assert run("cache", "export", str(path)) == 0
    assert path.stat().st_size > limits.BUNDLE
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(another.root))
    assert run("cache", "import", str(path)) == 0
    assert another.records(H100) == store.records(H100)


def test_import_of_a_file_broken_at_its_end_merges_nothing(
    store: Store, another: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle, "CHUNK", 1)
    for problem in (SMALL, SQUARE):
        store.save(record(problem=problem))
    path = tmp_path / "all.jsonl.xz"
    assert run("cache", "export", str(path)) == 0
    path.write_bytes(path.read_bytes()[:-30])
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(another.root))
    assert run("cache", "import", str(path)) == 1
    assert not another.root.exists()


def test_export_prefers_the_best_evidence(store: Store, tmp_path: Path) -> None:
    measured = store.save(record())
    store.save(record(evidence="predicted"))
    assert run("cache", "export", str(tmp_path / "all.json")) == 0
    assert bundle.loads((tmp_path / "all.json").read_bytes()).records == (measured,)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("64x128x64:bf16:nn",), ["64x128x64:bf16:nn"]),
        (("64x128x64",), ["64x128x64:bf16:nn"]),
        (("64x128x64:f32:nn", "4096x4096x4096"), ["4096x4096x4096:f32:nn"]),
        (("64x64x64:f32",), ["64x64x64:f32:nn", "1..64x64x64:f32:nn"]),
        (("--device", "t4"), ["4096x4096x4096:f32:nn"]),
        (("--device", T4.slug), ["4096x4096x4096:f32:nn"]),
    ],
)
def test_export_filters_by_problem_and_device(
    store: Store, tmp_path: Path, options: tuple[str, ...], expected: list[str]
) -> None:
    for problem in (SMALL, WIDE):
        store.save(record(problem=problem))
    store.save(record(device=T4))
    ranges.save(store.root, TUNED)
    assert run("cache", "export", str(tmp_path / "part.json"), *options) == 0
    assert _exported(tmp_path / "part.json") == expected


def test_exporting_nothing_exits_with_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = failure(capsys, "cache", "export", str(tmp_path / "all.json"), status=3)
    assert "no matching record or range" in text
    assert not (tmp_path / "all.json").exists()


def test_export_writes_to_standard_output(
    store: Store, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    saved = store.save(record())
    assert run("cache", "export", "-") == 0
    assert bundle.loads(capfdbinary.readouterr().out).records == (saved,)


def test_export_refuses_bundle_and_json_on_one_stream(capsys: pytest.CaptureFixture[str]) -> None:
    assert "not both" in failure(capsys, "cache", "export", "-", "--json", status=2)


def test_export_json_counts_what_it_wrote(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store.save(record())
    file = tmp_path / "all.json"
    data = answer(capsys, "cache", "export", str(file))
    assert data == {"file": str(file), "records": 1, "ranges": 0, "bytes": file.stat().st_size}


def test_full_disk_keeps_the_older_export(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store.save(record())
    file = tmp_path / "all.json"
    assert run("cache", "export", str(file)) == 0
    older = file.read_bytes()
    with small_files(100):
        text = failure(capsys, "cache", "export", str(file), status=1)
    assert "File too large" in text
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["all.json"]
    assert file.read_bytes() == older


def test_export_replaces_only_bundles(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store.save(record())
    file = tmp_path / "thesis"
    file.write_text("years")
    text = failure(capsys, "cache", "export", str(file), status=1)
    assert "thesis exists and is not a bundle of autotune; give another path, or remove it" in text
    assert file.read_text() == "years"


# export --submit


def test_submission_says_what_measured_it(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cublaslt, "version", lambda: "13.1.0")
    saved = [store.save(record(problem=problem)) for problem in (SMALL, SQUARE)]
    ranges.save(store.root, TUNED)
    assert run("cache", "export", str(tmp_path / "card.xz"), "--submit") == 0
    made = bundle.loads((tmp_path / "card.xz").read_bytes())
    tools = "13.0", "NVRTC 13.0", "13.1.0", "0.1.0", "2026-11-21T12:00:00Z", "5e1f"
    assert made == bundle.Bundle(tuple(saved), (), bundle.Submission(H100.name, *tools))


def test_submission_names_no_path_user_or_host(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lzma, "compress", bytes)  # to read it as it is
    store.save(record())
    assert run("cache", "export", str(tmp_path / "card.xz"), "--submit") == 0
    text = (tmp_path / "card.xz").read_bytes()
    private = str(store.root), str(Path.home()), platform.node(), getpass.getuser()
    assert H100.name.encode() in text
    assert [word for word in private if len(word) > 1 and word.encode() in text] == []


@pytest.mark.parametrize(
    ("kept", "told"),
    [
        (record(problem=SMALL, evidence="predicted"), "of 2 records 1 predicted"),
        (record(problem=SMALL, evidence="replayed"), "of 2 records 1 replayed"),
        (record(problem=SMALL, source="0ld"), "of 2 records 1 stale"),
        (record(problem=SMALL, device=T4), f"records of {H100.name}, {T4.name}"),
    ],
    ids=["predicted", "replayed", "stale", "of another card"],
)
def test_submission_has_fresh_measured_records_of_one_card(
    kept: Record, told: str, store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store.save(record())
    store.save(kept)
    assert told in failure(capsys, "cache", "export", str(tmp_path / "card"), "--submit", status=2)
    assert not (tmp_path / "card").exists()


def test_export_names_a_missing_directory(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store.save(record())
    text = failure(capsys, "cache", "export", str(tmp_path / "no" / "all.json"), status=1)
    assert "cannot write " in text
    assert "no/all.json: No such file or directory (" in text


# import


def _bundle(path: Path, *records: Record) -> str:
    exchange.write(path, bundle.Bundle(records, (TUNED,)))
    return str(path)


def test_import_adds_records_and_ranges(store: Store, tmp_path: Path) -> None:
    assert run("cache", "import", _bundle(tmp_path / "a.json", record())) == 0
    assert store.load(H100, SQUARE) == record()
    assert ranges.load(store.root, H100) == (TUNED,)


def test_import_counts_its_results(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store.save(record(entry(16, 900.0)))
    store.save(record(problem=SMALL))
    store.save(record(problem=WIDE))
    better = record(entry(8, 800.0))
    older = record(problem=WIDE, source="0ld")
    file = _bundle(tmp_path / "a.json", better, record(problem=SMALL), older)
    assert printed(capsys, "cache", "import", file).splitlines() == [
        "4 records and ranges: 1 new, 1 better, 1 equal, 1 skipped",
        f"skipped: {WIDE}, measured on {H100.name}: kernel sources 0ld, now 5e1f",
    ]


def test_importing_an_own_export_changes_nothing(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store.save(record(entry(16, 900.0), entry(8, 800.0), baseline_us=700.0))
    ranges.save(store.root, TUNED)
    file = str(tmp_path / "all.json")
    assert run("cache", "export", file) == 0
    arrivals = answer_of(capsys, "cache", "import", file, "--json")
    assert [arrival["change"] for arrival in arrivals] == ["equal", "equal"]


def answer_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, str]]:
    """The result of each record and range that an import reads."""
    capsys.readouterr()
    data = json.loads(printed(capsys, *arguments))
    arrivals: list[dict[str, str]] = data["arrivals"]
    return arrivals


@pytest.mark.parametrize(("points", "change"), [((32, 64), "better"), ((32,), "skipped")])
def test_import_keeps_the_range_with_more_tuned_sizes(
    store: Store,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    points: tuple[int, ...],
    change: str,
) -> None:
    ranges.save(store.root, TUNED)
    theirs = replace(TUNED, segments=(Segment(1, 32, points[0]), Segment(33, 64, points[-1])))
    exchange.write(tmp_path / "a.json", bundle.Bundle((), (theirs,)))
    (arrival,) = answer_of(capsys, "cache", "import", str(tmp_path / "a.json"), "--json")
    assert arrival["change"] == change
    assert ranges.load(store.root, H100) == (theirs if change == "better" else TUNED,)


def _kernel(time_us: float = 12.5, **source: Any) -> KernelRecord:
    """A user kernel's record with its source, which may have other fields."""
    config = Config.of("saxpy", {"THREADS": 256, "EACH": 1})
    call = KernelCall("saxpy", ("float32[8]", "int32=8"))
    geometry = Geometry((4, 1, 1), (256, 1, 1), 0)
    launch = KernelLaunch(replace(kernel().source, **source), call, (geometry,))
    own = KernelEntry.of(replace(entry(16, time_us), config=config), launch)
    return KernelRecord(H100, "measured", (own,), None, record().provenance, call)


def _single(path: Path, content: KernelRecord) -> str:
    path.write_bytes(codec.dumps(content))
    return str(path)


def test_user_kernels_are_not_imported_unasked(
    store: Store, another: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    another.save(_kernel())
    skipped = "user kernels skipped: 1; they bring source code, --kernels takes them"
    for verb in (
        ("import", _single(tmp_path / "k.json", _kernel())),
        ("import", str(another.root)),
    ):
        assert printed(capsys, "cache", *verb).splitlines()[0] == skipped
    assert not store.kernels("saxpy")


def test_user_kernels_are_listed_before_they_are_imported(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = _kernel(options=("--use_fast_math",))
    file = _single(tmp_path / "k.json", theirs)
    assert printed(capsys, "cache", "import", "--kernels", file).splitlines() == [
        "user kernels, with the source code of their authors: 1",
        f"saxpy(float32[8], int32=8) on {H100.name}: source {theirs.best.source_digest[:12]}, "
        "options --use_fast_math",
        "1 records and ranges: 1 new, 0 better, 0 equal, 0 skipped",
    ]
    assert store.kernels("saxpy") == [theirs]


@pytest.mark.parametrize("evidence", ["measured", "replayed"])
def test_imported_kernel_replaces_none_of_another_source(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str], evidence: Evidence
) -> None:
    own = store.save(_kernel())
    theirs = replace(_kernel(9.0, options=("--use_fast_math",)), evidence=evidence)
    file = _single(tmp_path / "k.json", theirs)
    *_, refused = printed(capsys, "cache", "import", "--kernels", file).splitlines()
    assert f"from source {own.best.source_digest[:12]}, theirs" in refused
    assert store.kernels("saxpy") == [own]


def test_imported_kernel_of_the_same_source_is_merged(store: Store, tmp_path: Path) -> None:
    store.save(_kernel())
    faster = replace(_kernel().entries[0], config=Config.of("saxpy", {"THREADS": 64, "EACH": 1}))
    theirs = replace(_kernel(), entries=(faster,))
    assert run("cache", "import", "--kernels", _single(tmp_path / "k.json", theirs)) == 0
    assert len(store.kernels("saxpy")[0].entries) == 2


def test_verify_shows_paths_with_markup(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    path = store.root / "records" / "k[" / "nope]\x1b[2J.json"
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    assert run("cache", "verify") == 1
    shown = capsys.readouterr().out.replace("\n", "")
    assert "\x1b" not in shown
    assert r"k[/nope]\x1b[2J.json" in shown.replace(" ", "")


def test_import_takes_the_file_of_a_record(store: Store, another: Store) -> None:
    saved = another.save(record())
    assert run("cache", "import", str(another.path(H100, SQUARE))) == 0
    assert store.load(H100, SQUARE) == saved


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "truncated": lambda text: text[:-40],
    "changed": lambda data: lzma.compress(lzma.decompress(data).replace(b"900.0", b"100.0")),
    "another thing": lambda _: b"[]",
    "deep": lambda _: b"[" * 100_000,
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_broken_bundle_aborts_the_whole_import(
    store: Store,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    damage: Callable[[bytes], bytes],
) -> None:
    whole = _bundle(tmp_path / "a.json", record(problem=SMALL))
    broken = Path(_bundle(tmp_path / "b.json", record(problem=WIDE), record()))
    broken.write_bytes(damage(broken.read_bytes()))
    text = failure(capsys, "cache", "import", whole, str(broken), status=1)
    assert text.startswith(f"error: {broken}: no bundle or record that can be used: ")
    assert not store.root.exists()


def test_import_names_a_missing_file(capsys: pytest.CaptureFixture[str]) -> None:
    text = failure(capsys, "cache", "import", "/no/such.json", status=2)
    assert "/no/such.json: cannot be read: No such file" in text


def test_import_of_a_pipe_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "a.json")
    text = failure(capsys, "cache", "import", str(tmp_path / "a.json"), status=2)
    assert "a.json: cannot be read: Is a named pipe, not a regular file; give a bundle" in text


def test_full_disk_keeps_all_records_whole(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = store.save(record(entry(16, 900.0)))
    file = _bundle(tmp_path / "a.json", record(entry(8, 800.0)))
    with small_files(1000):
        assert "cannot be written" in failure(capsys, "cache", "import", file, status=1)
    assert store.load(H100, SQUARE) == saved


# merge


def test_merge_adds_another_cache(store: Store, another: Store) -> None:
    store.save(record(entry(16, 900.0)))
    another.save(record(entry(8, 800.0)))
    ranges.save(another.root, TUNED)
    assert run("cache", "import", str(another.root)) == 0
    merged = store.load(H100, SQUARE)
    assert merged is not None
    assert [entry.measurement.time_us for entry in merged.entries] == [800.0, 900.0]
    assert ranges.load(store.root, H100) == (TUNED,)


def test_merge_skips_and_names_broken_files(
    store: Store, another: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    another.save(record())
    another.save(record(problem=SMALL))
    broken = another.path(H100, SMALL)
    broken.write_text("{")
    assert run("cache", "import", str(another.root)) == 0
    assert f"warning: {broken}: skipped: " in capsys.readouterr().err
    assert store.records(H100) == [record()]


def test_merging_the_cache_with_itself_is_refused(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    store.save(record())
    assert "is the cache itself" in failure(capsys, "cache", "import", str(store.root), status=2)


def test_bundles_and_caches_are_imported_together(
    store: Store, another: Store, tmp_path: Path
) -> None:
    another.save(record())
    file = _bundle(tmp_path / "a.json", record(problem=SMALL))
    assert run("cache", "import", file, str(another.root)) == 0
    assert {saved.problem for saved in store.records(H100)} == {SQUARE, SMALL}


def test_broken_bundle_beside_a_cache_merges_nothing(
    store: Store, another: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    another.save(record())
    (tmp_path / "b.json").write_text("[]")
    failure(capsys, "cache", "import", str(another.root), str(tmp_path / "b.json"), status=1)
    assert not store.root.exists()


# verify


def test_verify_counts_an_intact_cache(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    store.save(record())
    assert printed(capsys, "cache", "verify") == "1 files: 0 broken, 0 stale records\n"


def test_verify_reports_a_changed_record_as_broken(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    store.save(record(entry(16, 900.0)))
    path = store.path(H100, SQUARE)
    path.write_bytes(path.read_bytes().replace(b"900.0", b"100.0"))
    assert run("cache", "verify", "--json") == 1
    (broken,) = json.loads(capsys.readouterr().out)["broken"]
    assert broken["file"] == str(path)
    assert "it was changed" in broken["why"]


def test_verify_names_what_made_a_record_stale(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    store.save(record(source="0ld"))
    store.save(record(device=T4, problem=SMALL, source="0ld"))
    data = answer(capsys, "cache", "verify", "--device", H100.slug)
    assert data["stale"] == [
        {"record": str(SQUARE), "device": H100.name, "changed": "kernel sources 0ld, now 5e1f"}
    ]


def test_stale_records_exit_with_0(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    store.save(record(source="0ld"))
    assert "kernel sources 0ld, now 5e1f" in printed(capsys, "cache", "verify")


def test_verify_shows_other_tools_without_calling_them_stale(
    store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(targets, "here", lambda: Origin("13.1", "NVRTC 13.0", "5e1f"))
    store.save(record())
    data = answer(capsys, "cache", "verify")
    changed = {"record": str(SQUARE), "device": H100.name, "changed": "driver 13.0, now 13.1"}
    assert (data["stale"], data["other_tools"]) == ([], [changed])
    text = " ".join(printed(capsys, "cache", "verify").split())
    assert text.startswith("measured with another driver or compiler; `autotune cache verify --re")
    assert "driver 13.0, now 13.1" in text
    assert text.endswith("1 files: 0 broken, 0 stale records")


def test_retime_needs_a_gpu(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    store.save(record(source="0ld"))
    assert "no CUDA driver" in failure(capsys, "cache", "verify", "--retime", status=1)


@pytest.fixture
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a fake H100."""

    @contextmanager
    def opened(problem: Problem, device: str) -> Iterator[Target]:
        del problem, device
        yield Target(FakeRunner(), ORIGIN)

    monkeypatch.setattr(devices, "probe", lambda _=0: H100)
    monkeypatch.setattr(targets, "opened", opened)
    monkeypatch.setattr(compiler, "compile", lambda template, arch, **_: compiled(template, arch))


@pytest.mark.usefixtures("on_gpu")
def test_retime_measures_stale_records_of_the_gpu(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    store.save(entries_of(23, 16, 8, 32))
    theirs = store.save(record(device=T4, source="0ld"))
    assert printed(capsys, "cache", "verify", "--retime", "--top", "2").splitlines() == [
        "2 files: 0 broken, 1 stale records",
        f"{SMALL}: 2 measured again, best 101.00 us (was 500.00 us)",
    ]
    assert store.load(T4, SQUARE) == theirs


def test_verify_stamps_records_of_the_same_code(
    store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stamped(records: Sequence[Record], *_: object) -> list[Stamped]:
        (old,) = (record for record in records if record.problem == SMALL)
        made = replace(old.provenance, source="5e1f")
        return [Stamped(old, store.save(replace(old, provenance=made)))]

    monkeypatch.setattr(inventory, "stamp", stamped)
    store.save(record(source="0ld"))
    store.save(record(problem=SMALL, source="0ld"))
    data = answer(capsys, "cache", "verify", "--device", H100.slug)
    stale = data["stale"]
    assert isinstance(stale, list)
    assert [row["record"] for row in stale] == [str(SQUARE)]
    assert data["counts"] == {"stale": 1, "stamped": 1, "other_tools": 0}
    store.save(record(problem=SMALL, source="0ld"))
    last = printed(capsys, "cache", "verify", "--device", H100.slug).splitlines()[-1]
    assert last.endswith("0 broken, 1 stale records, 1 stamped (same machine code)")


@pytest.mark.usefixtures("on_gpu")
def test_retimed_records_are_not_stale(
    store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(targets, "here", lambda: ORIGIN)
    store.save(entries_of(23))
    assert answer(capsys, "cache", "verify", "--retime")["retimed"] == [
        {
            "record": str(SMALL),
            "device": H100.name,
            "time_us": 101.0,
            "before_us": 500.0,
            "entries": 1,
            "failed": [],
            "trouble": None,
        }
    ]
    assert answer(capsys, "cache", "verify")["stale"] == []


@pytest.mark.usefixtures("on_gpu")
def test_retime_measures_records_of_another_driver(
    store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(targets, "here", lambda: ORIGIN)
    earlier = entries_of(23, 16, 8, 32)
    made = replace(earlier.provenance, driver="12.8", source=ORIGIN.source)
    old = store.save(replace(earlier, provenance=made))
    assert printed(capsys, "cache", "verify", "--retime", "--top", "2").splitlines() == [
        "1 files: 0 broken, 0 stale records",
        f"{SMALL}: 2 measured again, best 101.00 us (was 500.00 us)",
    ]
    new = store.load(H100, SMALL)
    assert new is not None
    # Entries that were not measured again would be of the other driver.
    assert {entry.config for entry in new.entries} == {entry.config for entry in old.entries[:2]}
    assert answer(capsys, "cache", "verify")["other_tools"] == []


def test_retime_of_no_configuration_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--top" in failure(capsys, "cache", "verify", "--retime", "--top", "0", status=2)


# prune


@pytest.fixture
def crowded(store: Store) -> Store:
    """A cache with one record, one superseded, one broken, a program, a trial log and a journal of
    an earlier version."""
    store.save(record(source="0ld"))
    store.save(record())
    store.path(H100, SMALL).write_text("{")
    with logs("kept as"):
        store.save(record(problem=SMALL))
    studies = f"studies/{H100.slug}"
    for folder, name in (
        ("programs", "abc.program"),
        (studies, "a.measured.log"),
        (studies, "a.measured.0a1b.jsonl"),
    ):
        (store.root / folder).mkdir(parents=True, exist_ok=True)
        (store.root / folder / name).write_text("{}\n")
    return store


def _names(store: Store) -> set[str]:
    names = {path.name for path in store.root.rglob("*") if path.is_file()} - {".lock"}
    return {name.replace("4096x4096x4096-f32-nn", "old").replace("64x64x64-f32-nn", "small")
            for name in names}  # fmt: skip


EVERYTHING = {
    "old.json", "old.json.superseded-1", "small.json", "small.json.broken-1",
    "abc.program", "a.measured.log", "a.measured.0a1b.jsonl",
}  # fmt: skip


@pytest.mark.parametrize(
    ("options", "deleted"),
    [
        ((), {"old.json.superseded-1", "small.json.broken-1", "abc.program", "a.measured.log"}),
        (("superseded",), {"old.json.superseded-1"}),
        (("broken",), {"small.json.broken-1"}),
        (("programs",), {"abc.program"}),
        (("journals",), {"a.measured.log"}),
        (("journals", "--device", "t4"), set()),
        (("trials",), {"a.measured.0a1b.jsonl"}),
        (("records", "--device", H100.slug), {"old.json", "small.json"}),
        (("broken", "--older-than", "1h"), set()),
        (("broken", "--older-than", "0s"), {"small.json.broken-1"}),
        (("--dry-run",), set()),
    ],
)
def test_prune_deletes_the_selected_files_only(
    crowded: Store, options: tuple[str, ...], deleted: set[str]
) -> None:
    assert _names(crowded) == EVERYTHING
    assert run("cache", "prune", *options) == 0
    assert _names(crowded) == EVERYTHING - deleted


def test_prune_counts_bytes(crowded: Store, capsys: pytest.CaptureFixture[str]) -> None:
    (path,) = crowded.root.rglob("*.superseded-1")
    size = path.stat().st_size
    assert printed(capsys, "cache", "prune", "superseded", "--dry-run") == (
        f"1 files, {size:,} bytes to delete\n"
    )
    assert answer(capsys, "cache", "prune", "superseded") == {
        "deleted": True,
        "files": [str(path)],
        "bytes": size,
    }


def test_prune_deletes_old_files(crowded: Store) -> None:
    (path,) = crowded.root.rglob("*.broken-1")
    os.utime(path, (0, time.time() - 31 * 86400))
    assert run("cache", "prune", "--older-than", "30d") == 0
    assert _names(crowded) == EVERYTHING - {"small.json.broken-1"}


def test_prune_records_needs_a_device(crowded: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert "give --device" in failure(capsys, "cache", "prune", "records", status=2)
    assert _names(crowded) == EVERYTHING


# list --problems


def test_list_has_a_row_for_each_record(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    store.save(record(problem=SQUARE, baseline_us=1080.0))
    store.save(record(problem=SQUARE, device=find("a100")))
    listed = answer(capsys, "cache", "list", "--problems")["records"]
    assert isinstance(listed, list)
    assert [(row["problem"], row["device"], row["ratio"]) for row in listed] == [
        (str(SQUARE), find("a100").name, None),
        (str(SQUARE), H100.name, 1.2),
    ]
    header, _, own = printed(capsys, "cache", "list", "--problems").splitlines()
    assert header.split() == [
        *["problem", "device", "evidence", "time", "over", "cuBLAS", "age", "changed"]
    ]
    assert own.split()[:7] == [str(SQUARE), *H100.name.split(), "measured", "900.00"]


def test_list_of_records_is_of_a_device(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    for card in (H100, find("a100")):
        store.save(record(device=card))
    listed = answer(capsys, "cache", "list", "--problems", "--device", "a100")["records"]
    assert isinstance(listed, list)
    assert [row["device"] for row in listed] == [find("a100").name]


def test_empty_cache_has_no_records(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "cache", "list", "--problems")
    hint = "`autotune tune 1024x1024x1024 --device replay:h100`"
    assert text == f"no records; {hint} makes one\n"


def test_list_of_records_warns_of_broken_files(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    path = store.path(H100, SQUARE)
    path.parent.mkdir(parents=True)
    path.write_text("{")
    assert run("cache", "list", "--problems") == 0
    assert capsys.readouterr().err.startswith(f"warning: {path}: skipped: it is not JSON")


def test_list_takes_a_device_for_records_only() -> None:
    assert run("cache", "list", "--device", "h100") == 2
