import numpy as np
import pytest

from inferometer.core.errors import FormatError
from inferometer.measure.run.verify import Tolerance, compare_arrays, compare_text, load_outputs

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


def test_an_error_beyond_the_tolerance_fails_with_the_numbers():
    found = compare_arrays({"y": X + 0.1}, {"y": X}, against="r")
    assert found.status == "failed"
    assert found.max_abs == pytest.approx(0.1, rel=1e-3)
    assert "0.1 of its largest value" in found.reason
    assert (
        compare_arrays({"y": X + 0.1}, {"y": X}, against="r", tolerance=Tolerance(relative=0.2, cosine=0.9)).status
        == "verified"
    )


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


def test_without_logits_the_chosen_tokens_are_compared():
    ours, theirs = ({"ids": np.array([1]), "made": np.array(made)} for made in ([1, 2, 9, 9], [1, 2, 3, 4]))
    found = compare_text(ours, theirs, against="r")
    assert (found.status, found.top_1) == ("failed", 0.5)
    assert found.reason == "the texts part after 2 of 4 tokens"


def test_outputs_that_cannot_be_read_are_an_error(tmp_path):
    (tmp_path / "o.npz").write_bytes(b"PK but no archive")
    with pytest.raises(FormatError, match="cannot be read"):
        load_outputs(tmp_path / "o.npz")
