"""Arguments beside plain arrays: structures, complex numbers, Fortran order, textures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.fake_kernel_session import FakeSession, FakeTimer, right, uncompiled
from support.sample_user_kernels import N, arguments, kernel, recorded, reference, tunable, work

from autotune.api.kernels import TunedCall
from autotune.cuda.textures import Texture
from autotune.errors import UsageError
from autotune.families.config import Config
from autotune.families.plan import Argument, Resources
from autotune.measure import bench as timing
from autotune.measure.measurement import Failure
from autotune.measure.recording import KernelRecording, Origin, SweepRow
from autotune.measure.runner import Candidate
from autotune.records import KernelRecord, codec
from autotune.user_kernels import guarded_arrays
from autotune.user_kernels.arguments import (
    call_of,
    constants_of,
    described,
    launch_arguments,
)
from autotune.user_kernels.bench import KernelBench
from autotune.user_kernels.guarded_arrays import GuardedArray
from autotune.user_kernels.results import Verification, compare
from autotune.user_kernels.workload import unverified, with_results

F4 = np.float32

POINT = np.dtype([("tag", "i1"), ("at", "f8")], align=True)

FLOAT3 = np.dtype([(axis, F4) for axis in "xyz"])

NESTED = np.dtype([("from", POINT), ("weights", F4, (2, 3))], align=True)


def points(count: int = 4) -> Any:
    array = np.zeros(count, POINT)
    array["tag"], array["at"] = np.arange(count), np.arange(count) / 2
    return array


def one(dtype: np.dtype[Any], values: tuple[Any, ...]) -> Any:
    return np.array(values, dtype)[()]


# Calls


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        (points(), "struct16{tag:int8@0,at:float64@8}[4]"),
        (one(FLOAT3, (1, 2, 4)), "struct12{x:float32@0,y:float32@4,z:float32@8}=(1.0, 2.0, 4.0)"),
        (
            np.zeros((2, 3), NESTED),
            "struct40{from:struct16{tag:int8@0,at:float64@8}@0,weights:float32[2,3]@16}[2,3]",
        ),
        (np.complex64(1 + 2j), "complex64=(1+2j)"),
        (np.zeros((3, 5), F4), "float32[3,5]"),
        (np.zeros((3, 5), F4).T, "float32[5,3,F]"),
        (np.zeros((1, 5), F4).T, "float32[5,1]"),
        (np.zeros((), F4), "float32[]"),
        (Texture(np.zeros((3, 5), F4)), "texture(float32[3,5],clamp,point)"),
    ],
)
def test_call_states_layouts_and_orders(argument: Any, text: str) -> None:
    call = call_of("k", [argument])
    assert call.arguments == (text,)
    assert read_back(recorded(call)).call == call


def read_back(record: KernelRecord) -> KernelRecord:
    copied = codec.loads(codec.dumps(record))
    assert isinstance(copied, KernelRecord)
    return copied


def test_long_structures_are_named_by_a_hash() -> None:
    wide = np.dtype([(f"member{number}", F4) for number in range(100)])
    texts = {str(call_of("k", [one(wide, (value,) * 100)])) for value in (0, 1)}
    assert len(texts) == 2
    assert all(len(text) < 100 and "struct400{#" in text for text in texts)


def test_call_without_constants_keeps_its_hash() -> None:
    call = call_of("saxpy", [np.zeros(8, F4), np.int32(8)])
    assert (str(call), call.slug) == ("saxpy(float32[8], int32=8)", "saxpy-23a039ea53d63330")
    assert "constants" not in codec.encode(recorded(call))["kernel"]  # type: ignore[operator]


def test_constants_are_part_of_the_call_without_their_contents(tmp_path: Any) -> None:
    contents = {"f::w": np.ones(9, F4), "::scale": np.float64(2)}
    call = call_of("k", [np.int32(1)], contents)
    assert str(call) == "k(int32=1; f::w:float32[9], scale:float64[])"
    assert call == call_of("k", [np.int32(1)], {"f::w": np.zeros(9, F4), "scale": np.float64(3)})
    assert call != call_of("k", [np.int32(1)])
    record = recorded(call)
    assert read_back(record).call == call
    best, origin = record.best, Origin("13.0", "NVRTC 13.0", "0")
    rows = (SweepRow(best.config, best.resources, best.measurement),)
    recording = KernelRecording(call, record.device, origin, "2026-11-26T12:00:00Z", rows)
    recording.save(tmp_path / "k.json.gz")
    assert KernelRecording.load(tmp_path / "k.json.gz").call == call


@pytest.mark.parametrize(
    ("constants", "message"),
    [
        ({"w": 1.0}, "constant w is 1.0; give a NumPy array or number"),
        ({"w": np.zeros((4, 4))[:, :2]}, "constant w is an array of shape .* without gaps"),
    ],
)
def test_other_constants_are_refused(constants: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call_of("k", [], constants)


def test_structures_are_passed_as_their_bytes() -> None:
    point, number = one(POINT, (3, 0.5)), np.complex128(1 - 2j)
    texture = Texture(np.zeros(3, F4))
    assert launch_arguments([point, number, texture]) == (
        Argument(16, point.tobytes()),
        Argument(16, number.tobytes()),
        Argument("u64", "argument 2"),
    )


# Fortran order


def test_fortran_array_reaches_the_kernel_as_it_lies() -> None:
    x = np.asfortranarray(np.arange(6, dtype=F4).reshape(2, 3))
    out = np.zeros((2, 3), F4, order="F")
    seen: list[Any] = []

    def doubled(_: Any, x: Any) -> list[Any]:
        seen.append(x)
        return [2 * x, None]

    first, second = work(name="k", arguments=[out, x], reference=doubled).buffers
    assert second.before.reshape(-1).tolist() == [0, 3, 1, 4, 2, 5]
    assert first.expected is not None
    assert first.expected.values.reshape(-1).tolist() == [0, 6, 2, 8, 4, 10]
    assert (first.fortran, second.fortran, first.written) == (True, True, True)
    assert all(copy.shape == (2, 3) and copy.flags.f_contiguous for copy in seen[:1])


def test_wrong_element_of_a_fortran_array_has_its_own_index() -> None:
    out = np.zeros((2, 3), F4, order="F")
    (buffer,) = work(name="k", arguments=[out], reference=lambda out: [out + 1]).buffers
    array = guarded(buffer)
    content = buffer.before.copy() + 1
    content.reshape(-1)[4] = 9  # row 0 of column 2
    write(array, content)
    outcome = array.checked()
    assert isinstance(outcome, Failure)
    assert "instead of 1 at (0, 2), tolerance" in outcome.reason


class Foreign:
    """An array of CuPy, whose copies on the host are in C order."""

    def __init__(self, host: Any) -> None:
        self.host, self.shape, self.dtype, self.strides = host, host.shape, host.dtype, host.strides

    gpudata = None

    def get(self) -> Any:
        return np.ascontiguousarray(self.host)


def test_array_of_another_library_keeps_its_order() -> None:
    matrix = np.asfortranarray(np.arange(6, dtype=F4).reshape(2, 3))
    call = TunedCall([Foreign(matrix)], {}, [2 * matrix], Verification()).work(kernel(name="k"))
    assert str(call.call) == "k(float32[2,3,F])" == f"k({described(Foreign(matrix))})"
    np.testing.assert_array_equal(call.buffers[0].before, matrix.T)


def test_array_of_another_library_with_gaps_is_refused() -> None:
    gaps = Foreign(np.zeros((4, 4))[:, :2])
    call = TunedCall([np.int32(1), gaps], {}, [None], Verification())
    with pytest.raises(UsageError, match=r"argument 1 is an array of shape \(4, 2\) .* gaps"):
        call.work(kernel())


# Structured arrays


def guarded(buffer: Any) -> GuardedArray:
    session: Any = FakeSession({}, 0, 2**30)
    array = GuardedArray(session, buffer)
    array.restore()
    return array


def write(array: GuardedArray, content: Any) -> None:
    array._session.upload(array.address, np.ascontiguousarray(content).reshape(-1).view(np.uint8))


def moved(array: Any) -> Any:
    result = array.copy()
    result["at"] += 1
    return result


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("tag", 7, "1 of 4 elements, such as 7 instead of 2 at 2.tag, tolerance 0"),
        ("at", np.nan, "1 of 4 elements, such as nan instead of 2 at 2.at, tolerance "),
        ("at", 2 + 1e-11, None),
    ],
)
def test_structures_are_compared_field_by_field(field: str, value: Any, message: str) -> None:
    (buffer,) = work(name="k", arguments=[points()], reference=lambda x: [moved(x)]).buffers
    content = moved(points())
    content[field][2] = value
    array = guarded(buffer)
    write(array, content)
    outcome = array.checked()
    assert isinstance(outcome, Failure) is (message is not None), outcome
    assert message is None or message in getattr(outcome, "reason", "")


def test_nested_fields_have_their_own_tolerances() -> None:
    array = np.zeros(3, NESTED)
    array["weights"], array["from"]["at"] = 1000, 1
    (buffer,) = work(name="k", arguments=[array], reference=[array]).buffers
    assert buffer.expected is not None
    wrong = array.copy()
    wrong["weights"][1, 1, 2] = 1000.05
    assert compare(wrong, buffer.expected).wrong == 0
    wrong["from"]["at"][2] = 1.05
    result = compare(wrong, buffer.expected)
    assert (result.wrong, result.member, result.place) == (1, ".from.at", (2,))


def test_written_structures_start_with_other_contents() -> None:
    out, x = np.zeros(4, POINT), points()
    first, _ = work(name="k", arguments=[out, x], reference=lambda _, x: [moved(x), None]).buffers
    assert first.written
    assert np.isnan(first.before["at"]).all()
    assert (first.before["tag"] != x["tag"]).all()


def test_expected_structures_have_the_fields_of_the_argument() -> None:
    with pytest.raises(UsageError, match=r"expects float64 in argument 0, an array of .*tag"):
        work(name="k", arguments=[points()], reference=[np.zeros(4)])


def test_structured_results_of_a_configuration_stand_in() -> None:
    call = unverified("k", [points()])
    verified = with_results(call, [moved(points())], "k:B=1", Verification())
    expected = verified.buffers[0].expected
    assert expected is not None
    assert compare(moved(points()), expected).wrong == 0
    assert compare(points(), expected).wrong == 4


# Textures and constants


def test_reference_gets_the_array_of_a_texture() -> None:
    image = np.ones((2, 3), F4)
    call = work(
        name="k",
        arguments=[np.zeros((2, 3), F4), Texture(image)],
        reference=lambda _, image: [2 * image, None],
    )
    assert [*call.textures] == ["argument 1"]
    assert [buffer.place for buffer in call.buffers] == [0]
    assert call.bytes == 2 * image.nbytes


def test_bench_binds_textures_and_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "Timer", FakeTimer)
    monkeypatch.setattr(guarded_arrays, "program_of", uncompiled)
    texture = Texture(np.zeros(3, F4))
    call = work(
        arguments=[*arguments(), texture],
        reference=lambda *values: [*reference(*values[:4]), None],
        constants={"w": np.arange(3, dtype=F4)},
    )
    session: Any = FakeSession({"right": right}, N, 2**30)
    config = Config.of("saxpy", {"act": "right"})
    plan = tunable().plan(Config.of("saxpy", {"THREADS": 32, "EACH": 1}))
    KernelBench(session, call).measure(Candidate(config, plan, (), Resources(32, 32, 0)), None)
    assert (session.textures, session.values["argument 4"]) == ([texture], 1001)
    assert session.constants["w"].tolist() == [0, 1, 2]


def test_constants_are_uploaded_as_they_lie() -> None:
    matrix = np.arange(6, dtype=np.uint8).reshape(2, 3)
    contents = constants_of({"a": matrix, "b": np.asfortranarray(matrix), "c": np.uint8(7)})
    assert all(array.flags.c_contiguous for array in contents.values())
    assert {name: array.reshape(-1).tolist() for name, array in contents.items()} == {
        "a": [0, 1, 2, 3, 4, 5],
        "b": [0, 3, 1, 4, 2, 5],
        "c": [7],
    }
