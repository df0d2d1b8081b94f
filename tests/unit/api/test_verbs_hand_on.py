"""Every parameter of a verb arrives where it counts, under its own name."""

import inspect
from pathlib import Path
from types import SimpleNamespace

import pytest

from inferometer.api import naming, services
from inferometer.api.explanations import compare
from inferometer.core.errors import DomainError, InferometerError, UnknownNameError
from inferometer.core.served import Objective
from inferometer.core.traffic.arrivals import Arrivals
from inferometer.core.traffic.lengths import Lengths
from inferometer.predict import published_rows
from inferometer.predict import verbs as questions
from inferometer.predict.fields import fields_that
from inferometer.predict.flags import FLAGS
from inferometer.predict.options import Options
from inferometer.serving.load.plan import LoadStep
from inferometer.serving.plans.asked import Autoscaling, Drafting
from unit.store.profiles import profile


def fixed(tokens):
    return Lengths(kind="fixed", mean=tokens)


def distinct(verb):
    """A value of its own for every keyword of a verb."""
    return {name: f"value of {name}" for name in list(inspect.signature(verb).parameters)[1:]}


@pytest.mark.parametrize(("verb", "ends_with"), [(questions.predict, "answer"), (questions.fit, "fit")])
def test_a_prediction_asks_for_all_that_it_was_given(monkeypatch, verb, ends_with):
    seen = {}

    def ask(model, **given):
        seen.update(given, model=model)
        return SimpleNamespace(**{ends_with: lambda: "answered"})

    monkeypatch.setattr(questions, "ask", ask)
    given = {name: value for name, value in distinct(verb).items() if name not in fields_that("users")}
    assert verb("m", **given) == "answered"
    assert seen == {"model": "m", **given}


def test_a_prediction_with_users_is_the_answer_of_a_service(monkeypatch):
    monkeypatch.setattr(questions, "ask", lambda model, **given: (model, given["tp"]))
    monkeypatch.setattr("inferometer.predict.served.question.serving_answer", lambda *given: given)
    assert questions.predict("m", on="d", tp=2, users=8, tokens_per_user=30.0) == (("m", 2), 8, 30.0)
    with pytest.raises(DomainError, match="users=N"):
        questions.predict("m", on="d", tokens_per_user=30.0)


@pytest.mark.parametrize("verb", [questions.predict, questions.fit, questions.ask])
def test_a_field_that_nobody_has_is_refused_with_those_like_it(verb):
    with pytest.raises(UnknownNameError, match=r"no field of a question named 'bathc'\. Did you mean batch\?"):
        verb("llama-3.2-1b", on="nvidia-l4", bathc=8)


GOALS = (Objective(metric="ttft", limit_s=1.0, share=0.95), Objective(metric="tpot", limit_s=0.05))


def test_a_load_test_is_planned_as_it_was_asked_for(monkeypatch):
    monkeypatch.setattr("inferometer.serving.load.run.load", lambda plan: plan)
    plan = services.load(
        "http://h", model="m", rate=2.5, requests=7, duration_s=9.0, prompt=11, generate="5", arrivals="constant",
        slo="ttft_p95<=1s,tpot<=50ms", stream=False, device="d", seed=3,
    )  # fmt: skip
    assert plan.steps == (LoadStep(arrivals=Arrivals(rate_per_s=2.5, process="constant")),)
    assert (plan.url, plan.model, plan.stream, plan.requests, plan.duration_s) == ("http://h", "m", False, 7, 9.0)
    assert (plan.prompt, plan.generate, plan.device, plan.seed, plan.trace) == (fixed(11), fixed(5), "d", 3, None)
    assert plan.objectives == GOALS
    assert services.load("h", concurrency=4).steps == (LoadStep(concurrency=4),)
    for wrong in ({}, {"rate": 1.0, "concurrency": 1}):
        with pytest.raises(DomainError, match="one of"):
            services.load("h", **wrong)


