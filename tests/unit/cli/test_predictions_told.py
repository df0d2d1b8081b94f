"""What commands say of what they predict, look up and make up, word for word.

`predictions_told.txt` has a case in a line, as `commands_told.txt` has (see test_commands_told.py). Beside what lies
there, the folder has a sweep (sweep.toml), requests (requests.csv) and regions (regions.toml).
`python tests/unit/cli/test_predictions_told.py` writes the answers anew.
"""

import os
import tempfile
from pathlib import Path

import pytest

from unit.cli import test_commands_told as commands
from unit.formats.listing import cases_in, rewrite
from unit.predict.machines import priors_alone, take_fits_away  # noqa: F401 - `priors_alone` is used by being here

TOLD = Path(__file__).parent / "predictions_told.txt"
EXPECTED = cases_in(TOLD) if TOLD.exists() else {}
FILES = {
    "sweep.toml": """models = ["llama-3.2-1b"]
devices = ["nvidia-l4", "nvidia-h200"]
runtimes = ["torch-eager"]
weights = ["bf16", "i8"]
batch = [1, 8]
prompt = [128]
context = [512]
""",
    "requests.csv": "arrival_s,input_tokens,output_tokens\n"
    + "".join(f"{0.05 * number:g},{100 + 37 * number % 200},{10 + 7 * number % 30}\n" for number in range(12)),
    "regions.toml": """[near]
rate = 4
on = ["nvidia-l4"]
round_trip = "20ms"
[far]
rate = 2
round_trip = "150ms"
day = [0.5, 1.0]
on = ["nvidia-l4"]
""",
}


def made(folder):
    commands.made(folder)
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    folder = tmp_path_factory.mktemp("told") / "start"
    made(folder)
    return folder


@pytest.mark.parametrize("case", EXPECTED)
def test_a_command_says_what_is_written_below_it(start, case):
    assert commands.told(case, start) == EXPECTED[case]


if __name__ == "__main__":
    take_fits_away()
    with tempfile.TemporaryDirectory() as beside:
        made(Path(beside, "start"))
        os.environ["INFEROMETER_CACHE"] = str(Path(beside, "cache"))  # noqa: TID251 - for the commands
        rewrite(TOLD, lambda case: commands.told(case, Path(beside, "start")))
