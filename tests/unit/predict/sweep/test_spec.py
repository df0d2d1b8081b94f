"""A sweep as text."""

import pytest

from inferometer.core.errors import DomainError, FormatError, InferometerError, UnknownNameError
from inferometer.predict.sweep import parse_axis, parse_spec


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1", [1]),
        ("1,2,4", [1, 2, 4]),
        ("1-4", [1, 2, 3, 4]),
        ("0-1024+512", [0, 512, 1024]),
        ("1-64*4", [1, 4, 16, 64]),
        ("1-60*4", [1, 4, 16]),
        (" 8 , 1-2 ", [8, 1, 2]),
    ],
)
def test_numbers_and_ranges_are_lists(text, values):
    assert parse_axis("batch", text) == values


@pytest.mark.parametrize("text", ["x", "1-", "4-1", "1-8*1", "0-8*2", "1-8+0", "1.5", "1e3", "-1", "1-99999999999"])
def test_what_is_no_range_is_refused(text):
    with pytest.raises(DomainError, match="batch"):
        parse_axis("batch", text)


def test_names_have_commas_between_them():
    assert parse_axis("models", "a, b,c") == ["a", "b", "c"]


def test_a_spec_has_lists_and_options():
    spec = parse_spec(
        """
        models = ["llama-3.2-1b"]
        devices = ["nvidia-h200", "nvidia-l4"]
        batch = "1-8*2"
        context = [128, 1024]
        [options]
        cached_prefix = 4
        overlap = 0.5
        [options.place]
        usd_per_hour = 2.0
        """,
        "grid.toml",
    )
    assert spec.axes["batch"] == [1, 2, 4, 8]
    assert spec.axes["devices"] == ["nvidia-h200", "nvidia-l4"]
    assert (spec.options.cached_prefix, spec.options.overlap, spec.options.place.usd_per_hour) == (4, 0.5, 2.0)


@pytest.mark.parametrize(
    ("text", "meant"),
    [("bach = [1]", "batch"), ("[options]\noverlapp = 1", "overlap"), ("[options.place]\ngird = 'x'", "grid")],
)
def test_an_unknown_key_is_an_error_that_suggests(text, meant):
    with pytest.raises(UnknownNameError, match=f"Did you mean {meant}"):
        parse_spec(text, "grid.toml")


@pytest.mark.parametrize(
    "text", ["models = [", "options = 3", "[options]\noverlap = 'half'", "[options]\nplace = 3", "[options]\nchunk = 0"]
)
def test_what_is_no_spec_is_refused_by_name(text):
    with pytest.raises(InferometerError):
        parse_spec(text, "grid.toml")


def test_an_error_of_syntax_names_the_file():
    with pytest.raises(FormatError, match=r"grid\.toml is no TOML file"):
        parse_spec("models = [", "grid.toml")


def test_a_spec_names_a_device_that_reads_the_prompts():
    assert parse_spec('prefill_on = "nvidia-l4"', "grid.toml").prefill_on == "nvidia-l4"
    assert parse_spec("", "grid.toml").prefill_on is None
    with pytest.raises(FormatError, match="name of a device"):
        parse_spec("prefill_on = 3", "grid.toml")


def test_a_spec_has_every_option_of_a_prediction():
    found = parse_spec(
        """
        [options]
        chunk = 64
        link = "infiniband-ndr"
        sizes = {width = 3}
        [options.host]
        sampling_s = 0.5
        [options.offload]
        layers = 2
        [options.energy]
        joules_per_flop = 1e-12
        joules_per_byte = 1e-11
        [options.battery]
        capacity_j = 10.0
        [options.speculative]
        draft = "llama-3.2-1b"
        length = 4
        acceptance = 0.5
        up_to = "8:2,32"
        """,
        "grid.toml",
    ).options
    assert (found.chunk, found.link.name, dict(found.sizes)) == (64, "infiniband-ndr", {"width": 3})
    assert (found.host.sampling_s, found.offload.layers, found.battery.capacity_j) == (0.5, 2, 10.0)
    assert (found.energy.joules_per_flop, found.energy.joules_per_byte) == (1e-12, 1e-11)
    assert (found.speculative.draft.name, found.speculative.length) == ("llama-3.2-1b", 4)
    assert found.speculative.up_to == ((8, 2), (32, 4))


@pytest.mark.parametrize(
    ("text", "values"),
    [("5-5", [5]), ("0-9+4", [0, 4, 8]), ("3-24*2", [3, 6, 12, 24]), ("2-9*3", [2, 6]), ("1, ,2,", [1, 2]), ("", [])],
)
def test_a_range_ends_at_or_before_its_last(text, values):
    assert parse_axis("batch", text) == values


@pytest.mark.parametrize("text", ["2-1", "1-8*1", "0-8*2", "1-8+0", "0-10000000", "1-", "-3", "1.5"])
def test_a_range_that_does_not_rise_or_is_endless_is_refused(text):
    with pytest.raises(DomainError):
        parse_axis("batch", text)


def test_names_may_have_commas_too_many():
    assert parse_axis("models", " a,, b ,") == ["a", "b"]