def test_a_simulation_is_planned_as_it_was_asked_for(monkeypatch):
    monkeypatch.setattr("inferometer.serving.simulate.run.simulate", lambda plan: plan)
    asked = {}
    monkeypatch.setattr("inferometer.serving.asked.ask", lambda model, **given: asked.update(given, model=model))
    options = Options(overlap=0.5)
    plan = services.simulate(
        "m", on="d", runtime="r", concurrency=6, requests=7, duration_s=9.0, prompt=11, generate=5,
        slo=("ttft_p95<=1s", "tpot<=50ms"), weights="i4", kv="i8", tp=2, pp=3, ep=4, dp=5, replicas=6,
        routing="round-robin", max_num_seqs=8, max_num_batched_tokens=9, kv_blocks=10, options=options, seed=3,
    )  # fmt: skip
    assert asked == {
        "model": "m", "on": "d", "runtime": "r", "weights": "i4", "kv": "i8", "tp": 2, "pp": 3, "ep": 4,
        "options": options,
    }  # fmt: skip
    assert (plan.ranks, plan.replicas, plan.routing) == (5, 6, "round-robin")
    assert (plan.sequences, plan.tokens, plan.blocks) == (8, 9, 10)
    traffic = plan.traffic
    assert (traffic.requests, traffic.duration_s, traffic.seed) == (7, 9.0, 3)
    assert (traffic.prompt, traffic.generate, traffic.objectives) == (fixed(11), fixed(5), GOALS)
    assert traffic.steps == (LoadStep(concurrency=6),)


# What the simulation calls those of its keywords that have another name there.
CALLED = {
    "duration_s": "duration", "from_s": "from_time", "think_s": "think", "n": "answers", "dp": "ranks",
    "cold_start_s": "cold_start", "scale_by": "signal", "max_num_seqs": "sequences", "max_num_batched_tokens": "tokens",
    "kv_blocks": "blocks", "block_size": "block_tokens", "max_model_len": "longest", "max_queue": "queue",
    "timeout_s": "timeout", "acceptance_spread": "spread", "max_loras": "slots", "slo": "objectives",
}  # fmt: skip


def test_every_keyword_of_a_simulation_arrives_under_its_own_name(monkeypatch):
    seen = {}
    monkeypatch.setattr("inferometer.serving.asked.traffic_from", lambda given, _: (seen.update(given), None))
    monkeypatch.setattr("inferometer.serving.asked.service_plan", lambda *_, **__: None)
    monkeypatch.setattr("inferometer.serving.simulate.run.simulate", lambda plan: plan)
    names = [entry.name for entry in inspect.signature(services.simulate).parameters.values()
             if entry.kind is entry.KEYWORD_ONLY and entry.name not in {"on", "prefix_cache"}]  # fmt: skip
    given = {name: (f"the {name}",) for name in names}
    services.simulate("m", on="d", prefix_cache=False, **given)
    assert {name: seen[CALLED.get(name, name)] for name in names} == given
    assert seen["no_prefix_cache"] is True


def test_a_search_is_asked_as_it_was_asked_for(monkeypatch):
    monkeypatch.setattr("inferometer.serving.plans.search.plan", lambda search, engine: (search, engine))
    options = Options(overlap=0.5)
    search, engine = services.plan(
        "m", rate=2.5, slo="ttft_p95<=1s,tpot<=50ms", prompt=11, generate=5, goal="greenest", devices=["d"],
        runtimes=["r"], weights=["i4"], tp=[2], most_devices=9, availability=0.99, headroom=0.1, discount=0.2,
        fallback=0.3, edge="e", edge_model="f", edge_weights="i8", round_trip_s=0.4, keep=7, options=options,
        engine="local:3", seed=8, kv=["f8e4m3"], max_num_seqs=[3], max_num_batched_tokens=[4], draft="eagle",
        draft_length=[5], acceptance=0.6, acceptance_spread=0.1, max_power_w=7e3, prices={"nvidia-l4": 0.5},
        day=[0.5, 1.0], link="infiniband-ndr", replica_up=0.9, dp=[6], pp=[7], ep=[8],
        autoscale=True, cold_start_s=9.0, scale_by="cache",
    )  # fmt: skip
    assert (search.kv, search.sequences, search.tokens, search.day) == (("f8e4m3",), (3,), (4,), (0.5, 1.0))
    assert search.drafts == (Drafting(draft="eagle", length=5, acceptance=0.6, spread=0.1),)
    assert (search.most_watts, search.prices, search.replica_up) == (7e3, (("nvidia-l4", 0.5),), 0.9)
    assert search.autoscale == Autoscaling(signal="cache", cold_start_s=9.0)
    assert (search.link.name, search.dp, search.pp, search.ep) == ("infiniband-ndr", (6,), (7,), (8,))
    assert (search.model, search.rate_per_s, search.goal, engine) == ("m", 2.5, "greenest", "local:3")
    assert (search.prompt, search.generate, search.objectives) == (fixed(11), fixed(5), GOALS)
    assert (search.devices, search.runtimes, search.weights, search.tp) == (("d",), ("r",), ("i4",), (2,))
    assert (search.most_devices, search.availability, search.headroom, search.discount) == (9, 0.99, 0.1, 0.2)
    assert (search.fallback, search.keep, search.seed, search.options) == (0.3, 7, 8, options)
    edge = search.edge
    assert (edge.device, edge.model, edge.weights, edge.round_trip_s) == ("e", "f", "i8", 0.4)
    for wrong in ({"edge_model": "f"}, {"edge_weights": "i8"}):
        with pytest.raises(DomainError, match="answers first"):
            services.plan("m", rate=1.0, slo="ttft<=1s", **wrong)


