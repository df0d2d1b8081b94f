"""How much of its power limit a GPU draws: the shares of `predict/price/power.toml`, fitted to measured services.

`python -m workshop.power data/world/ml_energy.csv.gz` predicts every service of vLLM that the catalog can name, takes
from the prediction how long the device waits and computes, and fits the shares to the watts that were measured; then
again without each model, and says how far off the model left out is. Nothing is written: three numbers are chosen by a
person, with what was left out beside them.
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
_SAID = re.compile(r"-(instruct|thinking|it|\d{4}|fp8|bf16)\b", re.IGNORECASE)


def services(path: str) -> Iterator[dict[str, Any]]:
    """A service a row: what ran, on how many devices, with how many sequences, and the watts of one device."""
    with gzip.open(path, "rt") as file:
        for row in csv.DictReader(file):
            if row["metric"] != "power_avg" or row["runtime"] != "vLLM":
                continue
            devices = int(row["device"].split()[0])
            stated = dict(pair.split("=") for pair in row["notes"].split("; ") if "=" in pair)
            answer = int(re.sub(r"\D", "", row["input"]))
            yield {
                "model": _SAID.sub("", row["model"].split("/")[-1]).lower(),
                "weights": "fp8" if row["precision"] == "fp8" else None,
                "batch": max(1, round(float(row["batch"]))),
                "tp": devices // int(stated["DP"]),
                "prompt": _PROMPT.get(stated["task"], _OTHER_PROMPT) + answer // 2,
                "share": float(row["value"]) / devices / LIMIT_W,
            }


def shares_of_time(service: dict[str, Any]) -> tuple[float, float]:
    """Of a predicted step, the share in which the device waits and that in which its arithmetic is busy."""
    sizes = {name: service[name] for name in ("weights", "batch", "tp", "prompt") if service[name] is not None}
    step = predict(service["model"], on=DEVICE, runtime="vllm", **sizes).phase("decode")
    return tuple(step.streams[name] / step.time_s for name in ("overhead", "compute"))


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
    rows: list[tuple[str, float, float, float]] = []
    unknown: dict[str, int] = defaultdict(int)
    for service in services(path):
        try:
            rows.append((service["model"], *shares_of_time(service), service["share"]))
        except InferometerError as error:
            unknown[f"{service['model']}: {str(error)[:60]}"] += 1
    models, (waiting, computing, measured) = np.array([row[0] for row in rows]), np.array([row[1:] for row in rows]).T
    moving, full = fitted(waiting, computing, measured)
    print(f"{len(rows)} services of {len(set(models))} models: moving {moving:.3f}, full {full:.3f} of {LIMIT}")
    ratios = np.empty(len(rows))
    for model in sorted(set(models)):
        out = models == model
        shares = fitted(waiting[~out], computing[~out], measured[~out])
        ratios[out] = drawn(shares, waiting[out], computing[out]) / measured[out]
        print(f"  without {model}: {np.median(ratios[out]):.2f} of what was measured, {out.sum()} services")
    low, high = np.quantile(ratios, [0.1, 0.9])
    print(f"left out: {np.median(abs(ratios - 1)):.1%} in the middle, eight in ten within {low:.2f} and {high:.2f}")
    for reason, count in sorted(unknown.items()):
        print(f"  not asked, {count}: {reason}")


if __name__ == "__main__":
    main(*sys.argv[1:])
