"""`inferometer calibrate`."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from inferometer.cli.elsewhere import hand_over, place_option, require_answer, require_place, run_elsewhere, waits
from inferometer.cli.options import (
    THREADS,
    TIME,
    Number,
    OutputFile,
    command_line,
    format_option,
    print_document,
    print_table,
    say,
)
from inferometer.cli.progress import progress_line, said_if_slow, step_text
from inferometer.core.errors import DomainError, InferometerError
from inferometer.core.units import counted, format_duration, parse_quantity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inferometer.core.calibration import Calibration
    from inferometer.core.job import JobResult
    from inferometer.known.atlas import SetAside
    from inferometer.measure.calibrate.job import CalibrationJob, CalibrationResult

_BUDGET, _BUDGET_OF_ALL = "120s", "10min"
_EVERY = "all"  # what --forget removes where no engine is named
_UNSPENT = 0.1  # of the budget: more is explained
_SHOWN = 8  # rows or reasons that are told one by one
_FORMAT = (
    "Number format; for engines of language models, of the weights.  [default: bf16 on a GPU, q8_0 for llamacpp, i8 "
    "for ctranslate2 and openvino-genai, i4 for onnxruntime-genai, else f32]"
)


@click.command("calibrate")
@click.option(
    "--from",
    "source",
    metavar="FILE|atlas|which",
    help="Fit published times of whole models instead of measuring; `which` says what to measure for that, and how "
    "wide answers will then be.",
)
@click.option(
    "--for",
    "models",
    multiple=True,
    metavar="MODEL",
    help="A model whose predictions it should make better; may be given several times.  [default: those that were "
    "profiled here last]",
)
@click.option(
    "--cooling",
    metavar="RUN|FILE.csv",
    help="Fit what the cooling takes away to a long run (`profile --sustained`), or to a board's record of one.",
)
@click.option("--limit", type=Number(-50, 200), metavar="°C", help="With --cooling: where the machine slows down.")
@click.option("--runtime", metavar="NAME", help="The engine.  [default: torch-compile on a GPU, else onnxruntime]")
@click.option("--all", "every", is_flag=True, help="Calibrate every engine that is installed.")
@click.option(
    "--budget", type=TIME, help="How long to measure.  [default: 120s; 10min for all engines together with --all]"
)
@click.option(
    "--device", "device_name", default="local", metavar="NAME", help="A catalog name, or local:cpu, local:gpu."
)
@click.option("--unit", metavar="UNIT", help="The unit of this machine: cpu, gpu, gpu:1.  [default: the best]")
@click.option("--dtype", metavar="FORMAT", help=_FORMAT)
@click.option("--threads", type=THREADS, help="Threads on a CPU.  [default: one per physical core]")
@click.option(
    "-o", "--out", type=OutputFile(folders=True), metavar="FILE", help="Where to write it: a .json file or a folder."
)
@click.option(
    "--folder", type=click.Path(path_type=Path), metavar="FOLDER", help="Where to keep journals and calibrations."
)
@place_option
@click.option("--no-guard", is_flag=True, help="Do not check that the machine is quiet.")
@click.option("--resume/--fresh", default=True, help="Continue an earlier run, or measure everything again.")
@click.option("--show", is_flag=True, help="Measure nothing: say what predictions for this machine stand on.")
@click.option(
    "--forget",
    is_flag=False,
    flag_value=_EVERY,
    metavar="[ENGINE]",
    help="Remove what was calibrated on this machine, of one engine or of all.",
)
@format_option
def command(form: str, **options: Any) -> None:
    """Measure what predictions for this machine need, and how far off they may be.

    \b
    inferometer calibrate --runtime onnxruntime --budget 120s
    inferometer calibrate --for resnet50 --for mobilenet-v2
    inferometer calibrate --runtime llamacpp --dtype q4_0
    inferometer calibrate --all
    inferometer calibrate --show
    inferometer calibrate --forget onnxruntime
    inferometer calibrate --runtime torch-compile --budget 4min --out gpu.json
    inferometer calibrate --from atlas --device qualcomm-snapdragon-8-elite-npu --runtime qnn
    inferometer calibrate --from phone.csv --device my-phone --runtime litert --dtype i8
    inferometer calibrate --cooling last

    It measures ops and small models through the engine itself, the least certain first, until the budget is spent; for
    the models named with --for it measures what they need most, and the models themselves.
    It starts from the calibration that the device has, if there is one, and corrects it by what it measures. Ctrl-C
    keeps what was measured; the next run continues from there.

    With --from nothing is measured: times that others published, in a CSV file of a form that `inferometer atlas add`
    reads or in the atlas, are fitted for a device that is not at hand. Three models are needed, ten make it good.
    """
    show, forget, every, place = (options[name] for name in ("show", "forget", "every", "place"))
    _require_one_of({
        "--from": options["source"] is not None, "--all": every, "--show": show, "--forget": forget is not None,
        "--cooling": options["cooling"] is not None,
    })  # fmt: skip
    if options["cooling"] is not None or options["limit"] is not None:
        _fit_cooling(options["cooling"], options["limit"], form)
        return
    if options["models"] and (options["source"] is not None or show or forget is not None or place is not None):
        raise DomainError("--for chooses what is measured on this machine.", remedy="Leave it out.")
    if options["source"] is not None:
        _calibrate_from(options, form)
    elif place is not None:
        if every or show or forget is not None:
            raise DomainError(
                "--all, --show and --forget are about this machine.", remedy="Leave out --on, or run it there."
            )
        _calibrate_at(place, options, form)
    elif show:
        _show(_folder(options), form)
    elif forget is not None:
        _forget(_folder(options), options["runtime"] if forget == _EVERY else forget)
    elif every:
        _calibrate_all(options, form)
    else:
        _calibrate_here(options, form)


def _folder(options: dict[str, Any]) -> Path:
    from inferometer.predict.basis.files import own_folder

    return options["folder"] or own_folder()


def _asked_here(options: dict[str, Any]) -> dict[str, Any]:
    """What a calibration on this machine is asked beside its engine and its time."""
    chosen = {"models": options["models"]} if options["models"] else {}
    return chosen | {
        "unit": options["unit"], "dtype": options["dtype"], "threads": options["threads"], "out": options["out"],
        "folder": _folder(options), "fresh": not options["resume"], "guarded": not options["no_guard"],
    }  # fmt: skip


def _calibrate_here(options: dict[str, Any], form: str) -> None:
    budget_s = parse_quantity(options["budget"] or _BUDGET, "s")
    job, result = _measured_here(
        options["device_name"], runtime=options["runtime"], budget_s=budget_s, **_asked_here(options)
    )
    _print_outcome(job, result)
    if result.calibration is not None:
        _print_calibration(result.calibration, result.path, form)
    elif form == "json":
        print_document({"path": None, "kept": result.kept})


def _require_one_of(asked: dict[str, bool]) -> None:
    given = [name for name, is_given in asked.items() if is_given]
    if len(given) > 1:
        raise DomainError(f"{' and '.join(given)} ask for different things.", remedy="Give one of them.")


def _fit_cooling(named: str | None, limit_c: float | None, form: str) -> None:
    """What a long run says of the cooling: kept for this machine if it is of it, and as the line of a device's row."""
    if named is None:
        raise DomainError("--limit is a temperature for --cooling.", remedy="Give both, or leave it out.")
    from inferometer.api.naming import profile_of
    from inferometer.known.machine.detect.identity import this_machine
    from inferometer.measure.run.sustained import cooling_fit, read_record
    from inferometer.predict.basis.roof import keep_cooling
    from inferometer.understand.view.phrases import sustained_fact

    if named.endswith(".csv"):
        found, idle_w, ours = *read_record(Path(named)), False
    else:
        profile = profile_of(named, None)
        if profile.sustained is None:
            raise DomainError(
                f"Run {named} was not watched for long.", remedy="Run `inferometer profile MODEL --sustained 30min`."
            )
        environment = profile.environment
        idle_w = environment.energy.idle_w if environment and environment.energy else None
        ours = bool(environment and environment.machine and environment.machine.id == this_machine().id)
        found = profile.sustained
    for label, value, remark in sustained_fact(found):
        say(f"{label} {value}: {remark}")
    fit = cooling_fit(found, idle_w=idle_w, limit_c=limit_c)
    if ours:
        keep_cooling(fit.power_w, fit.idle_w, fit.cooling_w, fit.warms_s, source=f"fitted to run {named}")
        say("Kept: predictions for local say what speed lasts.")
    if form == "json":
        print_document(asdict(fit))
        return
    how = "what it drew after it had slowed down" if fit.throttled else "what would bring it to its limit"
    say(f"{fit.resistance_c_per_w:.3g} °C for each watt above rest; the cooling takes away {how}.")
    parts = {"tdp": (fit.power_w, "W"), "idle": (fit.idle_w, "W"), "cooling": (fit.cooling_w, "W")}
    parts |= {} if fit.warms_s is None else {"warms": (fit.warms_s, "s")}
    row = ", ".join(f'{name} = "{value:.3g} {unit}"' for name, (value, unit) in parts.items())
    click.echo(f"power = {{ {row} }}")


