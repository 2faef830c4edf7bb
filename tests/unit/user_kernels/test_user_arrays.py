"""Arrays of other libraries as arguments of user kernels."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support import fake_frameworks
from support.sample_user_kernels import arguments, reference

from autotune.api.kernels import work_of
from autotune.errors import UsageError
from autotune.user_kernels import Verification, call_of
from autotune.user_kernels.arrays import on_host


class Tensor(fake_frameworks.Tensor):
    """A PyTorch tensor on a GPU."""

    __dlpack__ = None

    def __init__(self, host: Any, dtype: str | None = None, negative: bool = False) -> None:
        super().__init__(host, negative=negative)
        self.dtype = fake_frameworks.TorchType(f"torch.{dtype}") if dtype else self.dtype

    def numpy(self, *, force: bool = False) -> Any:
        if self.dtype == "torch.bfloat16":
            raise TypeError("Got unsupported ScalarType BFloat16")
        if self.negative and not force:
            raise RuntimeError("Can't call numpy() on Tensor that has negative bit set.")
        return -self.host if self.negative else self.host

    def to(self, device: Any) -> Tensor:
        assert device == self.device
        return self

    def __mul__(self, factor: Any) -> Tensor:
        return Tensor(self.host * factor)

    __rmul__ = __mul__

    def __add__(self, other: Tensor) -> Tensor:
        return Tensor(self.host + other.host)


class CuPyArray:
    """An array of CuPy or PyCUDA."""

    gpudata = None
    device = nullcontext()

    def __init__(self, host: Any) -> None:
        self.host, self.shape, self.dtype = host, host.shape, host.dtype

    def get(self) -> Any:
        return self.host

    def __mul__(self, factor: Any) -> CuPyArray:
        return CuPyArray(self.host * factor)

    __rmul__ = __mul__

    def __add__(self, other: CuPyArray) -> CuPyArray:
        return CuPyArray(self.host + other.host)


LIBRARIES: dict[str, tuple[type, str, SimpleNamespace]] = {
    "torch": (
        Tensor,
        "torch",
        SimpleNamespace(Tensor=Tensor, from_numpy=Tensor, strided=Tensor.layout),
    ),
    "cupy": (CuPyArray, "cupy", SimpleNamespace(ndarray=CuPyArray, asarray=CuPyArray)),
    "pycuda": (
        CuPyArray,
        "pycuda.gpuarray",
        SimpleNamespace(GPUArray=CuPyArray, to_gpu=CuPyArray),
    ),
}


@pytest.mark.parametrize("name", LIBRARIES)
def test_arrays_of_a_library_are_copied_and_handed_back(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, module, library = LIBRARIES[name]
    monkeypatch.setitem(sys.modules, module, library)
    y, x, a, n = arguments()
    asked: list[type] = []

    def in_library(*own: Any) -> Any:
        asked.extend(type(array) for array in own[:2])
        return reference(*own)

    work = work_of("saxpy", [kind(y), kind(x), a, n], in_library, Verification())
    assert work.call == call_of("saxpy", arguments()) == call_of("saxpy", [kind(y), kind(x), a, n])
    assert set(asked) == {kind}
    first, second = work.buffers
    assert first.expected is not None
    np.testing.assert_array_equal(first.expected.values, a * x + y)
    np.testing.assert_array_equal(second.before, x)


def test_expected_arrays_may_be_on_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", LIBRARIES["torch"][2])
    y, x, a, n = arguments()
    work = work_of("saxpy", [y, x, a, n], [Tensor(a * x + y), None, None, None], Verification())
    assert work.buffers[0].expected is not None


def test_type_that_numpy_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", LIBRARIES["torch"][2])
    with pytest.raises(UsageError, match=r"argument 3 is a tensor of torch.bfloat16, .* bits"):
        on_host(Tensor(np.zeros(3), "bfloat16"), 3)


def test_lazily_negated_tensor_is_copied_with_its_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", LIBRARIES["torch"][2])
    memory = np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(on_host(Tensor(memory, negative=True), 0), -memory)


def test_tensor_without_dense_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", LIBRARIES["torch"][2])
    sparse = Tensor(np.zeros(3, np.float32))
    sparse.layout = "torch.sparse_coo"
    with pytest.raises(UsageError, match=r"argument 2 has the layout torch\.sparse_coo; give "):
        on_host(sparse, 2)


def test_array_without_a_copy_is_refused() -> None:
    opaque = SimpleNamespace(__cuda_array_interface__={"typestr": "<f4"}, shape=(3,))
    assert str(call_of("k", [opaque])) == "k(float32[3])"
    with pytest.raises(UsageError, match="argument 0 is a SimpleNamespace, which offers no copy"):
        on_host(opaque, 0)
