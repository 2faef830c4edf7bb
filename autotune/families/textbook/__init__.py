"""The textbook kernels: naive and tiled."""

from autotune.families.textbook.naive import NAIVE
from autotune.families.textbook.tiled import TILED

FAMILIES = (NAIVE, TILED)