TRACE = (
    '{"timestamp": 0, "input_length": 700, "output_length": 4, "hash_ids": [0, 1]}\n'
    '{"timestamp": 500, "input_length": 600, "output_length": 5, "hash_ids": [0, 2]}\n'
    '{"timestamp": 2000, "input_length": 500, "output_length": 9, "hash_ids": [0, 3]}\n'
)


def test_a_search_over_a_trace_has_its_lengths_and_its_own_rate_unless_another_is_asked_for(monkeypatch, tmp_path):
    monkeypatch.setattr("inferometer.serving.plans.search.plan", lambda search, **_: search)
    file = tmp_path / "trace.jsonl"
    file.write_text(TRACE)
    search = services.plan("m", trace=file, slo="ttft<=1s")
    assert (search.prompt.values, search.generate.values) == ((700, 600, 500), (4, 5, 9))
    assert (len(search.trace), search.rate_per_s) == (3, 3 / 2), "three in two seconds"
    assert services.plan("m", trace=str(file), slo="ttft<=1s", rate=8.0).rate_per_s == 8
    file.write_text(TRACE.replace("500,", "0,").replace("2000,", "0,"))
    with pytest.raises(DomainError, match="at one moment"):
        services.plan("m", trace=file, slo="ttft<=1s")
    assert services.plan("m", trace=file, slo="ttft<=1s", rate=8.0).rate_per_s == 8
    with pytest.raises(DomainError, match="what comes"):
        services.plan("m", slo="ttft<=1s")


def test_a_load_test_plays_the_trace_and_takes_a_rate_of_none_as_a_rate(monkeypatch, tmp_path):
    monkeypatch.setattr("inferometer.serving.load.run.load", lambda plan: plan)
    file = tmp_path / "trace.jsonl"
    file.write_text(TRACE)
    played = services.load("h", trace=file)
    assert (len(played.trace), played.steps) == (3, (LoadStep(),))
    with pytest.raises(DomainError):
        services.load("h", rate=0.0)


PLAIN = {
    services.load: {
        "model": None, "rate": None, "concurrency": None, "trace": None, "requests": None, "duration_s": None,
        "prompt": 128, "generate": 64, "arrivals": "poisson", "slo": (), "stream": True, "device": None, "seed": 0,
    },
    services.simulate: {
        "runtime": None, "rate": None, "concurrency": None, "trace": None, "requests": None, "duration_s": None,
        "prompt": 512, "generate": 128, "arrivals": "poisson", "slo": (), "weights": None, "kv": None, "tp": 1, "pp": 1,
        "ep": 1, "dp": 1, "replicas": 1, "routing": "least-loaded", "max_num_seqs": None,
        "max_num_batched_tokens": None, "kv_blocks": None, "options": None, "seed": 0, "threads": None,
        "engine_version": None, "draft": None, "draft_length": None, "acceptance": None, "link": None,
        "draft_up_to": None,
        "burstiness": 1.0, "ramp": None, "saturate": False, "within": False, "speed": 1.0, "from_s": None,
        "shared_prefix": None, "turns": 1, "think_s": 0.0, "n": 1, "autoscale": None, "cold_start_s": 60.0,
        "scale_by": "requests", "block_size": None, "max_model_len": None, "max_queue": None, "timeout_s": None,
        "cancel": None, "acceptance_spread": 0.0, "lora": None, "max_loras": 1, "images": None, "encoder": None,
        "prefix_cache": True, "kv_offload": None, "preemption": "recompute", "priorities": None, "prefill_on": None,
        "prefill_replicas": 1, "prefill_tp": None,
    },
    services.plan: {
        "autoscale": False, "cold_start_s": 300.0, "scale_by": "requests",
        "rate": None, "trace": None,
        "prompt": 1024, "generate": 256, "goal": "cheapest", "devices": (), "runtimes": (), "weights": (), "tp": (),
        "pp": (), "ep": (), "dp": (), "kv": (None, "f8e4m3"), "max_num_seqs": (0, 64, 256),
        "max_num_batched_tokens": (0, 2048, 16384), "draft": None, "draft_length": (), "acceptance": None,
        "acceptance_spread": 0.0, "max_power_w": None, "prices": None, "day": (), "link": None, "replica_up": 0.99,
        "most_devices": 256, "availability": None, "headroom": 0.0, "discount": 0.0,
        "fallback": None, "edge": None, "edge_model": None, "edge_weights": None, "round_trip_s": 0.0, "keep": 3,
        "options": None, "engine": "local", "seed": 0,
    },
    questions.fit: {
        "runtime": None, "weights": None, "activations": None, "kv": None, "batch": 1, "prompt": None, "generate": None,
        "context": None, "image": None, "sizes": None, "tp": 1, "pp": 1, "ep": 1, "dp": 1, "options": None,
        "draft": None, "offload_layers": None, "offload_experts": None, "override": None,
    },
    questions.predict: {
        "runtime": None, "weights": None, "activations": None, "kv": None, "batch": 1, "prompt": None, "generate": None,
        "context": None, "image": None, "sizes": None, "tp": 1, "pp": 1, "ep": 1, "dp": 1, "threads": None,
        "calibration": None, "calibrated": True, "priors": False, "prefill_on": None, "options": None,
        "users": None, "tokens_per_user": None, **dict.fromkeys(FLAGS),
    },
    compare: {"threshold": 0.01, "alpha": 0.005, "names": None, "store": None},
}  # fmt: skip


