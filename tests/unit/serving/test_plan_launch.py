"""Files that start a plan: each figure of it stands in them, in options that the engines have; or they are refused."""

import argparse
import json
import shlex
import tomllib
from dataclasses import MISSING, fields, replace
from itertools import product
from pathlib import Path

import pytest
import yaml

from inferometer.core.dtypes import dtype
from inferometer.core.errors import DomainError
from inferometer.known import model as model_named
from inferometer.serving.plans import checkpoints
from inferometer.serving.plans.asked import Autoscaled, Drafting, ServingPlan
from inferometer.serving.plans.launch import launch_files, server_of

# Options as each engine's own parser has them, with what they take; an option that is not here is not known to exist.
# vLLM 0.19 (vllm/engine/arg_utils.py), SGLang 0.5 (sglang/srt/server_args.py), TensorRT-LLM 1.2 (commands/serve.py).
KNOWN = {
    "vllm": {
        "--tensor-parallel-size": int, "--pipeline-parallel-size": int, "--enable-expert-parallel": None,
        "--max-num-seqs": int, "--max-num-batched-tokens": int, "--max-model-len": int, "--data-parallel-size": int,
        "--kv-cache-dtype": ("auto", "fp8", "fp8_e4m3", "fp8_e5m2"), "--quantization": ("fp8",),
        "--speculative-config": json.loads, "--kv-transfer-config": json.loads, "--nnodes": int, "--node-rank": str,
        "--master-addr": str, "--host": str, "--port": str,
    },
    "sglang": {
        "--tp-size": int, "--pp-size": int, "--ep-size": int, "--dp-size": int, "--enable-dp-attention": None,
        "--max-running-requests": int,
        "--chunked-prefill-size": int, "--context-length": int, "--kv-cache-dtype": ("auto", "fp8_e4m3", "fp8_e5m2"),
        "--quantization": ("fp8",), "--speculative-algorithm": ("EAGLE", "EAGLE3", "NGRAM", "STANDALONE"),
        "--speculative-num-steps": int, "--speculative-eagle-topk": int, "--speculative-num-draft-tokens": int,
        "--speculative-draft-model-path": str, "--disaggregation-mode": ("prefill", "decode"),
        "--disaggregation-transfer-backend": ("nixl",), "--nnodes": int, "--node-rank": str, "--dist-init-addr": str,
        "--host": str, "--port": str, "--model-path": str, "--enable-metrics": None,
    },
    "trtllm": {
        "--tp_size": int, "--pp_size": int, "--ep_size": int, "--max_batch_size": int, "--max_num_tokens": int,
        "--max_seq_len": int, "--extra_llm_api_options": str, "--host": str, "--port": str,
    },
}  # fmt: skip
BEGIN = {
    "vllm": ["vllm", "serve"],
    "sglang": ["python3", "-m", "sglang.launch_server"],
    "trtllm": ["trtllm-serve", "serve"],
}
ENGINES = tuple(KNOWN)
PARSERS = json.loads((Path(__file__).parents[2] / "data/launch_options/options.json").read_text(encoding="utf-8"))


def serving_plan(**more):
    given = {
        "device": "nvidia-h200", "count": 4, "runtime": "vllm", "weights": None, "tp": 2, "replicas": 2, "spare": 0,
        "max_num_seqs": 256, "utilisation": 0.5, "headroom": 1.0, "kv_share": 0.1, "requests": 100,
        "max_num_batched_tokens": 4096, "max_model_len": 2048,
    }  # fmt: skip
    empty = dict.fromkeys(field.name for field in fields(ServingPlan) if field.default is MISSING)
    return ServingPlan(**{**empty, **given, **more})


def parsed(runtime, words):
    """The command as its engine's parser would read it: strictly, and no option by its beginning."""
    parser = argparse.ArgumentParser(allow_abbrev=False, exit_on_error=False)
    for option, takes in KNOWN[runtime].items():
        if takes is None:
            parser.add_argument(option, action="store_true")
        elif isinstance(takes, tuple):
            parser.add_argument(option, choices=takes)
        else:
            parser.add_argument(option, type=takes)
    if runtime != "sglang":
        parser.add_argument("model")
    begin = BEGIN[runtime]
    assert words[: len(begin)] == begin
    read, unknown = parser.parse_known_args(words[len(begin) :])
    assert unknown == [], unknown
    return {name: value for name, value in vars(read).items() if value is not None and value is not False}


def command_of(runtime, script):
    """What `serve.sh` runs, with the shell's variables as they are written."""
    line = next(line for line in script.splitlines() if line.startswith("exec "))
    return [word for word in shlex.split(line.removeprefix("exec ")) if word != "$HEADLESS"]


