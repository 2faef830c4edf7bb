"""The seam of the HTML pages: analyses of results and the explorer, in files that work offline.

Only the verbs `report` and `explore` know it.
"""
