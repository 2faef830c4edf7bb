"""Helpers of the tests: fakes, each named by the seam it stands behind, and sample data."""
