"""Kernel Tuner's files: caches of its versions 1.0 to 1.5, and T4 results."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from autotune.device import find
from autotune.errors import AutotuneError
from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.measure import kernel_tuner, recording
from autotune.measure.measurement import Energy, Failure, Measurement
from autotune.measure.recording import KernelRecording

HEADER = """{
"device_name": "NVIDIA RTX A6000",
"kernel_name": "filters::blur",
"problem_size": [
4096,
4096
],
"tune_params_keys": [
"block_size_x",
"unroll",
"use"
],
"tune_params": {
"block_size_x": [
32,
64
]
},
"objective": "time",
"cache": {
"""
FAST = (
    '"64,1,on": {"block_size_x": 64, "unroll": true, "use": "on", "time": 0.5, '
    '"times": [0.7, 0.4, 0.5], "GFLOP/s": NaN, "compile_time": 90.1, "verification_time": 0, '
    '"benchmark_time": 4.2, "strategy_time": 0, "framework_time": 1.1, "timestamp": "2026"}'
)
SINGLE = '"32,0,on": {"block_size_x": 32, "unroll": 0, "use": "on", "time": 2}'
REFUSED = '"32,0,off": {"block_size_x": 32, "unroll": 0, "use": "off", %s}'


def cache(*lines: str, end: str = "") -> bytes:
    return (HEADER + ",\n".join(lines) + end).encode()


def config(block_size_x: int, unroll: int, use: str) -> Config:
    return Config.of("blur", {"block_size_x": block_size_x, "unroll": unroll, "use": use})


def outcomes(data: bytes, name: str = "cache.json") -> dict[Config, Measurement | Failure]:
    content = kernel_tuner.read(data, name)
    assert content is not None
    return {config: outcome for config, _, outcome in content.rows}


@pytest.mark.parametrize(
    "end", [",", "", "}\n}", "}}", "\n}\n}\n", ',\n"64,0,off": {"block_size_x": 64, "unr']
)
def test_cache_is_read_however_it_ends(end: str) -> None:
    assert outcomes(cache(FAST, SINGLE, end=end)) == {
        config(64, 1, "on"): Measurement(500.0, 75.0, 3),
        config(32, 0, "on"): Measurement(2000.0),
    }


@pytest.mark.parametrize(
    ("error", "stage"),
    [
        ('"time": "CompilationFailedConfig"', "compile"),  # 1.0 to 1.2
        ('"time": "RuntimeFailedConfig"', "launch"),
        ('"__error__": "RuntimeFailedConfig"', "launch"),  # from 1.3
        ('"time": NaN', "launch"),
        ('"time": 1e20', "launch"),  # before 1.0
        ('"time": "InvalidConfig"', None),
        ('"__error__": "InvalidConfig"', None),
    ],
)
def test_errors_of_a_cache_are_failures(error: str, stage: str | None) -> None:
    found = outcomes(cache(FAST, REFUSED % error)).get(config(32, 0, "off"))
    assert (found.stage if isinstance(found, Failure) else found) == stage


def test_cache_names_kernel_device_and_threads() -> None:
    content = kernel_tuner.read(gzip.compress(cache(FAST)), "cache.json.gz")
    assert content is not None
    ((_, resources, _),) = content.rows
    assert (content.kernel, content.device) == ("blur", find("a6000"))
    assert resources == Resources(threads=64, registers=0, shared=0)


def result(invalidity: str = "correct", **changes: Any) -> dict[str, Any]:
    return {
        "timestamp": "2026-01-01 00:00:00+00:00",
        "configuration": {"block_size_x": 64, "tile": 2},
        "objectives": ["time"],
        "times": {"compilation": 90.0, "framework": 1.0, "search_algorithm": 0, "validation": 0},
        "invalidity": invalidity,
        "correctness": 1,
        "measurements": [{"name": "time", "value": 0.5, "unit": "ms"}],
        **changes,
    }


def t4(*results: dict[str, Any], **fields: Any) -> bytes:
    return json.dumps({**fields, "results": results, "schema_version": "1.0.0"}).encode()


@pytest.mark.parametrize(
    ("data", "time_us"),
    [
        (t4(result()), 500.0),
        (t4(result(times={"runtimes": [4, 2, 3]})), 3000.0),
        (t4(result(times={"runtimes": []}), metadata={"timeunit": "miliseconds"}), 500.0),
        (t4(result(times={"runtimes": [4]}), metadata={"timeunit": "seconds"}), 4e6),
        (t4(result(times={"runtimes": [4]}), metadata={"timeunit": "microseconds"}), 4.0),
        (t4(result(measurements=[{"name": "time", "value": 7}])), 7000.0),
        (t4(result(measurements=[{"name": "time", "value": 7, "unit": "us"}])), 7.0),
    ],
)
def test_times_of_t4_have_units(data: bytes, time_us: float) -> None:
    (outcome,) = outcomes(data).values()
    assert isinstance(outcome, Measurement)
    assert outcome.time_us == pytest.approx(time_us)


@pytest.mark.parametrize(
    ("invalidity", "stage"),
    [("compile", "compile"), ("runtime", "launch"), ("timeout", "timeout"),
     ("correctness", "verify"), ("constraints", None)],
)  # fmt: skip
def test_invalid_results_of_t4_are_failures(invalidity: str, stage: str | None) -> None:
    invalid = result(invalidity, configuration={"block_size_x": 32, "tile": 2}, measurements=[])
    found = outcomes(t4(result(), invalid))
    stages = [outcome.stage for outcome in found.values() if isinstance(outcome, Failure)]
    assert stages == ([stage] if stage else [])


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("A100_T4.json.gz", "NVIDIA A100-SXM4-80GB"),
        ("RTX_3090-results.json", "NVIDIA GeForce RTX 3090"),
        ("MI250X_T4.json", "MI250X (limits of NVIDIA H100 80GB HBM3)"),
    ],
)
def test_name_of_t4_results_names_the_device(tmp_path: Path, name: str, device: str) -> None:
    data = t4(result())
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    assert recording.device_in(tmp_path / name).name == device


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (cache(), "no configuration has a time"),
        (t4(result(measurements=[])), "no configuration has a time"),
        (cache(FAST)[:-60], "no configuration has a time"),
        (cache('"1": {"block_size_x": 64, "use": "on", "time": 1}'), "lacks the parameter unroll"),
        (
            cache(REFUSED.replace('"off"', "[1]") % '"time": 1'),
            r"use is \[1\]; it must be a number",
        ),
        (cache(REFUSED.replace('"off"', '"a{"') % '"time": 1'), "parameter 'use' with the value"),
        (b'{"results": [{"configuration": {"tile": ' + b"[" * 100_000, "it nests too deeply"),
        (t4(result())[:-20], "truncated"),
        (t4(result(), result(configuration={"tile": 2})), "have different parameters"),
        (t4({"configuration": {}}), "missing required field"),
    ],
)
def test_broken_files_are_refused(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "broken.json"
    path.write_bytes(data)
    with pytest.raises(AutotuneError, match=rf"broken.json: not a recording.*({message})"):
        KernelRecording.load(path)


def test_other_files_are_not_of_kernel_tuner() -> None:
    assert kernel_tuner.read(b'{"schema":1,"call":{}}', "x.json") is None


ROWS = (
    (config(64, 1, "on"), Resources(64, 30, 512), Measurement(500.0, 5.0, 20, 600.0)),
    (config(32, 1, "on"), Resources(32, 30, 512), Measurement(9.0, energy=Energy(2.0, 0, 1, 1))),
    (config(32, 0, "on"), Resources(32, 0, 0), Failure("verify", "wrong")),
    (config(64, 0, "on"), Resources(64, 0, 0), Failure("crash", "gone")),
)

SCHEMA: dict[str, type | tuple[type, ...]] = {
    "configuration": dict,
    "objectives": list,
    "times": dict,
    "invalidity": str,
    "correctness": (int, float),
    "measurements": list,
}
"""The types of a result in `kernel_tuner/schema/T4/1.0.0/results-schema.json`."""


def test_trials_are_written_as_t4() -> None:
    content = json.loads(json.dumps(kernel_tuner.t4(ROWS, device="NVIDIA X", kernel="blur")))
    assert content["schema_version"] == "1.0.0"
    assert content["metadata"]["timeunit"] == "milliseconds"
    for each in content["results"]:
        assert {name: isinstance(each[name], kind) for name, kind in SCHEMA.items()} == (
            dict.fromkeys(SCHEMA, True)
        )
        assert isinstance(each["times"]["runtimes"], list)
        for measured in each["measurements"]:
            assert {name: type(value) for name, value in measured.items()}["name"] is str
            assert isinstance(measured["value"], int | float)
    first, second, wrong, crashed = content["results"]
    assert [each["invalidity"] for each in (first, second, wrong, crashed)] == [
        *("correct", "correct", "correctness", "runtime")
    ]
    assert (first["correctness"], wrong["correctness"]) == (1, 0)
    values = {each["name"]: (each["value"], each["unit"]) for each in first["measurements"]}
    assert values["time"] == (0.5, "ms")
    assert values["time_cold"] == (0.6, "ms")
    assert {"name": "energy", "value": 2.0, "unit": "J"} in second["measurements"]


def test_written_results_are_read_again() -> None:
    data = json.dumps(kernel_tuner.t4(ROWS, device="NVIDIA RTX A6000", kernel="filters::blur"))
    content = kernel_tuner.read(data.encode(), "x.json")
    assert content is not None
    assert (content.kernel, content.device) == ("blur", find("a6000"))
    assert [row[0] for row in content.rows] == [row[0] for row in ROWS]
    times = [each.time_us for *_, each in content.rows if isinstance(each, Measurement)]
    assert times == pytest.approx([500.0, 9.0])
