"""What the text of `--device` means, and the GPUs of this machine."""
