"""Which model a load test is of: the one named, the one most often asked for, or the only one there."""

import pytest

from inferometer.core.errors import DomainError
from inferometer.serving.load.plan import LoadPlan, LoadStep
from inferometer.serving.load.run import _model
from inferometer.serving.load.server import ServerFacts, _models

TWO = ("a", "b")


@pytest.mark.parametrize(
    ("asked", "served", "model"),
    [
        ({"mix": (("base", 0.3), ("tuned", 0.7))}, TWO, "tuned"),
        ({"mix": (("base", 0.7), ("tuned", 0.3)), "model": "other"}, (), "base"),
        ({"model": "b"}, TWO, "b"),
        ({}, ("only",), "only"),
        ({"api": "template"}, TWO, "unnamed"),
        ({"api": "template", "model": "mine"}, TWO, "mine"),
    ],
)
def test_the_model_is_the_one_asked_for_or_the_only_one(asked, served, model):
    plan = LoadPlan(url="http://h", steps=(LoadStep(concurrency=1),), **asked)
    assert _model(plan, ServerFacts(models=served)) == model


def test_of_several_or_none_one_is_to_be_named_unless_the_server_was_silent():
    plan = LoadPlan(url="http://h", steps=(LoadStep(concurrency=1),))
    for facts, why in ((ServerFacts(models=TWO), "has 2 models: a, b"), (ServerFacts(), "does not say which")):
        with pytest.raises(DomainError, match=why) as refused:
            _model(plan, facts)
        assert "--model" in refused.value.remedy
    assert _model(plan, ServerFacts(fault="refused")) == "unnamed"


def test_adapters_are_not_taken_for_the_model_that_is_served():
    adapters = [{"id": "tuned", "parent": "base"}, {"id": "other", "parent": "base"}]
    assert _models([{"id": "base", "parent": None}, *adapters]) == ("base",)
    assert _models(adapters) == ("tuned", "other")
    assert _models([{"id": "a"}, {"id": "b"}, {}]) == TWO
