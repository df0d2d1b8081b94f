"""EdgeProfiler's table as it prints it: times side by side, FLOP a byte and joules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inferometer.understand.view.table import Column, ReportTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_COLUMNS = (
    Column(key="device", heading="device"),
    Column(key="model", heading="model"),
    Column(key="precision", heading="precision"),
    Column(key="compute_s", heading="compute", unit="s"),
    Column(key="memory_s", heading="memory", unit="s"),
    Column(key="io_s", heading="I/O", unit="s"),
    Column(key="h2d_s", heading="host link", unit="s"),
    Column(key="network_s", heading="network", unit="s"),
    Column(key="e2e_s", heading="end to end", unit="s"),
    Column(key="intensity", heading="intensity", label="flop_per_byte", unit="FLOP/B"),
    Column(key="energy_j", heading="energy", unit="J"),
    Column(key="parameters", heading="parameters", exact=True),
    Column(key="flops", heading="a token", unit="FLOP"),
    Column(key="memory_bytes", heading="footprint", unit="B"),
)
_NOTE = (
    "As EdgeProfiler counts (arXiv:2506.09061): every token loads the weights and crosses a network. "
    "Without --edgeprofiler you get our own prediction; docs/edgeprofiler.md has both."
)


def edge_table(rows: Iterable[Mapping[str, Any]]) -> ReportTable:
    return ReportTable(columns=_COLUMNS, rows=tuple(rows), title="EdgeProfiler", note=_NOTE)
