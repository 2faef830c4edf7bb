"""Sentences about the reasons for which configurations are not timed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autotune.measure.measurement import Stage

STAGES: Mapping[Stage, str] = {
    "compile": "The compiler refused the kernel.",
    "resources": "Compiled, but its registers spill or no block fits on an SM.",
    "launch": "The driver refused the launch.",
    "verify": "The result differs from the float64 reference by more than the tolerance.",
    "accuracy": "Correct, but less accurate than allowed beside the vendor's library.",
    "timeout": "It did not end in time.",
    "crash": "It ended the measuring process.",
    "quarantined": "It crashed or hung before, so it was not tried again.",
}
"""A sentence for a failure at each stage."""

RULES: Mapping[str, str] = {
    "architecture": "The device lacks the instructions.",
    "batch": "The loads that a thread issues together would exceed its registers or its work.",
    "block of K": "The block of K leaves too few stages in shared memory to hide the loads.",
    "chunks": "The number of parts of K does not fit how blocks share K.",
    "clusters": "The blocks of a cluster have no operand to share, or leave SMs idle.",
    "coalescing": "The threads of a warp would not read whole lines of memory.",
    "column": "The kernel for a narrow C does not take these tiles.",
    "columns": "The block does not match the number of columns.",
    "consumers": "The tile cannot be divided evenly among the consumer warpgroups.",
    "coordinates": "The tensor map cannot address the operand in these boxes.",
    "copy": "This way of copying operands does not suit the tile or the device.",
    "divisibility": "The tile of a warp has to divide the tile of its block.",
    "fence": "The fence only helps kernels that are short of registers.",
    "fragments": "The registers do not suit this number of buffered fragments.",
    "gathering": "Rows that are gathered piece by piece do not suit these tiles.",
    "grid": "The grid would exceed what a launch allows.",
    "group": "Other groups of rows of tiles make better use of L2.",
    "idle SMs": "Too few blocks would leave SMs idle.",
    "in flight": "Too few bytes would be on their way to keep device memory busy.",
    "larger than the matrix": "The tile does not suit the size of the matrix.",
    "launch bounds": "The promised blocks an SM leave too few registers, or need no promise.",
    "low part": "The low part of a split operand is needed by tf32x3 alone.",
    "order": "The order of the products inside a thread does not matter here.",
    "pack": "Copying the operand first would not pay.",
    "packing": "Copying the operand first would not pay.",
    "promotion": "Sums are promoted to fp32 only where the precision needs it.",
    "reduction": "This way of adding up partial sums does not suit how blocks share K.",
    "register estimate": "The estimated registers exceed what the promised blocks leave.",
    "registers": "The accumulators need more registers than a thread has.",
    "residency": "Another number of resident blocks an SM suits the tile better.",
    "reuse": "Each loaded value would be used too seldom.",
    "rows": "The block does not match the number of rows.",
    "shape": "The family serves matrices with a narrow side alone.",
    "shared memory": "The buffers exceed the shared memory of a block or an SM.",
    "slices": "Slices of K inside a block only help where there are few tiles.",
    "small tiles": "Larger tiles reuse operands more.",
    "source": "The operand cannot come, or should not come, from there.",
    "split-K": "Splitting K only helps where the tiles alone do not fill the SMs.",
    "stages": "The buffers do not fit into shared memory, or are more than hide the loads.",
    "steps": "The block of K has too few or too many steps between barriers.",
    "store": "This way of storing C does not suit the tile.",
    "stream-K": "Stream-K only helps where the last wave of tiles is not full.",
    "swap": "Computing C as its transpose only helps where C is narrow.",
    "thread tile": "The tile of a thread loads too many values for its products.",
    "threads": "The block has too few or too many threads.",
    "tile": "There is no instruction for a tile of these sides.",
    "time": "The cost model expects the tile to be far slower than the best.",
    "value": "The parameter does not take this value.",
    "warp shape": "The threads of a warp would read shared memory inefficiently.",
    "warps": "The block has too few or too many warps.",
    "workers": "The workers of a persistent kernel have to be resident at the same time.",
    "workspace": "The workspace would exceed its limit.",
    "quarantined": STAGES["quarantined"],
}
"""A sentence for each rule of the kernel families, by its reason."""


def sentence(reason: str, parameters: Sequence[str]) -> str:
    """The sentence for a rule; a rule without one is described by the parameters it reads."""
    if reason in RULES:
        return RULES[reason]
    return f"The rule reads {', '.join(parameters) or 'the problem and the device'}."
