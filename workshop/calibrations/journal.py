"""Measure the kernels and probe models of a calibration in a fixed random order, into a journal.

    python -m workshop.calibrations.journal torch-graph bf16 --budget 280 --out FOLDER [--only convolution vector]

`inferometer calibrate` measures the least certain first and fits in between, which suits two minutes. On a machine that
is lent for a while everything is measured instead, and fitted later: workshop/calibrations/gpu.py.
"""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path

import torch  # noqa: TID251 - what is measured

from inferometer.core.errors import InferometerError
from inferometer.known import device
from inferometer.known.engines import require_effects
from inferometer.measure.calibrate.run import CalibrationJournal, ProbeCandidate
from inferometer.measure.calibrate.torch.provider import torch_environment, torch_provider


def wanted(candidate: ProbeCandidate, only: list[str]) -> bool:
    return not only or candidate.first or candidate.op_class.partition(".")[0] in only or candidate.op_class in only


def measure_all(args: argparse.Namespace) -> None:
    provider = torch_provider(torch, device(args.device), require_effects(args.runtime), args.dtype, place=args.place)
    journal = CalibrationJournal(folder=args.out)
    done = journal.done()
    waiting = [each for each in provider.candidates() if wanted(each, args.only) and not done[each.key]]
    random.Random(args.seed).shuffle(waiting)  # noqa: S311 - an order, not a secret
    waiting.sort(key=lambda each: not each.first)
    begun, skipped, taken = time.monotonic(), 0, 0
    for candidate in waiting:
        if time.monotonic() - begun > args.budget:
            break
        try:
            journal.add(candidate, provider.measure(candidate))
            taken += 1
        except InferometerError as error:
            skipped += 1
            print(f"{candidate.key}: {error}", flush=True)
    versions, circumstances = torch_environment(torch)
    print(f"{args.runtime} {args.dtype}: {taken} of {len(waiting)} measured, {skipped} skipped.")
    print(versions, circumstances)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runtime")
    parser.add_argument("dtype")
    parser.add_argument("--device", default="nvidia-h200")
    parser.add_argument("--place", default="cuda")
    parser.add_argument("--budget", type=float, default=280.0, help="seconds")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=[], help="classes of ops; `step` for whole models")
    parser.add_argument("--seed", type=int, default=1)
    measure_all(parser.parse_args())


if __name__ == "__main__":
    main()
