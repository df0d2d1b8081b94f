"""How far a region's table may go: the last value that is taken, and the first that is not."""

import pytest

from inferometer.core.errors import FormatError
from inferometer.serving.plans.regions import read_regions

TAKEN, REFUSED = ('round_trip = "59s"', 'round_trip = "0s"'), ('round_trip = "60s"', 'round_trip = "-1s"')
PRICED = ("prices = {nvidia-l4 = 0}", "prices = {nvidia-l4 = 999999}")
OVERPRICED = ("prices = {nvidia-l4 = -1}", "prices = {nvidia-l4 = 1e6}")


@pytest.mark.parametrize("said", [*TAKEN, *PRICED])
def test_what_is_less_than_a_minute_or_a_million_away_is_taken(tmp_path, said):
    path = tmp_path / "regions.toml"
    path.write_text(f"[eu]\nrate = 2\n{said}\n", encoding="utf-8")
    (region,) = read_regions(path)
    assert (region.name, region.rate_per_s) == ("eu", 2.0)


@pytest.mark.parametrize("said", [*REFUSED, *OVERPRICED])
def test_a_way_of_a_minute_and_a_price_that_nobody_pays_are_refused(tmp_path, said):
    path = tmp_path / "regions.toml"
    path.write_text(f"[eu]\nrate = 2\n{said}\n", encoding="utf-8")
    with pytest.raises(FormatError, match="a way of a minute or more, or a price that nobody pays"):
        read_regions(path)


def test_lists_are_lists_or_lines_as_the_options_have_them(tmp_path):
    path = tmp_path / "regions.toml"
    lines = '[a]\nrate = 4\nday = "0.2, 1,0.5"\non = "nvidia-l4,nvidia-l40s"\n'
    path.write_text(lines + '[b]\nrate = 4\nday = [0.2, 1, 0.5]\non = ["nvidia-l4", "nvidia-l40s"]\n')
    one, other = read_regions(path)
    assert (one.day, one.devices) == (other.day, other.devices) == ((0.2, 1.0, 0.5), ("nvidia-l4", "nvidia-l40s"))
    path.write_text('[a]\nrate = 4\nprices = "mine.csv"\n')
    with pytest.raises(FormatError, match="the prices of a are a table"):
        read_regions(path)
