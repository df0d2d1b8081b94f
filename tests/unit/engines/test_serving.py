"""Which layers an engine's own kernels work for."""

from inferometer.engines.base import served


def test_a_layout_change_serves_the_kernel_that_takes_its_result():
    takers = {"conv1": ["out"], "out": ["pool"], "pool": []}
    assert served(takers, {"conv1": ("c1",), "pool": ("p",)}) == {"out": ("p",)}


def test_two_in_a_row_serve_the_same_layer():
    takers = {"in": ["cast"], "cast": ["conv"], "conv": []}
    assert served(takers, {"conv": ("c",)}) == {"in": ("c",), "cast": ("c",)}


def test_the_first_of_several_takers_is_served():
    takers = {"in": ["a", "b"], "a": [], "b": []}
    assert served(takers, {"a": ("one",), "b": ("two",)}) == {"in": ("one",)}


def test_what_only_the_outputs_take_serves_the_layer_that_made_it():
    takers = {"conv": ["out"], "out": ["cast"], "cast": []}
    assert served(takers, {"conv": ("c",)}) == {"out": ("c",), "cast": ("c",)}


def test_what_no_layer_is_near_serves_none():
    assert served({"alone": []}, {}) == {}
