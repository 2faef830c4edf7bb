"""The array libraries: how to read and make their arrays, and their current stream."""

from autotune.runtime.frameworks.base import Framework, GemmCall
from autotune.runtime.frameworks.detection import framework_of

__all__ = ["Framework", "GemmCall", "framework_of"]
