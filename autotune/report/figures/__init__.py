"""The report's pictures as figures of plotly.js: the drawing of what `analysis` computes.

A figure is `{"data": [...], "layout": {...}}`, as `plotly.io` and `Plotly.newPlot` take it. Nothing
here imports plotly.
"""
