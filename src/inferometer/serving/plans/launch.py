"""A plan as files that start it: the engine's command line, docker compose, Kubernetes; of two pools, Dynamo.

Two pools: vLLM's NixlConnector (docs.vllm.ai, features/nixl_connector_usage), SGLang's disaggregation modes and its
router (docs.sglang.io, advanced_features/pd_disaggregation), and DynamoGraphDeployment with `--disaggregation-mode`
(ai-dynamo/dynamo, examples/backends/*/deploy/disagg.yaml), as of 2026.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from inferometer.core.errors import DomainError, UnknownNameError
from inferometer.known import model as model_named

if TYPE_CHECKING:
    from collections.abc import Mapping

    from inferometer.serving.plans.asked import ServingPlan

# By engine: the image that its makers publish, and the options of its server by what they say.
_IMAGES = {"vllm": "vllm/vllm-openai:latest", "sglang": "lmsysorg/sglang:latest"}
_COMMANDS: Mapping[str, tuple[str, ...]] = {
    "vllm": ("vllm", "serve", "{model}"),
    "sglang": ("python3", "-m", "sglang.launch_server", "--model-path", "{model}"),
    "trtllm": ("trtllm-serve", "serve", "{model}"),
}
_OPTIONS: Mapping[str, Mapping[str, str]] = {
    "vllm": {
        "tp": "--tensor-parallel-size", "pp": "--pipeline-parallel-size", "experts": "--enable-expert-parallel",
        "sequences": "--max-num-seqs", "quantization": "--quantization",
    },
    "sglang": {
        "tp": "--tp", "pp": "--pp-size", "ep": "--ep-size", "sequences": "--max-running-requests",
        "quantization": "--quantization",
    },
    "trtllm": {"tp": "--tp_size", "pp": "--pp_size", "ep": "--ep_size", "sequences": "--max_batch_size"},
}  # fmt: skip
# Formats into which an engine turns weights as it loads them; any other must be in the files.
_QUANTISED_ON_LOAD = {"f8e4m3": "fp8"}
_PORT = 8000
# By engine, of two pools: the words that make a server one of them, and Dynamo's worker with its image.
_POOLS: Mapping[str, tuple[str, ...]] = {
    "vllm": ("--kv-transfer-config", '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'),
    "sglang": ("--disaggregation-mode", "{mode}", "--disaggregation-transfer-backend", "nixl"),
}
_DYNAMO: Mapping[str, tuple[str, str]] = {  # the option that names the model, and the runtime's image
    "vllm": ("--model", "vllm-runtime"),
    "sglang": ("--model-path", "sglang-runtime"),
    "trtllm": ("--model-path", "tensorrtllm-runtime"),
}
_DYNAMO_OPTIONS: Mapping[str, Mapping[str, str]] = {  # where Dynamo's worker has other names than the engine's server
    "trtllm": {
        "--tp_size": "--tensor-parallel-size",
        "--ep_size": "--expert-parallel-size",
        "--max_batch_size": "--max-batch-size",
    },
}
_GRAPH = """# Put the release of Dynamo in the place of DYNAMO_TAG.
apiVersion: nvidia.com/v1alpha1
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
_IN_A_MACHINE = 8  # devices of the largest machines that are rented


def launch_files(plan: ServingPlan, model: str) -> dict[str, str]:
    """File names with their text: one replica's command, all of them on a host, all of them on a cluster."""
    if plan.runtime not in _COMMANDS:
        raise DomainError(
            f"There are no launch files for {plan.runtime}.", remedy=f"Plan with --runtime {' or '.join(_COMMANDS)}."
        )
    if plan.readers:
        return _pool_files(plan, model)
    words, doubt = serve_command(plan, model)
    says = [f"# {plan.count} x {plan.device}: {plan.replicas} replicas of {plan.tp * plan.pp}, for {model}.", *doubt]
    head = "".join(f"{line}\n" for line in says)
    line = shlex.join([*words, "--host", "0.0.0.0", "--port", "$PORT"]).replace("'$PORT'", '"$PORT"')  # noqa: S104 - in a container
    files = {"serve.sh": f"#!/bin/sh\n{head}PORT=${{PORT:-{_PORT}}}\nexec {line}\n"}
    if plan.runtime in _IMAGES:
        files["compose.yaml"] = head + _compose(plan, words)
        files["kubernetes.yaml"] = head + _kubernetes(plan, words)
    return files


def _pool_files(plan: ServingPlan, model: str) -> dict[str, str]:
    """A server of each pool, what stands before them, and both as a graph of Dynamo's."""
    pools = {"prefill": replace(plan, tp=plan.reader_tp, ep=plan.reader_ep, replicas=plan.readers), "decode": plan}
    made = {mode: serve_command(pool, model) for mode, pool in pools.items()}
    doubt = list(dict.fromkeys(line for _, lines in made.values() for line in lines))
    counts = f"{plan.readers} replicas of {plan.reader_tp} read prompts, {plan.replicas} of {plan.tp} write answers"
    head = "".join(f"{line}\n" for line in (f"# {plan.count} x {plan.device}: {counts}, for {model}.", *doubt))
    files = {}
    for mode, (words, _) in made.items() if plan.runtime in _POOLS else ():
        joined = shlex.join([*words, *(word.replace("{mode}", mode) for word in _POOLS[plan.runtime])])
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
    files["dynamo.yaml"] = head + _dynamo(
        plan.runtime, {mode: (pools[mode], words) for mode, (words, _) in made.items()}
    )
    return files


