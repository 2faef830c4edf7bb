"""Whether the elements of a PyTorch tensor lie at its address."""

from __future__ import annotations

from typing import Any


def obstacle(torch: Any, tensor: Any) -> str | None:
    """Why no kernel can read a tensor's memory, lazy negation and conjugation apart, and what to
    do; None if one can."""
    kind = type(tensor)
    if kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return f"is a {kind.__qualname__}, whose memory is not its own; give a plain torch.Tensor"
    if tensor.is_nested:
        return "is nested; give a plain tensor, such as by torch.nested.to_padded_tensor"
    if tensor.layout is not torch.strided:
        return f"has the layout {tensor.layout}; give a dense tensor (.to_dense())"
    if tensor.is_quantized:
        return f"is quantised to {tensor.dtype}; give .dequantize(), or .int_repr() and its scale"
    if tensor.device.type == "meta":
        return "is on the meta device, without elements; give a tensor on a CUDA device"
    try:
        lacking = tensor.numel() > 0 and not tensor.data_ptr()
    except (RuntimeError, ValueError):  # inside a transform of torch.func, or not initialised yet
        lacking = True
    if lacking:
        return (
            "has no memory (a lazy zero, a tensor inside a transform of torch.func, or one not "
            "initialised); give a plain tensor, of a lazy zero its .clone()"
        )
    return None
