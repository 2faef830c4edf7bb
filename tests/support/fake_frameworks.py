"""Fake array libraries on the fake GPU, with the parts that the runtime uses."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from support.fake_driver import FakeCuda, Matrix
from support.numpy_types import decoded, encoded, name_of


class Interface:
    """An array that offers `__cuda_array_interface__` and nothing else."""

    def __init__(self, host: Any, **entries: Any) -> None:
        self.host = host
        self._entries = entries

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        host = self.host
        seen = {"shape": host.shape, "strides": host.strides, "typestr": host.dtype.str}
        return seen | {"data": (host.ctypes.data, False), "version": 3} | self._entries


@dataclass(frozen=True)
class _Device:
    type: str
    index: int | None


class TorchType(str):
    """A dtype of PyTorch."""

    @property
    def is_complex(self) -> bool:
        return "complex" in self


class Tensor:
    """A PyTorch tensor over the memory `host`, which has the other sign if `negative`."""

    __torch_dispatch__: Any = None
    layout, is_nested, is_quantized = "torch.strided", False, False

    def __init__(
        self,
        host: Any,
        device: _Device = _Device("cuda", 0),
        requires_grad: bool = False,
        negative: bool = False,
    ) -> None:
        self.host, self.device, self.requires_grad = host, device, requires_grad
        self.shape, self.dtype = host.shape, TorchType(f"torch.{name_of(host)}")
        self.negative, self.conjugate = negative, False

    def data_ptr(self) -> int:
        return int(self.host.ctypes.data)

    def numel(self) -> int:
        return int(self.host.size)

    def is_neg(self) -> bool:
        return self.negative

    def is_conj(self) -> bool:
        return self.conjugate

    def narrow(self, axis: int, start: int, length: int) -> Tensor:
        places = [slice(None)] * len(self.shape)
        places[axis] = slice(start, start + length)
        return Tensor(self.host[tuple(places)], self.device)

    def new_empty(self, shape: tuple[int, ...], dtype: str | None = None) -> Tensor:
        return Tensor(_unwritten(shape, (dtype or self.dtype).removeprefix("torch.")), self.device)

    def dim(self) -> int:
        return len(self.shape)

    def __len__(self) -> int:
        return int(self.shape[0])

    def expand(self, *sizes: int) -> Tensor:
        own = (1,) * (len(sizes) - len(self.shape)) + self.shape
        whole = tuple(old if new == -1 else new for new, old in zip(sizes, own, strict=True))
        return Tensor(np.broadcast_to(self.host, whole), self.device, self.requires_grad)

    def flatten(self, first: int, last: int) -> Tensor:
        assert (first, last) == (0, -3)
        return Tensor(self.host.reshape(-1, *self.shape[-2:]), self.device)

    def view(self, *shape: int) -> Tensor:
        host = self.host.reshape(shape)
        if not np.shares_memory(host, self.host):
            raise RuntimeError("view size is not compatible with input tensor's size and stride")
        return Tensor(host, self.device)

    def reshape(self, *shape: int) -> Tensor:
        return Tensor(self.host.reshape(shape), self.device)

    def t(self) -> Tensor:
        return Tensor(self.host.T, self.device)

    def stride(self) -> tuple[int, ...]:
        return tuple(stride // self.host.itemsize for stride in self.host.strides)


class Parameter(Tensor):
    """A trainable tensor."""


class FakeTorch(ModuleType):
    """The module, with its current stream and grad mode as attributes."""

    float32, bfloat16 = "torch.float32", "torch.bfloat16"
    float16, int32 = "torch.float16", "torch.int32"
    float8_e4m3fn, float8_e5m2 = "torch.float8_e4m3fn", "torch.float8_e5m2"
    int8 = "torch.int8"
    strided = "torch.strided"

    def __init__(self, cuda: FakeCuda) -> None:
        super().__init__("torch")
        self.Tensor, self.nn = Tensor, SimpleNamespace(Parameter=Parameter)
        self.cuda_ = cuda
        self.current, self.records = 0, True
        self._C = SimpleNamespace(_cuda_getCurrentRawStream=lambda _: self.current)
        self.backends = SimpleNamespace(
            cuda=SimpleNamespace(matmul=SimpleNamespace(allow_tf32=False))
        )
        self.products: list[tuple[str, dict[str, Any]]] = []
        self.fuses, self.capturing, self.made = False, False, 0
        self.cuda = SimpleNamespace(is_current_stream_capturing=lambda: self.capturing)

    def __getattr__(self, name: str) -> Any:
        """`_addmm_activation`, if this PyTorch has it."""
        if name != "_addmm_activation" or not self.fuses:
            raise AttributeError(name)
        return self._fused

    def _fused(
        self, added: Tensor, a: Tensor, b: Tensor, *, use_gelu: bool, alpha: float, out: Tensor
    ) -> None:
        assert not use_gelu
        self._multiplied("_addmm_activation", a, b, out, added, alpha=alpha, beta=1)
        np.maximum(out.host, 0, out=out.host)

    def is_grad_enabled(self) -> bool:
        return self.records

    def mm(self, a: Tensor, b: Tensor, *, out: Tensor) -> None:
        self._multiplied("mm", a, b, out)

    def bmm(self, a: Tensor, b: Tensor, *, out: Tensor) -> None:
        self._multiplied("bmm", a, b, out)

    def addmm(self, added: Tensor, a: Tensor, b: Tensor, *, out: Tensor, **scale: Any) -> None:
        self._multiplied("addmm", a, b, out, added, **scale)

    def baddbmm(self, added: Tensor, a: Tensor, b: Tensor, *, out: Tensor, **scale: Any) -> None:
        self._multiplied("baddbmm", a, b, out, added, **scale)

    def _scaled_mm(
        self, a: Tensor, b: Tensor, *scales: Tensor, bias: Any, out: Tensor, **options: Any
    ) -> None:
        scale_a, scale_b = scales
        shapes = scale_a.shape, scale_b.shape
        assert bias is None
        self.products.append(("_scaled_mm", {"scales": shapes, **options}))
        left, right = (
            decoded(matrix.host) * _expanded(scale.host, matrix.shape)
            for matrix, scale in ((a, scale_a), (b, scale_b))
        )
        out.host[...] = encoded(left @ right, name_of(out.host))

    def _int_mm(self, a: Tensor, b: Tensor, *, out: Tensor) -> None:
        self._multiplied("_int_mm", a, b, out)

    def ones(self, shape: tuple[int, ...], dtype: str, device: _Device) -> Tensor:
        assert dtype == self.float32
        self.made += 1
        return Tensor(np.ones(shape, np.float32), device)

    def relu_(self, tensor: Tensor) -> None:
        self.products.append(("relu_", {}))
        np.maximum(tensor.host, 0, out=tensor.host)

    def _multiplied(
        self, name: str, a: Tensor, b: Tensor, out: Tensor, added: Any = None, **scale: Any
    ) -> None:
        """Computes `out`; without a scale, `added` is not read."""
        self.products.append((name, scale))
        product = scale.get("alpha", 1) * (decoded(a.host) @ decoded(b.host))
        rest = scale["beta"] * decoded(added.host) if scale.get("beta") else 0
        out.host[...] = encoded(product + rest, name_of(out.host))

    def on(self, device: str, host: Matrix) -> Tensor:
        """A tensor on `cpu`, `cuda:0` or `cuda:1` over the memory of a NumPy array."""
        kind, _, index = device.partition(":")
        return Tensor(host, _Device(kind, int(index) if index else None))


def _expanded(scales: Any, shape: tuple[int, ...]) -> Any:
    """Scales of a tensor, of rows, of columns or of blocks of 128 for each element of a matrix."""
    for axis, size in enumerate(shape):
        if scales.ndim == 2 and scales.shape[axis] not in (1, size):
            scales = np.repeat(scales, 128, axis=axis).take(range(size), axis=axis)
    return np.broadcast_to(scales, shape)


def _unwritten(shape: tuple[int, ...], name: str) -> Any:
    return encoded(np.full(shape, np.nan, np.float32), name)


@dataclass(frozen=True)
class DType:
    """A dtype of CuPy, which takes bfloat16 from `ml_dtypes`."""

    name: str
    itemsize: int


class CuPyArray:
    """A CuPy array."""

    def __init__(self, host: Any, ordinal: int = 0) -> None:
        self.host, self.shape, self.strides = host, host.shape, host.strides
        self.dtype = DType(name_of(host), host.itemsize)
        self.data = SimpleNamespace(ptr=host.ctypes.data, device_id=ordinal)
        self.device = nullcontext()


class FakeCuPy(ModuleType):
    """The module, with the current stream of each device."""

    ndarray = CuPyArray
    float32, float16, int32 = DType("float32", 4), DType("float16", 2), DType("int32", 4)

    def __init__(self, cuda: FakeCuda) -> None:
        super().__init__("cupy")
        self.cuda_ = cuda
        self.streams: dict[int, int] = {}
        self.products = 0
        self.cuda = SimpleNamespace(
            get_current_stream=lambda ordinal: SimpleNamespace(ptr=self.streams.get(ordinal, 0))
        )

    def empty(self, shape: tuple[int, ...], dtype: DType) -> CuPyArray:
        return CuPyArray(self.cuda_.hold(_unwritten(shape, dtype.name)))

    def matmul(self, a: CuPyArray, b: CuPyArray, *, out: CuPyArray) -> None:
        self.products += 1
        np.matmul(a.host, b.host, out=out.host)


class GPUArray(Interface):
    """A `pycuda.gpuarray.GPUArray`."""

    def __init__(self, host: Any, allocator: str = "mem_alloc") -> None:
        super().__init__(host, stream=None)
        self.allocator, self.dtype = allocator, host.dtype


class FakePyCuda(ModuleType):
    """The module `pycuda.gpuarray`."""

    def __init__(self, cuda: FakeCuda) -> None:
        super().__init__("pycuda.gpuarray")
        self.GPUArray = GPUArray
        self.cuda_ = cuda

    def empty(self, shape: tuple[int, ...], dtype: str, allocator: str) -> GPUArray:
        return GPUArray(self.cuda_.hold(_unwritten(shape, np.dtype(dtype).name)), allocator)
