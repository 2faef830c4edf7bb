"""Patches a model of PyTorch: where a tuned kernel is faster than cuBLAS, it takes a layer's place.

    python examples/torch_inference.py          # by what is recorded
    python examples/torch_inference.py --tune   # tunes what is not, 20 s for each shape

The model is two feed-forward blocks of a transformer, in bfloat16, and its input 16 tokens.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import autotune

TOKENS, WIDTH, HIDDEN = 16, 4096, 14336
RUNS = 50


def model_of(torch: Any, width: int = WIDTH, hidden: int = HIDDEN) -> Any:
    """Two blocks: up to `hidden`, gelu, and down to `width` again."""
    nn = torch.nn
    blocks = [
        nn.Sequential(nn.Linear(width, hidden, bias=False), nn.GELU(),
                      nn.Linear(hidden, width, bias=False), nn.LayerNorm(width))
        for _ in range(2)
    ]  # fmt: skip
    return nn.Sequential(*blocks).to("cuda", torch.bfloat16)


def microseconds(torch: Any, run: Callable[[], object]) -> float:
    """The time of a run on the GPU, replayed from a CUDA graph, the mean of 50."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):  # what is used first is loaded first, which no graph records
        run()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        run()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    graph.replay()
    begin.record()
    for _ in range(RUNS):
        graph.replay()
    end.record()
    end.synchronize()
    return 1e3 * float(begin.elapsed_time(end)) / RUNS


def compare(torch: Any, model: Any, tokens: int = TOKENS, tune: bool = False) -> float:
    """Prints what was patched, the largest difference and both times; returns that difference as a
    share of the largest number."""
    x = torch.randn(tokens, model[0][0].in_features, device="cuda", dtype=torch.bfloat16)
    with torch.inference_mode():
        before, theirs = model(x), microseconds(torch, lambda: model(x))
        autotune.torch.patch(model, rows=tokens, tune=tune)
        after, ours = model(x), microseconds(torch, lambda: model(x))
    difference = float((after - before).abs().max() / before.abs().max())
    print(f"largest difference: {difference:.1e} of the largest number")
    print(f"a run: {theirs:.1f} us before, {ours:.1f} us patched")
    return difference


def main(arguments: list[str]) -> int:
    """The exit status."""
    try:
        import torch
    except ImportError:
        print("this example needs PyTorch: pip install torch")
        return 1
    if not torch.cuda.is_available():
        print("this example needs a GPU, and PyTorch sees none")
        return 1
    compare(torch, model_of(torch), tune="--tune" in arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
