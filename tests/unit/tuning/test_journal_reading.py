"""Reading a journal file without changing it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import sample_journals
from support.sample_journals import CONFIGS, FAILED, MEASURED, add, journal, measured

from autotune.errors import CacheError
from autotune.tuning.search.journal.reading import read

cache = sample_journals.cache


def test_finished_trials_are_read_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "trials.log"
    opened = journal(path)
    assert opened.claim(CONFIGS[2])
    assert opened.claim(CONFIGS[3])
    for trial in (MEASURED, FAILED, measured(CONFIGS[2])):
        add(opened, trial)
    before = path.read_bytes()
    trials = read(path)["simt"]
    assert [row.trial for row in trials] == [MEASURED, FAILED, measured(CONFIGS[2])]
    seconds = [row.seconds for row in trials if row.seconds is not None]
    assert len(seconds) == 3
    assert 0 <= seconds[0] <= seconds[1] <= seconds[2]
    assert path.read_bytes() == before
    opened.close()


def test_studies_are_read_by_name(tmp_path: Path) -> None:
    path = tmp_path / "trials.log"
    for name, config in (("simt", CONFIGS[0]), ("mma", CONFIGS[1])):
        opened = journal(path, name)
        add(opened, measured(config))
        opened.close()
    studies = read(path)
    assert {name: rows[0].trial.config for name, rows in studies.items()} == {
        "simt": CONFIGS[0],
        "mma": CONFIGS[1],
    }


def test_missing_journal_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "trials.log")
    assert list(tmp_path.iterdir()) == []


def test_damaged_journal_is_an_error_that_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "trials.log"
    opened = journal(path)
    add(opened, MEASURED)
    opened.close()
    path.write_bytes(b"broken\n" + path.read_bytes())
    with pytest.raises(CacheError, match=r"cannot be read: line 1 is damaged; the next `autotune"):
        read(path)
