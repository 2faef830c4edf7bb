"""`autotune.matmul`: when it tunes, and when cuBLAS multiplies instead of our kernel."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from support.fake_frameworks import CuPyArray, FakeCuPy, FakeTorch, Interface, Parameter
from support.runtime_case import NAIVE, TYPED, Case

from autotune import runtime
from autotune.api import tuning
from autotune.api.matmul import matmul
from autotune.device import find
from autotune.errors import ArrayError, UsageError
from autotune.measure import devices
from autotune.measure.objective import COLD
from autotune.problem import Problem
from autotune.settings import Mode, Policy

H100 = find("h100")


@pytest.fixture
def case(monkeypatch: pytest.MonkeyPatch) -> Case:
    """A runtime on whose shapes cuBLAS was measured to be faster."""
    case = Case(config=TYPED, vendor=True)
    case.cuda.make_context()
    monkeypatch.setattr(runtime, "current", lambda: case.matmul)
    return case


def tensors(case: Case, torch: FakeTorch, *shapes: tuple[int, ...], dtype: str = "float32") -> Any:
    return [torch.on("cuda:0", case.matrix(*shape, dtype=dtype)) for shape in shapes]


def operands(case: Case, torch: FakeTorch, dtype: str = "float32") -> Any:
    return tensors(case, torch, (5, 3), (3, 7), (5, 7), dtype=dtype)


# Tuning


def test_matmul_tunes_on_the_gpu_of_the_arrays(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    case.how = "nearest"
    cards = [find("t4"), case.runtime.gpu(0).device]
    searches: list[tuple[Problem, int]] = []
    monkeypatch.setattr(devices, "probe", lambda index: cards[index])
    monkeypatch.setattr(
        tuning, "search", lambda problem, _, device: searches.append((problem, device))
    )
    with pytest.warns(runtime.UntunedWarning):
        matmul(*case.operands(5, 7, 3), policy=Policy(tune=True))
    assert searches == [(Problem(5, 7, 3), 1)]


@pytest.mark.parametrize(("cold", "objective"), [(False, "hot"), (True, "cold")])
def test_matmul_tunes_for_the_time_it_is_asked_for(
    case: Case, monkeypatch: pytest.MonkeyPatch, cold: bool, objective: str
) -> None:
    case.how = "nearest"
    searched: list[str] = []
    monkeypatch.setattr(devices, "probe", lambda _: case.runtime.gpu(0).device)
    monkeypatch.setattr(
        tuning, "search", lambda _, options, **__: searched.append(options.objective)
    )
    with pytest.warns(runtime.UntunedWarning):
        matmul(*case.operands(5, 7, 3), policy=Policy(tune=True, cold=cold))
    assert searched == [objective]


@pytest.mark.parametrize(("how", "raced"), [("nearest", [True]), ("exact", []), ("range", [])])
def test_quick_matmul_races_what_has_no_record(
    case: Case, monkeypatch: pytest.MonkeyPatch, how: Any, raced: list[bool]
) -> None:
    case.how, case.vendor = how, False
    quick: list[bool] = []
    monkeypatch.setattr(devices, "probe", lambda _: case.runtime.gpu(0).device)
    monkeypatch.setattr(tuning, "search", lambda _, options, **__: quick.append(options.quick))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", runtime.UntunedWarning)
        matmul(*case.operands(5, 7, 3), policy=Policy(tune="quick"))
    assert quick == raced


def test_other_word_for_tune_is_refused(case: Case) -> None:
    with pytest.raises(UsageError, match="tune is 'fast'"):
        matmul(*case.operands(5, 7, 3), policy=Policy(tune="fast"))  # type: ignore[arg-type]


def test_quick_mode_races_through_matmul(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    raced: list[tuple[Problem, str]] = []
    monkeypatch.setattr(case.runtime, "mode", Mode("quick"))
    monkeypatch.setattr(devices, "probe", lambda _: case.runtime.gpu(0).device)
    monkeypatch.setattr(
        tuning, "search", lambda problem, options, **_: raced.append((problem, options.objective))
    )
    monkeypatch.setattr("autotune.lookup.lookup.recorded", lambda *_: None)
    case.vendor = False
    for _ in range(2):
        matmul(*case.operands(5, 7, 3))
    assert raced == [(Problem(5, 7, 3), "hot")]


def test_matmul_passes_cold_on(case: Case) -> None:
    case.vendor, case.config_cold = False, NAIVE
    matmul(*case.operands(5, 7, 3), policy=Policy(cold=True))
    assert case.runtime.resolve(Problem(5, 7, 3), 0, COLD).config == NAIVE
    assert len(case.looked_up) == 1


# cuBLAS


def test_cublas_multiplies_tensors_where_it_is_faster(case: Case, torch: FakeTorch) -> None:
    a, b, out = operands(case, torch)
    assert matmul(a, b, out) is out
    assert torch.products == [("mm", {})]
    assert np.allclose(out.host, a.host @ b.host, atol=1e-5)
    assert case.cuda.launches == []


def test_vendor_false_launches_our_kernel(case: Case, torch: FakeTorch) -> None:
    matmul(*operands(case, torch), policy=Policy(vendor=False))
    assert (torch.products, len(case.cuda.launches)) == ([], 1)


def test_faster_kernel_of_ours_is_launched(case: Case, torch: FakeTorch) -> None:
    case.vendor = False
    matmul(*operands(case, torch))
    assert (torch.products, len(case.cuda.launches)) == ([], 1)


def test_explicit_kernel_never_uses_cublas(case: Case, torch: FakeTorch) -> None:
    runtime.Kernel(case.runtime, Problem(5, 7, 3), 0)(*operands(case, torch))
    assert (torch.products, len(case.cuda.launches)) == ([], 1)


def test_cublas_applies_alpha_and_beta(case: Case, torch: FakeTorch) -> None:
    a, b, out = operands(case, torch)
    expected = 0.5 * (a.host @ b.host) + 2.0 * out.host
    matmul(a, b, out, 0.5, 2.0)
    assert torch.products == [("addmm", {"beta": 2.0, "alpha": 0.5})]
    assert np.allclose(out.host, expected, atol=1e-5)


def test_cublaslt_fuses_bias_and_relu_where_pytorch_can(case: Case, torch: FakeTorch) -> None:
    torch.fuses = True
    a, b, out = operands(case, torch)
    (bias,) = tensors(case, torch, (7,))
    expected = np.maximum(0.5 * (a.host @ b.host) + bias.host, 0)
    matmul(a, b, out, 0.5, bias=bias, activation="relu")
    assert torch.products == [("_addmm_activation", {"alpha": 0.5, "beta": 1})]
    assert np.allclose(out.host, expected, atol=1e-5)


def test_cublas_adds_a_bias_before_the_activation(case: Case, torch: FakeTorch) -> None:
    a, b, out = operands(case, torch)
    (bias,) = tensors(case, torch, (7,))
    matmul(a, b, out, bias=bias, activation="relu")
    assert torch.products == [("addmm", {"beta": 1, "alpha": 1.0}), ("relu_", {})]
    assert np.allclose(out.host, np.maximum(a.host @ b.host + bias.host, 0), atol=1e-5)


def test_cublas_multiplies_parameters(case: Case, torch: FakeTorch) -> None:
    a, b, out = operands(case, torch)
    bias = Parameter(case.matrix(7))
    matmul(a, Parameter(b.host), out, bias=bias)
    assert [name for name, _ in torch.products] == ["addmm"]


def test_cublas_broadcasts_one_matrix_over_a_batch(case: Case, torch: FakeTorch) -> None:
    a, b = tensors(case, torch, (2, 5, 3), (3, 7))
    out: Any = matmul(a, b)
    assert torch.products == [("bmm", {})]
    assert np.allclose(out.host, a.host @ b.host, atol=1e-5)


def test_bias_with_beta_launches_our_kernel(case: Case, torch: FakeTorch) -> None:
    (bias,) = tensors(case, torch, (7,))
    a, b, out = operands(case, torch)
    matmul(a, b, out, beta=1.0, bias=bias)
    assert (torch.products, len(case.cuda.launches)) == ([], 1)


@pytest.mark.parametrize(
    ("compute", "allowed", "products"),
    [
        ("f32", False, ["mm"]),
        ("f32", True, []),
        ("tf32", False, []),
        ("tf32", True, ["mm"]),
        ("tf32x3", False, ["mm"]),
        ("tf32x3", True, []),
    ],
)
def test_cublas_multiplies_fp32_only_in_its_own_precision(
    case: Case, torch: FakeTorch, compute: str, allowed: bool, products: list[str]
) -> None:
    torch.backends.cuda.matmul.allow_tf32 = allowed
    matmul(*operands(case, torch), compute=compute)
    assert [name for name, _ in torch.products] == products


def test_tf32_setting_is_read_at_each_call(case: Case, torch: FakeTorch) -> None:
    arrays = operands(case, torch)
    for allowed in (False, True, False):
        torch.backends.cuda.matmul.allow_tf32 = allowed
        matmul(*arrays)
    assert (len(torch.products), len(case.cuda.launches)) == (2, 1)


def test_tf32_setting_does_not_affect_16_bits(case: Case, torch: FakeTorch) -> None:
    torch.backends.cuda.matmul.allow_tf32 = True
    matmul(*operands(case, torch, "bfloat16"))
    assert torch.products == [("mm", {})]


def test_arrays_of_two_libraries_use_our_kernel(case: Case, torch: FakeTorch) -> None:
    a, b, out = operands(case, torch)
    matmul(a, b, Interface(out.host))
    assert (torch.products, len(case.cuda.launches)) == ([], 1)


def test_arrays_of_an_unknown_library_use_our_kernel(case: Case) -> None:
    a, b, out = case.operands(5, 7, 3)
    matmul(a, b, out)
    assert np.allclose(out.host, a.host @ b.host, atol=1e-5)


def test_cublas_multiplies_cupy_arrays_where_it_is_faster(case: Case, cupy: FakeCuPy) -> None:
    a, b = CuPyArray(case.matrix(5, 3)), CuPyArray(case.matrix(3, 7))
    out: Any = matmul(a, b)
    assert cupy.products == 1
    assert np.allclose(out.host, a.host @ b.host, atol=1e-5)


def test_cupy_set_to_tf32_is_not_used(
    case: Case, cupy: FakeCuPy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUPY_TF32", "1")
    matmul(CuPyArray(case.matrix(5, 3)), CuPyArray(case.matrix(3, 7)))
    assert (cupy.products, len(case.cuda.launches)) == (0, 1)


def test_cupy_is_not_used_with_alpha(case: Case, cupy: FakeCuPy) -> None:
    matmul(CuPyArray(case.matrix(5, 3)), CuPyArray(case.matrix(3, 7)), alpha=2.0)
    assert (cupy.products, len(case.cuda.launches)) == (0, 1)


def test_operands_are_checked_before_cublas_is_called(case: Case, torch: FakeTorch) -> None:
    a, b, _ = operands(case, torch)
    with pytest.raises(ArrayError, match="the inner sizes 3 and 5 differ"):
        matmul(a, a)
    assert b.shape == (3, 7)
    assert torch.products == []
