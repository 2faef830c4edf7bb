"""Tables and pictures of results: rows as data, and their rendering for a terminal."""
