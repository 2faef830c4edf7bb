"""What user kernels take, tuned end to end on a GPU: structures, complex numbers, arrays of
structures, Fortran order, textures and constants. Each kernel has a right and a wrong variant; the
wrong one is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autotune
from autotune.errors import MissingError, UsageError
from autotune.measure import devices
from autotune.measure.session import Session
from autotune.records import KernelRecord

N = 1000
BLOCK = 128
GRID = -(-N // BLOCK)
F4 = np.float32
POINT = np.dtype([("tag", "i1"), ("at", "f8")], align=True)
FLOAT3 = np.dtype([(axis, F4) for axis in "xyz"])
WRONG = 1
"""The value of WRONG with which a kernel computes something else."""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    try:
        devices.probe()
    except MissingError as error:
        pytest.skip(str(error))
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture(params=["pycuda", "bindings"])
def through(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The library that the measuring process calls the driver through."""
    name = str(request.param)
    if name == "pycuda":
        pytest.importorskip("pycuda.driver")
    monkeypatch.setenv("AUTOTUNE_SESSION", name)
    return name


def tuned(body: str, arguments: list[Any], expected: list[Any], **changes: Any) -> KernelRecord:
    """The record of a kernel `k`, of which only the right variant passed."""
    keywords: dict[str, Any] = {
        **{"arguments": arguments, "reference": expected, "block": BLOCK, "grid": GRID},
        **{"search": autotune.Search(effort="exhaustive"), "progress": False, **changes},
    }
    record = autotune.tune_kernel(body, "k", {"WRONG": [0, WRONG]}, **keywords)
    assert [entry.config.values["WRONG"] for entry in record.entries] == [0]
    assert record.best.measurement.error is not None
    return record


class OnDevice:
    """An array on the device, as any library offers it."""

    def __init__(self, session: Session, array: Any) -> None:
        self._session, self._array = session, array
        self._memory = session.allocate(array.nbytes)
        session.upload(int(self._memory), array)
        session.synchronize()

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        shape, typestr = self._array.shape, self._array.dtype.str
        data = int(self._memory), False
        return {"shape": shape, "typestr": typestr, "data": data, "strides": None, "version": 3}

    def get(self) -> Any:
        """A copy on the host, after the work on the default stream."""
        copied = np.empty_like(self._array)
        self._session.download(copied, int(self._memory))
        return copied


def floats(count: int = N) -> Any:
    return np.random.default_rng(0).standard_normal(count).astype(F4)


@pytest.mark.usefixtures("through")
def test_structures_and_complex_numbers_are_passed_by_value(session: Session) -> None:
    source = """
    struct Point { char tag; double at; };
    template <int WRONG> __global__ void k(
        double* out, short h, float3 v, double d, Point p, float2 z, double2 w, int n) {
        const int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n)
            out[i] = i + h + v.x + 2 * v.y + 3 * v.z + d + p.tag + p.at + z.x + 2 * z.y + w.x
                + 2 * w.y + (WRONG ? v.x : 0);
    }
    """
    values = [
        *(np.int16(7), np.array((1, 2, 4), FLOAT3)[()], np.float64(0.25)),
        *(np.array((3, 0.5), POINT)[()], np.complex64(1 + 2j), np.complex128(0.5 - 3j)),
    ]
    total = 7 + 17 + 0.25 + 3.5 + 5 - 5.5
    arguments = [np.zeros(N), *values, np.int32(N)]
    record = tuned(source, arguments, [np.arange(N) + total, *[None] * 7])
    out = OnDevice(session, np.zeros(N))
    autotune.kernel(record)(out, *values, N)
    np.testing.assert_allclose(out.get(), np.arange(N) + total)


@pytest.mark.usefixtures("through")
def test_arrays_of_structures_are_compared_field_by_field() -> None:
    source = """
    struct Point { char tag; double at; };
    template <int WRONG> __global__ void k(Point* out, const Point* in, int n) {
        const int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) {
            out[i].tag = in[i].tag + (WRONG && i == 77);
            out[i].at = 2 * in[i].at;
        }
    }
    """
    points = np.zeros(N, POINT)
    points["tag"], points["at"] = np.arange(N) % 100, np.arange(N) / 7
    expected = points.copy()
    expected["at"] *= 2

    def reference(out: Any, points: Any, n: Any) -> list[Any]:
        del out, points, n
        return [expected, None, None]

    tuned(source, [np.zeros(N, POINT), points, np.int32(N)], reference)  # type: ignore[arg-type]


def test_packed_structures_are_refused_with_both_sizes() -> None:
    source = """
    struct Point { char tag; double at; };
    template <int WRONG> __global__ void k(double* out, const Point* in) { out[0] = in[0].at; }
    """
    packed = np.zeros(N, [("tag", "i1"), ("at", "f8")])
    with pytest.raises(UsageError, match=r"structures \(9 bytes\); .* value of 16 .*align=True"):
        tuned(source, [np.zeros(N), packed], [np.zeros(N), None])


