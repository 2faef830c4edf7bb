"""The configuration to run for a problem: recorded, in a tuned range, or chosen.

`lookup` tells the whole; `nearest` chooses where neither record nor range serves.
"""