@pytest.mark.parametrize("verb", PLAIN)
def test_what_is_left_out_is_what_the_documentation_says(verb):
    parameters = inspect.signature(verb).parameters.values()
    assert {one.name: one.default for one in parameters if one.default is not one.empty} == PLAIN[verb]


def test_gains_are_of_the_phase_that_the_change_is_about():
    asked = questions.ask("llama-3.2-1b", on="nvidia-l4", runtime="torch-compile", prompt=512, generate=8)
    rows = {row["change"]: row for row in questions.gains(asked, ["weights=i8", "prompt=256", "tp=3", "batch=2"])}
    assert {change: row.get("phase") for change, row in rows.items()} == {
        "weights=i8": "decode", "prompt=256": "prefill", "tp=3": None, "batch=2": "decode",
    }  # fmt: skip
    assert "does not divide" in rows["tp=3"]["error"]
    row, before, after = rows["batch=2"], asked.answer(), asked.changed("batch=2").answer()
    expected = before.phase("decode").time_s / after.phase("decode").time_s
    assert (row["before_s"], row["after_s"]) == (before.phase("decode").time_s, after.phase("decode").time_s)
    assert row["gain"] == round(expected, 3)
    assert row["throughput_gain"] == round(2 * expected, 3)
    assert row["gain_low"] <= row["gain"] <= row["gain_high"]
    assert row["fits"] is True


# Names


def test_a_result_is_a_value_a_file_or_a_run(tmp_path, monkeypatch):
    made = profile()
    assert naming.profile_of(made) is made
    assert naming.profile_of(SimpleNamespace(profile=made)) is made
    assert (naming.name_of_result(made), naming.name_of_result(Path("a"))) == (None, "a")
    monkeypatch.setattr(naming, "profiles_in", lambda _path: (made, made))
    (tmp_path / "two.json").write_text("{}")
    with pytest.raises(DomainError, match=r"two.json has 2 results"):
        naming.profile_of(tmp_path / "two.json")
    store = tmp_path / "runs.db"
    with naming.open_chosen(store, create=True) as runs:
        run = runs.add(made, name="named")
        empty = runs.begin(name="empty")
        runs.fail(empty, "why")
    assert (
        naming.profile_named("named", store)
        == naming.profile_of(run, store)
        == naming.profile_named(run[-8:], store)
        == made
    )
    with pytest.raises(DomainError, match="is failed and has no profile"):
        naming.profile_named("empty", store)
    for missing in ("a/b", "a\\b", "x.json"):
        with pytest.raises(InferometerError, match="There is no file"):
            naming.profile_named(missing, store)
    with pytest.raises(DomainError, match="There is no store"):
        naming.open_chosen(tmp_path / "other.db")


