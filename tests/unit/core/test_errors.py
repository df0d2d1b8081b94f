import pickle
import re
from difflib import SequenceMatcher

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer.core import errors
from inferometer.core.errors import GateError, InferometerError, UnknownNameError, nearest, same_but_for_case


def test_a_name_is_suggested_by_its_title_or_alias_and_each_once():
    words = {"Germany": "de", "Deutschland": "de", "France": "fr"}
    assert UnknownNameError("grid", "germany", ["de", "fr"], words=words).suggestions == ("de",)


def test_names_with_many_words_leave_room_for_the_next():
    """Four words each: those of the first two names are all nearer than any of the third."""
    words = {f"abcdef{'x' * far}{number}": name for far, name in enumerate("pqr") for number in range(4)}
    assert UnknownNameError("grid", "abcdef", "pqr", words=words).suggestions == ("p", "q", "r")


def test_a_name_that_has_every_word_of_the_asked_one_comes_before_one_spelt_like_it():
    known = ["nvidia-h200", "nvidia-h100-sxm", "nvidia-h100-pcie", "intel-n100"]
    assert set(UnknownNameError("device", "H100", known).suggestions[:2]) == {"nvidia-h100-sxm", "nvidia-h100-pcie"}


def test_case_alone_tells_names_apart_only_where_two_differ_by_it():
    assert same_but_for_case("ONNXRuntime", ["onnxruntime", "openvino"]) == "onnxruntime"
    assert same_but_for_case("a", ["A", "a"]) == "a"
    assert same_but_for_case("aB", ["Ab", "AB"]) is None


def test_every_error_of_the_tree_is_drawn_at_the_top_of_the_file():
    drawn = set(re.findall(r"(\w+Error)", errors.__doc__))
    defined = {name for name in errors.__all__ if name.endswith("Error")}
    assert drawn == defined


@pytest.mark.parametrize("name", [name for name in errors.__all__ if name != "UnknownNameError"])
def test_every_error_has_one_root_and_carries_its_remedy(name):
    error = getattr(errors, name)("It broke.", remedy="Mend it.")
    assert isinstance(error, InferometerError)
    assert str(error) == "It broke. Mend it."


def test_only_a_failed_gate_ends_with_1():
    assert GateError.exit_code == 1
    assert UnknownNameError.exit_code == 2


@pytest.mark.parametrize(
    ("asked", "known", "first"),
    [
        ("nvidia-h20", ["nvidia-h200", "amd-mi300x", "nvidia-h100-sxm"], "nvidia-h200"),
        ("h200-nvidia", ["nvidia-h200", "raspberry-pi-5"], "nvidia-h200"),
        ("NVIDIA-H200", ["nvidia-h200", "raspberry-pi-5"], "nvidia-h200"),
        ("rasberry-pi-5", ["raspberry-pi-5", "raspberry-pi-4"], "raspberry-pi-5"),
    ],
)
def test_a_typo_suggests_the_name_that_was_meant(asked, known, first):
    assert nearest(asked, known)[0] == first


WORDS = st.text("abcd-_ 1234ABß", max_size=14)


@given(asked=WORDS, known=st.sets(WORDS, max_size=12))
def test_what_is_left_out_unread_is_like_nothing(asked, known):
    """The names of the plain formula, asked of every pair."""

    def words(name):
        parts = name.casefold().replace("_", "-").replace(" ", "-").split("-")
        return {part for part in parts if len(part) > 3 or any(map(str.isdigit, part))}

    def likeness(name):
        spelling, shared = SequenceMatcher(None, asked.casefold(), name.casefold()).ratio(), words(asked) & words(name)
        told = 1.0 if shared and shared == words(asked) else 0.6 + 0.1 * len(shared) if shared else 0.0
        return max(spelling, told) + 0.05 * spelling

    ranked = sorted((-likeness(name), name) for name in known)
    assert nearest(asked, known) == tuple(name for score, name in ranked[:3] if -score >= 0.6)


def test_of_names_with_the_word_that_was_asked_for_the_one_spelt_more_like_it_comes_first():
    assert nearest("h100", ["h100-accelerator-card", "h100-pcie", "h100-sxm"]) == (
        "h100-sxm", "h100-pcie", "h100-accelerator-card",
    )  # fmt: skip


def test_a_name_like_nothing_suggests_nothing():
    error = UnknownNameError("device", "zzzz", ["nvidia-h200"], listing="`inferometer devices` lists them.")
    assert str(error) == "There is no device named 'zzzz'. `inferometer devices` lists them."


def test_an_error_says_the_same_on_the_other_side_of_a_process():
    """Workers of a sweep and of a pool raise them: one that cannot be unpickled takes the whole pool with it."""
    unknown = UnknownNameError("device", "h20", ["nvidia-h200"], listing="`inferometer devices` lists them.")
    again = pickle.loads(pickle.dumps(unknown))  # noqa: S301 - our own bytes
    assert (str(again), again.suggestions, again.args) == (str(unknown), unknown.suggestions, unknown.args)
    for kind in (InferometerError, *subclasses(InferometerError)):
        made = kind.__new__(kind, "What happened.")
        made.message, made.remedy = "What happened.", "What to do."
        again = pickle.loads(pickle.dumps(made))  # noqa: S301 - as above
        assert str(again) == "What happened. What to do.", kind


def subclasses(kind):
    return [each for below in kind.__subclasses__() for each in (below, *subclasses(below))]


def test_a_name_that_shares_more_words_comes_first_however_it_is_spelt():
    """Neither has every word that was asked for; by its letters alone the shorter one is nearer."""
    known = ("alpha omicron", "gamma-beta-alpha with a long tail")
    assert nearest("alpha beta gamma delta", known) == known[::-1]
