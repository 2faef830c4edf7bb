# mypy: ignore-errors
"""Triton kernels: fp8 with scales of blocks, plain products of 16 bits, and one order of summation.

Importing them takes Triton.
"""

import triton
import triton.language as tl

TILES = (
    *((128, 128, 4, 8), (128, 128, 3, 4), (64, 128, 4, 4), (128, 64, 4, 4)),
    *((64, 64, 5, 4), (32, 128, 4, 4), (16, 128, 5, 4), (16, 64, 6, 4)),
)
"""Rows, columns, stages and warps of the tiles of `block_scaled` to choose from."""
CONFIGS = [
    triton.Config({"BM": rows, "BN": columns}, num_stages=stages, num_warps=warps)
    for rows, columns, stages, warps in TILES
]
INDUCTOR = (
    *((32, 32, 16, 1, 2), (32, 32, 128, 2, 4), (32, 64, 32, 5, 8), (64, 32, 32, 5, 8)),
    *((64, 32, 128, 5, 4), (64, 64, 16, 2, 4), (64, 64, 32, 2, 4), (64, 64, 64, 3, 8)),
    *((64, 64, 128, 5, 4), (64, 128, 32, 3, 4), (64, 128, 32, 4, 8), (64, 128, 64, 3, 4)),
    *((64, 128, 128, 4, 4), (128, 64, 32, 3, 4), (128, 64, 32, 4, 8), (128, 128, 32, 2, 8)),
    *((128, 128, 32, 3, 4), (128, 128, 64, 3, 4), (128, 128, 64, 5, 8), (128, 128, 128, 4, 8)),
    (128, 256, 64, 4, 8),
)
"""Rows, columns, depth, stages and warps that PyTorch 2.13's Inductor races for a product."""
PRODUCTS = [
    triton.Config({"BM": rows, "BN": columns, "BK": depth}, num_stages=stages, num_warps=warps)
    for rows, columns, depth, stages, warps in INDUCTOR
]


@triton.jit
def tile_of(tile, m, n, BM: tl.constexpr, BN: tl.constexpr):
    """Row and column of a tile: groups of eight tiles below each other share columns."""
    columns = tl.cdiv(n, BN)
    first = tile // (8 * columns) * 8
    down = min(tl.cdiv(m, BM) - first, 8)
    within = tile % (8 * columns)
    return first + within % down, within // down


@triton.autotune(CONFIGS, key=["m", "n", "k"], warmup=5, rep=20)
@triton.jit
def block_scaled(a, b, c, scale_a, scale_b, m, n, k, BM: tl.constexpr, BN: tl.constexpr):
    """C (m, n) of A (m, k) and B (n, k) without gaps.

    Scales are (k / 128, m) of A and (n / 128, k / 128) of B; BN divides 128.
    """
    row, column = tile_of(tl.program_id(0), m, n, BM, BN)
    rows, cols = row * BM + tl.arange(0, BM), column * BN + tl.arange(0, BN)
    places, blocks = tl.arange(0, 128), tl.cdiv(k, 128)
    from_a = a + rows[:, None].to(tl.int64) * k + places[None, :]
    from_b = b + cols[None, :].to(tl.int64) * k + places[:, None]
    of_b = scale_b + column * BN // 128 * blocks
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


@triton.autotune(PRODUCTS, key=["m", "n", "k"], warmup=5, rep=20)
@triton.jit
def product(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """C (m, n) of A (m, k) and B (k, n) without gaps; each has less than 2**31 elements."""
    row, column = tile_of(tl.program_id(0), m, n, BM, BN)
    rows, cols, places = (
        row * BM + tl.arange(0, BM),
        column * BN + tl.arange(0, BN),
        tl.arange(0, BK),
    )
    # Rows and columns beyond the edge wrap, so that only K needs masks, as in Inductor's template.
    near = tl.max_contiguous(tl.multiple_of(rows % m, BM), BM)
    across = tl.max_contiguous(tl.multiple_of(cols % n, BN), BN)
    from_a = a + near[:, None] * k + places[None, :]
    from_b = b + places[:, None] * n + across[None, :]
    sums = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, k, BK):
        inside = start + places < k
        tile_a = tl.load(from_a, mask=inside[None, :], other=0.0)
        tile_b = tl.load(from_b, mask=inside[:, None], other=0.0)
        sums += tl.dot(tile_a, tile_b)
        from_a += BK
        from_b += BK * n
    to = c + rows[:, None] * n + cols[None, :]
    tl.store(to, sums.to(c.dtype.element_ty), mask=(rows < m)[:, None] & (cols < n)[None, :])


@triton.jit
def persistent(
    a, b, c, scale_a, scale_b, m, n, k,
    BLOCKS: tl.constexpr, SCALED: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """C (m, n) of A (m, k) and B (n, k) without gaps, by `BLOCKS` blocks that take turns at tiles.

    The tile and the order of summation are the same for every m. `SCALED` multiplies C by one scale
    for each row and one for each column.
    """
    for tile in tl.range(tl.program_id(0), tl.cdiv(m, BM) * tl.cdiv(n, BN), BLOCKS, flatten=True):
        row, column = tile_of(tile, m, n, BM, BN)
        rows, cols = row * BM + tl.arange(0, BM), column * BN + tl.arange(0, BN)
        near = tl.max_contiguous(tl.multiple_of(tl.where(rows < m, rows, 0), BM), BM)
        across = tl.max_contiguous(tl.multiple_of(tl.where(cols < n, cols, 0), BN), BN)
        sums = tl.zeros((BM, BN), dtype=tl.float32)
        for start in range(0, k, BK):
            places = start + tl.arange(0, BK)
            inside = places < k
            from_a = a + near[:, None] * k + places[None, :]
            from_b = b + across[None, :] * k + places[:, None]
            tile_a = tl.load(from_a, mask=inside[None, :], other=0.0)
            sums = tl.dot(tile_a, tl.load(from_b, mask=inside[:, None], other=0.0), sums)
        if SCALED:
            factors = tl.load(scale_a + near)[:, None] * tl.load(scale_b + across)[None, :]
            sums *= factors
        to = c + rows[:, None] * n + cols[None, :]
        tl.store(to, sums.to(c.dtype.element_ty), mask=(rows < m)[:, None] & (cols < n)[None, :])


def persistent_product(torch, a, b, scale_a=None, scale_b=None):
    """A B^T in bf16 by `persistent`, with the tile of the public `batch_invariant_ops` for bf16."""
    (m, k), n = a.shape, b.shape[0]
    c = torch.empty(m, n, dtype=torch.bfloat16, device=a.device)
    blocks = torch.cuda.get_device_properties(a.device).multi_processor_count
    grid = (min(blocks, triton.cdiv(m, 128) * triton.cdiv(n, 128)),)
    options = {"BM": 128, "BN": 128, "BK": 128 // a.element_size(), "num_stages": 3, "num_warps": 8}
    scaled = scale_a is not None
    persistent[grid](a, b, c, scale_a, scale_b, m, n, k, BLOCKS=blocks, SCALED=scaled, **options)
    return c
