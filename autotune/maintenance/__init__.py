"""The cache kept in order: what is in it, what goes out and comes in, what is out of date.

`inventory` lists and checks files, `exchange` exports, imports and merges, `retiming` measures
again what was recorded with another driver, compiler or other kernels, `pruning` deletes.
"""
