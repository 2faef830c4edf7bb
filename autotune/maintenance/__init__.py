"""Maintenance of the cache.

`inventory` lists and checks its files, `exchange` exports, imports and merges records, `retiming`
measures records of another driver, compiler or other kernels again, `pruning` deletes.
"""
