"""The data of the report's pictures and tables, computed from a record and its trials.

`subject` finds the trials. Every other module has plain functions of a `Subject`, whose results are
frozen values: what `--json` prints and the pictures draw.
"""
