"""The meaning of `device=` and `--device`, and the GPUs of this machine."""