FIGURES = {
    "vllm": (
        "tensor_parallel_size", "pipeline_parallel_size", None, "max_num_seqs", "max_num_batched_tokens",
        "max_model_len",
    ),
    "sglang": ("tp_size", "pp_size", "ep_size", "max_running_requests", "chunked_prefill_size", "context_length"),
    "trtllm": ("tp_size", "pp_size", "ep_size", "max_batch_size", "max_num_tokens", "max_seq_len"),
}  # fmt: skip
DRAFTS = (None, ("eagle", 3), ("ngram", 4), ("llama-3.2-1b", 2))
GRID = list(product(ENGINES, ((1, 1, 1), (4, 2, 1), (8, 1, 8)), (None, "f8e4m3", "i4"), (None, "f8e4m3"), DRAFTS))


@pytest.mark.parametrize(("runtime", "split", "weights", "kv", "draft"), GRID)
def test_each_figure_of_a_plan_is_in_what_starts_it_or_it_is_refused_with_what_to_change(
    runtime, split, weights, kv, draft
):
    tp, pp, ep = split
    drafting = None if draft is None else Drafting(draft=draft[0], length=draft[1], acceptance=0.6)
    plan = serving_plan(runtime=runtime, tp=tp, pp=pp, ep=ep, weights=weights, kv=kv, drafting=drafting, replicas=3)
    try:
        files = launch_files(plan, "llama-3.1-8b")
    except DomainError as refused:
        assert runtime == "trtllm"
        assert weights == "i4"  # no files that TensorRT-LLM reads are known
        assert "--weights" in refused.remedy
        return
    read = parsed(runtime, command_of(runtime, files["serve.sh"]))
    wanted = (tp, pp, ep, plan.max_num_seqs, plan.max_num_batched_tokens, plan.max_model_len)
    for name, value in zip(FIGURES[runtime], wanted, strict=True):
        assert name is None or read.get(name, 1) == value
    if runtime == "vllm":
        assert read.get("enable_expert_parallel", False) == (ep > 1)
    config = yaml.safe_load(files["config.yaml"]) if runtime == "trtllm" else {}
    form = config.get("kv_cache_config", {}).get("dtype") if runtime == "trtllm" else read.get("kv_cache_dtype")
    assert (form or "").startswith("fp8") == (kv is not None)
    model = read.get("model") or read.get("model_path")
    assert ("FP8" in model or "quantization" in read, "INT4" in model) == (weights == "f8e4m3", weights == "i4")
    drafted = config.get("speculative_config") or read.get("speculative_config") or {}
    own = {name: value for name, value in read.items() if "speculative" in name}
    told = json.dumps(own if runtime == "sglang" else drafted)
    if draft is not None:
        of = {"eagle": "EAGLE3-LLaMA3.1", "ngram": "ngram", "llama-3.2-1b": "meta-llama/Llama-3.2-1B"}[draft[0]]
        assert of.casefold() in told.casefold()
        assert str(draft[1] + (runtime == "sglang")) in told  # SGLang counts the model's own token
    else:
        assert told == "{}"
    for name in ("compose.yaml", "kubernetes.yaml"):
        if tp * pp <= 8:
            inside = yaml_commands(files[name])
            assert all(parsed(runtime, words)["port"] == "8000" for words in inside)
            command = list(server_of(plan, "llama-3.1-8b").words)
            assert all(words[: len(command)] == command for words in inside)


def yaml_commands(text):
    documents = [each for each in yaml.safe_load_all(text) if each]
    services = [service for each in documents for service in each.get("services", {}).values()]
    pods = [each["spec"]["template"]["spec"] for each in documents if each.get("kind") == "Deployment"]
    return [each["entrypoint"] for each in services] + [pod["containers"][0]["command"] for pod in pods]


@pytest.mark.parametrize(
    ("runtime", "version"), [(name, row["version"]) for name, rows in PARSERS["engines"].items() for row in rows]
)
def test_every_option_that_is_written_is_one_of_the_server_s_own_parser(runtime, version):
    """As its sources have it (tests/data/launch_options); the table above says what each takes."""
    (parser,) = (row for row in PARSERS["engines"][runtime] if row["version"] == version)
    assert len(parser["options"]) > 30
    assert set(KNOWN[runtime]) <= set(parser["options"])
    if runtime == "vllm":
        assert "--headless" in parser["options"]  # which a shell variable holds on all machines but the first


