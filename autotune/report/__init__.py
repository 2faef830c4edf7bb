"""Tables and pictures of results: rows as data, and their rendering for a terminal."""

from __future__ import annotations

from autotune.report.formatting import cell, precision, vendor

__all__ = ["cell", "precision", "vendor"]
