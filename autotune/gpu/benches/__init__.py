"""Benches of the worker process: verify a candidate, then time it."""
