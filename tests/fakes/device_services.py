"""Qualcomm AI Hub and AWS Device Farm as their own clients see them: local servers that speak both protocols.

The messages are those of the clients' own descriptions (qai_hub's protobuf, botocore's model of devicefarm), so that a
request or an answer of another shape is refused by the client itself. Device Farm's host really carries out the test
spec, with an `adb` whose phone is a folder. No service was reached.
"""

import hashlib
import io
import json
import os
import subprocess
import threading
import zipfile
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

TOKEN, KEY, SECRET = "tok-3f9c2d", "AKIDEXAMPLE7", "wJalrSECRETkeyEXAMPLE"
ADB = """#!/bin/sh
shift 2
case "$1" in
  push) cp -R "$2" "$PHONE$3";;
  shell) sh -c "$(printf '%s' "$2" | sed "s#/data/local/tmp#$PHONE/data/local/tmp#g")";;
esac
"""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        self.server.asked.append((self.command, parts.path))
        status, kind, data, headers = self.server.answer(self.command, parts, self.headers, body)
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = _answer  # noqa: N815 - as the standard library calls them


class _Service(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked, self.url = [], f"http://127.0.0.1:{self.server_port}"


@contextmanager
def serving(service):
    threading.Thread(target=service.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield service
    finally:
        service.shutdown()
        service.server_close()


class QaiHubService(_Service):
    """Each look at a job moves it on by one state. What a model is called decides how its job ends."""

    def __init__(self, profile):
        import qai_hub.public_api_pb2 as messages

        super().__init__()
        self.m, self.models, self.files, self.jobs, self.states = messages, {}, {}, {}, {}
        self.profile, self.refuses = profile, {}  # by path: a status and words

    def answer(self, method, parts, headers, body):
        path = parts.path.removeprefix("/api/v1").strip("/").split("/")
        if path[0] == "store":  # a pre-signed address needs no token
            self.files[path[1]] = body
            return 200, "text/plain", b"", {"ETag": hashlib.sha256(body).hexdigest()}
        if headers["Authorization"] != f"token {TOKEN}":
            return 401, "text/plain", b"", {}
        if path[0] in self.refuses:
            status, words = self.refuses[path[0]]
            return status, "application/json", json.dumps({"detail": words}).encode(), {}
        message = getattr(self, f"_{method.lower()}_{path[0]}")(path[1:], parse_qs(parts.query), body)
        return 200, "application/x-protobuf", message.SerializeToString(), {}

    def _get_devices(self, _path, query, _body):
        phone = self.m.Device(name="Samsung Galaxy S24", os="14", attributes=["framework:tflite", "framework:onnx"])
        wanted = query.get("name", [""])[0]
        return self.m.DeviceList(devices=[phone] if wanted in {"", phone.name} else [])

    def _post_models(self, path, _query, body):
        if path:  # the parts of a file are all there
            return self.m.CreateUpdateResponse(id=path[0])
        model = self.m.Model()
        model.ParseFromString(body)
        model.model_id = f"m{len(self.models)}"
        self.models[model.model_id] = model
        return self.m.CreateUpdateResponse(id=model.model_id)

    def _get_models(self, path, _query, _body):
        urls = self.m.FileMultipartUploadURL(urls=[f"{self.url}/store/{path[0]}"], upload_id="u", max_part_size=1 << 30)
        return self.m.FileUploadResponse(multipart_url=urls)

    def _post_jobs(self, _path, _query, body):
        job = self.m.Job()
        job.ParseFromString(body)
        name = f"j{len(self.jobs)}"
        kind = job.WhichOneof("job")
        inner = getattr(job, kind)
        setattr(inner, f"{kind}_id", name)
        inner.model.CopyFrom(self.models[inner.model.model_id])
        if kind == "compile_job":
            target = self.m.Model(model_id=f"m{len(self.models)}", name=inner.model.name, producer_id=name)
            target.model_type = self.m.ModelType.MODEL_TYPE_TFLITE
            self.models[target.model_id] = target
            inner.target_model.CopyFrom(target)
        self.jobs[name], self.states[name] = job, self._path_of(kind, inner.model.name)
        return self.m.CreateUpdateResponse(id=name)

    def _path_of(self, kind, model):
        states = self.m.JobState
        middle = [states.JOB_STATE_OPTIMIZING_MODEL]
        if kind == "inference_job":
            middle = [states.JOB_STATE_PROVISIONING_DEVICE, states.JOB_STATE_MEASURING_PERFORMANCE]
        last = {"odd": [states.JOB_STATE_FAILED], "long": []}.get(Path(model).stem, [states.JOB_STATE_DONE])
        return [states.JOB_STATE_CREATED, *middle, *last]

    def _get_jobs(self, path, _query, _body):
        job, states = self.jobs[path[0]], self.states[path[0]]
        if path[1:] == ["result"]:
            return self.m.JobResult(inference_job_result=self.m.InferenceJobResult(detail=self.profile(self.m)))
        inner = getattr(job, job.WhichOneof("job"))
        inner.job_state = states.pop(0) if len(states) > 1 else states[0]
        if inner.job_state == self.m.JobState.JOB_STATE_FAILED:
            inner.failure_reason = "Didn't find op for builtin opcode 'Frobnicate'"
        return job


def a_profile(messages):
    """A network of two layers, as a phone's NPU and CPU ran it."""
    layer, unit = messages.LayerDetail, messages.ComputeUnit
    return messages.ProfileDetail(
        execution_time=3652, major_version=1, minor_version=2, after_execution_peak_memory=39406592,
        cold_load_time=1374293, warm_load_time=277823, all_execution_times=[4205, 3652, 3660],
        layer_details=[
            layer(name="conv", layer_type_name="Conv", compute_unit=unit.COMPUTE_UNIT_NPU, execution_time=3000),
            layer(name="softmax", layer_type_name="Softmax", compute_unit=unit.COMPUTE_UNIT_CPU, execution_time=600),
        ],
    )  # fmt: skip


class DeviceFarmService(_Service):
    """The calls of devicefarm that a run takes. `folder` is the host's; a run begins when it is first looked at."""

    ARN = "arn:aws:devicefarm:us-west-2:123456789012"
    PROJECT = f"{ARN}:project:p"

    def __init__(self, folder):
        super().__init__()
        self.folder, self.uploads, self.stored, self.runs = Path(folder), {}, {}, {}
        self.refuses, self.devices = {}, [self.phone("Google Pixel 8", "14"), self.phone("Google Pixel 8", "9.1")]
        self.phone_folder = self.folder / "phone"
        (self.phone_folder / "data/local/tmp").mkdir(parents=True)
        (self.folder / "bin").mkdir()
        (self.folder / "bin/adb").write_text(ADB)
        (self.folder / "bin/adb").chmod(0o755)

    @staticmethod
    def phone(name, os_version, availability="AVAILABLE"):
        arn = f"arn:aws:devicefarm:us-west-2::device:{name}-{os_version}".replace(" ", "")
        return {
            "arn": arn, "name": name, "os": os_version, "platform": "ANDROID", "availability": availability
        }  # fmt: skip

    def answer(self, method, parts, headers, body):
        if parts.path.startswith("/store/"):
            arn = parts.path.removeprefix("/store/")
            if method == "PUT":
                self.stored[arn] = body
                return 200, "text/plain", b"", {}
            return 200, "application/zip", self.stored[arn], {}
        call = headers["X-Amz-Target"].partition(".")[2]
        if KEY not in headers["Authorization"]:
            self.refuses[call] = "UnrecognizedClientException"
        if call in self.refuses:
            words = {"__type": self.refuses[call], "message": f"no {call} for you"}
            return 400, "application/x-amz-json-1.1", json.dumps(words).encode(), {}
        told = getattr(self, f"_{call}")(**json.loads(body))
        return 200, "application/x-amz-json-1.1", json.dumps(told).encode(), {}

    def _ListDevices(self):  # noqa: N802 - as the service calls it
        return {"devices": self.devices}

    def _ListProjects(self):  # noqa: N802
        return {"projects": [{"arn": self.PROJECT, "name": "lab"}]}

    def _CreateUpload(self, projectArn, name, type):  # noqa: A002, N802, N803
        arn = f"{self.ARN}:upload:{len(self.stored)}-{len(self.uploads)}"
        self.uploads[arn] = {"arn": arn, "name": name, "type": type, "status": "INITIALIZED", "in": projectArn}
        return {"upload": {**self._shown(arn), "url": f"{self.url}/store/{arn}"}}

    def _shown(self, arn):
        return {key: value for key, value in self.uploads[arn].items() if key != "in"}

    def _GetUpload(self, arn):  # noqa: N802
        upload = self.uploads[arn]
        upload["status"] = "PROCESSING" if upload["status"] == "INITIALIZED" else "SUCCEEDED"
        if upload["status"] == "SUCCEEDED" and upload["type"].endswith("PACKAGE"):
            names = zipfile.ZipFile(io.BytesIO(self.stored[arn])).namelist()
            whole = "requirements.txt" in names and any(name.startswith("tests/test_") for name in names)
            upload |= {} if whole else {"status": "FAILED", "message": "no tests directory"}
        return {"upload": self._shown(arn)}

    def _ScheduleRun(self, projectArn, name, test, deviceSelectionConfiguration, executionConfiguration):  # noqa: N802, N803
        arn, chosen = f"{self.ARN}:run:{len(self.runs)}", deviceSelectionConfiguration["filters"][0]
        assert (projectArn, chosen["attribute"], executionConfiguration["videoCapture"]) == (self.PROJECT, "ARN", False)
        self.runs[arn] = {"arn": arn, "name": name, "status": "PENDING", "result": "PENDING"}
        self.runs[arn] |= {"_test": test, "_on": chosen["values"]}
        return {"run": self._told(arn)}

    def _told(self, arn):
        return {key: value for key, value in self.runs[arn].items() if not key.startswith("_")}

    def _GetRun(self, arn):  # noqa: N802
        run = self.runs[arn]
        steps = {"PENDING": "PREPARING", "PREPARING": "RUNNING"}
        if run["status"] in steps:
            run["status"] = steps[run["status"]]
        elif run["status"] == "RUNNING" and run["result"] != "ERRORED":
            package = zipfile.ZipFile(io.BytesIO(self.stored[run["_test"]["testPackageArn"]]))
            if not any("long" in name for name in package.namelist()):
                self._carry_out(run, package)
        return {"run": self._told(arn)}

    def _carry_out(self, run, package):
        """As the host does: unpack, run every command of the spec in a shell, keep the folder of logs."""
        host = self.folder / f"host-{len(list(self.folder.iterdir()))}"
        logs = host / "logs"
        logs.mkdir(parents=True)
        package.extractall(host)
        spec = self.stored[run["_test"]["testSpecArn"]].decode()
        listed = [line.removeprefix("      - ") for line in spec.splitlines() if line.startswith("      - ")]
        env = {
            "PATH": f"{self.folder}/bin:{os.defpath}", "PHONE": str(self.phone_folder),
            "DEVICEFARM_DEVICE_UDID": "u", "DEVICEFARM_TEST_PACKAGE_PATH": str(host), "DEVICEFARM_LOG_DIR": str(logs),
        }  # fmt: skip
        codes = [
            subprocess.run(["sh", "-c", words], env=env, check=False).returncode for words in map(json.loads, listed)
        ]
        held = io.BytesIO()
        with zipfile.ZipFile(held, "w") as archive:
            for path in logs.iterdir():
                archive.write(path, f"Host_Machine_Files/$DEVICEFARM_LOG_DIR/{path.name}")
        self.stored[f"artifact-{run['arn']}"] = held.getvalue()
        run |= {"status": "COMPLETED", "result": "FAILED" if any(codes) else "PASSED"}

    def _ListArtifacts(self, arn, type):  # noqa: A002, N802
        assert type == "FILE"
        name = f"artifact-{arn}"
        kept = [{"arn": name, "name": "logs", "type": "CUSTOMER_ARTIFACT", "url": f"{self.url}/store/{name}"}]
        return {"artifacts": kept if name in self.stored else []}

    def _StopRun(self, arn):  # noqa: N802
        self.runs[arn] |= {"status": "COMPLETED", "result": "STOPPED"}
        return {"run": self._told(arn)}

    def _DeleteRun(self, arn):  # noqa: N802
        del self.runs[arn]
        return {}

    def _DeleteUpload(self, arn):  # noqa: N802
        del self.uploads[arn]
        return {}
