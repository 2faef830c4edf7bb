"""Kernels of many kinds with what their tuning takes: data, parameters, constraints, references.

    python examples/kernels/cases.py                # lists them
    python examples/kernels/cases.py softmax        # tunes one on the GPU of this machine
    python examples/kernels/cases.py softmax h100   # what its configurations occupy; no GPU

`softmax.cu` and its neighbours say what they compute, their parameters and their constraints.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from references import (
    FILTER,
    Array,
    Results,
    accelerations,
    box,
    convolved,
    counted,
    filter_weights,
    floats,
    laplacian,
    matrices,
    moved,
    normalised,
    softmaxed,
    sparse,
    sparse_product,
    stencil_step,
)

import autotune

FOLDER = Path(__file__).resolve().parent
Values = Sequence[int | str]
Parameters = Mapping[str, Any]
Size = int | str


@dataclass(frozen=True)
class Case:
    """A kernel, its search space and the call to tune it with.

    Attributes:
        name: the stem of its file.
        kernel: the kernel's name, with the template arguments of a template.
        parameters: the values of each parameter.
        constraints: expressions in the parameters that have to be true.
        problem_size: size along x, y and z: numbers, or expressions in the parameters.
        grid_div: for each of them what a block covers: parameters that are multiplied.
        arguments: makes the arguments.
        reference: called with the arguments; returns the expected array of each output.
        bytes: bytes that the kernel moves at least.
        shared: bytes of dynamic shared memory: a number, or an expression in the parameters.
        constants: makes the contents of `__constant__` variables.
    """

    name: str
    kernel: str
    parameters: Mapping[str, Values]
    constraints: Sequence[str]
    problem_size: Sequence[Size]
    grid_div: Sequence[Sequence[str]]
    arguments: Callable[[], list[Any]]
    reference: Callable[..., Results]
    bytes: int = 0
    shared: Size = 0
    constants: Callable[[], dict[str, Array]] | None = None

    @property
    def path(self) -> Path:
        """The file of the kernel."""
        return FOLDER / f"{self.name}.cu"

    @property
    def is_template(self) -> bool:
        """Whether parameters are template arguments instead of macros."""
        return "<" in self.kernel

    def extents(self, parameters: Parameters) -> tuple[int, ...]:
        """The size of the problem for one configuration."""
        return tuple(evaluated(size, parameters) for size in self.problem_size)

    def legal(self) -> list[dict[str, Any]]:
        """All configurations that meet the constraints."""
        rules = [compile(text, text, "eval") for text in self.constraints]
        names = tuple(self.parameters)
        configs = (dict(zip(names, row, strict=True)) for row in product(*self.parameters.values()))
        return [config for config in configs if all(eval(rule, {}, config) for rule in rules)]

    def keywords(self) -> dict[str, Any]:
        """The arguments that `tune_kernel` and `kernel_occupancy` share."""
        return {
            "source": self.path,
            "name": self.kernel,
            "parameters": self.parameters,
            "constraints": self.constraints,
            "compile": autotune.Compilation(defines=not self.is_template),
            "shared": self.shared,
        }

    def geometry(self) -> dict[str, Any]:
        """The arguments of `tune_kernel` for the grid."""
        return {
            "problem_size": self.extents,
            "grid_div": [list(factors) or 1 for factors in self.grid_div],
        }

    def tune(self, arguments: Sequence[Any], answer: Results, **options: Any) -> Any:
        """Tunes the kernel; `answer` has the expected arrays."""
        if self.constants is not None:
            options["constants"] = self.constants()
        if self.bytes:
            options["metrics"] = {"GB/s": lambda result: 1e-3 * self.bytes / result.time_us}
        return autotune.tune_kernel(
            **self.keywords(),
            **self.geometry(),
            arguments=arguments,
            reference=answer,
            **options,
        )


def evaluated(text: Size, parameters: Parameters) -> Any:
    """The value of an expression in the parameters."""
    return eval(text, {}, dict(parameters)) if isinstance(text, str) else text


N_ADD = 1 << 24
N_SUM = 1 << 25
SIDE = 4096
N_MATRIX = 2048
N_BYTES = 1 << 27
ROWS, COLUMNS = 8192, 2048
N_BODIES = 16384
N_PARTICLES = 1 << 22
N_SPARSE = 1 << 20
GRID = 256

CASES = {
    case.name: case
    for case in (
        Case(
            name="vector_add",
            kernel="vector_add",
            parameters={
                "block_size_x": [*range(32, 1025, 32)],
                "vector_width": [1, 2, 4],
                "items": [1, 2, 4, 8],
                "interleaved": [0, 1],
                "streaming": [0, 1],
            },
            constraints=["interleaved == 1 or items > 1"],
            problem_size=[N_ADD],
            grid_div=[["block_size_x", "vector_width", "items"]],
            arguments=lambda: [
                floats(N_ADD),
                floats(N_ADD, seed=1),
                np.zeros(N_ADD, np.float32),
                np.int32(N_ADD),
            ],
            reference=lambda a, b, *_: [None, None, a + b, None],
            bytes=12 * N_ADD,
        ),
        Case(
            name="reduction",
            kernel="reduce_sum",
            parameters={
                "block_size_x": [32, 64, 128, 256, 512, 1024],
                "num_blocks": [66, 132, 264, 528, 1056, 2112, 4224],
                "vector_width": [1, 2, 4],
                "unroll": [1, 2, 4, 8],
                "use_shuffle": [0, 1],
            },
            constraints=["block_size_x * num_blocks >= 16384"],
            problem_size=["num_blocks"],
            grid_div=[[]],
            arguments=lambda: [floats(N_SUM) + 1, np.zeros(1, np.float32), np.int32(N_SUM)],
            reference=lambda x, total, _: [
                None,
                (total + x.sum(dtype=np.float64)).astype(np.float32),
                None,
            ],
            bytes=4 * N_SUM,
        ),
        Case(
            name="transpose",
            kernel="transpose",
            parameters={
                "block_size_x": [8, 16, 32, 64, 128],
                "block_size_y": [1, 2, 4, 8, 16, 32],
                "items_x": [1, 2, 4],
                "items_y": [1, 2, 4, 8],
                "padding": [0, 1, 2],
                "diagonal": [0, 1],
            },
            constraints=[
                "32 <= block_size_x * block_size_y <= 1024",
                "(block_size_x * items_x + padding) * block_size_y * items_y <= 12288",
            ],
            problem_size=[SIDE, SIDE],
            grid_div=[["block_size_x", "items_x"], ["block_size_y", "items_y"]],
            arguments=lambda: [
                floats(SIDE, SIDE),
                np.zeros((SIDE, SIDE), np.float32),
                np.int32(SIDE),
                np.int32(SIDE),
            ],
            reference=lambda matrix, *_: [None, matrix.T.copy(), None, None],
            bytes=8 * SIDE * SIDE,
        ),
        Case(
            name="stencil5",
            kernel="stencil5",
            parameters={
                "block_size_x": [16, 32, 64, 128, 256],
                "block_size_y": [1, 2, 4, 8, 16, 32],
                "tile_x": [1, 2, 4],
                "tile_y": [1, 2, 4, 8],
                "use_shared": [0, 1],
                "read_only": [0, 1],
            },
            constraints=[
                "64 <= block_size_x * block_size_y <= 1024",
                "use_shared == 0 or "
                "(block_size_x * tile_x + 2) * (block_size_y * tile_y + 2) <= 12288",
            ],
            problem_size=[SIDE, SIDE],
            grid_div=[["block_size_x", "tile_x"], ["block_size_y", "tile_y"]],
            arguments=lambda: [
                floats(SIDE, SIDE),
                np.zeros((SIDE, SIDE), np.float32),
                np.int32(SIDE),
                np.int32(SIDE),
                np.float32(0.2),
            ],
            reference=stencil_step,
            bytes=8 * SIDE * SIDE,
        ),
        Case(
            name="convolution",
            kernel="convolution",
            parameters={
                "block_size_x": [16, 32, 48, 64, 128],
                "block_size_y": [1, 2, 4, 8, 16, 32],
                "tile_size_x": [1, 2, 4, 8],
                "tile_size_y": [1, 2, 4, 8],
                "filter_width": [FILTER],
                "filter_height": [FILTER],
                "use_padding": [0, 1],
                "read_only": [0, 1],
            },
            constraints=[
                "64 <= block_size_x * block_size_y <= 1024",
                "use_padding == 0 or block_size_x % 32 != 0",
                "(block_size_x * tile_size_x + filter_width) "
                "* (block_size_y * tile_size_y + filter_height) <= 12288",
            ],
            problem_size=[SIDE, SIDE],
            grid_div=[["block_size_x", "tile_size_x"], ["block_size_y", "tile_size_y"]],
            arguments=lambda: [
                np.zeros((SIDE, SIDE), np.float32),
                floats(SIDE + FILTER - 1, SIDE + FILTER - 1),
                np.int32(SIDE),
                np.int32(SIDE),
            ],
            reference=convolved,
            bytes=8 * SIDE * SIDE,
            constants=filter_weights,
        ),
        Case(
            name="matmul",
            kernel="matmul",
            parameters={
                "block_size_x": [8, 16, 32],
                "block_size_y": [4, 8, 16, 32],
                "items_x": [1, 2, 4, 8],
                "items_y": [1, 2, 4, 8],
                "tile_k": [8, 16, 32],
                "padding": [0, 1, 4],
                "contiguous": [0, 1],
                "prefetch": [0, 1],
            },
            constraints=[
                "64 <= block_size_x * block_size_y <= 1024",
                "block_size_y * items_y * tile_k % (block_size_x * block_size_y) == 0",
                "block_size_x * items_x * tile_k % (block_size_x * block_size_y) == 0",
                "tile_k * (block_size_x * items_x + block_size_y * items_y + padding) <= 12288",
            ],
            problem_size=[N_MATRIX, N_MATRIX],
            grid_div=[["block_size_x", "items_x"], ["block_size_y", "items_y"]],
            arguments=lambda: matrices(N_MATRIX),
            reference=lambda a, b, *_: [None, None, a @ b, None],
        ),
        Case(
            name="matmul_template",
            kernel="matmul_template<float, tile_m, tile_n, tile_k, thread_m, thread_n>",
            parameters={
                "block_size_x": [64, 128, 256, 512],
                "tile_m": [32, 64, 128, 256],
                "tile_n": [32, 64, 128, 256],
                "tile_k": [4, 8, 16, 32],
                "thread_m": [2, 4, 8, 16],
                "thread_n": [2, 4, 8, 16],
            },
            constraints=[
                "block_size_x * thread_m * thread_n == tile_m * tile_n",
                "tile_m * tile_k % block_size_x == 0",
                "tile_n * tile_k % block_size_x == 0",
                "tile_k * (tile_m + 1 + tile_n) <= 12288",
            ],
            problem_size=[N_MATRIX, N_MATRIX],
            grid_div=[["tile_n"], ["tile_m"]],
            arguments=lambda: matrices(N_MATRIX),
            reference=lambda a, b, *_: [None, None, a @ b, None],
        ),
        Case(
            name="histogram",
            kernel="histogram",
            parameters={
                "block_size_x": [64, 128, 192, 256, 384, 512, 768, 1024],
                "num_blocks": [66, 132, 264, 528, 1056, 2112],
                "copies": [1, 2, 4, 8, 16, 32],
                "padding": [0, 1],
                "load_bytes": [4, 8, 16],
                "unroll": [1, 2, 4],
            },
            constraints=["copies * (256 + padding) <= 12288", "copies > 1 or padding == 0"],
            problem_size=["num_blocks"],
            grid_div=[[]],
            arguments=lambda: [
                np.random.default_rng(0).integers(0, 256, N_BYTES, np.uint8),
                np.zeros(256, np.uint32),
                np.int32(N_BYTES),
            ],
            reference=counted,
            bytes=N_BYTES,
        ),
        Case(
            name="softmax",
            kernel="softmax",
            parameters={
                "block_size_x": [32, 64, 128, 256, 512, 1024],
                "block_size_y": [1, 2, 3, 4, 5, 6, 8, 16, 32],
                "columns": [COLUMNS],
                "vector_width": [1, 2, 4],
                "in_registers": [0, 1],
                "fast_exp": [0, 1],
            },
            constraints=[
                "block_size_x * block_size_y <= 1024",
                "columns % (block_size_x * vector_width) == 0",
                "in_registers == 0 or columns <= 64 * block_size_x",
            ],
            problem_size=[ROWS],
            grid_div=[["block_size_y"]],
            arguments=lambda: [
                4 * floats(ROWS, COLUMNS),
                np.zeros((ROWS, COLUMNS), np.float32),
                np.int32(ROWS),
            ],
            reference=softmaxed,
            bytes=8 * ROWS * COLUMNS,
        ),
        Case(
            name="nbody",
            kernel="nbody",
            parameters={
                "block_size_x": [32, 64, 128, 256, 512, 1024],
                "bodies": [1, 2, 4, 8],
                "stage": [1, 2, 4],
                "unroll": [1, 2, 4, 8, 16, 32],
                "use_shared": [0, 1],
                "fast_root": [0, 1],
            },
            constraints=["block_size_x * stage <= 2048", "bodies * unroll <= 64"],
            problem_size=[N_BODIES],
            grid_div=[["block_size_x", "bodies"]],
            arguments=lambda: [
                floats(N_BODIES, 4) + np.array([0, 0, 0, 1.5], np.float32),
                np.zeros((N_BODIES, 4), np.float32),
                np.int32(N_BODIES),
                np.float32(1e-2),
            ],
            reference=accelerations,
        ),
        Case(
            name="particles",
            kernel="particles",
            parameters={
                "block_size_x": [*range(32, 1025, 32)],
                "items": [1, 2, 3, 4, 6, 8],
                "interleaved": [0, 1],
                "streaming": [0, 1],
                "branches": [0, 1],
            },
            constraints=["interleaved == 1 or items > 1"],
            problem_size=[N_PARTICLES],
            grid_div=[["block_size_x", "items"]],
            arguments=lambda: [
                floats(N_PARTICLES, 4),
                floats(N_PARTICLES, 4, seed=1),
                np.zeros((N_PARTICLES, 4), np.float32),
                box(),
                np.int32(N_PARTICLES),
            ],
            reference=moved,
            bytes=48 * N_PARTICLES,
        ),
        Case(
            name="matvec",
            kernel="matvec",
            parameters={
                "block_size_x": [4, 8, 16, 32, 64, 128, 256, 512, 1024],
                "block_size_y": [1, 2, 4, 8, 16, 32],
                "vector_width": [1, 2, 4],
                "unroll": [1, 2, 4, 8],
                "read_only": [0, 1],
            },
            constraints=["64 <= block_size_x * block_size_y <= 1024"],
            problem_size=[ROWS],
            grid_div=[["block_size_y"]],
            arguments=lambda: [
                floats(ROWS, SIDE),
                floats(SIDE, seed=1),
                np.zeros(ROWS, np.float32),
                np.int32(ROWS),
                np.int32(SIDE),
            ],
            reference=lambda a, x, *_: [None, None, a @ x, None, None],
            bytes=4 * ROWS * SIDE,
        ),
        Case(
            name="layer_norm",
            kernel="layer_norm",
            parameters={
                "block_size_x": [32, 64, 128, 256, 512, 1024],
                "row_length": [COLUMNS],
                "vector_width": [1, 2, 4],
                "reduction": [0, 1, 2],
                "two_pass": [0, 1],
                "fewest_blocks": [1, 2, 3, 4],
            },
            constraints=[
                "row_length % (block_size_x * vector_width) == 0",
                "block_size_x * fewest_blocks <= 2048",
            ],
            problem_size=[ROWS],
            grid_div=[[]],
            arguments=lambda: [
                floats(ROWS, COLUMNS),
                np.zeros((ROWS, COLUMNS), np.float32),
                np.float32(1e-5),
            ],
            reference=normalised,
            bytes=8 * ROWS * COLUMNS,
        ),
        Case(
            name="spmv",
            kernel="spmv",
            parameters={
                "block_size_x": [32, 64, 96, 128, 192, 256, 384, 512, 768, 1024],
                "row_threads": [1, 2, 4, 8, 16, 32],
                "rows_each": [1, 2, 4, 8],
                "unroll": [1, 2, 4],
                "read_only": [0, 1],
                "streaming": [0, 1],
            },
            constraints=["block_size_x % row_threads == 0", "row_threads * unroll <= 32"],
            problem_size=[f"{N_SPARSE} * row_threads"],
            grid_div=[["block_size_x", "rows_each"]],
            arguments=lambda: sparse(N_SPARSE),
            reference=sparse_product,
            bytes=16 * 8 * N_SPARSE,
        ),
        Case(
            name="scan",
            kernel="scan_rows",
            parameters={
                "block_size_x": [32, 64, 128, 256, 512, 1024],
                "items": [1, 2, 4, 8, 16, 32],
                "vector_width": [1, 2, 4],
                "use_shuffle": [0, 1],
                "fewest_blocks": [1, 2, 3, 4],
            },
            constraints=[
                "items % vector_width == 0",
                f"{SIDE} % (block_size_x * items) == 0",
                "block_size_x * fewest_blocks <= 2048",
            ],
            problem_size=[SIDE],
            grid_div=[[]],
            arguments=lambda: [
                np.random.default_rng(0).integers(0, 1000, (SIDE, SIDE), np.uint32),
                np.zeros((SIDE, SIDE), np.uint32),
                np.int32(SIDE),
            ],
            reference=lambda before, *_: [
                None,
                np.cumsum(before, 1, dtype=np.uint32),
                None,
            ],
            bytes=8 * SIDE * SIDE,
        ),
        Case(
            name="bitonic_sort",
            kernel="bitonic_sort",
            parameters={
                "block_size_x": [32, 64, 128, 256, 512, 1024],
                "columns": [COLUMNS],
                "rows_each": [1, 2, 3, 4, 6],
                "vector_width": [1, 2, 4],
                "warp_steps": [0, 1],
                "unroll": [1, 2, 4],
            },
            constraints=["columns * rows_each // 2 % block_size_x == 0"],
            problem_size=[ROWS],
            grid_div=[["rows_each"]],
            arguments=lambda: [
                np.random.default_rng(0).integers(0, 1 << 32, (ROWS, COLUMNS), np.uint32),
                np.zeros((ROWS, COLUMNS), np.uint32),
                np.int32(ROWS),
            ],
            reference=lambda before, *_: [None, np.sort(before, 1), None],
            bytes=8 * ROWS * COLUMNS,
            shared="4 * columns * rows_each",
        ),
        Case(
            name="laplace",
            kernel="laplace",
            parameters={
                "block_size_x": [16, 32, 64, 128, 256],
                "block_size_y": [1, 2, 4, 8, 16],
                "block_size_z": [1, 2, 4],
                "tile_z": [1, 2, 4, 8, 16, 32],
                "unroll": [1, 2, 4],
                "read_only": [0, 1],
            },
            constraints=[
                "64 <= block_size_x * block_size_y * block_size_z <= 1024",
                "unroll <= tile_z",
                "block_size_z * tile_z <= 64",
            ],
            problem_size=[GRID, GRID, GRID],
            grid_div=[["block_size_x"], ["block_size_y"], ["block_size_z", "tile_z"]],
            arguments=lambda: [
                floats(GRID, GRID, GRID),
                np.zeros((GRID, GRID, GRID), np.float32),
                np.int32(GRID),
                np.int32(GRID),
                np.int32(GRID),
            ],
            reference=laplacian,
            bytes=8 * GRID**3,
        ),
    )
}


if __name__ == "__main__":
    if len(sys.argv) == 1:
        for case in CASES.values():
            print(f"{case.name:16} {len(case.legal()):6,} configurations")
        sys.exit()
    chosen = CASES[sys.argv[1]]
    if len(sys.argv) > 2:
        print(autotune.kernel_occupancy(**chosen.keywords(), device=" ".join(sys.argv[2:])))
        sys.exit()
    call = chosen.arguments()
    print(chosen.tune(call, chosen.reference(*call), search=autotune.Search(seconds=20)))
