import numpy as np
import pytest

from inferometer.core.errors import FormatError
from inferometer.measure.run.tolerance import Noise, Tolerance
from inferometer.measure.run.verify import compare_arrays, compare_text, load_outputs

X = np.linspace(-1, 1, 100, dtype=np.float32)


def test_equal_outputs_are_verified():
    found = compare_arrays({"y": X}, {"y": X}, against="r")
    assert (found.status, found.max_abs, found.cosine) == ("verified", 0.0, pytest.approx(1.0))


def test_outputs_of_other_names_are_compared_by_their_size():
    found = compare_arrays({"a": X, "b": X[:3]}, {"q": X[:3], "p": X}, against="r")
    assert found.status == "verified"


def test_outputs_of_one_size_and_other_names_are_paired_with_the_nearest():
    found = compare_arrays({"a": X, "b": -X}, {"p": -X, "q": X}, against="r")
    assert found.status == "verified"
    assert compare_arrays({"a": X, "b": -X}, {"b": X, "a": -X}, against="r").status == "failed"  # names are believed
    assert compare_arrays({"y": X, "b": -X}, {"p": -X, "y": X}, against="r").status == "verified"
    assert compare_arrays({"a": X, "b": X}, {"p": X, "q": -X}, against="r").status == "failed", "each one once"


def test_an_error_beyond_the_tolerance_fails_with_the_numbers():
    found = compare_arrays({"y": X + 0.1}, {"y": X}, against="r")
    assert found.status == "failed"
    assert found.max_abs == pytest.approx(0.1, rel=1e-3)
    assert "0.1 of its largest value" in found.reason
    assert (
        compare_arrays({"y": X + 0.1}, {"y": X}, against="r", tolerance=Tolerance(relative=0.2, cosine=0.9)).status
        == "verified"
    )


def test_what_is_next_to_nothing_differs_by_nothing_and_no_more():
    tiny = 1e-6 * X
    noise = Noise(absolute=2e-7)
    assert compare_arrays({"y": tiny + 1e-7}, {"y": tiny}, against="r", noise=noise).status == "verified"
    assert compare_arrays({"y": tiny + 3e-7}, {"y": tiny}, against="r", noise=noise).status == "failed"
    assert compare_arrays({"y": tiny + 1e-7}, {"y": tiny}, against="r").status == "failed"


@pytest.mark.parametrize(("longer", "status"), [(1.14, "verified"), (1.16, "failed")])
def test_an_error_all_over_counts_though_no_value_is_far_off_and_the_direction_is_right(longer, status):
    signs = np.where(np.arange(1000) % 3, 1.0, -1.0)
    found = compare_arrays({"y": longer * signs}, {"y": signs}, against="r", noise=Noise(rms=0.15, why="i8"))
    assert (found.status, found.cosine) == (status, pytest.approx(1.0))
    assert (found.rms_rel, found.max_rel) == pytest.approx((longer - 1, longer - 1))


def test_who_allows_no_error_gets_none():
    exact = Tolerance(relative=0.0, cosine=-1.0)
    assert compare_arrays({"y": X}, {"y": X}, against="r", tolerance=exact).status == "verified"
    assert compare_arrays({"y": X + 1e-6}, {"y": X}, against="r", tolerance=exact).status == "failed"


@pytest.mark.parametrize("other", [{}, {"y": X[:5]}, {"y": X, "z": X}])
def test_outputs_that_are_not_the_same_kind_fail(other):
    found = compare_arrays({"y": X}, other, against="r")
    assert (found.status, "outputs differ" in found.reason) == ("failed", True)


def test_a_value_that_is_not_finite_fails():
    bad = X.copy()
    bad[3] = np.nan
    assert "not finite" in compare_arrays({"y": bad}, {"y": X}, against="r").reason


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_reference_that_is_not_finite_verifies_nothing(value):
    bad = X.copy()
    bad[3] = value
    found = compare_arrays({"y": X}, {"y": bad}, against="r")
    assert (found.status, "not finite" in found.reason) == ("failed", True)
    assert compare_arrays({"y": np.full(3, value)}, {"y": np.full(3, value)}, against="r").status == "failed"