def _measured_here(device: str, **asked: Any) -> "tuple[CalibrationJob, CalibrationResult]":
    from inferometer.measure.calibrate.job import calibrate, calibration_job, prepare_engine
    from inferometer.measure.calibrate.run import line_of

    job = calibration_job(device, **asked)
    with job.journal.held():
        with said_if_slow(
            "The best rates that the engine reaches come first, and its probes may have to be made.", after_s=5
        ):
            prepared = prepare_engine(job)
        with progress_line(line_of) as progress:
            return job, calibrate(job, prepared, watch=progress)


def _calibrate_all(options: dict[str, Any], form: str) -> None:
    """One engine after the other. What one cannot do is said, and the others go on; Ctrl-C ends them all."""
    from inferometer.measure.calibrate.here import installed_engines, shares_of_budget
    from inferometer.measure.calibrate.job import require_models

    if options["runtime"] or options["dtype"] or options["out"] or options["device_name"] != "local":
        raise DomainError(
            "--all calibrates every engine on this machine, each in its own format.",
            remedy="Leave out --runtime, --dtype, --device and --out.",
        )
    require_models(options["models"])  # once, and not by each engine
    budget_s, asked = parse_quantity(options["budget"] or _BUDGET_OF_ALL, "s"), _asked_here(options)
    names, done = installed_engines(), 0
    for name, share_s in shares_of_budget(names, budget_s):
        if not share_s:
            say(f"No time was left for {name}.")
            continue
        say(f"{name}, for {format_duration(share_s)}:")
        try:
            job, result = _measured_here("local", runtime=name, budget_s=share_s, **asked)
        except InferometerError as error:
            say(f"  It could not be calibrated: {error}")
            continue
        _print_outcome(job, result)
        done += 1
    if not done:
        raise InferometerError(
            f"None of {counted(len(names), 'engine')} that can be calibrated here was.",
            remedy="`inferometer runtimes` says how to install engines, `inferometer doctor` looks at the machine.",
        )
    _show(asked["folder"], form)