@pytest.mark.usefixtures("through")
def test_fortran_arrays_are_taken_as_they_lie() -> None:
    source = """
    template <int WRONG> __global__ void k(float* out, const float* in, int rows, int columns) {
        const int i = blockIdx.x * blockDim.x + threadIdx.x;
        const int row = i % rows, column = i / rows;
        if (column < columns) out[i] = in[i] + 10 * (WRONG ? column : row) + 0.25f * column;
    }
    """
    matrix = np.asfortranarray(floats(30 * 20).reshape(30, 20))
    rows, columns = np.indices(matrix.shape)
    expected = matrix + 10 * rows.astype(F4) + F4(0.25) * columns.astype(F4)
    arguments = [np.zeros_like(matrix), matrix, np.int32(30), np.int32(20)]
    record = tuned(source, arguments, [expected, None, None, None])
    assert str(record.call) == "k(float32[30,20,F], float32[30,20,F], int32=30, int32=20)"


@pytest.mark.usefixtures("through")
@pytest.mark.parametrize(
    ("declaration", "name", "used"),
    [
        ("__constant__ float w[16];", "w", "w"),
        ("static __constant__ float w[9];", "w", "w"),
        ("namespace { __constant__ float w[9]; }", "w", "w"),
        ("namespace f { __constant__ float w[9]; }", "f::w", "f::w"),
        ('extern "C" { __constant__ float w[9]; }', "w", "w"),
    ],
)
def test_constants_are_filled(session: Session, declaration: str, name: str, used: str) -> None:
    body = """
    template <int WRONG> __global__ void k(float* out, const float* in, int n) {
        const int i = blockIdx.x * blockDim.x + threadIdx.x;
        float sum = 0;
        for (int j = 0; j < 9; ++j) sum += USED[WRONG ? 8 - j : j] * in[i + j];
        if (i < n) out[i] = sum;
    }
    """.replace("USED", used)
    source, x, weights = declaration + body, floats(N + BLOCK + 9), np.arange(1, 10, dtype=F4)
    expected = np.convolve(x, weights[::-1], "valid")[:N].astype(F4)
    arguments = [np.zeros(N, F4), x, np.int32(N)]
    expected_arrays = [expected, None, None]
    with pytest.raises(UsageError, match=f"reads __constant__ {name}, which nothing fills"):
        tuned(source, arguments, expected_arrays)
    record = tuned(source, arguments, expected_arrays, constants={name: weights})
    assert record == autotune.best_kernel("k", arguments, constants={name: weights})
    out, there = OnDevice(session, np.zeros(N, F4)), OnDevice(session, x)
    for factor in (1, 2):
        autotune.kernel(record, constants={name: F4(factor) * weights})(out, there, N)
        np.testing.assert_allclose(out.get(), factor * expected, rtol=1e-4, atol=1e-4)


def test_misspelt_constant_lists_those_of_the_source() -> None:
    source = """
    __constant__ float weights[9];
    template <int WRONG> __global__ void k(float* out) { out[0] = weights[0]; }
    """
    with pytest.raises(UsageError, match="has no __constant__ wieghts; it has weights"):
        tuned(source, [np.zeros(N, F4)], [np.ones(N, F4)], constants={"wieghts": floats(9)})


@pytest.mark.usefixtures("through")
def test_vector_is_read_through_a_texture() -> None:
    source = """
    template <int WRONG> __global__ void k(float* out, cudaTextureObject_t in, int n) {
        const int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) out[i] = 2 * tex1Dfetch<float>(in, WRONG ? i + 1 : i);
    }
    """
    x = floats(N + 1)
    arguments = [np.zeros(N, F4), autotune.Texture(x), np.int32(N)]
    tuned(source, arguments, [2 * x[:N], None, None])


@pytest.mark.usefixtures("through")
@pytest.mark.parametrize("address", ["clamp", "border"])
def test_matrix_is_interpolated_by_a_texture(address: str) -> None:
    source = """
    template <int WRONG> __global__ void k(float* out, cudaTextureObject_t in, int w, int h) {
        const int i = blockIdx.x * blockDim.x + threadIdx.x, x = i % w, y = i / w;
        if (y < h) out[i] = tex2D<float>(in, x + (WRONG ? 0.5f : 1.0f), y + 0.5f);
    }
    """
    image = floats(20 * 33).reshape(20, 33)
    edge = image[:, -1:] if address == "clamp" else np.zeros((20, 1), F4)
    expected = (image + np.hstack([image[:, 1:], edge])) / 2
    texture = autotune.Texture(image, address=address, filter="linear")
    arguments = [np.zeros_like(image), texture, np.int32(33), np.int32(20)]
    # Interpolation has 8 bits of fraction; a half is exact.
    tuned(source, arguments, [expected, None, None, None])


@pytest.mark.usefixtures("through")
def test_bytes_are_read_as_normalised_floats() -> None:
    source = """
    template <int WRONG> __global__ void k(float* out, cudaTextureObject_t in, int w, int h) {
        const int i = blockIdx.x * blockDim.x + threadIdx.x, x = i % w, y = i / w;
        if (y < h) out[i] = tex2D<float>(in, (x + 0.5f) / w + WRONG, (y + 0.5f) / h + 2);
    }
    """
    image = np.random.default_rng(0).integers(0, 256, (20, 32), np.uint8)
    image[:, 0] = 255
    texture = autotune.Texture(image, address="mirror", normalized=True, read="normalized")
    arguments = [np.zeros((20, 32), F4), texture, np.int32(32), np.int32(20)]
    # A shift by two sizes is none; by one it mirrors.
    tuned(source, arguments, [image / F4(255), None, None, None])