def test_a_comparison_has_its_threshold_its_risk_and_its_names(monkeypatch):
    monkeypatch.setattr(
        "inferometer.measure.bench.compare.compare", lambda a, b, criteria, names: (a, b, criteria, names)
    )
    one, two = profile(1), profile(2)
    a, b, criteria, names = compare(one, two, threshold="2%", alpha=0.1)
    assert (a, b, criteria.threshold, criteria.alpha, names) == (one, two, 0.02, 0.1, ("A", "B"))
    assert compare(one, two, threshold=0.03, names=("x", "y"))[3] == ("x", "y")
    assert compare(one, two, threshold=0.03)[2].threshold == 0.03
    monkeypatch.setattr("inferometer.api.explanations.profile_of", lambda what, store: (what, store))
    a, b, _, names = compare("x", "y", store="s")
    assert (a, b, names) == (("x", "s"), ("y", "s"), ("x", "y"))


# Published rows


def row(**more):
    given = {"model": "m", "device": "d", "count": 1, "part": None, "quantity": "forward", "input": None,
             "prompt": None, "engine": None, "weights": "f32", "activations": "f32", "settings": {}, "batch": None,
             "image": None, "context": None, "generate": None, "seconds": 1.0}  # fmt: skip
    return SimpleNamespace(**{**given, **more})


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        ({}, {"prompt": None}),
        ({"prompt": 384}, {"prompt": 384}),
        ({"batch": 4, "image": 7, "activations": "f16", "settings": {"autocast": "1"}},
         {"batch": 4, "image": 7, "weights": "f16", "activations": "f16", "prompt": None}),
        ({"device": "raspberry-pi-5", "settings": {"threads": "2"}}, {"prompt": None, "threads": 2}),
        ({"device": "nvidia-l4", "settings": {"threads": "2"}}, {"prompt": None}),
        ({"quantity": "decode", "context": 100, "generate": 31, "batch": 3}, {"batch": 3, "prompt": 1, "context": 115}),
        ({"quantity": "decode", "context": 7}, {"prompt": 1, "context": 7}),
        ({"quantity": "decode", "generate": 31}, {"prompt": 1, "context": 15}),
        ({"quantity": "decode"}, {"prompt": 1, "context": 1}),
        ({"quantity": "prefill", "prompt": 9, "batch": 2}, {"batch": 2, "prompt": 9, "generate": 0}),
    ],
)  # fmt: skip
def test_a_published_figure_is_asked_with_its_sizes(given, sizes):
    plain = {"batch": 1, "image": None, "weights": "f32", "activations": "f32"}
    assert dict(published_rows._sizes(row(**given))) == {**plain, **sizes}


def test_only_a_figure_that_a_prediction_has_is_predicted(monkeypatch):
    monkeypatch.setattr(published_rows, "_askable", lambda model: model)
    monkeypatch.setattr(published_rows, "takes_prompt", lambda graph: graph == "reads")
    monkeypatch.setattr(published_rows, "model_graph", lambda model: model)
    monkeypatch.setattr(published_rows, "_phase", lambda *given: SimpleNamespace(time_s=given, floor_s=1.0))
    assert published_rows.predicted_seconds(row(engine="onnxruntime"))[:4] == ("m", "d", "onnxruntime", "forward")
    assert published_rows.predicted_seconds(row(engine="unheard of"))[2] is None
    assert published_rows.predicted_seconds(row(quantity="prefill", prompt=3)) is not None
    for wrong in ({"model": None}, {"device": None}, {"count": 2}, {"part": "a"}, {"quantity": "ttft"},
                  {"input": "x"}, {"quantity": "prefill"}, {"model": "reads"}):  # fmt: skip
        assert published_rows.predicted_seconds(row(**wrong)) is None


def test_a_figure_below_every_floor_cannot_be(monkeypatch):
    floors = {"ideal": 2.0, "onnxruntime": 1.0}
    monkeypatch.setattr(published_rows, "has_own_figures", lambda name: name == "d")
    monkeypatch.setattr(published_rows, "_predicted", lambda _row, name: name and SimpleNamespace(floor_s=floors[name]))
    told = published_rows.impossible(row(seconds=0.89, engine="onnxruntime"))
    assert told == "890 ms is faster than d can be: forward takes at least 1 s."
    floors["unheard of"] = 0.1  # an engine that nobody here knows makes nothing possible
    assert published_rows.impossible(row(seconds=1.79, engine="unheard of")) is not None
    assert published_rows.impossible(row(seconds=0.91, engine="onnxruntime")) is None
    assert published_rows.impossible(row(seconds=1.79)) is not None
    assert published_rows.impossible(row(seconds=1.81)) is None
    for unknown in ({"weights": None}, {"device": None}, {"device": "other"}):
        assert published_rows.impossible(row(seconds=0.1, **unknown)) is None
