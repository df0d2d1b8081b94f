"""How many realistic mistakes the tests notice: `make mutants`, or `make mutants PACKAGES=measure/bench SEED=2`.

A sample of single changes to each package (an operator swapped, a term or a check dropped, two arguments exchanged; see
operators.py), made by Cosmic Ray. Each is tried by the tests that touch its line. What nobody can notice is listed with
its reason in equivalent.toml and not counted. Kept in benchmarks/recorded/mutation.json after every mutant: a run that
is cut off has told what it tried, and of how many; the same command then goes on from there.
"""

import argparse
import json
import os
import platform
import sys
import time
import tomllib
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from sites import found_again, sample
from touching import ROOT, source_of, touched
from trying import OPTIONS, Trying, prepare

PACKAGES = ("predict", "measure/calibrate", "measure/run", "measure/bench", "understand", "formats")
MORE = ("predict/sweep", "store", "measure/spans", "known/formulas", "hub/web", "engines")
RESULTS = ROOT / "benchmarks" / "recorded" / "mutation.json"
# Where rules of a package are held besides its own unit tests. Slow ones that only repeat those are left out: the share
# caught is then a lower bound.
SHARED = {
    "predict": (
        "property/test_price.py", "property/test_work_rules.py", "property/test_cost_floor.py",
        "golden/test_cost_devices.py", "golden/test_cost_encoder_decoder.py", "golden/test_predict.py",
        "property/test_doors.py", "unit/measure/run/test_sustained.py", "unit/cli/test_prediction_options.py",
        "property/test_serving_steps.py", "unit/serving/simulate/test_gang.py", "unit/understand/test_beaten_roof.py",
    ),
    "measure/bench": ("property/test_bench_statistics.py",),
    "understand": ("golden/test_explain.py",),
    "formats": (
        "contract/test_readers.py", "golden/test_parameters.py", "golden/test_gguf_models.py",
        "property/test_binary_readers_fuzz.py", "property/test_onnx_fuzz.py", "property/test_readers_folding.py",
        "property/test_readers_strides.py",
    ),
    "known/atlas": ("property/test_atlas.py",),
    "known/formulas": ("golden/test_formulas.py", "golden/test_formula_options.py", "property/test_formulas.py"),
    "store": (
        "contract/test_store.py", "contract/test_queue.py", "contract/test_backup.py", "contract/test_retention.py",
        "property/test_queue.py",
    ),
    "engines": (
        "contract/test_runtimes.py", "unit/measure/prepare/test_tool_rules.py",
        "unit/measure/prepare/test_torch_tools.py", "unit/measure/prepare/test_checkpoint_tools.py",
        "unit/measure/prepare/test_litert_tool.py", "unit/measure/prepare/test_mnn_tool.py",
        "unit/measure/prepare/test_ncnn_tool.py", "unit/measure/prepare/test_executorch_tool.py",
    ),
    "measure/spans": ("property/test_profiler.py", "unit/understand/view/test_reports_told.py"),
    "predict/sweep": ("property/test_sweep.py",),
    "measure/prepare": ("unit/understand/test_advice.py", "unit/understand/test_trying.py"),
    "understand/view": (
        "unit/measure/spans/test_reports.py", "unit/measure/spans/test_dataflow.py", "unit/hub/web/test_html_report.py",
        "unit/hub/web/test_run_charts.py", "unit/understand/test_page.py", "unit/understand/test_findings.py",
        "unit/measure/bench/test_bench_run.py", "unit/measure/run/test_generations.py", "property/test_profiler.py",
    ),
    "serving": (
        "property/test_serving_steps.py", "unit/cli/test_simulate_command.py", "unit/cli/test_services_hand_on.py",
    ),
    "hub/places": ("contract/test_providers.py",),
    "core": (
        "property/test_values.py", "property/test_statistics.py", "property/test_intervals.py",
        "property/test_core_requests.py",
    ),
    "api": ("unit/api/test_verbs.py", "property/test_doors.py"),
    "understand/accuracy": ("golden/test_accuracy.py", "golden/test_edgeprofiler.py"),
    "cli": (
        "e2e/test_commands.py", "e2e/test_runs_command.py", "unit/hub/web/test_hub_commands.py",
        "unit/known/atlas/test_command.py", "unit/engines/results/test_import_command.py",
        "unit/measure/run/test_options_reach.py", "unit/hub/web/test_push.py", "unit/api/test_measuring_verbs.py",
        "unit/measure/calibrate/test_calibrate_flows.py", "unit/measure/calibrate/test_wanted.py",
        "e2e/test_encodings.py", "e2e/test_profile_command.py", "e2e/test_load_command.py",
        "e2e/test_bench_commands.py",
    ),
    "hub/web": ("contract/test_api.py",),
}  # fmt: skip
TARGET = 0.9


def asked():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="*", default=PACKAGES, metavar="PACKAGE")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=60, help="mutants of each package")
    parser.add_argument(
        "--tests", nargs="*", help="folders or files under tests/; default: the package's own and those of SHARED"
    )
    parser.add_argument("--again", metavar="FILE", help="try only the survivors that this file of results lists")
    parser.add_argument("--jobs", type=int, default=1, help="mutants tried at once")
    parser.add_argument("--quick", action="store_true", help="do not try survivors once more in a new process")
    parser.add_argument("--results", type=Path, default=RESULTS)
    return parser.parse_args()


def tests_of(package):
    """A package is held by its own tests, by those of the packages in it, and else by those of the one around it."""
    inside = [test for name, tests in SHARED.items() if Path(name).is_relative_to(package) for test in tests]
    around = next((SHARED[name] for name in map(str, Path(package).parents) if name in SHARED), ())
    return list(dict.fromkeys([f"unit/{package}", *(inside or around)]))


