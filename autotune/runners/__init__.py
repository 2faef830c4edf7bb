"""The runner port, and the runners that need no GPU."""
