"""One pass over the larger operand, for few rows or columns of C."""
