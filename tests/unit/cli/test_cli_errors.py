"""Invalid input: one line of error with the numbers, and the exit status."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from support.command_line import run
from support.sample_recording import DEVICE, PROBLEM
from support.sample_records import H100

from autotune.cuda import nvrtc
from autotune.errors import CacheError, MissingError
from autotune.measure import devices, gpu_runner, targets
from autotune.measure.session import pycuda
from autotune.problem import PRECISIONS
from autotune.records import Store

SHAPE = PROBLEM.shape


EPILOGUES = (
    "none, bias, relu, bias_relu, gelu, bias_gelu, gelu_tanh, bias_gelu_tanh, silu, bias_silu, "
    "residual, bias_residual, swiglu"
)


COMPUTES = ", ".join(PRECISIONS)


PARTS = (
    f"give {COMPUTES}, nn, nt, tn, tt, {EPILOGUES}, exact, fast, batch=8, scale=row, e5m2=b or "
    "out=f32"
)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """The exit status and the single line of an error."""
    status = run(*arguments)
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    return status, line.removeprefix("error: ")


@pytest.mark.parametrize("verb", ["tune", "best"])
@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ("4096", "malformed shape '4096'; give MxNxK, such as 4096x4096x4096"),
        ("12x4", "malformed shape '12x4'; give MxNxK, such as 4096x4096x4096"),
        ("0x16x16", "M is 0; give 1 to 2147483647"),
        (
            "9" * 5000 + "x1x1",
            f"malformed shape '{'9' * 5000}x1x1'; give MxNxK, such as 4096x4096x4096",
        ),
        ("16x-4x16", "N is -4; give 1 to 2147483647"),
        ("16x16x2147483648", "K is 2147483648; give 1 to 2147483647"),
        ("16x16x16:f64", f"unknown 'f64' after the shape; {PARTS}"),
        ("16x16x16:f32:xx", f"unknown 'xx' after the shape; {PARTS}"),
        ("16x16x16:batch=0", "batch is 0; give 1 to 65535"),
        ("16x16x16:out=i32", "compute f32 has no output 'i32'; give one of same, f32"),
        ("16x16x16:scale=row", "scale row is for compute f8, f8e5, i8, not f32; leave one out"),
        ("16x16x16:fast", "accumulate fast is for compute f8, f8e5, not f32; leave one out"),
        ("16x16x16:e5m2=b", "e5m2 b is for compute f8e5, not f32; leave one out"),
    ],
)
def test_invalid_problem_is_refused(
    verb: str, shape: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused(capsys, verb, shape, "--device", DEVICE) == (2, message)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--sampler", "best", "unknown sampler 'best'; give one of gp, tpe, random, exhaustive"),
        ("--budget", "soon", "malformed budget 'soon'; give 60s, 2m or 90 (seconds)"),
        ("--budget", "0", "budget is 0 s; give more than 0"),
        ("--trials", "0", "trials is 0; give at least 1"),
        ("--jobs", "0", "jobs is 0; give at least 1"),
        ("--seed", "-1", "seed is -1; give 0 to 2^63 - 1"),
        ("--seed", str(2**63), f"seed is {2**63}; give 0 to 2^63 - 1"),
    ],
)
def test_invalid_option_is_refused(
    option: str, value: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused(capsys, "tune", SHAPE, "--device", DEVICE, option, value) == (2, message)


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("tune", SHAPE, "--family", "wmma"), 2, "unknown family 'wmma'; give one of ladder, ..."),
        (
            ("tune", "32x32x32:bf16", "--device", "h100", "--family", "simt"),
            2,
            "simt does not compute bf16; give one of ...",
        ),
        (("ladder", "0", "--device", "h100"), 2, "M is 0; give 1 to 2147483647"),
        (("ladder", "--show", "18"), 2, "there is no rung 18; give 1 to 17"),
        (
            ("tune", SHAPE, "--device", "gpu:1,0,1"),
            2,
            "GPUs are '1,0,1', one of them twice; give each once",
        ),
        (
            ("tune", SHAPE, "--device", "gtx 1080"),
            2,
            "NVIDIA GeForce GTX 1080 has compute capability 6.1; kernels are compiled for 7.5 and "
            "newer",
        ),
        (("device", "--device", "rtx 3095"), 2, "unknown device 'rtx 3095'; did you mean..."),
        (("device", "--device", f"gpu:{'9' * 5000}"), 2, "unknown device 'gpu:999..."),
        (
            ("tune", SHAPE, "--device", "replay:b200"),
            3,
            "no recording is named 'b200'; there is synthetic",
        ),
        (
            ("tune", "64x64x64"),
            3,
            "recording 'synthetic' does not hold 64x64x64:f32:nn; it holds 256x256x256:f32:nn",
        ),
        (
            ("best", "--exact", SHAPE),
            3,
            "256x256x256:f32:nn is not tuned on NVIDIA H100 80GB HBM3; "
            "run `autotune tune 256x256x256:f32:nn --device replay:synthetic`",
        ),
    ],
)
def test_unknown_or_unserved_names_are_refused(
    arguments: tuple[str, ...], status: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    device = () if "--device" in arguments else ("--device", DEVICE)
    found, shown = refused(capsys, *arguments, *device)
    start, dots, _ = message.partition("...")
    assert (found, shown[: len(start)] if dots else shown) == (status, start)


@pytest.mark.parametrize("verb", ["tune", "best"])
def test_problem_larger_than_the_device_is_refused(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # 3 * 4 bytes * 1e10 elements are 111.8 GiB.
    message = (
        "100000x100000x100000:f32:nn: A, B and C take 111.8 GiB, NVIDIA H100 80GB HBM3 has 80.0 "
        "GiB; give a smaller shape"
    )
    assert refused(capsys, verb, "100000x100000x100000", "--device", "h100") == (2, message)


@pytest.mark.parametrize("devices", ["0,1", "all"])
def test_devices_without_a_driver_are_missing(
    devices: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, message = refused(capsys, "tune", SHAPE, "--device", f"gpu:{devices}")
    assert (status, message.startswith("no CUDA driver: libcuda.so.1 was not found")) == (1, True)


def test_incomplete_device_file_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "card.json"
    file.write_text('{"name": "card"}')
    status, message = refused(capsys, "occupancy", "--device", str(file))
    assert (status, message.startswith(f"{file}: missing device fields: ")) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("8..4x4x4",), "range 8..4 in '8..4x4x4'; give 1 or more, the smaller first"),
        (("1..2x1..2x3",), "malformed range '1..2x1..2x3'; give one size as LOW..HIGH"),
        (("1..4x4x4", "--family", "simt"), "a range takes no family; leave it out"),
        (("1..4x4x4", "--device", "gpu:0,1"), "a range takes one device, not '0,1'; give one"),
        (("1..4x4x4", "--explain"), "a list of shapes takes no --explain; leave it out"),
    ],
)
def test_invalid_range_is_refused(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    device = () if "--device" in arguments else ("--device", "h100")
    status, error = refused(capsys, "tune", *arguments, *device)
    assert (status, message in error) == (2, True)


@pytest.mark.parametrize("width", ["3", "33"])
def test_tile_width_out_of_range_is_refused(width: str, capsys: pytest.CaptureFixture[str]) -> None:
    message = f"TILE_WIDTH is {width}; give 4 to 32"
    assert refused(capsys, "occupancy", "--device", "h100", "--tile-width", width) == (2, message)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--shared 1", "a kernel needs registers; give --registers 32, or --registers 32,40,48"),
        (
            "--threads 8 --tile-width 8",
            "--tile-width is of the tiled kernel; leave it out for a kernel of your own",
        ),
    ],
)
def test_incomplete_kernel_options_are_refused(
    options: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused(capsys, "occupancy", "--device", "h100", *options.split()) == (2, message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tune",), "no shape to tune; give one, such as 4096x4096x4096, or a file of shapes"),
        (
            ("tune", "axbxc"),
            "axbxc is a name; tune takes a shape, such as 4096x4096x4096, or the file of a user "
            "kernel: tune SPEC.py",
        ),
        (
            ("tune", SHAPE, "--trials", "x"),
            "Invalid value for '--trials': 'x' is not a valid integer; see `autotune tune --help`",
        ),
        (
            ("tune", SHAPE, "--trials"),
            "Option '--trials' requires an argument; see `autotune tune --help`",
        ),
        (("export", SHAPE), "Missing option '--out'; see `autotune export --help`"),
        (("best",), "Missing argument 'MxNxK|KERNEL'; see `autotune best --help`"),
        (("x",), "no verb 'x'; see `autotune --help`"),
        (("tun", SHAPE), "no verb 'tun'; did you mean 'tune'?"),
        (("cache", "lst"), "no verb 'lst'; did you mean 'list'?"),
        (
            ("occupancy", "h100", "--registers", "32", "40"),
            "'40' is not a device; join lists by commas: --registers 32,40,48",
        ),
    ],
)
def test_invalid_command_line_is_one_line(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused(capsys, *arguments) == (2, message)


@pytest.mark.parametrize(("word", "option"), [("--verbose", "--verbose"), ("-4x16x16", "-4")])
def test_unknown_option_is_one_line(
    word: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, message = refused(capsys, "tune", SHAPE, word)
    assert status == 2
    assert message.replace("'", "").replace(":", "") == (
        f"No such option {option}; see `autotune tune --help`"
    )


@pytest.mark.parametrize(
    "arguments", [("device", "gpu"), ("occupancy",), ("tune", SHAPE), ("best", SHAPE)]
)
def test_missing_gpu_suggests_other_devices(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    message = (
        "no CUDA driver: libcuda.so.1 was not found; install NVIDIA's driver; or give another "
        "device: --device replay:h100 for recorded times, --device h100 for predicted times"
    )
    assert refused(capsys, *arguments) == (1, message)


def test_missing_pycuda_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pycuda", None)
    monkeypatch.setattr(devices, "probe", lambda _: H100)
    monkeypatch.setattr(gpu_runner, "open_runner", lambda *_, **__: pycuda())
    status, message = refused(capsys, "tune", SHAPE)
    assert (status, 'pip install "tile-autotune[gpu]"' in message) == (1, True)


@pytest.mark.parametrize("arguments", [("tune", SHAPE), ("occupancy",)])
def test_missing_compiler_says_what_to_install(
    arguments: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nvrtc, "version", lambda: None)
    message = "no CUDA compiler: NVRTC is not installed; run `pip install 'tile-autotune[cu13]'`"
    assert refused(capsys, *arguments, "--device", "h100") == (1, message)


def test_driver_errors_are_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(index: int) -> None:
        raise MissingError(f"GPU {index} has fallen off the bus")

    monkeypatch.setattr(devices, "probe", failing)
    with pytest.raises(MissingError, match="GPU 2 has fallen off the bus; or give another device"):
        targets.resolve("gpu:2")


@pytest.mark.parametrize(("place", "action"), [("a-file", "read"), ("/proc/autotune", "write to")])
def test_unusable_cache_is_named(
    place: str,
    action: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    (tmp_path / "a-file").touch()
    directory = tmp_path / place
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(directory))
    status, message = refused(capsys, "tune", SHAPE, "--device", DEVICE, "--trials", "1")
    assert (status, message.startswith(f"cannot {action} the cache {directory}: ")) == (1, True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Expecting value"),
        ('{"schema": 1, "problem": {', "Expecting property name"),
        ("[1, 2]", "record is [1, 2]; it must be an object"),
        (json.dumps({"schema": 3}), "schema is 3, this version reads 2"),
    ],
)
def test_unreadable_record_is_a_named_miss(
    text: str, message: str, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Store(cache).path(H100, PROBLEM)
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert run("best", "--exact", SHAPE, "--device", DEVICE) == 3
    warning, error = capsys.readouterr().err.splitlines()
    assert warning.startswith(f"warning: {path}: skipped: ")
    assert message in warning
    assert error.startswith("error: ")
    assert path.read_text() == text


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("bf16:out=f32", "32x32x32:bf16:nn:out=f32"),
        ("out=f16:f8:scale=row:fast", "32x32x32:f8:nn:scale=row:fast:out=f16"),
        ("f8e5:e5m2=b", "32x32x32:f8e5:nn:e5m2=b"),
        ("batch=8:bias", "32x32x32:f32:nn:batch=8:bias"),
    ],
)
def test_words_are_part_of_the_problem(
    words: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shape = f"32x32x32:{words}"
    status, message = refused(capsys, "best", "--exact", shape, "--device", "h100")
    assert (status, f"`autotune tune {problem} --device h100`" in message) == (3, True)


def test_record_that_fits_nowhere_is_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(*_: object) -> None:
        raise CacheError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "save", full)
        assert run("tune", SHAPE, "--device", DEVICE, "--quiet") == 1
    printed = capsys.readouterr()
    *_, error, advice = printed.err.splitlines()
    assert error == "error: no room; the record is in no file"
    assert advice == "error: save standard output as a file and `autotune cache import` it"
    (tmp_path / "record.json").write_text(printed.out)
    assert run("cache", "import", str(tmp_path / "record.json")) == 0
    assert run("best", SHAPE, "--device", DEVICE, "--exact") == 0
