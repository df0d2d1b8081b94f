"""How much of its power limit a GPU draws: the shares of `predict/price/power.toml`, fitted to measured services.

`python -m workshop.power data/world/ml_energy.csv.gz` predicts every service of vLLM that the catalog can name, takes
from the prediction how long the device waits and computes, and fits the shares to the watts that were measured; then
again without each model, and says how far off the model left out is. Nothing is written: three numbers are chosen by a
person, with what was left out beside them. Last it says how far off the joules of a token are that `predict` answers
with: its share of a step, and of reading the prompt it answers.
"""

from __future__ import annotations

import csv
import gzip
import re
import sys
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import least_squares

from inferometer.core.errors import InferometerError
from inferometer.predict.verbs import predict

if TYPE_CHECKING:
    from collections.abc import Iterator

DEVICE, LIMIT_W = "nvidia-h100-sxm", 700.0
WAITING = 0.11  # the share at rest, from elsewhere: no service of the table waits for long
LIMIT = 0.97  # what services and diffusion models that are bound by arithmetic come to
_PROMPT = {"sourcegraph-fim": 1000}  # tokens before the answer, which the table does not state
_OTHER_PROMPT = 350
_READ = 4  # prompts of such lengths that vLLM reads in one step, about
_SAID = re.compile(r"-(instruct|thinking|it|\d{4}|fp8|bf16)\b", re.IGNORECASE)


def services(path: str) -> Iterator[dict[str, Any]]:
    """A service a row: what ran, on how many devices, with how many sequences, the watts of one device, J a token."""
    measured: dict[tuple[str, ...], dict[str, float]] = defaultdict(dict)
    with gzip.open(path, "rt") as file:
        for row in csv.DictReader(file):
            if row["runtime"] == "vLLM":
                service = tuple(row[name] for name in ("model", "device", "precision", "batch", "input", "notes"))
                measured[service][row["metric"]] = float(row["value"])
    for (model, device, precision, batch, given, notes), values in measured.items():
        devices = int(device.split()[0])
        stated = dict(pair.split("=") for pair in notes.split("; ") if "=" in pair)
        yield {
            "model": _SAID.sub("", model.split("/")[-1]).lower(),
            "weights": "fp8" if precision == "fp8" else None,
            "batch": max(1, round(float(batch))),
            "tp": devices // int(stated["DP"]),
            "prompt": _PROMPT.get(stated["task"], _OTHER_PROMPT),
            "answer": int(re.sub(r"\D", "", given)),
            "share": values["power_avg"] / devices / LIMIT_W,
            "joules": values["energy_per_token"],
        }


def predicted(service: dict[str, Any]) -> tuple[float, float, float]:
    """Of a step, the share in which the device waits and that in which its arithmetic is busy; and J a token."""
    sizes = {name: service[name] for name in ("weights", "tp") if service[name] is not None}
    held, batch = service["prompt"] + service["answer"] // 2, service["batch"]  # a sequence in the middle of its answer
    step = predict(service["model"], on=DEVICE, runtime="vllm", batch=batch, prompt=held, **sizes).phase("decode")
    read = predict(service["model"], on=DEVICE, runtime="vllm", batch=_READ, prompt=service["prompt"], **sizes)
    joules = step.energy_j / batch + read.phase("prefill").energy_j / _READ / service["answer"]
    return step.streams["overhead"] / step.time_s, step.streams["compute"] / step.time_s, joules


def drawn(shares: Any, waiting: Any, computing: Any) -> Any:
    """The share of the limit that is drawn, as `PowerModel.joules` counts it."""
    moving, full = shares
    rise = np.sqrt(np.minimum(1.0, computing / (1 - waiting) / full))
    return WAITING * waiting + (1 - waiting) * (moving + (LIMIT - moving) * rise)


def fitted(waiting: Any, computing: Any, measured: Any) -> Any:
    """A robust loss: services that ran in another way than the catalog's model do not pull the others."""

    def residuals(shares: Any) -> Any:
        return np.log(drawn(shares, waiting, computing) / measured)

    return least_squares(residuals, [0.6, 0.5], loss="soft_l1", f_scale=0.1, bounds=([0.1, 0.05], [0.9, 1])).x


def main(path: str) -> None:
    rows: list[tuple[str, float, float, float, float]] = []
    unknown: dict[str, int] = defaultdict(int)
    for service in services(path):
        try:
            waits, computes, joules = predicted(service)
            rows.append((service["model"], waits, computes, service["share"], joules / service["joules"]))
        except InferometerError as error:
            unknown[f"{service['model']}: {str(error)[:60]}"] += 1
    models = np.array([row[0] for row in rows])
    waiting, computing, measured, of_joules = np.array([row[1:] for row in rows]).T
    moving, full = fitted(waiting, computing, measured)
    print(f"{len(rows)} services of {len(set(models))} models: moving {moving:.3f}, full {full:.3f} of {LIMIT}")
    ratios = np.empty(len(rows))
    for model in sorted(set(models)):
        out = models == model
        shares = fitted(waiting[~out], computing[~out], measured[~out])
        ratios[out] = drawn(shares, waiting[out], computing[out]) / measured[out]
        print(f"  without {model}: {np.median(ratios[out]):.2f} of what was measured, {out.sum()} services")
    for what, each in (("power, model left out", ratios), ("J a token, as predict answers", of_joules)):
        low, middle, high = np.quantile(each, [0.1, 0.5, 0.9])
        off = f"{np.median(abs(each - 1)):.1%} off in the middle, {middle - 1:+.1%} to one side"
        print(f"{what}: {off}, eight in ten within {low:.2f} and {high:.2f}")
    for reason, count in sorted(unknown.items()):
        print(f"  not asked, {count}: {reason}")


if __name__ == "__main__":
    main(*sys.argv[1:])
