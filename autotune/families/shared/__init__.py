"""Terms that several families share."""
