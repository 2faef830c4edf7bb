"""From a problem to a configuration: exact, in range, nearest or predicted."""
