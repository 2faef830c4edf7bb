"""Patches a PyTorch model: layers whose tuned kernel is faster than cuBLAS run that kernel.

    python examples/torch_inference.py          # with the records that exist
    python examples/torch_inference.py --tune   # tunes other shapes first, 20 s each

The model is two feed-forward blocks of a transformer in bfloat16. Its input is 16 tokens.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import autotune

TOKENS, WIDTH, HIDDEN = 16, 4096, 14336
RUNS = 50


def model_of(torch: Any, width: int = WIDTH, hidden: int = HIDDEN) -> Any:
    """Two blocks, each a projection up to `hidden`, gelu, and a projection back to `width`."""
    nn = torch.nn
    blocks = [
        nn.Sequential(nn.Linear(width, hidden, bias=False), nn.GELU(),
                      nn.Linear(hidden, width, bias=False), nn.LayerNorm(width))
        for _ in range(2)
    ]  # fmt: skip
    return nn.Sequential(*blocks).to("cuda", torch.bfloat16)


def microseconds(torch: Any, run: Callable[[], object]) -> float:
    """The mean GPU time of 50 runs, replayed from a CUDA graph."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):  # the first run loads kernels, which a graph cannot capture
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
    """Patches the model, and prints the table of its layers, the largest difference and both times.

    Returns the largest difference relative to the largest output.
    """
    x = torch.randn(tokens, model[0][0].in_features, device="cuda", dtype=torch.bfloat16)
    with torch.inference_mode():
        before, before_us = model(x), microseconds(torch, lambda: model(x))
        autotune.torch.patch(model, rows=tokens, policy=autotune.Policy(tune=tune))
        after, after_us = model(x), microseconds(torch, lambda: model(x))
    difference = float((after - before).abs().max() / before.abs().max())
    print(f"largest difference: {difference:.1e} of the largest output")
    print(f"a run: {before_us:.1f} us before, {after_us:.1f} us patched")
    return difference


def main(arguments: list[str]) -> int:
    """Runs the example; returns the exit status."""
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
