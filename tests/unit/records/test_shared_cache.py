"""A cache that a group shares: no member's link makes another write, or publish, a file."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from support.fake_runner import compiled
from support.logged import logs
from support.sample_cache import SMALL
from support.sample_records import H100, record

from autotune.cuda import cache as programs
from autotune.errors import AutotuneError
from autotune.families.plan import Template
from autotune.records import Store
from autotune.tuning.trial_log import TrialLog

SECRET = '{"password": 1}\n'


@pytest.fixture
def thesis(tmp_path: Path) -> Path:
    path = tmp_path / "home" / "thesis"
    path.parent.mkdir()
    path.write_text(SECRET)
    return path


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path / "cache"))
    return Store(tmp_path / "cache")


def save(store: Store) -> None:
    store.save(record(problem=SMALL))


def quarantine(store: Store) -> None:
    store.quarantine(H100, "key", "hung")


def compile_program(store: Store) -> None:
    template = Template("probe.cu", "probe", ())
    programs.cached(store.root, "0" * 16, template, "sm_90", lambda: compiled(template, "sm_90"))


def open_log(store: Store) -> None:
    TrialLog(store.root / "studies" / H100.slug / "study.jsonl", "simt")


@pytest.mark.parametrize("target", ["thesis", "new"])
@pytest.mark.parametrize(
    ("planted", "write"),
    [
        (f"records/{H100.slug}/{{record}}", save),
        (f"records/{H100.slug}/{{record}}.tmp", save),
        (f"records/{H100.slug}/{{record}}.broken-1", save),
        (f"records/{H100.slug}/.lock", save),
        (f"quarantine/{H100.slug}.jsonl", quarantine),
        ("quarantine/.lock", quarantine),
        (f"programs/{'0' * 16}.program", compile_program),
        (f"programs/{'0' * 16}.lock", compile_program),
        (f"studies/{H100.slug}/study.jsonl", open_log),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_planted_link_leads_no_writer_elsewhere(
    store: Store, thesis: Path, planted: str, write: Callable[[Store], None], target: str
) -> None:
    link = store.root / planted.format(record=store.path(H100, SMALL).name)
    link.parent.mkdir(parents=True)
    link.symlink_to(thesis.with_name(target))
    with suppress(AutotuneError, OSError):  # some writers refuse, others replace the link
        write(store)
    assert [path.name for path in thesis.parent.iterdir()] == ["thesis"]
    assert thesis.read_text() == SECRET
    contents = [path.read_text("latin-1") for path in store.root.rglob("*") if _is_file(path)]
    assert not any("password" in content for content in contents)


def test_record_behind_a_link_is_replaced(store: Store, thesis: Path) -> None:
    path = store.path(H100, SMALL)
    path.parent.mkdir(parents=True)
    path.symlink_to(thesis)
    with logs("broken-1"):
        save(store)
    assert not path.is_symlink()
    assert path.with_name(f"{path.name}.broken-1").readlink() == thesis
    assert store.load(H100, SMALL) == record(problem=SMALL)


def _is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()
