"""A damaged journal: its whole lines are kept, no result goes to another trial, all is told."""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Callable
from pathlib import Path

import optuna
import pytest
from support.sample_journals import CONFIGS, FAILED, MEASURED, add, journal, measured, states
from support.sample_journals import cache as cache

from autotune.errors import CacheError
from autotune.families.config import Config
from autotune.tuning.evaluate import Trial
from autotune.tuning.search.journal import mending
from autotune.tuning.search.journal.journal_file import decoded, encoded

pytestmark = pytest.mark.usefixtures("cache")

TRIALS = [measured(config, 10.0 + number) for number, config in enumerate(CONFIGS[:12])]
"""Every third is not claimed."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A journal of two processes."""
    path = tmp_path / "study.log"
    both = journal(path), journal(path)
    for number, trial in enumerate(TRIALS):
        opened = both[number % 2]
        if number % 3:
            opened.claim(trial.config)
        add(opened, trial)
    for opened in both:
        opened.close()
    return path


def told(path: Path) -> tuple[dict[Config, Trial], list[str]]:
    """The trials of a journal by configuration, and the warnings of opening it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        opened = journal(path)
    opened.close()
    return {trial.config: trial for trial in opened.told}, [str(each.message) for each in caught]


def check(path: Path, lost: int) -> None:
    """Opens a damaged journal: at most so many trials are lost, with a warning, once."""
    damaged = path.read_bytes()
    trials, messages = told(path)
    assert all(trial in TRIALS for trial in trials.values())
    assert len(TRIALS) - len(trials) <= lost
    assert len(messages) == 1
    assert re.search(
        r"broken, kept as study.log.broken-1: \d+ of \d+ lines were damaged", messages[0]
    )
    assert path.with_name("study.log.broken-1").read_bytes() == damaged
    assert told(path) == (trials, [])
    states(path)  # Optuna's own backend reads it


@pytest.mark.parametrize("seed", range(24))
def test_flipped_bit_costs_a_trial_at_most(path: Path, seed: int) -> None:
    data, chance = bytearray(path.read_bytes()), random.Random(seed)
    # Without its checksum, a line is taken as one of Optuna's own.
    names = {at for match in re.finditer(rb',"crc":', data) for at in range(*match.span())}
    at = chance.choice([at for at in range(len(data) - 1) if at not in names])
    data[at] ^= 1 << chance.randrange(8)
    path.write_bytes(data)
    check(path, lost=1)


def zeroed(data: bytearray, at: int) -> None:
    data[at : at + 512] = bytes(len(data[at : at + 512]))


def removed(data: bytearray, at: int) -> None:
    del data[at : at + 700]


def doubled(data: bytearray, at: int) -> None:
    data[at // 2 : at // 2] = data[at : at + 700]


@pytest.mark.parametrize("damage", [zeroed, removed, doubled])
@pytest.mark.parametrize("part", range(1, 8))
def test_damage_over_several_lines_mixes_up_no_trials(
    path: Path, damage: Callable[[bytearray, int], None], part: int
) -> None:
    data = bytearray(path.read_bytes())
    damage(data, len(data) * part // 8)
    path.write_bytes(data)
    check(path, lost=2)


def earlier(path: Path) -> list[bytes]:
    """The lines as an earlier version wrote them: without checksums and names in results."""
    plain = (line.partition(b',"crc":')[0] + b"}" for line in path.read_bytes().splitlines())
    return [re.sub(rb'("result":{)"config":"[^"]*",', rb"\1", line) for line in plain]


@pytest.mark.parametrize("number", range(8))
def test_damaged_claim_of_an_earlier_version_is_one(path: Path, number: int) -> None:
    lines = earlier(path)
    claims = [at for at, line in enumerate(lines) if b'"state":0' in line and b"since" in line]
    lines[claims[number]] = lines[claims[number]].replace(b'"user_attrs"', b'"user\x1fattrs"')
    path.write_bytes(b"\n".join(lines) + b"\n")
    check(path, lost=1)


@pytest.mark.parametrize("number", range(4))
def test_lost_claim_of_an_earlier_version_mixes_up_nothing(tmp_path: Path, number: int) -> None:
    path = tmp_path / "study.log"
    opened = journal(path)
    add(opened, TRIALS[0])
    for trial in TRIALS[1:5]:
        opened.claim(trial.config)
    for trial in TRIALS[1:]:
        add(opened, trial)
    opened.close()
    lines = earlier(path)
    claims = [at for at, line in enumerate(lines) if b'"state":0' in line and b"since" in line]
    lines[claims[number]] = bytes(100)
    path.write_bytes(b"\n".join(lines) + b"\n")
    check(path, lost=4 - number)


def test_processes_at_work_go_on_after_a_mend(path: Path) -> None:
    opened = journal(path)
    opened.claim(CONFIGS[20])
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    told(path)
    opened.finish(measured(CONFIGS[20]))
    add(opened, measured(CONFIGS[21]))
    opened.close()
    trials, messages = told(path)
    assert {CONFIGS[20], CONFIGS[21]} <= trials.keys()
    assert not messages


def test_changed_number_is_noticed(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"time_us":13.0', b'"time_us":12.0'))
    check(path, lost=1)


def test_result_of_another_configuration_is_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "study.log"
    opened = journal(path)
    opened.claim(MEASURED.config)
    add(opened, MEASURED)
    text = path.read_text().replace(str(MEASURED.config), str(FAILED.config), 1)
    lines = [decoded(line.partition(b',"crc":')[0] + b"}") for line in text.encode().splitlines()]
    path.write_bytes(b"".join(encoded(line) + b"\n" for line in lines if line))
    with pytest.warns(UserWarning, match="broken"):
        assert journal(path).told == [MEASURED]


def test_other_studies_of_a_damaged_file_are_kept(path: Path) -> None:
    backend = optuna.storages.journal.JournalFileBackend(str(path))
    storage = optuna.storages.JournalStorage(backend)
    study = optuna.create_study(storage=storage, study_name="mine")
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=5)
    before = [(trial.state, trial.params, trial.value) for trial in study.trials]
    data = path.read_bytes()
    path.write_bytes(data.replace(b'"op_code":4', b'"op_code"\x1a4', 3).replace(b"}", b"\0", 1))
    told(path)
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(path)))
    trials = optuna.load_study(storage=storage, study_name="mine").trials
    assert [(trial.state, trial.params, trial.value) for trial in trials] == before


def test_long_damage_is_left_out(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mending, "PADDED", 100)
    data = path.read_bytes()
    middle = data.index(b"\n", len(data) // 2) + 1
    path.write_bytes(data[:middle] + bytes(1000) + b"\n" + data[middle:])
    trials, messages = told(path)
    assert [*trials.values()] == TRIALS
    assert "1 of " in messages[0]
    assert path.read_bytes().startswith(data)


def test_journal_too_large_to_mend_is_an_error(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"\n")
        file.truncate(2**40)
        file.seek(2**40)
        file.write(b"\n")
    with pytest.raises(CacheError, match="File has 1099511627777 bytes; at most 268435456"):
        journal(path)
