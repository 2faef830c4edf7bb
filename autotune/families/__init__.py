"""Kernel families as data: parameters, rules, estimates and launch plans."""
