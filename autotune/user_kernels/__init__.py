"""User kernels: their definition, the call they are tuned for, and the results expected of it."""
