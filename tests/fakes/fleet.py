"""Devices, jobs and results for tests of the fleet."""

from inferometer.core.job import Job, JobFile, JobModel, JobResult
from inferometer.core.workload import Workload
from inferometer.store.queue.values import NewDevice, NewJob, Wanted

DEVICES = (
    NewDevice(name="pi", labels={"unit": ("cpu",), "runtime": ("onnxruntime", "litert")}, version="1"),
    NewDevice(name="jetson", labels={"unit": ("cpu", "gpu"), "runtime": ("onnxruntime",)}, version="1"),
)
MODEL = JobModel(name="net", entry="net.onnx", files=(JobFile(path="net.onnx", sha256="ab" * 32, size_bytes=7),))


def a_job(seed=1, runtime="onnxruntime", model=MODEL):
    """Of the workload that the profiles of `unit.hub.web.samples.network` are of."""
    return Job(id=f"profile-{seed}", verb="profile", model=model, runtime=runtime, workload=Workload(batch=2))


def a_result(job, *profiles, ended="done"):
    return JobResult(job=job, ended=ended, profiles=profiles, error=None if ended == "done" else f"It was {ended}.")


def submitted(fleet, seed=1, wanted=None, **options):
    return fleet.submit(NewJob(job=a_job(seed), wanted=wanted or Wanted(), **options))[0].id


def proof_of(artifact, model="net", **more):
    """What a job that made eight bits of a model says of it."""
    step = {"name": "ort-i8", "tool": "ort", "title": "", "format": "onnx", "bytes": 3, "seconds": 1.0,
            "cached": False, "verified": True}  # fmt: skip
    return {"schema": "inferometer.prepared/1", "model": model, "runtime": "onnxruntime", "device": "local",
            "quantise": "i8", "original_bytes": 9, "bytes": 3, "artifact": artifact, "steps": [step],
            **more}  # fmt: skip