def test_values_that_are_not_finite_in_both_at_the_same_place_are_the_same():
    masked = X.copy()
    masked[:5] = -np.inf
    assert compare_arrays({"y": masked}, {"y": masked}, against="r").status == "verified"
    assert compare_arrays({"y": -masked}, {"y": masked}, against="r").status == "failed"
    unknown = np.where(np.isfinite(masked), masked, np.nan)
    assert compare_arrays({"y": unknown}, {"y": unknown}, against="r").status == "verified"
    assert compare_arrays({"y": unknown}, {"y": masked}, against="r").status == "failed"
    off = masked.copy()
    off[50:] += 0.1
    assert compare_arrays({"y": off}, {"y": masked}, against="r").status == "failed"


def text(logits, ids=(1, 2, 3)):
    return {"ids": np.array(ids), "made": np.array([4, 5]), "logits": np.asarray(logits, dtype=np.float32)}


def test_logits_are_compared_at_every_position():
    logits = np.array([[0, 1, 2, 3.0]] * 3)
    same = compare_text(text(logits), text(logits), against="r")
    assert (same.status, same.top_1, same.nll_drift) == ("verified", 1.0, 0.0)
    other = compare_text(text(logits[:, ::-1]), text(logits), against="r")
    assert (other.status, other.top_1) == ("failed", 0.0)


def test_nll_drift_is_in_nats_a_token():
    # The next tokens are 2 and 3. Uniform logits give ln 4; a logit of ln 3 on token 2 at the first position gives
    # ln((3 + 3) / 3) = ln 2 there: half the difference ln 4 - ln 2 on average.
    uniform = np.zeros((3, 4))
    better = uniform.copy()
    better[0, 2] = np.log(3)
    found = compare_text(text(better), text(uniform), against="r")
    assert found.nll_drift == pytest.approx(-np.log(2) / 2, rel=1e-6)


def leading(*leads):
    """Logits of as many positions, in which the last token leads the one before it by so much."""
    rows = np.tile(np.linspace(-1, 1, 101), (len(leads), 1))
    rows[:, -1] = rows[:, -2] + leads
    return rows


@pytest.mark.parametrize(
    ("tolerance", "status", "where"),
    [
        (None, "verified", "the 1 positions whose lead is beyond rounding"),
        (Tolerance(top_1=0.9), "failed", "positions"),
    ],
)
def test_the_best_token_must_be_the_same_where_it_leads_by_twice_the_noise(tolerance, status, where):
    """A tenth of logits with a spread of 0.58: a lead of 0.3 is beyond twice as much, one of 0.08 beyond it once."""
    theirs = leading(0.3, 0.08)
    ours = theirs.copy()
    ours[1, -2:] = theirs[1, :-3:-1]
    more = {"against": "r", "noise": Noise(rms=0.1, why="i8"), "tolerance": tolerance}
    found = compare_text(text(ours, ids=(1, 2)), text(theirs, ids=(1, 2)), **more)
    assert (found.status, found.top_1, f" of {where}, NLL" in found.tolerance) == (status, 0.5, True)


def test_what_is_added_to_all_logits_of_a_position_chooses_nothing():
    theirs = leading(0.3, 0.4, 0.5)
    found = compare_text(text(theirs + np.array([[5.0], [-3.0], [0.5]])), text(theirs), against="r")
    assert (found.status, found.top_1, found.top_k, found.max_abs) == ("verified", 1.0, 1.0, pytest.approx(5.0))
    assert (found.rms_rel, found.nll_drift) == pytest.approx((0.0, 0.0), abs=1e-6)
    doubled = compare_text(text(2 * theirs), text(theirs), against="r")
    assert (doubled.status, doubled.rms_rel, doubled.max_rel) == ("failed", pytest.approx(1.0), pytest.approx(1.0))


def test_without_logits_the_chosen_tokens_are_compared():
    ours, theirs = ({"ids": np.array([1]), "made": np.array(made)} for made in ([1, 2, 9, 9], [1, 2, 3, 4]))
    found = compare_text(ours, theirs, against="r")
    assert (found.status, found.top_1) == ("failed", 0.5)
    assert found.reason == "the texts part after 2 of 4 tokens"
    again = compare_text({**ours, "made": np.array([1, 9, 3, 4, 5])}, theirs, against="r")
    assert (again.top_1, again.reason) == (0.25, "the texts part after 1 of 4 tokens"), "what comes after says nothing"


def test_outputs_that_cannot_be_read_are_an_error(tmp_path):
    (tmp_path / "o.npz").write_bytes(b"PK but no archive")
    with pytest.raises(FormatError, match="cannot be read"):
        load_outputs(tmp_path / "o.npz")
