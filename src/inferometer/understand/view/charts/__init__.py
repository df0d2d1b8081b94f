"""Charts as Vega-Lite specs: pure functions from rows or a profile to a dict. `render` turns one into a file."""

from inferometer.understand.view.charts.pareto import heatmap, pareto_scatter
from inferometer.understand.view.charts.roofline import roofline

__all__ = ["heatmap", "pareto_scatter", "roofline"]
