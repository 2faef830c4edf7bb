"""Runs the command line in this process, on a machine without a GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autotune import cli, runtime
from autotune.device import Device
from autotune.errors import MissingError
from autotune.measure import devices
from support.sample_recording import ship


def own_machine(monkeypatch: pytest.MonkeyPatch, root: Path) -> Path:
    """Sets up an empty cache, one recording and no GPU; returns the directory of the cache."""
    cache = root / "cache"
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(cache))
    ship(root / "recordings", monkeypatch)
    monkeypatch.setattr(devices, "probe", absent)
    monkeypatch.setattr(runtime, "probe", absent)
    return cache


def absent(_index: int = 0) -> Device:
    raise MissingError("no CUDA driver: libcuda.so.1 was not found; install NVIDIA's driver")


def run(*arguments: str) -> int:
    """The exit status of a command line."""
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert isinstance(ended.value.code, int)
    return ended.value.code


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    """The JSON that a command line prints."""
    assert run(*arguments, "--json") == 0
    data: dict[str, object] = json.loads(capsys.readouterr().out)
    return data


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The standard output of a command line."""
    assert run(*arguments) == 0
    return capsys.readouterr().out