def _show(folder: Path, form: str) -> None:
    from inferometer.measure.calibrate.here import standings
    from inferometer.understand.view.calibrations import standing_document, standings_table

    found, refused = standings(folder)
    for reason in refused:
        say(f"Not used: {reason}")
    if form == "json":
        print_document([standing_document(standing) for standing in found])
        return
    from inferometer.predict.basis.learned import learned_here

    for learned in learned_here(folder):
        threads = "" if learned.threads is None else f" with {counted(learned.threads, 'thread')}"
        off = "" if learned.off is None else f"; each model left out, they are off by {learned.off:.1%} in the middle"
        say(
            f"{learned.runtime} in {learned.dtype}{threads} learned from {counted(learned.lines, 'measured phase')} of "
            f"{counted(len(learned.models), 'model')} profiled here{off}."
        )
    if not found:
        say("Nothing is calibrated on this machine: predictions stand on its roofs and on priors.")
        say("`inferometer calibrate --all` calibrates every engine that is installed, in ten minutes.")
        return
    print_table(standings_table(found), form)
    for note in dict.fromkeys(note for standing in found for note in standing.changed):
        say(note)
    for standing in found:
        for note in standing.calibration.notes if standing.path is not None else ():
            if note not in standing.changed:
                say(f"{standing.calibration.runtime} in {standing.calibration.dtype}: {note}")


def _forget(folder: Path, named: str | None) -> None:
    from inferometer.known.engines import engine
    from inferometer.measure.calibrate.here import forget

    runtime = None if named is None else engine(named).name
    gone = forget(folder, runtime)
    for path in gone:
        say(f"Removed {path}.")
    what = "this machine" if runtime is None else f"{runtime} on this machine"
    say(f"What was calibrated of {what} is forgotten." if gone else f"Nothing was calibrated of {what}.")


