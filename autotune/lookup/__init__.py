"""The configuration to run for a problem: recorded, in a tuned range, or chosen.

`lookup` tells the whole. `nearest` chooses where neither record nor range serves, from what
`neighbours` finds near; `vendor_time` says whether cuBLAS is faster.
"""
