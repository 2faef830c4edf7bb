"""The configuration to run for a problem: recorded, in a tuned range, from a neighbour, predicted.

`lookup.lookup` tries four steps in this order, each in a module of its own: `exact`, `in_range`,
`nearest`, `predicted`.
"""
