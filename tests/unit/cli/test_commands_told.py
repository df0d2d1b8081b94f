"""What commands say, word for word: those that keep and list what is stored, import, compare and calculate.

`commands_told.txt` has a case in a line: commands with `&&` between them, run one after the other in a folder of their
own. In it lie the profiles fast.json, slow.json and calm.json, which is slow.json undisturbed; board.csv, what a board
wrote down in ten minutes in which it grew hot and slower; and a store with the device `pi` and two runs, `fast` of the
project `phones` and `slow`, tagged `old`. SAMPLES is the folder of other tools'
samples. Below stands what the last command printed, lines for people after `!`, and its exit code unless it is 0.
`python tests/unit/cli/test_commands_told.py` writes that anew (with src and tests on the path). Ids, times and folders
are written as ID, WHEN and HERE.
"""

import contextlib
import io
import os
import re
import shlex
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from inferometer.cli.run import run
from inferometer.measure.bench.files import save_profile
from inferometer.store.queue.fleet import Fleet
from inferometer.store.queue.values import NewDevice
from inferometer.store.store import open_store
from unit.formats.listing import cases_in, rewrite
from unit.store.profiles import profile

TOLD = Path(__file__).parent / "commands_told.txt"
SAMPLES = Path(__file__).parents[2] / "data" / "importers"
MASKS = (
    (re.compile(r"ifm_[\w-]+|(?<=--after )\w+"), "SECRET"),
    (re.compile(r"\b(?=[a-z]*\d)(?=\d*[a-z])[0-9a-z]{12}\b"), "ID"),
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?(\.\d+)?(\+00:00)?"), "WHEN"),
    (re.compile(r"file +size  run|─+"), lambda found: re.sub(r"([ ─])\1+", r"\1", found[0])),  # as wide as SIZE was
    (re.compile(r"\d\.\d+ kB"), "SIZE"),
    (re.compile(r"\d+\.\d{6,}(?:e-\d+)?"), lambda found: f"{float(found[0]):.5g}"),  # the last digits are libraries'
)


def made(folder):
    """The folder that every case begins with."""
    (folder / "data").mkdir(parents=True)
    fast = profile(1, tokens_per_s=70.0)
    slow = profile(2, device="board", disturbed=True, ttft_s=0.3)
    fast, slow = (sampled(one, apart) for one, apart in ((fast, 0.0), (slow, 0.01)))
    save_profile(fast, folder / "fast.json")
    save_profile(slow, folder / "slow.json")
    save_profile(replace(slow, environment=fast.environment), folder / "calm.json")
    lines = [f"{10 * at},{10 if at < 30 else 12},{8 if at < 30 else 6},{80 - 40 * 0.9**at:.1f}" for at in range(60)]
    lines[:0] = ["time_s,latency_ms,power_w,temperature_c", *(f"{10 * at},,2,40" for at in range(-5, 0))]
    (folder / "board.csv").write_text("\n".join(lines), encoding="utf-8")
    with open_store(folder / "data" / "runs.db") as store:
        store.create_project("phones", description="what ships")
        store.add(fast, project="phones", name="fast", tags=("good", "first"))
        store.add(slow, name="slow", tags=("old",))
        Fleet.of(store).register(NewDevice(name="pi", labels={"runtime": ("onnxruntime",)}))


def sampled(one, apart):
    """With times that differ a little from run to run, so that a comparison has a verdict."""
    samples = tuple(0.01 + apart + 1e-5 * (number % 7) for number in range(40))
    return replace(one, phases=(replace(one.phases[0], samples_s=samples),))


def masked(text, folder):
    for pattern, instead in MASKS:
        text = pattern.sub(instead, text.replace(str(folder), "HERE").replace(str(SAMPLES), "SAMPLES"))
    return text


def told(case, made_before):
    """The lines of the last command of a case."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve() / "here"
        shutil.copytree(made_before, folder)
        with pytest.MonkeyPatch.context() as patch, contextlib.chdir(folder):
            patch.setenv("INFEROMETER_DATA", str(folder / "data"))
            patch.setenv("INFEROMETER_CONFIG", str(folder / "config.toml"))
            patch.setenv("COLUMNS", "160")
            for command in case.replace("SAMPLES", shlex.quote(str(SAMPLES))).split(" && "):
                out, err = io.StringIO(), io.StringIO()
                patch.setattr("sys.argv", ["inferometer", *shlex.split(command)])
                with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                    code = run(shlex.split(command))
        said = [*out.getvalue().splitlines(), *(f"! {line}" for line in err.getvalue().splitlines())]
        return [masked(line.rstrip(), folder) for line in said if line.strip()] + ([f"exit {code}"] if code else [])


EXPECTED = cases_in(TOLD) if TOLD.exists() else {}


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    folder = tmp_path_factory.mktemp("told") / "start"
    made(folder)
    return folder


@pytest.mark.parametrize("case", EXPECTED)
def test_a_command_says_what_is_written_below_it(start, case):
    assert told(case, start) == EXPECTED[case]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as beside:
        made(Path(beside, "start"))
        os.environ["INFEROMETER_CACHE"] = str(Path(beside, "cache"))  # noqa: TID251 - for the commands
        rewrite(TOLD, lambda case: told(case, Path(beside, "start")))
