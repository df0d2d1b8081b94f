"""A plan as files that start it, with every figure of it: the engine's command, docker compose, Kubernetes, Dynamo.

What cannot be started as it was planned is refused. Options are those of vLLM 0.12 to 0.19 (docs.vllm.ai, CLI), SGLang
0.5 (docs.sglang.io, "Server Arguments") and TensorRT-LLM 1.2 (`trtllm-serve serve`, and its LLM API for the file beside
it). Two pools: vLLM's NixlConnector (docs.vllm.ai, features/nixl_connector_usage), SGLang's disaggregation modes and
its router (docs.sglang.io, advanced_features/pd_disaggregation), and DynamoGraphDeployment with `--disaggregation-mode`
(ai-dynamo/dynamo, examples/backends/*/deploy/disagg.yaml), as of 2026.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING, Any

from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.known import device as device_named
from inferometer.serving.plans.checkpoints import draft_of, files_of

if TYPE_CHECKING:
    from inferometer.serving.plans.asked import Autoscaled, ServingPlan

_PORT = 8000
_PROBE_S = 10
_IN_A_MACHINE = 8  # devices of the largest machines that are rented
_CONFIG = "config.yaml"  # TensorRT-LLM's options that its command does not have
_COMMANDS: Mapping[str, tuple[str, ...]] = {
    "vllm": ("vllm", "serve", "{model}"),
    "sglang": ("python3", "-m", "sglang.launch_server", "--model-path", "{model}"),
    "trtllm": ("trtllm-serve", "serve", "{model}"),
}
# By engine: what the server's options are called, by the plan's fields.
_OPTIONS: Mapping[str, Mapping[str, str]] = {
    "vllm": {
        "tp": "--tensor-parallel-size", "pp": "--pipeline-parallel-size", "max_num_seqs": "--max-num-seqs",
        "max_num_batched_tokens": "--max-num-batched-tokens", "max_model_len": "--max-model-len",
    },
    "sglang": {
        "tp": "--tp-size", "pp": "--pp-size", "ep": "--ep-size", "max_num_seqs": "--max-running-requests",
        "max_num_batched_tokens": "--chunked-prefill-size", "max_model_len": "--context-length",
    },
    "trtllm": {
        "tp": "--tp_size", "pp": "--pp_size", "ep": "--ep_size", "max_num_seqs": "--max_batch_size",
        "max_num_batched_tokens": "--max_num_tokens", "max_model_len": "--max_seq_len",
    },
}  # fmt: skip
_KV: Mapping[str, Mapping[str, str]] = {  # formats of a cache as each engine calls them
    "vllm": {"f8e4m3": "fp8_e4m3", "f8e5m2": "fp8_e5m2"},
    "sglang": {"f8e4m3": "fp8_e4m3", "f8e5m2": "fp8_e5m2"},
    "trtllm": {"f8e4m3": "fp8"},
}
# Images that the makers publish, by engine and the maker of the GPU. A replica of AMD's sees all devices of its pod.
_IMAGES: Mapping[tuple[str, str], str] = {
    ("vllm", "nvidia"): "vllm/vllm-openai:latest",
    ("vllm", "amd"): "vllm/vllm-openai-rocm:latest",
    ("sglang", "nvidia"): "lmsysorg/sglang:latest",
    ("trtllm", "nvidia"): "nvcr.io/nvidia/tensorrt-llm/release:1.2.1",
}
# By engine, of two pools: the words that make a server one of them, and Dynamo's worker with its image.
_POOLS: Mapping[str, tuple[str, ...]] = {
    "vllm": ("--kv-transfer-config", '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'),
    "sglang": ("--disaggregation-mode", "{mode}", "--disaggregation-transfer-backend", "nixl"),
}
# What an autoscaler counts, as each engine's server calls it (docs.vllm.ai, "Production Metrics"; docs.sglang.io,
# "Production Metrics", with --enable-metrics). Requests under way are the running and the waiting ones.
_GAUGES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "vllm": {
        "requests": ("vllm:num_requests_running", "vllm:num_requests_waiting"),
        "waiting": ("vllm:num_requests_waiting",),
        "cache": ("vllm:kv_cache_usage_perc",),
    },
    "sglang": {
        "requests": ("sglang:num_running_reqs", "sglang:num_queue_reqs"),
        "waiting": ("sglang:num_queue_reqs",),
        "cache": ("sglang:token_usage",),
    },
}
_ADAPTER = "prometheus-adapter.yaml"
_DYNAMO_RELEASE = "1.3.0"
_DYNAMO: Mapping[str, tuple[str, str]] = {  # the option that names the model, and the runtime's image
    "vllm": ("--model", "vllm-runtime"),
    "sglang": ("--model-path", "sglang-runtime"),
    "trtllm": ("--model-path", "tensorrtllm-runtime"),
}
_DYNAMO_OPTIONS: Mapping[str, Mapping[str, str]] = {  # where Dynamo's worker has other names than the engine's server
    "trtllm": {
        "--tp_size": "--tensor-parallel-size",
        "--pp_size": "--pipeline-parallel-size",
        "--ep_size": "--expert-parallel-size",
        "--max_batch_size": "--max-batch-size",
        "--max_num_tokens": "--max-num-tokens",
        "--max_seq_len": "--max-seq-len",
    },
}
_GRAPH = """apiVersion: nvidia.com/v1alpha1
kind: DynamoGraphDeployment
metadata:
  name: inference