def told(mutant):
    return {"at": f"{mutant.file}:{mutant.line}", "kind": mutant.kind, "before": mutant.before, "after": mutant.after}


def equivalents():
    rows = tomllib.loads((Path(__file__).parent / "equivalent.toml").read_text(encoding="utf-8")).get("mutant", [])
    return {(row["file"], row["before"], row["after"]) for row in rows}


class Tried(Trying):
    """The mutants of a package, each printed with who caught it."""

    def __init__(self, package, mutants, folders, *, sure, keep):
        super().__init__(*touched(package, folders), sure=sure)
        self.package, self.mutants, self.folders, self.keep = package, mutants, folders, keep
        self.known = equivalents()
        self.survivors, self.unnoticeable, self.done = [], 0, 0
        self.jobs = 1

    def go_on_from(self, found):
        self.done, self.unnoticeable = int(found["cut_off_after"].split()[0]), found["equivalent"]
        self.survivors = [mutant for mutant in self.mutants[: self.done] if told(mutant) in found["survivors"]]

    def pytest_runtestloop(self):
        TRYING.append(self)  # before its workers start: each is a fork of this process, with the tests collected
        with ProcessPoolExecutor(self.jobs, mp_context=get_context("fork")) as workers:
            for answer in workers.map(answer_to, range(self.done, len(self.mutants))):
                self.take(self.mutants[self.done], answer)
        return True

    def answer_to(self, mutant):
        """Who caught it, of how many tests, and how long that took; None where nobody can."""
        if mutant.key in self.known:
            return None
        start = time.perf_counter()
        return *self.caught_by(mutant), time.perf_counter() - start

    def take(self, mutant, answer):
        self.done += 1
        if answer is None:
            self.unnoticeable += 1
            return
        caught, tests, took_s = answer
        print(f"{self.package} {self.done}/{len(self.mutants)} {mutant.file}:{mutant.line} {mutant.kind}: ", end="")
        survives = f"SURVIVES {tests} tests" if tests else "SURVIVES: no test reaches it"
        print(f"{f'caught by {caught}' if caught else survives} ({took_s:.1f} s)", flush=True)
        if not caught:
            print(f"    - {mutant.before}\n    + {mutant.after}", flush=True)
            self.survivors.append(mutant)
        self.keep(self.found())

    def found(self):
        counted = self.done - self.unnoticeable
        cut_off = {"cut_off_after": f"{self.done} of {len(self.mutants)}", "source": source_of(self.package)}
        return {
            **(cut_off if self.done < len(self.mutants) else {}),
            "mutants": counted,
            "caught": counted - len(self.survivors),
            "share": round(1 - len(self.survivors) / counted, 3) if counted else None,
            "equivalent": self.unnoticeable,
            "tests": list(self.folders),
            "quick": not self.sure,  # survivors were not tried once more in a new process: the share is a lower bound
            "survivors": [told(mutant) for mutant in self.survivors],
        }


TRYING = []  # the package under trial, for the forks that try its mutants


def answer_to(place):
    return TRYING[-1].answer_to(TRYING[-1].mutants[place])


def tried(trying):
    pytest.main([*(f"tests/{folder}" for folder in trying.folders), *OPTIONS], plugins=[trying])
    if trying.done < len(trying.mutants):
        sys.exit("The tests could not be collected: see above.")
    trying.keep(trying.found())
    return trying.found()


def cut_off(kept, package, seed, mutants):
    """What an earlier run of the same sample had found when it was cut off, or None."""
    found = kept.get("runs", {}).get(f"{package}, seed {seed}", {})
    same = found.get("source") == source_of(package) and found["cut_off_after"].endswith(f" of {len(mutants)}")
    return found if same else None


def document(kept, seed, packages):
    """What was found before of other packages and seeds stays."""
    runs = {**kept.get("runs", {})}
    for package, found in packages.items():
        runs[f"{package}, seed {seed}"] = {"date": datetime.now(tz=UTC).date().isoformat(), **found}
    return {
        "what": "share of sampled single mutations that the tests notice; survivors listed",
        "target": TARGET,
        "versions": {"python": platform.python_version(), **{name: version(name) for name in ("cosmic-ray", "pytest")}},
        "runs": dict(sorted(runs.items())),
    }


def main():
    arguments = asked()
    os.nice(5)
    prepare()

    def recorded():
        return json.loads(arguments.results.read_text(encoding="utf-8")) if arguments.results.exists() else {}

    again = None
    if arguments.again:
        listed = json.loads(Path(arguments.again).read_text(encoding="utf-8"))["runs"]
        again = [row for run in listed.values() for row in run["survivors"]]
    for package in arguments.packages:
        mutants = sample(package, arguments.count, arguments.seed) if again is None else [*found_again(package, again)]

        def keep(found, package=package):
            if again is not None:
                return
            text = json.dumps(document(recorded(), arguments.seed, {package: found}), indent=1, ensure_ascii=False)
            beside = arguments.results.with_suffix(".new")
            beside.write_text(text + "\n", encoding="utf-8")
            beside.replace(arguments.results)  # whole at every moment

        folders = arguments.tests or tests_of(package)
        trying = Tried(package, mutants, folders, sure=not arguments.quick, keep=keep)
        trying.jobs = arguments.jobs
        if again is None and (before := cut_off(recorded(), package, arguments.seed, mutants)):
            trying.go_on_from(before)
        found = tried(trying)
        print(f"{package}: {found['caught']} of {found['mutants']} caught", flush=True)


if __name__ == "__main__":
    main()
