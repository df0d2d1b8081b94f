"""One suite over every provider: what a place promises, held with real jobs on a model of one layer."""

import pytest

from fakes.places import PLACES, table
from inferometer.core.codec import decode, encode
from inferometer.core.job import JobResult
from inferometer.core.plugins import load_all
from inferometer.hub.places.base import GROUP, Place, Provider


@pytest.fixture(scope="module", params=sorted(PLACES))
def given(request, tmp_path_factory, roofs):  # which agents would measure
    """A place, and what its user does to bring it to run: nothing, but for a bundle."""
    with PLACES[request.param](tmp_path_factory) as place:
        yield place


@pytest.mark.parametrize("name", load_all(GROUP)[0])
def test_a_provider_keeps_the_contract(name):
    provider = load_all(GROUP)[0][name]
    assert isinstance(provider, Provider)
    assert provider.name == name
    assert provider.title
    provider.probe()


def test_a_job_is_done_and_its_result_is_fetched(given, tmp_path):
    work = given.quick(tmp_path)
    assert isinstance(given.place, Place)
    handle = given.place.submit(work.job, work.files)
    assert handle.job == work.job.id
    given.deliver(handle)
    events = list(given.place.events(handle))
    assert [event.number for event in events] == list(range(1, len(events) + 1))
    assert all(event.job == work.job.id for event in events)
    assert events[-1].state == "done", events[-1]
    assert [event.number for event in given.place.events(handle, after=len(events) - 1)] == [len(events)]
    result = given.place.fetch(handle)
    assert (result.ended, result.error) == ("done", None)
    assert result.job == work.job
    profile = result.profiles[0]
    assert table(profile) == given.ops
    assert profile.model.name == "net"
    assert profile.phases[-1].time_s > 0
    assert decode(encode(result), JobResult) == result
    assert given.left(handle) == []


def test_what_the_engine_refuses_is_said_with_its_words(given, tmp_path):
    work = given.refused(tmp_path)
    handle = given.place.submit(work.job, work.files)
    given.deliver(handle)
    final = list(given.place.events(handle))[-1]
    result = given.place.fetch(handle)
    assert final.state == result.state == "failed"
    assert "Frobnicate" in result.error
    assert result.remedy
    assert result.profiles == ()


def test_a_job_that_is_cancelled_keeps_what_it_measured(given, tmp_path):
    if given.place.waits:
        pytest.skip("a bundle is stopped by whoever runs it")
    work = given.long(tmp_path)
    handle = given.place.submit(work.job, work.files)
    for event in given.place.events(handle):
        if given.has_begun(event):
            given.place.cancel(handle)
            given.place.cancel(handle)
    assert event.state == "cancelled"
    result = given.place.fetch(handle)
    assert result.ended == "stopped"
    if given.keeps_partial:
        assert result.profiles[0].phases[-1].samples_s
