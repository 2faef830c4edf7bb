"""Tuning: the loop and its search, what can be tuned, and the ladder of kernels."""
