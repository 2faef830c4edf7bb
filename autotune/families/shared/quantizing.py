"""Quantising: launches that write a matrix in 8 bits with its scales."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.families.config import Config
from autotune.families.plan import VECTOR_BYTES, Argument, Launch, LaunchPlan, Template
from autotune.families.shared.arguments import words
from autotune.families.shared.cuda_enums import enumerator
from autotune.families.shared.limits import LARGEST_GRID_X, LARGEST_GRID_YZ
from autotune.families.shared.tiling import WARP
from autotune.problem import SCALE_BLOCK, ElementType
from autotune.problem.integers import ceil_div, round_up

MOST_THREADS = 1024
THREADS = 256
"""Threads of a block that has a part of a row, or several rows."""
FEW_ROWS = 256
"""Rows up to which a row has as many threads as it can use, so that it takes the least time."""
HELD, HELD_OF_FEW = 32, 8
"""Elements of a row that a thread holds in registers, and the least of them for few rows."""
BLOCKS_AHEAD = 4
"""Blocks of K that a thread holds with a scale for each."""
SPLIT_ROWS = 64
"""Rows below which those that registers cannot hold are searched by several blocks."""
PARTS = 512
"""The most blocks that search a group for its largest number."""
FLOAT_BYTES = 4


@dataclass(frozen=True)
class Quantizing:
    """Quantising a matrix of `rows` x `columns`, or several that follow each other.

    Attributes:
        source: element type of the matrix, of 16 or 32 bits.
        target: element type of the result, of 8 bits.
        scale: `tensor`, with one scale; `row`, with scales (batch, rows); or `block`, with scales
            (batch, ceil(columns / 128), rows).
        rows: rows of a matrix.
        columns: elements of a row.
        batch: matrices; each starts a row after the end of the one before.
        vector: elements that are loaded and stored as one: 1, 2, 4 or 8, which divides the columns,
            and the row pitches and addresses of both matrices.
        fixed: whether the scale of a tensor is an input.

    Raises:
        ValueError: if no kernel quantises so.
    """

    source: ElementType
    target: ElementType
    scale: str
    rows: int
    columns: int
    batch: int = 1
    vector: int = 1
    fixed: bool = False

    def __post_init__(self) -> None:
        if self.scale not in ("tensor", "row", "block"):
            raise ValueError(f"scale is tensor, row or block, not {self.scale!r}")
        if self.target.bytes != 1 or self.source.integer or self.source.bytes not in (2, 4):
            raise ValueError(f"no kernel quantises {self.source.name} to {self.target.name}")
        if self.fixed and self.scale != "tensor":
            raise ValueError(
                f"only the scale of a tensor is fixed, not the scale of a {self.scale}"
            )
        if self.columns % self.vector or self.vector > VECTOR_BYTES // self.source.bytes:
            raise ValueError(f"{self.columns} columns have no vectors of {self.vector} elements")
        if max(grid := self._grid) > LARGEST_GRID_X or max(grid[1:]) > LARGEST_GRID_YZ:
            sizes = f"{self.batch} x {self.rows} x {self.columns}"
            raise ValueError(f"{sizes} need a grid of {grid} blocks; quantise parts of it")

    @property
    def scales(self) -> tuple[int, ...]:
        """Shape of the scales, as kernels read those of A."""
        if self.scale == "tensor":
            return (1,)
        if self.scale == "row":
            return self.batch, self.rows
        return self.batch, ceil_div(self.columns, SCALE_BLOCK), self.rows

    def plan(self) -> LaunchPlan:
        """The launches. The matrix is `a`, with rows `lda` apart; the result is `c`, with rows
        `ldc` apart; the scales are `scale_a`."""
        config, operands = Config("quantize"), ("a", "lda", "c", "ldc", "scale_a", "workspace")
        quantize = self._launch("quantize", self._grid, *operands)
        if not self._split:
            return LaunchPlan(config, (quantize,))
        # The parts of each group are searched for their largest numbers first.
        parts = self._groups * self._parts
        search = self._launch("largest", (parts, 1, 1), "a", "lda", "workspace")
        return LaunchPlan(config, (search, quantize), workspace=FLOAT_BYTES * parts, product=1)

    def _launch(self, kernel: str, grid: tuple[int, int, int], *read: str) -> Launch:
        params = (
            ("FROM", enumerator("ElementType", self.source.enumerator)),
            ("TO", enumerator("ElementType", self.target.enumerator)),
            ("SCALE", enumerator("Scale", self.scale)),
            ("SPLIT", self._split),
            ("FIXED", self.fixed),
            ("VECTOR", self.vector),
            ("EACH", BLOCKS_AHEAD if self.scale == "block" else self._elements // self.vector),
            ("LANES", self._lanes),
            ("THREADS", self._threads),
        )
        rows = self.rows if self.scale == "block" else self._all_rows
        numbers = (Argument("i32", number) for number in (rows, self.columns, self._parts))
        return Launch(
            Template("quantize.cu", kernel, params, named=True),
            grid=grid,
            block=(self._threads, 1, 1),
            shared=FLOAT_BYTES * self._threads // WARP,
            arguments=(*words(*read), *numbers),
        )

    @property
    def _grid(self) -> tuple[int, int, int]:
        if self.scale == "block":
            rows = self._threads // min(WARP, SCALE_BLOCK // self.vector)
            blocks = ceil_div(self.columns, SCALE_BLOCK * BLOCKS_AHEAD)
            return ceil_div(self.rows, rows), blocks, self.batch
        if self._whole:
            return ceil_div(self._all_rows, self._threads // self._lanes), 1, 1
        return self._all_rows * self._chunks, 1, 1

    @property
    def _all_rows(self) -> int:
        return self.batch * self.rows

    @property
    def _few(self) -> bool:
        return self._all_rows <= FEW_ROWS

    @property
    def _whole(self) -> bool:
        """Whether a block has whole rows."""
        long = self.columns > HELD * MOST_THREADS
        return self.scale == "row" and not (long and self._all_rows < SPLIT_ROWS)

    @property
    def _split(self) -> bool:
        """Whether a launch of its own searches for the largest numbers."""
        return self.scale != "block" and not self._whole and not self.fixed

    @property
    def _elements(self) -> int:
        """Elements of a row that a thread holds."""
        if not (self._whole and self._few):
            return HELD
        elements = HELD_OF_FEW
        while elements < HELD and elements * MOST_THREADS < self.columns:
            elements *= 2
        return elements

    @property
    def _lanes(self) -> int:
        """Threads that a row has, where a block has whole rows."""
        if not self._whole:
            return self._threads
        return min(MOST_THREADS, round_up(ceil_div(self.columns, self._elements), WARP))

    @property
    def _threads(self) -> int:
        if not self._whole:
            return THREADS
        lanes = self._lanes
        return THREADS if lanes == WARP and not self._few else lanes

    @property
    def _groups(self) -> int:
        """Groups of elements that share a scale, where they have parts."""
        return self._all_rows if self.scale == "row" else 1

    @property
    def _chunks(self) -> int:
        """Parts of a row that a block takes at a time."""
        return ceil_div(self.columns, THREADS * HELD)

    @property
    def _parts(self) -> int:
        """Blocks that search a group."""
        if not self._split:
            return 0
        return min(PARTS, self._chunks * (1 if self.scale == "row" else self._all_rows))
