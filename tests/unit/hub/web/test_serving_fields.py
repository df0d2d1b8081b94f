"""What a visitor may ask of the pages that plan and simulate."""

import pytest

from inferometer.core.errors import DomainError
from inferometer.hub.web.pages.serving import PLAN_FIELDS, SIMULATE_FIELDS

FIELDS = {field.name: field for field in (*PLAN_FIELDS, *SIMULATE_FIELDS)}


@pytest.mark.parametrize(
    ("name", "text"),
    [("prompt", "2000000"), ("generate", "uniform:64-9e12"), ("rate", "1e300"), ("replicas", "99999999"),
     ("concurrency", "9999999"), ("prompt", "lognormal:512,40000000")],
)  # fmt: skip
def test_numbers_that_nobody_serves_are_refused_with_the_limit(name, text):
    with pytest.raises(DomainError, match="goes up to 1,000,000 here"):
        FIELDS[name].read(text)


def test_usual_numbers_are_read():
    assert (FIELDS["rate"].read("2.5"), FIELDS["requests"].read("500")) == (2.5, 500)
    assert FIELDS["prompt"].read("lognormal:512,400") == "lognormal:512,400"
    for text in ("file:/etc/passwd",):
        with pytest.raises(DomainError, match="your own machine"):
            FIELDS["prompt"].read(text)
