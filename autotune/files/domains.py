"""Domains of the values in files, as types of dataclass fields.

`decoding.convert` refuses a value outside its field's domain, with the field's path and the value.
Values that the program computes itself are not checked: constructing a dataclass costs no more.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from autotune.files import plain

Text = Annotated[str, Meta(max_length=1000, pattern=plain.LINE)]
"""A line for people, or a version, without control characters."""

Name = Annotated[str, Meta(min_length=1, max_length=1000, pattern=plain.LINE)]

QualifiedName = Annotated[str, Meta(max_length=1000, pattern=plain.QUALIFIED)]
"""A name in C++, such as `filters::blur`."""

Date = Annotated[str, Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|\+00:00)$")]
"""UTC, ISO 8601."""

Count = Annotated[int, Meta(ge=0, le=10**15)]

Microseconds = Annotated[float, Meta(gt=0, lt=1e12)]
"""A time: above 0, below 12 days."""

Spread = Annotated[float, Meta(ge=0, lt=1e12)]
"""The spread of a time in microseconds."""

Seconds = Annotated[float, Meta(ge=0, lt=1e12)]

Score = Annotated[float, Meta(gt=0, lt=1e300)]
"""The value of a user's objective."""

Error = Annotated[float, Meta(ge=0, le=1e15)]
"""An error or its bound: operands lie between -1 and 1, and sums have at most 2^31 terms."""

Share = Annotated[float, Meta(ge=0, le=1)]
"""From 0 to 1."""

Size = Annotated[int, Meta(ge=1, le=2**31 - 1)]
"""Rows or columns of a matrix."""
