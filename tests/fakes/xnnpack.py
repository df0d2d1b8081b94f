"""XNNPACK's partitioner without the patterns that it traces for seconds: attention, and images that are enlarged."""

import warnings


def without_patterns(monkeypatch):
    """For programs that have neither."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own, while it is imported
        from executorch.backends.xnnpack.partition.graphs import bilinear_2d, sdpa
    monkeypatch.setattr(sdpa, "get_graphs", list)
    monkeypatch.setattr(bilinear_2d, "get_graphs_dict", dict)
