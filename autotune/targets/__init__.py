"""What `device=` and `--device` mean, and the GPUs of this machine."""