@pytest.mark.parametrize("runtime", ENGINES)
def test_copies_of_attention_start_with_the_limits_of_each_and_the_devices_of_all(runtime):
    plan = serving_plan(runtime=runtime, tp=1, dp=8, ep=8, replicas=1)
    files = launch_files(plan, "deepseek-v3")
    read = parsed(runtime, command_of(runtime, files["serve.sh"]))
    limits = [read[name] for name in FIGURES[runtime][3:5]]
    if runtime == "vllm":
        assert (read["data_parallel_size"], read["tensor_parallel_size"], read["enable_expert_parallel"]) == (
            8,
            1,
            True,
        )
    else:
        assert (read["tp_size"], read["ep_size"]) == (8, 8)
    if runtime == "sglang":  # which shares its limits out among the copies
        assert (read["dp_size"], read["enable_dp_attention"]) == (8, True)
        assert [limit // 8 for limit in limits] == [256, 4096]
    else:
        assert limits == [256, 4096]
    if runtime == "trtllm":
        assert yaml.safe_load(files["config.yaml"])["enable_attention_dp"] is True
    assert "gpu: 8" in files["kubernetes.yaml"]


def test_files_are_those_of_the_planned_format():
    """DeepSeek-V3 in four bits is no DeepSeek-V3 in FP8; FP8 is made on load only where BF16 has room before."""
    deepseek = serving_plan(tp=8, weights="i4")
    assert server_of(deepseek, "deepseek-v3").words[2] == "cognitivecomputations/DeepSeek-V3-AWQ"
    assert server_of(serving_plan(tp=8), "deepseek-v3").words[2] == "deepseek-ai/DeepSeek-V3"
    made = server_of(serving_plan(tp=1, weights="f8e4m3"), "llama-3.2-3b").words
    assert made[-2:] == ("--quantization", "fp8")
    with pytest.raises(DomainError, match="No files of deepseek-v2") as refused:
        server_of(serving_plan(tp=2, weights="f8e4m3"), "deepseek-v2")
    assert "--weights own" in refused.value.remedy
    assert server_of(serving_plan(), "/models/mine").words[2] == "/models/mine"
    assert server_of(serving_plan(), "meta-llama/Llama-3.1-8B-Instruct").words[2] == "meta-llama/Llama-3.1-8B-Instruct"


def test_an_eagle_head_stands_beside_the_model_that_it_was_trained_for():
    drafting = Drafting(draft="eagle", length=3, acceptance=0.6)
    words = server_of(serving_plan(drafting=drafting), "llama-3.1-8b").words
    assert words[2] == "meta-llama/Llama-3.1-8B-Instruct"
    with pytest.raises(DomainError, match="No EAGLE head for gemma-2-9b"):
        server_of(serving_plan(drafting=drafting), "gemma-2-9b")


@pytest.mark.parametrize("runtime", ENGINES)
def test_layers_that_predict_several_tokens_need_no_other_files(runtime):
    drafting = Drafting(draft="mtp", length=1, acceptance=0.8)
    server = server_of(serving_plan(runtime=runtime, tp=8, drafting=drafting), "deepseek-v3")
    told = " ".join(server.words) + json.dumps(dict(server.config))
    assert {"vllm": '"method": "mtp"', "sglang": "EAGLE ", "trtllm": '"MTP"'}[runtime] in told
    assert told.count("deepseek-ai/DeepSeek-V3") == 1


@pytest.mark.parametrize(
    ("plan", "model", "words"),
    [
        ({"runtime": "llamacpp"}, "llama-3.1-8b", "no launch files for llamacpp"),
        ({"tp": 8, "ep": 4}, "mixtral-8x7b", "over 4 of 8"),
        ({"kv": "i4"}, "llama-3.1-8b", "no cache in i4"),
        ({"runtime": "trtllm", "tp": 8, "pp": 2}, "llama-3.1-405b", "MPI"),
        ({"runtime": "sglang", "device": "amd-mi300x"}, "llama-3.1-8b", "No image"),
        ({"device": "amd-mi300x", "readers": 1}, "llama-3.1-8b", "two pools"),
        ({"tp": 16, "readers": 1}, "llama-3.1-8b", "more than a machine"),
    ],
)
def test_what_cannot_be_started_as_planned_is_refused_with_what_to_change(plan, model, words):
    with pytest.raises(DomainError, match=words) as refused:
        launch_files(serving_plan(**plan), model)
    assert "--" in refused.value.remedy


def test_a_replica_over_two_machines_is_started_on_each():
    files = launch_files(serving_plan(tp=8, pp=2, ep=8), "mixtral-8x7b")
    assert set(files) == {"serve.sh"}
    read = parsed("vllm", command_of("vllm", files["serve.sh"]))
    assert (read["nnodes"], read["node_rank"], read["master_addr"]) == (2, "$RANK", "$HEAD")
    assert "HEADLESS=$(" in files["serve.sh"]


@pytest.mark.parametrize("runtime", ENGINES)
def test_every_replica_has_devices_of_its_own_in_compose_and_in_kubernetes(runtime):
    plan = serving_plan(runtime=runtime)
    files = launch_files(plan, "llama-3.1-8b")
    services = yaml.safe_load(files["compose.yaml"])["services"]
    devices = [each["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"] for each in services.values()]
    assert devices == [["0", "1"], ["2", "3"]]
    assert [each["ports"] for each in services.values()] == [["8000:8000"], ["8001:8000"]]
    *config, deployment, service = yaml.safe_load_all(files["kubernetes.yaml"])
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert (deployment["spec"]["replicas"], container["resources"]["limits"]) == (2, {"nvidia.com/gpu": 2})
    assert service["spec"]["selector"] == deployment["spec"]["selector"]["matchLabels"]
    volumes = {each["name"] for each in deployment["spec"]["template"]["spec"]["volumes"]}
    assert {each["name"] for each in container["volumeMounts"]} == volumes
    if runtime == "trtllm":
        assert config[0]["metadata"]["name"] == "inference"
        assert yaml.safe_load(config[0]["data"]["config.yaml"]) == yaml.safe_load(files["config.yaml"])


AUTOSCALED = Autoscaled(
    least=1, most=6, target=40.0, signal="requests", cold_start_s=900.0, interval_s=15.0, idle_s=300.0, tolerance=0.1,
    peak_per_s=9.0, mean_replicas=2.5, replica_hours=60.0, hours=24.0,
)  # fmt: skip


@pytest.mark.parametrize("signal", ["requests", "waiting", "cache"])
@pytest.mark.parametrize("runtime", ["vllm", "sglang"])
def test_replicas_that_follow_the_load_start_as_a_deployment_with_its_autoscaler(runtime, signal):
    scaled = replace(AUTOSCALED, signal=signal, target=0.45 if signal == "cache" else 40.0)
    files = launch_files(serving_plan(runtime=runtime, replicas=6, count=12, autoscaled=scaled), "llama-3.1-8b")
    assert set(files) == {"serve.sh", "kubernetes.yaml", "prometheus-adapter.yaml"}  # compose starts as many as it says
    deployment, _, scaler = yaml.safe_load_all(files["kubernetes.yaml"])
    assert "replicas" not in deployment["spec"]  # the autoscaler's
    pod = deployment["spec"]["template"]
    assert pod["metadata"]["annotations"]["prometheus.io/port"] == "8000"
    assert ("--enable-metrics" in pod["spec"]["containers"][0]["command"]) == (runtime == "sglang")
    probe = pod["spec"]["containers"][0]["readinessProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] >= 2 * scaled.cold_start_s
    spec = scaler["spec"]
    assert spec["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    assert (spec["minReplicas"], spec["maxReplicas"]) == (1, 6)
    (metric,) = spec["metrics"]
    assert metric["pods"]["target"]["averageValue"] == f"{scaled.target * 1000:.0f}m"
    assert spec["behavior"]["scaleDown"]["stabilizationWindowSeconds"] == 300
    (down,), (up,) = (spec["behavior"][way]["policies"] for way in ("scaleDown", "scaleUp"))
    assert (down["value"], down["periodSeconds"], up["value"], up["periodSeconds"]) == (1, 300, 6, 15)
    (rule,) = yaml.safe_load(files["prometheus-adapter.yaml"])["rules"]["custom"]
    assert rule["name"]["as"] == metric["pods"]["metric"]["name"]
    assert rule["metricsQuery"].count(f"{runtime}:") == (2 if signal == "requests" else 1)
    assert "900 s until a new replica is ready" in files["kubernetes.yaml"]


@pytest.mark.parametrize(
    ("more", "change"), [({"runtime": "trtllm"}, "--runtime vllm or sglang"), ({"tp": 8, "pp": 2}, "up to 8 devices")]
)
def test_an_autoscaler_that_cannot_start_a_plan_is_refused_with_what_to_change(more, change):
    with pytest.raises(DomainError) as refused:
        launch_files(serving_plan(autoscaled=AUTOSCALED, **more), "llama-3.1-8b")
    assert change in refused.value.remedy


def test_a_machine_starts_no_more_replicas_than_it_has_devices_for():
    files = launch_files(serving_plan(tp=4, replicas=5, count=20), "llama-3.1-8b")
    assert len(yaml.safe_load(files["compose.yaml"])["services"]) == 2
    assert "start it on 3." in files["compose.yaml"]


def test_amds_devices_are_given_as_amds():
    files = launch_files(serving_plan(device="amd-mi300x"), "llama-3.1-8b")
    first = yaml.safe_load(files["compose.yaml"])["services"]["replica-1"]
    assert (first["devices"], first["environment"]["HIP_VISIBLE_DEVICES"]) == (["/dev/kfd", "/dev/dri"], "2,3")
    deployment = next(yaml.safe_load_all(files["kubernetes.yaml"]))
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    assert (container["resources"]["limits"], "rocm" in container["image"]) == ({"amd.com/gpu": 2}, True)


@pytest.mark.parametrize("runtime", ENGINES)
def test_two_pools_start_as_a_graph_of_dynamo_and_as_servers_of_each(runtime):
    plan = serving_plan(runtime=runtime, readers=3, reader_tp=1, reader_ep=1, kv="f8e4m3")
    files = launch_files(plan, "llama-3.1-8b")
    services = yaml.safe_load(files["dynamo.yaml"])["spec"]["services"]
    workers = {each["subComponentType"]: each for name, each in services.items() if name != "Frontend"}
    assert {mode: (each["replicas"], each["resources"]["limits"]["gpu"]) for mode, each in workers.items()} == {
        "prefill": (3, "1"), "decode": (2, "2"),
    }  # fmt: skip
    for mode, each in workers.items():
        container = each["extraPodSpec"]["mainContainer"]
        assert container["command"] == ["python3", "-m", f"dynamo.{runtime}"]
        assert container["args"][1] == "meta-llama/Llama-3.1-8B"
        assert container["args"][container["args"].index("--disaggregation-mode") + 1] == mode
        assert not any("_size" in word or "_len" in word for word in container["args"])  # Dynamo's own names
        assert "fp8" in " ".join(container["args"])
        assert "DYNAMO_TAG" not in container["image"]
        if runtime == "trtllm":
            own = json.loads(container["args"][container["args"].index("--override-engine-args") + 1])
            assert (own["cache_transceiver_config"], own["disable_overlap_scheduler"]) == (
                {"backend": "DEFAULT"},
                mode == "prefill",
            )
    assert ("prefill.sh" in files) == (runtime != "trtllm")
    for mode in ("prefill", "decode") if runtime != "trtllm" else ():
        parsed(runtime, command_of(runtime, files[f"{mode}.sh"]))
    if runtime == "vllm":
        assert """--kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'""" in files["decode.sh"]
    if runtime == "sglang":
        assert '--prefill "$url" 8998' in files["router.sh"]


def test_known_files_are_of_models_of_the_catalog_in_formats_that_an_engine_reads():
    table = tomllib.loads(checkpoints._FILE.read_text())["models"]
    methods = frozenset().union(*(engine["reads"] for engine in checkpoints._known()["engines"].values()))
    for name, forms in table.items():
        assert model_named(name).name == name
        for form, rows in forms.items():
            assert form == "eagle" or dtype(form).name == form
            for row in rows:
                assert row["method"] in methods
                assert row["repository"].count("/") == 1
                assert (form == "eagle") == ("target" in row) == (row["method"] == "eagle3")
                assert form != "eagle" or row["target"] in model_named(name).aliases


def test_what_is_written_is_what_a_shell_reads():
    plan = replace(serving_plan(), drafting=Drafting(draft="ngram", length=2, acceptance=0.3))
    script = launch_files(plan, "llama-3.1-8b")["serve.sh"]
    asked = parsed("vllm", command_of("vllm", script))["speculative_config"]
    assert asked == {
        "method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_max": 4, "prompt_lookup_min": 2,
    }  # fmt: skip
    assert "exec vllm serve" in script
    assert '"$PORT"' in script


@pytest.mark.parametrize("end", ["\n", "\r", "\x85", "\u2028"])
@pytest.mark.parametrize("runtime", ["vllm", "sglang", "trtllm"])
def test_a_folder_whose_name_has_lines_starts_nothing_and_is_no_key(tmp_path, runtime, end):
    name = f"{tmp_path}/net{end}touch here{end}services: 3"
    for file, text in launch_files(replace(serving_plan(), runtime=runtime, weights=None), name).items():
        head = next(line for line in text.splitlines() if ", for " in line)
        assert head.startswith("# ")
        assert head.endswith("net touch here services: 3.")
        if file.endswith(".yaml"):
            for made in yaml.safe_load_all(text):
                assert isinstance(made, dict)
                assert made.get("services") != 3
