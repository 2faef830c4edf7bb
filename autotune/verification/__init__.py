"""The numerical oracle, tolerances, and accuracy beside the vendor library."""
