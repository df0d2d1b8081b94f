import pytest

from inferometer.core.errors import DomainError, UnitError, UnknownNameError
from inferometer.known.where import matching

FIELDS = {"name": None, "unit": None, "memory": "B", "year": "1"}
RECORDS = [
    {"name": "a", "unit": "gpu", "memory": 80e9, "year": 2020},
    {"name": "b", "unit": "cpu", "memory": 8e9, "year": 2024},
    {"name": "c", "unit": "gpu", "memory": None, "year": None},
]


@pytest.mark.parametrize(
    ("conditions", "names"),
    [
        ([], "abc"),
        (["unit=gpu"], "ac"),
        (["unit=GPU"], "ac"),
        (["unit!=gpu"], "b"),
        (["unit~p"], "abc"),
        (["memory>=80GB"], "a"),
        (["memory < 80 GB"], "b"),
        (["memory=8GB"], "b"),
        (["year>2000"], "ab"),
        (["unit=gpu", "memory>1GB"], "a"),
    ],
)
def test_all_conditions_must_hold_and_the_unknown_never_does(conditions, names):
    assert "".join(record["name"] for record in matching(RECORDS, conditions, FIELDS)) == names


@pytest.mark.parametrize(
    ("condition", "error", "why"),
    [
        ("memory", DomainError, "not a condition"),
        ("memory>=", DomainError, "not a condition"),
        ("", DomainError, "not a condition"),
        ("memry>=8GB", UnknownNameError, "Did you mean memory"),
        ("memory>=8 parsec", UnitError, "Accepted"),
        ("memory~8", DomainError, "'~' does not apply"),
        ("unit>gpu", DomainError, "is text"),
    ],
)
def test_a_condition_that_cannot_be_asked_says_why(condition, error, why):
    with pytest.raises(error, match=why):
        matching(RECORDS, [condition], FIELDS)
