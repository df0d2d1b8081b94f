import pytest

from inferometer.core.errors import FormatError
from inferometer.measure.bench.compare import compare
from unit.engines.results.sources import parsed, sample, taken, written


def test_each_command_is_a_profile_with_its_runs():
    old, new = sample("hyperfine.json")
    assert (old.model.name, new.model.name) == ("./old --size 8", "./new --size 8")
    assert old.phase("run").samples_s == (0.19, 0.2, 0.24)
    assert (old.phase("run").time_s, old.phase("run").statistic) == (0.2, "median")
    assert old.summary.peak_memory_bytes == 2 * 2**20
    assert any("1 of 2 runs" in note for note in new.provenance.notes)


def test_runs_that_failed_are_counted(tmp_path):
    results = parsed("hyperfine.json")
    results["results"][0] |= {"exit_codes": [0, 0, 3]}
    assert any("1 of 3 runs" in note for note in taken(written(tmp_path, results))[0].provenance.notes)


def test_two_commands_can_be_compared():
    comparison = compare(*sample("hyperfine.json"))
    assert comparison.metric == "latency"
    assert comparison.main.ratio == pytest.approx(0.105 / 0.2, rel=0.05)  # of ranks, so near that of the medians


def test_without_a_median_the_runs_give_it(tmp_path):
    results = parsed("hyperfine.json")
    del results["results"][0]["median"]
    assert taken(written(tmp_path, results))[0].phase("run").time_s == 0.2


@pytest.mark.parametrize("times", [[-0.1], ["x"], [float("nan")], 3])
def test_runs_that_cannot_be_are_named(tmp_path, times):
    with pytest.raises(FormatError, match="`times`"):
        taken(written(tmp_path, {"results": [{"command": "a", "median": 1, "times": times}]}))


def test_a_result_without_any_time_is_refused(tmp_path):
    with pytest.raises(FormatError, match="holds no time"):
        taken(written(tmp_path, {"results": [{"command": "a", "times": []}]}))
