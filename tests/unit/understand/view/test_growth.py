"""How a layer's time changes over the steps."""

import random

import pytest

from inferometer.understand.view.profiles import growths

LINE = tuple(1.0 + 0.01 * step for step in range(21))


def test_a_line_grows_by_its_end_over_its_middle():
    assert growths([LINE]) == [pytest.approx(0.2 / 1.1)]


def test_interrupted_steps_do_not_make_or_hide_a_trend():
    steps = list(LINE)
    steps[3] = 9.0
    assert growths([steps])[0] == pytest.approx(0.2 / 1.1, rel=0.1)
    draw = random.Random(5)  # noqa: S311 - test data
    assert growths([[draw.uniform(0.9, 1.1) for _ in range(20)]]) == [None]


def test_few_steps_no_samples_and_steps_of_no_time_have_none():
    assert growths([LINE[:9], None, (0.0,) * 12]) == [None, None, None]