spec:
  services:
    Frontend:
      componentType: frontend
      replicas: 1
      extraPodSpec:
        mainContainer:
          image: {image}
"""
_BOOTSTRAP = 8998  # SGLang's port at which pools meet


@frozen
class Server:
    """One replica's server: its command, and what stands in a file beside it."""

    words: tuple[str, ...]
    config: Mapping[str, Any]

    @property
    def inside(self) -> list[str]:
        """The command in a container, in the place of the image's own, which differs between releases."""
        beside = ["--extra_llm_api_options", f"/{_CONFIG}"] if self.config else []
        return [*self.words, *beside, "--host", "0.0.0.0", "--port", str(_PORT)]  # noqa: S104 - in a container


def launch_files(plan: ServingPlan, model: str) -> dict[str, str]:
    """File names with their text: one replica's command, all of them on a host, all of them on a cluster."""
    if plan.runtime not in _COMMANDS:
        raise DomainError(
            f"There are no launch files for {plan.runtime}.", remedy=f"Plan with --runtime {' or '.join(_COMMANDS)}."
        )
    if plan.readers:
        return _pool_files(plan, model)
    server, machines = server_of(plan, model), -(-plan.size // _IN_A_MACHINE)
    if plan.autoscaled is not None:
        return _scaled_files(plan, plan.autoscaled, server, model, machines)
    head = _heading(plan, f"{plan.replicas} replicas of {plan.size}", model)
    files = {"serve.sh": _script(plan, server, head, machines)}
    if server.config:
        files[_CONFIG] = head + _config(server.config)
    if machines == 1:
        image = _image(plan)
        files["compose.yaml"] = head + _compose(plan, server, image)
        files["kubernetes.yaml"] = head + _kubernetes(plan, server, image)
    return files


def _scaled_files(plan: ServingPlan, scaled: Autoscaled, server: Server, model: str, machines: int) -> dict[str, str]:
    """Replicas that follow the load are a cluster's: docker compose starts as many as stand in its file."""
    gauges = _GAUGES.get(plan.runtime, {}).get(scaled.signal)
    if gauges is None:
        raise DomainError(
            f"What an autoscaler counts of {plan.runtime} is not known here.",
            remedy=f"Plan with --runtime {' or '.join(_GAUGES)}, or without --autoscale.",
        )
    if machines > 1:
        raise DomainError(
            f"A replica of {plan.size} devices takes {machines} machines, and an autoscaler starts pods of one.",
            remedy=f"Plan with replicas of up to {_IN_A_MACHINE} devices (--tp, --pp, --dp), or without --autoscale.",
        )
    if plan.runtime == "sglang":
        server = replace(server, words=(*server.words, "--enable-metrics"))
    head = _heading(plan, f"{scaled.words}, of {plan.size}", model) + (
        f"# Planned with {scaled.cold_start_s:g} s until a new replica is ready, and with Kubernetes' own "
        f"{scaled.interval_s:g} s between two looks and {scaled.tolerance:.0%} of tolerance.\n"
    )
    return {
        "serve.sh": _script(plan, server, head, machines),
        "kubernetes.yaml": head + _kubernetes(plan, server, _image(plan)) + _autoscaler(scaled),
        _ADAPTER: head + _adapter(scaled, gauges),
    }


def _autoscaler(scaled: Autoscaled) -> str:
    """`averageValue` is in thousandths, as a share of a cache is."""
    return f"""---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: inference
spec:
  scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: inference}}
  minReplicas: {scaled.least}
  maxReplicas: {scaled.most}
  metrics:
    - type: Pods
      pods:
        metric: {{name: inference_{scaled.signal}}}
        target: {{type: AverageValue, averageValue: "{round(1000 * scaled.target)}m"}}
  behavior:
    scaleUp:
      stabilizationWindowSeconds: 0
      policies: [{{type: Pods, value: {scaled.most}, periodSeconds: {scaled.interval_s:.0f}}}]
    scaleDown:
      stabilizationWindowSeconds: {scaled.idle_s:.0f}
      policies: [{{type: Pods, value: 1, periodSeconds: {scaled.idle_s:.0f}}}]
"""


def _adapter(scaled: Autoscaled, gauges: tuple[str, ...]) -> str:
    """Values of the Helm chart prometheus-adapter, which hands Prometheus' figures to the autoscaler.

    A pod whose ranks have figures of their own has the sum of them; of a cache's use, their mean.
    """
    how = "avg" if scaled.signal == "cache" else "sum"
    query = " + ".join(f"{how}({gauge}{{<<.LabelMatchers>>}}) by (<<.GroupBy>>)" for gauge in gauges)
    return f"""# helm install prometheus-adapter prometheus-community/prometheus-adapter --values {_ADAPTER}
rules:
  custom:
    - seriesQuery: '{gauges[0]}{{namespace!="",pod!=""}}'
      resources:
        overrides:
          namespace: {{resource: namespace}}
          pod: {{resource: pod}}
      name: {{as: inference_{scaled.signal}}}
      metricsQuery: '{query}'
"""


def server_of(plan: ServingPlan, model: str) -> Server:
    """The command of one replica, or an error where its engine cannot start what was planned."""
    files, options = files_of(plan, model), _OPTIONS[plan.runtime]
    words = [word.format(model=files.repository) for word in _COMMANDS[plan.runtime]]
    plan, copies, beside = _copied(plan)
    for name in ("tp", "pp", "ep", "max_num_seqs", "max_num_batched_tokens", "max_model_len"):
        value = getattr(plan, name)
        if name in options and (value > 1 or (name == "tp" and value)):
            words += [options[name], str(value)]
    if plan.runtime == "vllm" and plan.ep > 1:
        if plan.ep != plan.tp * plan.dp:
            raise DomainError(
                f"vLLM spreads experts over all devices of a replica, and this plan over {plan.ep} of {plan.tp}.",
                remedy=f"Plan with --ep 1,{plan.tp}, or with --runtime sglang.",
            )
        words.append("--enable-expert-parallel")
    words += copies
    config: dict[str, Any] = dict(beside)
    if plan.runtime == "trtllm":
        config["enable_chunked_prefill"] = True  # prompts ride in steps with others, as they were planned to
    elif files.quantization is not None:
        words += ["--quantization", files.quantization]
    if plan.kv is not None:
        form = _KV[plan.runtime].get(plan.kv)
        if form is None:
            raise DomainError(
                f"{plan.runtime} has no cache in {plan.kv}.", remedy=f"Plan with --kv own,{next(iter(_KV['vllm']))}."
            )
        if plan.runtime == "trtllm":
            config["kv_cache_config"] = {"dtype": form}
        else:
            words += ["--kv-cache-dtype", form]
    drafting, beside = _drafting(plan, draft_of(plan, model))
    return Server(words=(*words, *drafting), config={**config, **beside})


def _copied(plan: ServingPlan) -> tuple[ServingPlan, list[str], dict[str, Any]]:
    """Copies of attention: the plan in the engine's own terms, options of its command, and lines of its file.

    SGLang and TensorRT-LLM count the devices of all copies as tensor parallelism; SGLang shares out the limits of a
    step among its copies (server_args.py, scheduler.py), where the others have them of each.
    """
    if plan.dp == 1:
        return plan, [], {}
    if plan.runtime == "vllm":
        return plan, ["--data-parallel-size", str(plan.dp)], {}
    whole = replace(plan, tp=plan.tp * plan.dp)
    if plan.runtime == "trtllm":
        return whole, [], {"enable_attention_dp": True}
    shared = {name: getattr(plan, name) * plan.dp for name in ("max_num_seqs", "max_num_batched_tokens")}
    return replace(whole, **shared), ["--dp-size", str(plan.dp), "--enable-dp-attention"], {}


def _drafting(plan: ServingPlan, draft: str | None) -> tuple[list[str], dict[str, Any]]:
    """What makes a server draft: options of its command, and lines of its file."""
    if plan.drafting is None:
        return [], {}
    head, length = plan.drafting.head, plan.drafting.length
    if plan.runtime == "vllm":
        method = {"eagle": "eagle3", None: "draft_model"}.get(head, head)
        asked: dict[str, Any] = {"method": method, "num_speculative_tokens": length} | (
            {"model": draft} if draft else {}
        )
        looked_up = {"prompt_lookup_max": 4, "prompt_lookup_min": 2} if head == "ngram" else {}
        return ["--speculative-config", json.dumps(asked | looked_up)], {}
    if plan.runtime == "sglang":
        # MTP is an EAGLE of the model's own there. One candidate a step makes a chain, with the model's own token.
        algorithm = {"eagle": "EAGLE3", "mtp": "EAGLE", "ngram": "NGRAM", None: "STANDALONE"}[head]
        words = ["--speculative-algorithm", algorithm, "--speculative-num-draft-tokens", str(length + 1)]
        if head != "ngram":
            words += ["--speculative-num-steps", str(length), "--speculative-eagle-topk", "1"]
        return [*words, *(["--speculative-draft-model-path", draft] if draft else [])], {}
    if head == "mtp":
        return [], {"speculative_config": {"decoding_type": "MTP", "num_nextn_predict_layers": length}}
    kind = {"eagle": "Eagle", "ngram": "NGram", None: "DraftTarget"}[head]
    trained = {"speculative_model_dir": draft} if draft else {}
    return [], {"speculative_config": {"decoding_type": kind, "max_draft_len": length, **trained}}


def _heading(plan: ServingPlan, counts: str, model: str) -> str:
    """A comment of one line, whatever a folder is called: what follows a line's end in its name would be run."""
    return f"# {' '.join(f'{plan.count} x {plan.device}: {counts}, for {model}.'.split())}\n"


def _script(plan: ServingPlan, server: Server, head: str, machines: int) -> str:
    """A replica's command on a machine, or on each of several."""
    words, more = list(server.words), ""
    if server.config:
        words += ["--extra_llm_api_options", _CONFIG]
    if machines > 1:
        if plan.runtime == "vllm" and plan.dp > 1:
            raise DomainError(
                f"vLLM's {plan.dp} copies of attention would be started one by one on {machines} machines, which no "
                "file here does.",
                remedy=f"Plan with --dp {_IN_A_MACHINE}, or with --runtime sglang.",
            )
        if plan.runtime == "trtllm":
            raise DomainError(
                f"A replica of {plan.size} devices is started by MPI in TensorRT-LLM, which no file here does.",
                remedy="Plan with --pp 1, or with --runtime vllm or sglang.",
            )
        head += f"# On each of {machines} machines, with RANK=0 on the first, and HEAD=its address on all of them.\n"
        words += ["--nnodes", str(machines), "--node-rank", "$RANK"]
        if plan.runtime == "vllm":
            words += ["--master-addr", "$HEAD"]
            more = 'HEADLESS=$([ "$RANK" = 0 ] || echo --headless)\n'
            words.append("$HEADLESS")
        else:
            words += ["--dist-init-addr", "$HEAD:20000"]
    line = shlex.join([*words, "--host", "0.0.0.0", "--port", "$PORT"])  # noqa: S104 - other machines ask it
    for name in ("PORT", "RANK", "HEAD", "HEAD:20000"):
        line = line.replace(f"'${name}'", f'"${name}"')
    line = line.replace("'$HEADLESS'", "$HEADLESS")  # nothing where it is empty
    return f"#!/bin/sh\n{head}PORT=${{PORT:-{_PORT}}}\n{more}exec {line}\n"


def _config(config: Mapping[str, Any]) -> str:
    """Options of TensorRT-LLM's LLM API: JSON is YAML."""
    return "".join(f"{name}: {json.dumps(value)}\n" for name, value in config.items())


def _image(plan: ServingPlan) -> str:
    maker = str(device_named(plan.device).vendor or "").casefold()
    image = _IMAGES.get((plan.runtime, maker))
    if image is None:
        raise DomainError(
            f"No image of {plan.runtime} for {plan.device} is known here.",
            remedy="Plan for devices of NVIDIA (or of AMD with vLLM): --on nvidia-h100-sxm.",
        )
    return image


def _pool_files(plan: ServingPlan, model: str) -> dict[str, str]:
    """A server of each pool, what stands before them, and both as a graph of Dynamo's."""
    if (maker := str(device_named(plan.device).vendor or "").casefold()) != "nvidia":
        raise DomainError(
            f"Launch files of two pools are for GPUs of NVIDIA, and {plan.device} is of {maker or 'an unknown maker'}.",
            remedy="Plan for these: --on nvidia-h100-sxm.",
        )
    pools = {"prefill": replace(plan, tp=plan.reader_tp, ep=plan.reader_ep, replicas=plan.readers), "decode": plan}
    if (most := max(pool.size for pool in pools.values())) > _IN_A_MACHINE:
        raise DomainError(f"A replica of a pool has {most} devices, more than a machine.", remedy="Plan with --tp 8.")
    made = {mode: server_of(pool, model) for mode, pool in pools.items()}
    counts = f"{plan.readers} replicas of {plan.reader_tp} read prompts, {plan.replicas} of {plan.tp} write answers"
    head = _heading(plan, counts, model)
    files = {}
    for mode, server in made.items() if plan.runtime in _POOLS else ():
        joined = shlex.join([*server.words, *(word.replace("{mode}", mode) for word in _POOLS[plan.runtime])])
        # Each process of a host needs a port of its own for the caches' side channel.
        side = 'export VLLM_NIXL_SIDE_CHANNEL_PORT="${SIDE:-5600}"\n' if plan.runtime == "vllm" else ""
        files[f"{mode}.sh"] = (
            f'#!/bin/sh\n{head}PORT="${{PORT:-{_PORT}}}"\n{side}exec {joined} --host 0.0.0.0 --port "$PORT"\n'
        )
    if plan.runtime == "sglang":
        files["router.sh"] = (
            f"#!/bin/sh\n{head}# Addresses of the pools: PREFILL='http://a:8000 http://b:8000' DECODE='http://c:8000'.\n"
            "set -- --pd-disaggregation\n"
            f'for url in $PREFILL; do set -- "$@" --prefill "$url" {_BOOTSTRAP}; done\n'
            'for url in $DECODE; do set -- "$@" --decode "$url"; done\n'
            f'exec python3 -m sglang_router.launch_router "$@" --host 0.0.0.0 --port "${{PORT:-{_PORT}}}"\n'
        )
    files["dynamo.yaml"] = head + _dynamo(plan.runtime, {mode: (pools[mode], made[mode]) for mode in pools})
    return files


def _dynamo(runtime: str, pools: Mapping[str, tuple[ServingPlan, Server]]) -> str:
    """A DynamoGraphDeployment: a front end, and a service a pool."""
    option, image = _DYNAMO[runtime]
    image = f"nvcr.io/nvidia/ai-dynamo/{image}:{_DYNAMO_RELEASE}"
    parts = [_GRAPH.format(image=image)]
    names = _DYNAMO_OPTIONS.get(runtime, {})
    for mode, (pool, server) in pools.items():
        at = _COMMANDS[runtime].index("{model}")
        model, options = server.words[at], [names.get(word, word) for word in server.words[at + 1 :]]
        args = [option, model, *options, "--disaggregation-mode", mode]
        args += ["--disaggregation-transfer-backend", "nixl"] if runtime == "sglang" else []
        args += list(_POOLS["vllm"]) if runtime == "vllm" else []
        if runtime == "trtllm":
            # Caches leave a pool by the transceiver, and the readers make no step ahead (Dynamo's prefill.yaml).
            own = {**server.config, "cache_transceiver_config": {"backend": "DEFAULT"}}
            args += ["--override-engine-args", json.dumps(own | {"disable_overlap_scheduler": mode == "prefill"})]
        parts.append(
            f"    {mode.capitalize()}Worker:\n      componentType: worker\n      subComponentType: {mode}\n"
            f"      envFromSecret: hf-token-secret\n      replicas: {pool.replicas}\n"
            f'      resources:\n        limits:\n          gpu: "{pool.size}"\n'
            f"      extraPodSpec:\n        mainContainer:\n          image: {image}\n"
            f"          command: {json.dumps(['python3', '-m', f'dynamo.{runtime}'])}\n"
            f"          args: {json.dumps(args)}\n"
        )
    return "".join(parts)


def _compose(plan: ServingPlan, server: Server, image: str) -> str:
    """A service a replica, each with devices of its own: as many as one machine has."""
    size = plan.size
    here = min(plan.replicas, _IN_A_MACHINE // size)
    machines = -(-plan.replicas // here)
    parts = ["" if machines == 1 else f"# The replicas of one machine: start it on {machines}.\n", "services:\n"]
    for number in range(here):
        devices = ",".join(str(number * size + at) for at in range(size))
        listed = ", ".join(f'"{device}"' for device in devices.split(","))
        config = f"      - ./{_CONFIG}:/{_CONFIG}:ro\n" if server.config else ""
        parts.append(
            f"  replica-{number}:\n"
            f"    image: {image}\n"
            f"    entrypoint: {json.dumps(server.inside)}\n"
            f'    ports: ["{_PORT + number}:{_PORT}"]\n'
            "    ipc: host\n"
            "    environment:\n"
            "      HF_TOKEN: ${HF_TOKEN:-}\n"
        )
        volumes = f"    volumes:\n      - models:/root/.cache/huggingface\n{config}"
        if "rocm" in image:
            parts += [f'      HIP_VISIBLE_DEVICES: "{devices}"\n    devices: ["/dev/kfd", "/dev/dri"]\n', volumes]
        else:
            parts.append(
                f"{volumes}    deploy:\n      resources:\n        reservations:\n          devices:\n"
                f"            - {{driver: nvidia, device_ids: [{listed}], capabilities: [gpu]}}\n"
            )
    return "".join([*parts, "volumes:\n  models: {}\n"])


def _kubernetes(plan: ServingPlan, server: Server, image: str) -> str:
    maker = "amd" if "rocm" in image else "nvidia"
    scaled = plan.autoscaled
    # How many there are is the autoscaler's, which would be overruled by each `kubectl apply`.
    replicas = "" if scaled is not None else f"\n  replicas: {plan.replicas}"
    scraped = "" if scaled is None else (
        f'\n      annotations: {{prometheus.io/scrape: "true", prometheus.io/port: "{_PORT}", '
        "prometheus.io/path: /metrics}"
    )  # fmt: skip
    # Probes until twice the cold start: what is late then has not come up.
    probes = 120 if scaled is None else max(120, ceil(2 * scaled.cold_start_s / _PROBE_S))
    mount = f"\n            - {{name: config, mountPath: /{_CONFIG}, subPath: {_CONFIG}}}" if server.config else ""
    volume = "\n        - name: config\n          configMap: {name: inference}" if server.config else ""
    config = ""
    if server.config:
        lines = "".join(f"    {line}\n" for line in _config(server.config).splitlines())
        config = f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: inference\ndata:\n  {_CONFIG}: |\n{lines}---\n"
    return f"""{config}apiVersion: apps/v1
kind: Deployment
metadata:
  name: inference
spec:{replicas}
  selector:
    matchLabels: {{app: inference}}
  template:
    metadata:
      labels: {{app: inference}}{scraped}
    spec:
      containers:
        - name: engine
          image: {image}
          command: {json.dumps(server.inside)}
          env:
            - name: HF_TOKEN
              valueFrom: {{secretKeyRef: {{name: hf-token-secret, key: HF_TOKEN, optional: true}}}}
          ports:
            - containerPort: {_PORT}
          readinessProbe:
            httpGet: {{path: /health, port: {_PORT}}}
            periodSeconds: {_PROBE_S}
            failureThreshold: {probes}
          resources:
            limits: {{{maker}.com/gpu: {plan.size}}}
          volumeMounts:
            - {{name: shm, mountPath: /dev/shm}}{mount}
      volumes:
        - name: shm
          emptyDir: {{medium: Memory}}{volume}
---
apiVersion: v1
kind: Service
metadata:
  name: inference
spec:
  selector: {{app: inference}}
  ports:
    - port: {_PORT}
      targetPort: {_PORT}
"""
