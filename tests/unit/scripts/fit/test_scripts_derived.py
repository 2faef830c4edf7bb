"""The rebuild of derived data, and whether the data of the package are of today's inputs."""

from __future__ import annotations

from pathlib import Path

import derived
import pytest
import typer
from derived import Step


@pytest.mark.parametrize("name", derived.STEPS)
def test_data_of_the_package_are_of_todays_inputs(name: str) -> None:
    """Else run `python scripts/fit/derived.py`."""
    assert name not in {*derived.out_of_date()}


@pytest.fixture
def rebuilt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root with one step, which is up to date."""
    command = ("-c", "open('doubled.txt', 'w').write(2 * open('text.txt').read())")
    steps = {"doubled": Step(("doubled.txt",), ("*xt.txt",), (command,))}
    monkeypatch.setattr(derived, "ROOT", tmp_path)
    monkeypatch.setattr(derived, "HASHES", tmp_path / "derived.json")
    monkeypatch.setattr(derived, "STEPS", steps)
    (tmp_path / "text.txt").write_text("a")
    derived.main()
    return tmp_path


def test_step_is_rebuilt_once(rebuilt: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert (rebuilt / "doubled.txt").read_text() == "aa"
    capfd.readouterr()
    derived.main()
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("changed", ["text.txt", "doubled.txt", "next.txt"])
def test_changed_file_makes_its_step_out_of_date(
    changed: str, rebuilt: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (rebuilt / changed).write_text("b")
    with pytest.raises(typer.Exit) as ended:
        derived.main(check=True)
    assert ended.value.exit_code
    assert "doubled: out of date" in capsys.readouterr().out
    derived.main()
    assert [*derived.out_of_date()] == []
