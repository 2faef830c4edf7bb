"""The precisions that at least one kernel family computes."""

from autotune.families import registry
from autotune.problem import COMPUTES

SERVED = tuple(
    compute
    for compute in COMPUTES
    if any(compute in family.precisions for family in registry.FAMILIES.values())
)
"""Names of the precisions, in the order of their table."""
