"""Tensor cores of Hopper (wgmma), fed by bulk copies."""