def _dynamo(runtime: str, pools: Mapping[str, tuple[ServingPlan, list[str]]]) -> str:
    """A DynamoGraphDeployment: a front end, and a service a pool. `DYNAMO_TAG` is the release that is installed."""
    option, image = _DYNAMO[runtime]
    image = f"nvcr.io/nvidia/ai-dynamo/{image}:DYNAMO_TAG"
    parts = [_GRAPH.format(image=image)]
    names = _DYNAMO_OPTIONS.get(runtime, {})
    for mode, (pool, words) in pools.items():
        at = _COMMANDS[runtime].index("{model}")
        model, options = words[at], [names.get(word, word) for word in words[at + 1 :]]
        args = [option, model, *options, "--disaggregation-mode", mode]
        args += ["--disaggregation-transfer-backend", "nixl"] if runtime == "sglang" else []
        args += list(_POOLS["vllm"]) if runtime == "vllm" else []
        parts.append(
            f"    {mode.capitalize()}Worker:\n      componentType: worker\n      subComponentType: {mode}\n"
            f"      envFromSecret: hf-token-secret\n      replicas: {pool.replicas}\n"
            f'      resources:\n        limits:\n          gpu: "{pool.tp}"\n'
            f"      extraPodSpec:\n        mainContainer:\n          image: {image}\n"
            f"          command: {_listed(['python3', '-m', f'dynamo.{runtime}'])}\n          args: {_listed(args)}\n"
        )
    return "".join(parts)


def serve_command(plan: ServingPlan, model: str) -> tuple[list[str], list[str]]:
    """The words of one replica's command, and what has to be known before it starts as a comment each."""
    options, doubt = _OPTIONS[plan.runtime], []
    name, known = _repository(model)
    if not known:
        doubt.append(f"# {model} has no repository in the catalog: name the folder or the repository of its files.")
    words = [word.format(model=name) for word in _COMMANDS[plan.runtime]]
    words += [options["tp"], str(plan.tp), options["sequences"], str(plan.max_num_seqs)]
    if plan.pp > 1:
        words += [options["pp"], str(plan.pp)]
    if plan.ep > 1:
        words += [options["ep"], str(plan.ep)] if "ep" in options else [options["experts"]]
    if plan.tp * plan.pp > _IN_A_MACHINE:
        doubt.append(
            f"# A replica has {plan.tp * plan.pp} devices: start it on machines that are joined (Ray, or MPI)."
        )
    if plan.weights is not None:
        format_name = _QUANTISED_ON_LOAD.get(plan.weights)
        if format_name is not None and "quantization" in options:
            words += [options["quantization"], format_name]
        else:
            doubt.append(f"# The plan is for weights in {plan.weights}: name a checkpoint that has them.")
    return words, doubt


def _repository(model: str) -> tuple[str, bool]:
    """Where the model's files are: its repository, or the path that was given; and whether that is known."""
    try:
        names = model_named(model).aliases
    except UnknownNameError:
        return str(model), True  # a path of the user's own
    found = next((name for name in names if "/" in name), None)
    return (str(model), False) if found is None else (found, True)


def _listed(words: list[str]) -> str:
    return json.dumps(words)  # a list of JSON's is one of YAML's


def _inside(words: list[str]) -> list[str]:
    """The command in a container, in the place of the image's own, which differs between releases."""
    return [*words, "--host", "0.0.0.0", "--port", str(_PORT)]  # noqa: S104 - in a container, behind its port


def _compose(plan: ServingPlan, words: list[str]) -> str:
    """A service a replica, each with devices of its own. For one host: as many as it has."""
    parts = ["services:\n"]
    for number in range(plan.replicas):
        devices = ", ".join(f'"{number * plan.tp * plan.pp + at}"' for at in range(plan.tp * plan.pp))
        parts.append(
            f"  replica-{number}:\n"
            f"    image: {_IMAGES[plan.runtime]}\n"
            f"    entrypoint: {_listed(_inside(words))}\n"
            f'    ports: ["{_PORT + number}:{_PORT}"]\n'
            "    ipc: host\n"
            "    environment:\n"
            "      HF_TOKEN: ${HF_TOKEN:-}\n"
            "    volumes:\n"
            "      - models:/root/.cache/huggingface\n"
            "    deploy:\n"
            "      resources:\n"
            "        reservations:\n"
            "          devices:\n"
            f"            - {{driver: nvidia, device_ids: [{devices}], capabilities: [gpu]}}\n"
        )
    return "".join([*parts, "volumes:\n  models: {}\n"])


def _kubernetes(plan: ServingPlan, words: list[str]) -> str:
    return f"""apiVersion: apps/v1
kind: Deployment
metadata:
  name: inference
spec:
  replicas: {plan.replicas}
  selector:
    matchLabels: {{app: inference}}
  template:
    metadata:
      labels: {{app: inference}}
    spec:
      containers:
        - name: engine
          image: {_IMAGES[plan.runtime]}
          command: {_listed(_inside(words))}
          ports:
            - containerPort: {_PORT}
          readinessProbe:
            httpGet: {{path: /health, port: {_PORT}}}
            periodSeconds: 10
            failureThreshold: 120
          resources:
            limits: {{nvidia.com/gpu: {plan.tp * plan.pp}}}
          volumeMounts:
            - {{name: shm, mountPath: /dev/shm}}
      volumes:
        - name: shm
          emptyDir: {{medium: Memory}}
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