def _calibrate_from(options: dict[str, Any], form: str) -> None:
    from inferometer.core.device import is_local
    from inferometer.measure.calibrate.from_table import WHICH, calibrate_from, models_to_measure, save_fit

    device, runtime, dtype = options["device_name"], options["runtime"], options["dtype"]
    if is_local(device) or runtime is None:
        raise DomainError(
            "--from fits a device of the catalog with an engine: name both.",
            remedy="inferometer calibrate --from atlas --device NAME --runtime NAME",
        )
    if options["source"] == WHICH:
        from inferometer.understand.view.calibrations import measuring_table

        print_table(measuring_table(models_to_measure(device=device, runtime=runtime, dtype=dtype)), form)
        return
    fit = calibrate_from(options["source"], device=device, runtime=runtime, dtype=dtype)
    path = save_fit(fit, options["out"])
    _say_set_aside(fit.set_aside)
    for reason, rows in fit.left.most_common(_SHOWN):
        say(f"Not used: {counted(rows, 'row')}: {reason}")
    models, made = len(fit.calibration.fitted_on), fit.calibration
    say(
        f"{counted(fit.rows, 'published step')} of {counted(models, 'model')} fitted in {made.dtype}; each model left "
        f"out, the median error is {fit.median_error:.1%}."
    )
    say(f"Saved {path}. `inferometer predict --on {made.device} --runtime {made.runtime}` will use it.")
    _print_calibration(made, path, form)


def _say_set_aside(lines: "Sequence[SetAside]") -> None:
    if not lines:
        return
    say(f"Set aside {counted(len(lines), 'row')}:")
    for line in lines[:_SHOWN]:
        say(f"  {line.file}, line {line.line}: {line.reason}")


def _calibrate_at(place: str, options: dict[str, Any], form: str) -> None:
    from inferometer.hub.places.requests import Calibrating, pack_calibration

    if options["folder"] is not None:
        raise DomainError("--folder is for a calibration here: elsewhere the device keeps its own journals.")
    asked = Calibrating(
        budget_s=parse_quantity(options["budget"] or _BUDGET, "s"), guarded=not options["no_guard"],
        fresh=not options["resume"], device=options["device_name"], unit=options["unit"], dtype=options["dtype"],
        threads=options["threads"],
    )  # fmt: skip
    work = pack_calibration(options["runtime"], asked, command=command_line())
    require_place(place)
    if waits(place):
        hand_over(place, work)
        return
    with progress_line(step_text) as progress:
        result = run_elsewhere(place, work, progress)
    if result is not None:
        print_calibrated(result, options["out"], form)


def print_calibrated(result: "JobResult", out: Path | None, form: str) -> None:
    """A calibration that was made elsewhere. One of `local` is of that machine, which keeps and uses it."""
    from inferometer.core.device import is_local
    from inferometer.predict.basis.files import own_folder, write_calibration

    require_answer(result, there=result.calibration is not None)
    calibration = result.calibration
    if calibration is None:
        return
    say(result.log.strip())
    here = out or (None if is_local(calibration.device) else own_folder())
    path = None if here is None else write_calibration(calibration, here)
    say(f"Saved {path}." if path else "The device keeps it for jobs that run there; --out saves it here as well.")
    _print_calibration(calibration, path, form)


def _print_outcome(job: "CalibrationJob", result: "CalibrationResult") -> None:
    outcome = result.outcome
    if outcome.interrupted:
        stopped = KeyboardInterrupt()  # by Ctrl-C or SIGTERM: `cli.run` knows which
        kept = f"{counted(len(outcome.points), 'point')} and {counted(len(outcome.steps), 'step')}"
        stopped.add_note(f"Kept: {kept}. Run the same command again to continue, or with --fresh to start again.")
        raise stopped
    done = counted(outcome.done, "case")
    say(f"{done} measured, {outcome.left} left out for lack of time, {len(outcome.skipped)} impossible.")
    if outcome.unspent_s > _UNSPENT * job.budget_s:
        left = "what was left out takes longer" if outcome.left else "every case was measured as often as it tells more"
        say(f"{format_duration(outcome.unspent_s)} of the budget were not needed: {left}.")
    for reason in outcome.skipped[:5]:
        say(f"  {reason}")
    if outcome.disturbed:
        put_off = f"{counted(len(outcome.disturbed), 'case')} found the machine disturbed three times over"
        say(f"{put_off}, and waited or went without: {outcome.disturbed[-1]}.")
    if result.kept is not None:
        say(result.kept)
    if result.path is not None:
        for note in result.calibration.notes if result.calibration is not None else ():
            say(note)
        say(f"Saved {result.path}. `inferometer predict --on {job.device.name} --runtime {job.runtime}` will use it.")


def _print_calibration(calibration: "Calibration", path: Path | None, form: str) -> None:
    if form == "json":
        from inferometer.core.codec import document

        print_document(document(calibration) | {"path": None if path is None else str(path)})
        return
    from inferometer.understand.view.calibrations import calibration_table

    print_table(calibration_table(calibration), form)
