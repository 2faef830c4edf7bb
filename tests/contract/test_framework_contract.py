"""Every array library keeps the contract that `autotune.testing` ships."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.fake_driver import FakeCuda
from support.fake_frameworks import CuPyArray, FakeCuPy, FakePyCuda, FakeTorch, GPUArray
from support.fake_frameworks import Interface as InterfaceArray

from autotune.runtime.frameworks import CudaArrayInterface, CuPy, DLPack, Framework, PyCuda, Torch
from autotune.testing import FrameworkContract
from autotune.testing.contracts import MakeArray


class DlpackArray:
    """An array that offers DLPack alone, as `jax.Array` does; it says that it is on a GPU."""

    def __init__(self, host: Any) -> None:
        self.host = host

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, *, stream: int | None = None, **options: Any) -> Any:
        del stream
        return self.host.__dlpack__(**options)


class FakeMemoryContract(FrameworkContract):
    """The contract for libraries whose fake arrays hold a NumPy array as `host`."""

    def wrap(self, host: Any) -> Any:
        raise NotImplementedError

    @pytest.fixture
    def cuda(self) -> FakeCuda:
        return FakeCuda()

    @pytest.fixture
    def make(self, cuda: FakeCuda) -> MakeArray:
        return lambda shape, dtype: self.wrap(cuda.hold(np.zeros(shape, dtype)))

    def transposed(self, array: Any) -> Any:
        return self.wrap(array.host.T)

    @pytest.fixture
    def ordinal(self) -> Callable[[int], int | None]:
        return lambda _: 0


class TestTorch(FakeMemoryContract):
    @pytest.fixture
    def framework(self, cuda: FakeCuda) -> Framework:
        return Torch(FakeTorch(cuda))

    def wrap(self, host: Any) -> Any:
        return FakeTorch(FakeCuda()).on("cuda:0", host)


class TestCuPy(FakeMemoryContract):
    @pytest.fixture
    def framework(self, cuda: FakeCuda) -> Framework:
        return CuPy(FakeCuPy(cuda))

    def wrap(self, host: Any) -> Any:
        return CuPyArray(host)


class TestPyCuda(FakeMemoryContract):
    @pytest.fixture
    def framework(self, cuda: FakeCuda, ordinal: Callable[[int], int | None]) -> Framework:
        return PyCuda(FakePyCuda(cuda), ordinal)

    def wrap(self, host: Any) -> Any:
        return GPUArray(host)


class TestArrayInterface(FakeMemoryContract):
    allocates = False

    @pytest.fixture
    def framework(self, ordinal: Callable[[int], int | None]) -> Framework:
        return CudaArrayInterface(ordinal)

    def wrap(self, host: Any) -> Any:
        return InterfaceArray(host)


class TestDlpack(FakeMemoryContract):
    allocates = False

    @pytest.fixture
    def framework(self) -> Framework:
        return DLPack()

    def wrap(self, host: Any) -> Any:
        return DlpackArray(host)
