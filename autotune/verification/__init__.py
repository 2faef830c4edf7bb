"""The numerical oracle, tolerances, and accuracy relative to the vendor baseline."""
