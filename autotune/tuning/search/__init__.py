"""The search: proposes configurations, and keeps trials in an Optuna storage. The one user of
Optuna."""
