"""Linear layers of a model that one kernel can serve."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from autotune.report.layers import Layer


@dataclass(frozen=True)
class LayerGroup:
    """Linear layers of one shape and type on one device.

    Attributes:
        layer: their names, shape and precision.
        ordinal: the GPU.
        modules: the layers.
        obstacle: why no kernel can serve them; None if one can.
    """

    layer: Layer
    ordinal: int
    modules: tuple[nn.Linear, ...]
    obstacle: str | None
