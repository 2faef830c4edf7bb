"""The runner port, and runners that need no GPU."""
