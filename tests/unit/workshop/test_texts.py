"""What attention over texts takes, told by whole steps of encoders."""

from dataclasses import replace

import numpy as np
import pytest

from inferometer.measure.calibrate.fitting.points import StepPoint

pytest.importorskip("torch", reason="torch is not installed: the kernels of GPUs have no names")
from workshop.calibrations.gpu import Inside, text_columns, text_terms

TERMS = np.array([2e-5, 4e-12, 1.3e-12])


def steps(*, others=1.1, terms=TERMS):
    config = {"num_hidden_layers": 4, "hidden_size": 768, "num_attention_heads": 12}
    for batch in (1, 8, 64):
        for query in (64, 128, 512):
            apart_s = 1e-4 * batch * query / 64
            sizes = {"batch": batch, "query": query, "config": config}
            point = StepPoint(model="text", phase="forward", seconds=1.0, dtype="bf16", **sizes)
            seconds = float(text_columns(point) @ terms) + others * apart_s
            yield Inside(step=replace(point, seconds=seconds), class_s=0.0, others_s=apart_s)


def test_the_terms_that_steps_were_made_of_are_found():
    np.testing.assert_allclose(text_terms(list(steps(others=1.0))), TERMS, rtol=1e-6)


def test_no_term_is_below_nothing_where_other_ops_were_priced_too_high():
    assert (text_terms(list(steps(others=0.9))) >= 0).all()
    assert text_terms(list(steps(others=0.5, terms=0 * TERMS))).tolist() == [0.0, 0.0, 0.0]


def test_a_layer_more_or_a_sequence_more_takes_as_much_more():
    one = next(steps()).step
    more = replace(one, batch=3, config={**one.config, "num_hidden_layers": 8})
    np.testing.assert_allclose(text_columns(more) / text_columns(one), [2.0, 6.0, 6.0])
