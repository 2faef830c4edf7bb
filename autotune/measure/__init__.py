"""Measuring on a device: runners, verification and timing of kernels, and what `--device` means."""
