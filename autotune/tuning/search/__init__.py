"""Which configuration to try next, and trials in an Optuna storage. The one user of Optuna."""
