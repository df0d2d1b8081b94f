"""The page of what is trusted: every row names code that is there, and a test that holds it."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROWS = [
    line.split("|")[1:4]
    for line in (ROOT / "docs" / "security.md").read_text(encoding="utf-8").partition("## Attacks")[2].splitlines()
    if line.startswith("| ") and not line.startswith("| attack")
]


def test_every_attack_names_code_and_a_test_that_are_there():
    assert len(ROWS) > 10
    for attack, held, tests in ROWS:
        named = re.findall(r"`(tests/[^`]+)`", tests)
        assert named, attack
        code = re.findall(r"`([a-z_/]+\.py)`", held)
        missing = [name for name in named if not (ROOT / name).is_file()]
        missing += [name for name in code if not (ROOT / "src" / "inferometer" / name).is_file()]
        assert missing == [], attack
