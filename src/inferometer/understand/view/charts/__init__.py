"""Charts as Vega-Lite specs: pure functions from rows or a profile to a dict. `render` turns one into a file."""

from inferometer.understand.view.charts.pareto import heatmap, pareto_scatter
from inferometer.understand.view.charts.roofline import roofline
from inferometer.understand.view.charts.samples import RUN_METRICS, difference_chart, run_trend

__all__ = ["RUN_METRICS", "difference_chart", "heatmap", "pareto_scatter", "roofline", "run_trend"]
