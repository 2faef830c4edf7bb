# mypy: ignore-errors
"""A Triton kernel of fp8 operands with scales of blocks. Importing it takes Triton."""

import triton
import triton.language as tl

TILES = (
    *((128, 128, 4, 8), (128, 128, 3, 4), (64, 128, 4, 4), (128, 64, 4, 4)),
    *((64, 64, 5, 4), (32, 128, 4, 4), (16, 128, 5, 4), (16, 64, 6, 4)),
)
"""Rows, columns, stages and warps of the tiles to choose from."""
CONFIGS = [
    triton.Config({"BM": rows, "BN": columns}, num_stages=stages, num_warps=warps)
    for rows, columns, stages, warps in TILES
]


@triton.autotune(CONFIGS, key=["m", "n", "k"], warmup=5, rep=20)
@triton.jit
def block_scaled(a, b, c, scale_a, scale_b, m, n, k, BM: tl.constexpr, BN: tl.constexpr):
    """C (m, n) of A (m, k) and B (n, k) without gaps.

    Scales are (k / 128, m) of A and (n / 128, k / 128) of B; BN divides 128.
    """
    columns = tl.cdiv(n, BN)
    first = tl.program_id(0) // (8 * columns) * 8
    down = min(tl.cdiv(m, BM) - first, 8)
    within = tl.program_id(0) % (8 * columns)
    rows = (first + within % down) * BM + tl.arange(0, BM)
    cols = within // down * BN + tl.arange(0, BN)
    places, blocks = tl.arange(0, 128), tl.cdiv(k, 128)
    from_a = a + rows[:, None].to(tl.int64) * k + places[None, :]
    from_b = b + cols[None, :].to(tl.int64) * k + places[:, None]
    of_b = scale_b + within // down * BN // 128 * blocks
    sums = tl.zeros((BM, BN), dtype=tl.float32)
    for block in range(blocks):
        inside = block * 128 + places < k
        tile_a = tl.load(from_a, mask=(rows < m)[:, None] & inside[None, :], other=0.0)
        tile_b = tl.load(from_b, mask=(cols < n)[None, :] & inside[:, None], other=0.0)
        factor_a = tl.load(scale_a + block * m + rows, mask=rows < m, other=0.0)
        sums += tl.dot(tile_a, tile_b) * (factor_a * tl.load(of_b + block))[:, None]
        from_a += 128
        from_b += 128
    to = c + rows[:, None].to(tl.int64) * n + cols[None, :]
    tl.store(to, sums.to(c.dtype.element_ty), mask=(rows < m)[:, None] & (cols < n)[None, :])
