"""Rules of a sweep one by one: pieces, places, keys, engines, and the search for the cheapest service."""

from concurrent.futures import Future
from dataclasses import replace
from hashlib import sha256
from itertools import pairwise, product
from types import SimpleNamespace

import numpy as np
import pytest

from inferometer import predict
from inferometer.core.errors import DomainError, InferometerError, UnknownNameError
from inferometer.core.graph import is_generative
from inferometer.core.workload import Workload
from inferometer.predict.answer import predict_graph
from inferometer.predict.options import HostCosts, Hosting, Options
from inferometer.predict.request import completed, decode_context, last_tokens
from inferometer.predict.sweep import Rows, answer, evaluate, grid, group, run_study, serving, study_of, sweep
from inferometer.predict.sweep.answer import _fits
from inferometer.predict.sweep.engines import _in_order, _process_count, spread_over
from inferometer.predict.sweep.formats import in_runs
from inferometer.predict.sweep.grid import Sizes, _tiles
from inferometer.predict.sweep.rows import parse_condition
from inferometer.predict.sweep.sinks import discard, partial_of
from inferometer.predict.sweep.table import table_of
from inferometer.predict.sweep.workloads import asked_of
from inferometer.predict.sweep.write import Journal, Progress, SweepProgress, _add, fingerprint
from unit.predict.sweep.studies import device, graph, small


@pytest.mark.parametrize(
    ("shape", "most", "rows"),
    [
        ((2, 3, 1, 4), 24, [24]),
        ((2, 3, 1, 4), 23, [12, 12]),
        ((2, 3, 1, 4), 12, [12, 12]),
        ((2, 3, 1, 4), 11, [8, 4, 8, 4]),
        ((2, 3, 1, 4), 3, [3, 1] * 6),
        ((5, 1, 1, 2), 6, [6, 4]),
    ],
)
def test_a_tile_is_as_large_as_it_may_be(shape, most, rows):
    assert [tile.rows for tile in _tiles(shape, most)] == rows


def test_the_key_of_a_sweep_is_of_everything_that_is_asked():
    """Whatever is changed, alone and together with a list that has as many values: no two keys are the same."""
    changes = [
        {}, {"models": ("llama-3.2-3b",)}, {"devices": ("nvidia-h200", "nvidia-a10g")}, {"runtimes": "vllm"},
        {"threads": 2}, {"weights": ["bf16", "q8_0"]}, {"activations": "f32"}, {"kv": "f8e4m3"}, {"tp": 2}, {"pp": 2},
        {"dp": 2}, {"batch": [1, 9]}, {"prompt": [16, 512, 2047]}, {"generate": [5]}, {"context": [100, 200_001]},
        {"batch": [8, 1]}, {"options": Options(cached_prefix=1)}, {"options": Options(overlap=0.25)},
        {"options": Options(host=HostCosts(sampling_s=1.0))}, {"options": Options(place=Hosting(usd_per_hour=1.0))},
        {"options": Options(place=Hosting(usd_per_hour=2.0))}, {"chunk_rows": 7},
    ]  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("inferometer.predict.sweep.grid._require_used", lambda *_: None)
        keys = [fingerprint(small(**change), form) for change in changes for form in ("csv", "sqlite")]
        again = fingerprint(small(), "csv")
    assert len({*keys}) == 2 * len(changes)
    assert again == keys[0]
    assert fingerprint(replace(small(), details=True), "csv") != keys[0]
    other = tuple(each._replace(runtime="vllm") for each in small().settled)
    assert fingerprint(replace(small(), settled=other), "csv") != keys[0]


def test_lists_in_lists_have_a_key_of_their_own_however_they_are_nested():
    one, other = HostCosts(sampling_s=1.0), HostCosts(sampling_s=2.0)
    shapes = ([one, other], [[one, other]], [one, [other]], [[one], other], [[one], [other]], [[[one], other]], [])
    keys = []
    for shape in shapes:
        digest = sha256()
        _add(digest, shape, {})
        keys.append(digest.digest())
    assert len({*keys}) == len(shapes)


def test_a_journal_adds_up(tmp_path):
    journal = Journal(tmp_path / "j", SweepProgress())
    journal.add(rows=5, impossible=1, mark=100)
    assert journal.add(rows=7, impossible=2, mark=90) == SweepProgress(chunks=2, rows=12, impossible=3, mark=90)
    journal.close()


def test_what_is_under_way_is_taken_away_with_the_journal_of_sqlite(tmp_path):
    path = tmp_path / "x.sqlite"
    for name in ("x.sqlite.part", "x.sqlite.part-journal"):
        (tmp_path / name).write_text("")
    discard(path)
    assert [*tmp_path.iterdir()] == []
    partial_of(path).mkdir()
    discard(path)
    assert [*tmp_path.iterdir()] == []


def test_progress_says_how_fast_and_how_long_still():
    assert Progress(done=30, total=90, kept=10, seconds=4.0).rate == 5.0
    assert Progress(done=30, total=90, kept=10, seconds=4.0).remaining_s == 12.0
    assert Progress(done=10, total=90, kept=10, seconds=4.0).remaining_s is None
    assert Progress(done=30, total=90, kept=0, seconds=0.0).rate == 0.0


def test_pieces_are_written_in_runs_of_so_many_rows_at_most():
    runs = [[len(piece) for piece in run] for run in in_runs([range(size) for size in (4, 6, 1, 20, 3, 3)], 10)]
    assert runs == [[4, 6], [1], [20], [3, 3]]


# Phases


@pytest.mark.parametrize(
    ("asked", "phases"),
    [
        ({"prompt": None, "context": [100, 200]}, {"decode"}),
        ({"prompt": [16], "generate": 1, "context": None}, {"prefill"}),
        ({"prompt": [16], "generate": 9, "context": None}, {"prefill", "decode"}),
        ({"prompt": [16], "context": [100]}, {"prefill", "decode"}),
    ],
)
def test_a_phase_that_no_row_has_is_not_priced(monkeypatch, asked, phases):
    priced, price_points = [], group.price_points

    def noted(plans, site, phase, *points, **more):
        priced.append(phase)
        return price_points(plans, site, phase, *points, **more)

    monkeypatch.setattr(group, "price_points", noted)
    run_study(small(**asked))
    assert {*priced} == phases


@pytest.mark.parametrize(
    "options",
    [
        Options(),
        Options(cached_prefix=16),
        Options(host=HostCosts(tokenise_s_per_token=1e-6)),
        Options(host=HostCosts(detokenise_s_per_token=1e-6)),
    ],
    ids=["plain", "prefix", "tokenise", "detokenise"],
)
def test_a_row_that_cannot_be_says_what_predict_says(options):
    sizes = {"prompt": [None, 16, 17, 600, 10_000], "generate": [None, 0, 9], "context": [None, 100, 20_000]}
    asked = {"models": [graph("smollm2-135m")], "devices": [device()], "runtimes": "ideal", **sizes}
    for row, values in zip(run_study(study_of(asked, options=options)), product(*sizes.values()), strict=True):
        workload = Workload(**dict(zip(sizes, values, strict=True)))
        try:
            found = predict_graph(graph("smollm2-135m"), device(), runtime="ideal", workload=workload, options=options)
        except DomainError as error:
            assert row["reason"] == str(error), values
        else:
            assert row["reason"] is None, values
            assert row["tpot_s"] == (found.summary.tpot_s and pytest.approx(found.summary.tpot_s)), values


# Rows


def table(**columns):
    count = len(next(iter(columns.values())))
    return table_of([{name: values[place] for name, values in columns.items()} for place in range(count)])


def test_rows_of_several_parts_are_taken_in_the_order_asked_for():
    rows = Rows([table(batch=[1, 2, 3]), table(batch=[4]), table(batch=[5, 6])])
    for places in ([5, 0, 3, 3, 1], [4], [2, 1, 0], [3, 5]):
        assert rows.take(places)["batch"].tolist() == [place + 1 for place in places]
    for wrong in ([-1, 0], [0, 6], [-1]):
        with pytest.raises(DomainError, match="outside"):
            rows.take(wrong)
    assert (rows.take([])["batch"].dtype, len(rows.take([])["batch"])) == (rows["batch"].dtype, 0)
    assert Rows([]).take([])["model"].shape == (0,)


def test_a_whole_number_stays_one_where_all_are_known():
    known, some = Rows([table(batch=[1, 2]), table(batch=[3])]), Rows([table(batch=[1, 2]), table(batch=[None])])
    assert (known["batch"].dtype, some["batch"].dtype) == (np.int64, float)
    assert [row["batch"] for row in some] == [1, 2, None]
    assert [type(row["batch"]) for row in some] == [int, int, type(None)]


def test_the_cheapest_is_one_of_each_device_that_fits_and_meets_every_limit():
    rows = Rows(
        [
            table(device=["a", "b", "a"], usd_per_million_tokens=[3.0, 2.0, 1.0], tpot_s=[0.1, 0.1, 0.3],
                  fits=[True, True, True]),
            table(device=["b", "c", "d", "b"], usd_per_million_tokens=[1.0, 4.0, 0.5, None],
                  tpot_s=[0.1, 0.2, 0.1, 0.1], fits=[True, None, False, True]),
        ]
    )  # fmt: skip

    def found(*limits):
        best = rows.cheapest(*limits)
        return list(zip(best["device"].tolist(), best["usd_per_million_tokens"].tolist(), strict=True))

    assert found() == [("a", 1.0), ("b", 1.0), ("c", 4.0)]
    assert found("tpot_s<0.2") == [("b", 1.0), ("a", 3.0)]
    assert found("tpot_s<=0.2", "usd_per_million_tokens>1") == [("b", 2.0), ("a", 3.0), ("c", 4.0)]
    assert found("tpot_s>=0.3") == [("a", 1.0)]
    assert found("tpot_s=0.2") == [("c", 4.0)]


@pytest.mark.parametrize("sign", ["<", "<=", ">", ">=", "="])
def test_a_condition_compares_as_it_is_written(sign):
    rows = Rows([table(batch=[1, 2, 3, None])])
    expected = {"<": [1, 0, 0], "<=": [1, 1, 0], ">": [0, 0, 1], ">=": [0, 1, 1], "=": [0, 1, 0]}[sign]
    assert parse_condition(f"batch {sign} 2").holds(rows).tolist() == [*map(bool, expected), False]


def test_a_front_of_many_parts_is_that_of_all(monkeypatch):
    monkeypatch.setattr("inferometer.predict.sweep.rows._MOST_HELD", 3)
    points = np.random.default_rng(3).integers(0, 9, size=(60, 2)).astype(float)
    parts = [table(tpot_s=part[:, 0].tolist(), energy_j=part[:, 1].tolist(), fits=[True] * 6)
             for part in points.reshape(10, 6, 2)]  # fmt: skip
    best = Rows(parts).pareto("tpot_s", "energy_j", ties=False)
    found = list(zip(best["tpot_s"].tolist(), best["energy_j"].tolist(), strict=True))
    beaten = {tuple(one) for one in points for other in points if (other <= one).all() and (other < one).any()}
    assert found == sorted({tuple(point) for point in points.tolist()} - beaten)
    assert all(one[0] < other[0] and one[1] > other[1] for one, other in pairwise(found))


# Engines


def test_a_sweep_refuses_a_word_that_is_no_axis_and_names_the_nearest():
    with pytest.raises(UnknownNameError, match="Did you mean prompt"):
        sweep(graph(), device(), promt=[16])


def test_an_engine_is_named_by_its_processes():
    assert [_process_count(name) for name in ("local", "local:1", "local:12")] == [1, 1, 12]
    for wrong in ("remote", "local:x", "local:-1", "local:0", "dask:/x"):
        with pytest.raises(DomainError):
            _process_count(wrong)


def test_results_come_in_order_with_no_more_than_some_under_way():
    under_way, most, results = [], [], []

    def submit(item):
        future = Future()
        future.set_result(10 * item)
        under_way.append(future)
        most.append(len(under_way) - len(results))
        return future

    for result in _in_order(submit, range(7), 3):
        results += [result]
    assert results == [10 * item for item in range(7)]
    assert max(most) == 3


def test_a_study_knows_how_many_of_its_rows_cannot_be():
    from inferometer.predict.sweep.engines import work

    study = study_of({"models": [graph()], "devices": [device()], "runtimes": "ideal", "context": [10, 10**7, 10**8]})
    (chunk,) = study.chunks()
    done = work(study, chunk, None)
    assert (done.rows, done.impossible) == (3, 2)
    told = []
    run_study(study, progress=told.append, clock=iter((5.0, 7.0)).__next__)
    assert told == [Progress(done=3, total=3, kept=0, seconds=2.0)]


# The cheapest service: replicas are doubled while that helps


class Asked(list):
    """Stands for `ask` and `serving_answer`: a replica gives `per_replica` users enough, if it can be at all."""

    def __init__(self, per_replica):
        super().__init__()
        self.per_replica = per_replica

    def ask(self, model, **more):
        if more["on"] == "small":
            raise DomainError("It does not fit.")
        self.append(more["dp"])
        self.last = more
        assert more["batch"] == more["dp"]
        return SimpleNamespace(replicas=more["dp"], device=more["on"], model=model, tp=more["tp"])

    def answer(self, question, users, tokens):
        self.tokens = tokens
        limit = self.per_replica.get(question.device)
        meets = None if limit is None else users <= limit * question.replicas
        return SimpleNamespace(
            meets=meets, usd_per_hour={"dear": 9.0, "cheap": 1.0}.get(question.device), tpot_s=0.1 * question.tp,
            document=lambda: {"device": question.device, "replicas": question.replicas, "tp": question.tp, "notes": (),
                              "schema": "x"},
        )  # fmt: skip


def cheapest(monkeypatch, per_replica, users=20, **more):
    asked = Asked(per_replica)
    monkeypatch.setattr(serving, "ask", asked.ask)
    monkeypatch.setattr(serving, "serving_answer", asked.answer)
    given = {"models": ("m",), "devices": tuple(per_replica), "weights": ("i4",), "tp": (1,), **more}
    search = serving.ServingSearch(users=users, prompt=10, generate=5, **given)
    return serving.cheapest_serving(search), asked


def test_replicas_are_doubled_until_all_users_have_enough(monkeypatch):
    (row,), asked = cheapest(monkeypatch, {"cheap": 6})
    assert row == {"device": "cheap", "replicas": 4, "tp": 1}
    assert asked == [1, 2, 4]


def test_all_that_is_searched_with_is_asked_with(monkeypatch):
    options = Options(overlap=0.25)
    more = {"runtimes": ("vllm",), "kv": "f8e4m3", "options": options, "tokens_per_user": 7.5}
    _, asked = cheapest(monkeypatch, {"cheap": 99}, tp=(4,), **more)
    assert asked.last == {
        "on": "cheap", "runtime": "vllm", "weights": "i4", "kv": "f8e4m3", "batch": 1, "prompt": 10, "generate": 5,
        "tp": 4, "dp": 1, "options": options,
    }  # fmt: skip
    assert asked.tokens == 7.5


@pytest.mark.parametrize(
    ("per_replica", "users", "replicas"),
    [(0, 20, 1), (1, 20, 16), (1, 16, 16), (1, 1000, 64), (None, 20, 1)],
)
def test_replicas_are_no_more_than_users_and_none_are_added_in_vain(monkeypatch, per_replica, users, replicas):
    (row,), _ = cheapest(monkeypatch, {"cheap": per_replica}, users)
    assert row["replicas"] == replicas


def test_plans_that_meet_it_come_first_then_the_cheapest_then_the_quickest(monkeypatch):
    rows, _ = cheapest(monkeypatch, {"dear": 99, "cheap": 0, "unpriced": 99, "small": 1}, tp=(2, 1))
    assert [(row["device"], row["tp"]) for row in rows] == [
        ("dear", 1), ("dear", 2), ("unpriced", 1), ("unpriced", 2), ("cheap", 1), ("cheap", 2),
    ]  # fmt: skip
    refused, _ = cheapest(monkeypatch, {"small": 1})
    assert refused == [
        {"model": "m", "device": "small", "runtime": None, "weights": "i4", "tp": 1, "error": "It does not fit."}
    ]


def test_without_devices_those_of_data_centres_with_a_price_are_searched():
    found = serving.priced_gpus()
    assert {"nvidia-h200", "nvidia-l4"} <= {*found}
    assert not {"raspberry-pi-5", "nvidia-rtx-4090", "intel-emerald-rapids-1-vcpu"} & {*found}


# What no row could hold


def study(models=("llama-3.2-1b",), **more):
    options = more.pop("options", None)
    return study_of({"models": [graph(name) for name in models], "devices": [device()], **more}, options=options)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"models": ("resnet50",), "prompt": [5]}, "prompt means nothing to resnet50"),
        ({"models": ("resnet50",), "generate": [5]}, "generate means nothing to resnet50"),
        ({"models": ("resnet50",), "context": [5]}, "context means nothing to resnet50"),
        ({"image": [224]}, "image means nothing to llama-3.2-1b"),
        ({"options": Options(steps=4)}, "Leave it out: no row would use it"),
        ({"options": Options(frame_rate=30.0)}, "Leave it out: no row would use it"),
    ],
)
def test_what_no_row_would_use_is_refused(given, says):
    with pytest.raises(DomainError) as caught:
        study(**given)
    assert says in str(caught.value)


def test_a_chunk_has_a_row():
    assert len([*small(chunk_rows=1).chunks()]) == 48
    with pytest.raises(DomainError, match="one row or more"):
        small(chunk_rows=0)


def test_what_some_rows_use_is_not_refused():
    both = ("resnet50", "llama-3.2-1b")
    assert len(study(both, prompt=[5, 6], image=[None])) == 4
    assert len(study(both, options=Options(frame_rate=30.0))) == 2
    assert len(study(pp=[1, 2], batch=[2], options=Options(micro_batches=2))) == 2


def test_beyond_a_window_every_model_that_makes_tokens_says_so_once():
    beyond = {"runtimes": ["vllm"], "prompt": [16, 200_000, None], "generate": [8, 9]}
    (note,) = study(("llama-3.2-1b", "bert-base"), **beyond).window_notes()  # an encoder has a window and makes none
    assert note.startswith("llama-3.2-1b has a window of 131072 tokens, and 200008 were asked for")
    assert study(runtimes=["vllm"], prompt=[16], generate=[8]).window_notes() == ()
    assert "150000 were" in study(runtimes=["vllm"], prompt=[16], context=[7, 150_000]).window_notes()[0]
    assert study(runtimes=["ideal"], prompt=[200_000]).window_notes() == ()  # it refuses those rows


WINDOWS = (1, 2, 3, 40, 300, 1023, 1024, 1025, 4096, None)
LENGTHS = {"prompt": (None, 1, 7, 200), "generate": (None, 0, 1, 3, 90), "context": (None, 5, 250)}


@pytest.mark.parametrize("name", ["llama-3.2-1b", "t5-small", "whisper-tiny", "bert-base", "resnet50"])
@pytest.mark.parametrize("window", WINDOWS)
def test_what_is_left_open_is_filled_in_as_for_one_prediction(name, window):
    """The two that fill it in, point by point: for all rows at once, and for one."""
    of = replace(graph(name), context_limit=window)
    asked = asked_of(of, Sizes(batch=(1,), **LENGTHS), Options())
    lengths = {name: np.broadcast_to(getattr(asked, name), asked.shape)[0] for name in LENGTHS}
    contexts = [np.broadcast_to(each, asked.shape)[0] for each in (asked.step_context, asked.last_context)]
    for place in np.ndindex(asked.shape[1:]):
        given = {name: values[at] for (name, values), at in zip(LENGTHS.items(), place, strict=True)}
        try:
            one = completed(of, Workload(**given), Options())
        except DomainError:
            assert any(np.broadcast_to(each, asked.shape)[0][place] is not None for each in asked.reasons)
            continue
        found = {name: None if np.isnan(each[place]) else each[place] for name, each in lengths.items()}
        assert found == {name: getattr(one, name) for name in LENGTHS}
        if is_generative(of):
            # the last step finds all tokens but the one that it writes
            assert [each[place] for each in contexts] == [decode_context(of, one), last_tokens(of, one) - 1]


# What is swept: the model, and two sweeps that differ in one thing. Sizes differ too, so that no answer is kept whole.
OTHERWISE = {
    "an engine": (
        "llama-3.2-1b",
        {"runtimes": "torch-eager", "calibrated": False},
        {"runtimes": "onnxruntime", "calibrated": False},
    ),
    "weights": ("llama-3.2-1b", {"weights": "bf16"}, {"weights": "q4_0"}),
    "a cache": ("llama-3.2-1b", {"kv": "bf16"}, {"kv": "i8"}),
    "devices": ("llama-3.2-1b", {"tp": 2}, {"tp": 4}),
    "stages": ("llama-3.2-1b", {"tp": 2}, {"pp": 2}),
    "replicas": ("llama-3.2-1b", {"dp": 1}, {"dp": 2}),
    "experts": ("qwen3-30b-a3b", {"dp": 2, "ep": 2}, {"tp": 2, "ep": 2}),
    "an encoder's prompt": ("t5-small", {"prompt": [64]}, {"prompt": [80]}),
    "an image": ("vit-b-16", {"image": 224}, {"image": 384}),
    "overlap": ("llama-3.2-1b", {"tp": 2}, {"tp": 2, "options": Options(overlap=0.5)}),
    "micro-batches": ("llama-3.2-1b", {"pp": 2}, {"pp": 2, "options": Options(micro_batches=2)}),
    "imbalance": ("qwen3-30b-a3b", {"dp": 2, "ep": 2}, {"dp": 2, "ep": 2, "options": Options(imbalance=1.5)}),
    "a prefix": ("llama-3.2-1b", {}, {"options": Options(cached_prefix=8)}),
    "a host": ("llama-3.2-1b", {}, {"options": Options(host=HostCosts(sampling_s=1e-3))}),
    "a price": ("llama-3.2-1b", {}, {"options": Options(place=Hosting(usd_per_hour=9.0))}),
    "calibrations": ("llama-3.2-1b", {"runtimes": "torch-eager"}, {"runtimes": "torch-eager", "calibrated": False}),
}


@pytest.mark.parametrize("name", sorted(OTHERWISE))
def test_a_sweep_is_answered_by_all_that_is_asked_whatever_was_swept_before(name):
    model, one, other = OTHERWISE[name]

    def rows(of, asked, batch):
        asked, how = dict(asked), {name: asked[name] for name in ("options", "calibrated") if name in asked}
        for known in how:
            del asked[known]
        sizes = {"prompt": [40, 64], "generate": [4]} if model != "vit-b-16" else {}
        axes = {"models": [of], "devices": [device()], "batch": batch, **sizes, **asked}
        return [*run_study(study_of(axes, **how)).records()]

    alone = [rows(replace(graph(model)), asked, [4, 6]) for asked in (one, other)]  # of graphs that nobody asked of
    assert alone[0] != alone[1]
    assert all(row["reason"] is None for both in alone for row in both)
    for first, then, wanted in ((one, other, alone[1]), (other, one, alone[0])):
        shared = replace(graph(model))
        rows(shared, first, [2, 4])
        assert rows(shared, then, [4, 6]) == wanted


def test_a_device_whose_host_sends_weights_is_priced_beside_others_as_alone():
    """The accelerator holds 8 MB of ResNet's 26, so its plan is one of its own among those that are priced together."""
    asked = {"models": [graph("resnet50")], "runtimes": "ideal", "weights": "i8", "activations": "i8", "batch": [1, 3]}
    both = [device("google-coral-edge-tpu"), device()]
    together, *alone = (
        [*run_study(study_of({**asked, "devices": devices})).records()]
        for devices in (both, *([each] for each in both))
    )
    assert all(row["latency_s"] for row in together)
    assert together == [row for rows in alone for row in rows]


def test_rows_one_by_one_have_each_size_of_their_lists():
    """Prompts read in chunks are predicted singly."""
    sizes = {"batch": [1, 2], "prompt": [40, 70], "generate": [3, 9], "context": [None, 50]}
    rows = run_study(study(**sizes, tp=[2], options=Options(chunk=30)))
    expected = list(product(*sizes.values()))
    assert [tuple(row[name] for name in sizes) for row in rows] == expected
    for row, (batch, prompt, generate, context) in zip(rows, expected, strict=True):
        summary = predict(graph(), on=device(), batch=batch, prompt=prompt, generate=generate, context=context, tp=2,
                          options=Options(chunk=30)).summary  # fmt: skip
        assert (row["ttft_s"], row["tpot_s"], row["e2e_s"], row["tp"]) == (
            summary.ttft_s, summary.tpot_s, summary.e2e_s, 2,
        )  # fmt: skip
    bad = run_study(study(prompt=[40], tp=[3], options=Options(chunk=30)))
    assert ("does not divide" in bad["reason"][0], bad["prompt"].tolist()) == (True, [40])


# A Dask cluster, played by hand


class Cluster:
    """Stands for `distributed`: what is submitted is computed at once."""

    threads, made = 3, []

    class Client:
        def __init__(self, address, **_options):
            if "away" in address:
                raise OSError("nobody there")
            Cluster.made.append(address)

        def nthreads(self):
            return {"worker": Cluster.threads} if Cluster.threads else {}

        def scatter(self, value, **_options):
            return value

        def submit(self, function, *given, **_options):
            future = Future()
            future.set_result(function(*given))
            return future

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass


def test_a_cluster_computes_the_same_rows(monkeypatch):
    monkeypatch.setattr("inferometer.predict.sweep.engines.import_module", lambda _name: Cluster)
    monkeypatch.setattr(Cluster, "made", [])
    here, there = (run_study(small(chunk_rows=5), engine=engine) for engine in ("local", "dask://host:8786"))
    assert here["tpot_s"].tolist()[::2] == there["tpot_s"].tolist()[::2]
    with spread_over("dask://host:8787") as spread:
        assert list(spread(str, range(20))) == [str(each) for each in range(20)]
    assert Cluster.made == ["tcp://host:8786", "tcp://host:8787"]
    with pytest.raises(InferometerError, match="No Dask scheduler answers at away:1"), spread_over("dask://away:1"):
        pass
    monkeypatch.setattr(Cluster, "threads", 0)
    with pytest.raises(InferometerError, match="has no workers"), spread_over("dask://host:1"):
        pass


def test_a_map_of_this_process_is_a_map():
    with spread_over("local") as spread:
        assert spread is map


# What is refused, and how rows are computed.


@pytest.mark.parametrize(
    ("unused", "refused"),
    [([{"a": "no a"}, {"a": "no a"}], "no a"), ([{"a": "no a"}, {}], None), ([{}, {"a": "no a"}], None),
     ([{"a": "no a"}, {"b": "no b"}], None), ([{"a": "no a", "b": "no b"}, {"b": "nor b"}], "no b"),
     ([{"a": "no a"}, {"b": "no b"}, {"b": "no b"}], None)],
)  # fmt: skip
def test_an_option_is_refused_where_no_combination_at_all_uses_it(monkeypatch, unused, refused):
    asked = iter(unused)
    monkeypatch.setattr(grid, "unused", lambda *_, **__: next(asked))
    question = SimpleNamespace(graph=None, device=None, options=None, prefill_on=None)
    questions = [question] * len(unused)
    if refused is None:
        grid._require_used(questions, [None])
        return
    with pytest.raises(DomainError) as caught:
        grid._require_used(questions, [None])
    assert caught.value.message == refused


@pytest.mark.parametrize(
    ("answers", "special", "found"),
    [(["x"], False, ["joined x"]), ([None], False, ["one a", "one b"]), (["x"], True, ["one a", "one b"])],
)
def test_rows_are_computed_together_where_every_part_can_be_and_else_one_by_one(monkeypatch, answers, special, found):
    told = iter(answers)
    monkeypatch.setattr(evaluate, "_is_special", lambda _: special)
    monkeypatch.setattr(evaluate, "_answer", lambda *_, **__: next(told))
    monkeypatch.setattr(evaluate, "joined", lambda parts: f"joined {' '.join(parts)}")
    monkeypatch.setattr(evaluate, "one_by_one", lambda question, *_, **__: f"one {question.name}")
    graph = SimpleNamespace(metadata={})
    questions = [SimpleNamespace(name=name, graph=graph) for name in "ab"]
    assert evaluate._evaluate(questions, Sizes(), details=False, dense=False) == found


@pytest.mark.parametrize(
    ("answers", "found"), [(["x", "y"], ["joined x y"]), (["x", None], ["one a"]), ([None, "y"], ["one a"])]
)
def test_an_encoder_has_a_part_for_each_prompt_and_all_of_them_must_be(monkeypatch, answers, found):
    told, sizes = iter(answers), []
    monkeypatch.setattr(evaluate, "_is_special", lambda _: False)
    monkeypatch.setattr(evaluate, "encodes_prompt", lambda _: True)
    monkeypatch.setattr(evaluate, "_answer", lambda _, part, **__: sizes.append(part.prompt) or next(told))
    monkeypatch.setattr(evaluate, "joined", lambda parts: f"joined {' '.join(parts)}")
    monkeypatch.setattr(evaluate, "one_by_one", lambda question, *_, **__: f"one {question.name}")
    question = SimpleNamespace(name="a", graph=SimpleNamespace(metadata={"default_sizes": {"encoder": 5}}))
    assert evaluate._evaluate([question], Sizes(prompt=(3, 4)), details=False, dense=False) == found
    assert sizes == [(3,), (4,)]
    assert evaluate._evaluate([question], Sizes(prompt=(3, None)), details=False, dense=False) == ["one a"]


def test_what_is_not_known_is_chosen_place_by_place():
    known, values, otherwise = np.array([True, False, True]), np.array([1.0, 2.0, 3.0]), np.array([7.0, 8.0, 9.0])
    assert answer._where(known, values, otherwise).tolist() == [1.0, 8.0, 3.0]
    assert answer._where(~known, values, otherwise).tolist() == [7.0, 2.0, 9.0]
    assert answer._where(known | True, values, otherwise) is values


def test_devices_to_search_are_gpus_of_data_centres_with_kernels_and_an_instance(monkeypatch):
    def device_of(kind="server", unit="gpu"):
        return SimpleNamespace(kind=kind, unit=unit)

    devices = {
        "good": device_of(), "desk": device_of(kind="desktop"), "cpu": device_of(unit="cpu"), "no-kernels": device_of(),
        "no-instance": device_of(),
    }  # fmt: skip
    monkeypatch.setattr(serving, "all_devices", lambda: devices)
    monkeypatch.setattr(serving, "system_of", lambda name: None if name == "no-kernels" else "system")
    monkeypatch.setattr(serving, "instances_with", lambda name: () if name == "no-instance" else ("one",))
    assert serving.priced_gpus() == ("good",)


@pytest.mark.parametrize("single", [True, False])
def test_a_model_fits_does_not_or_nobody_knows_each_by_itself(single):
    """Whatever the device beside it says of its memory; a step that is not there asks for none."""
    nan = float("nan")
    room, first, step = np.array([8.0, 8.0, nan, 8.0]), np.array([8.0, 9.0, 1.0, 1.0]), np.array([1.0, 1.0, 1.0, 9.0])
    given = {"room_bytes": room, "single": single, "first": SimpleNamespace(bytes=first), "prompt": np.ones(4),
             "step": SimpleNamespace(bytes=step), "generate": np.full(4, 2.0), "context": np.full(4, nan)}  # fmt: skip
    found = _fits(SimpleNamespace(**given))
    assert list(found) == [True, False, None, single]
    known = {name: value[[0, 1, 3]] if isinstance(value, np.ndarray) else value for name, value in given.items()}
    known |= {name: SimpleNamespace(bytes=each[[0, 1, 3]]) for name, each in (("first", first), ("step", step))}
    assert _fits(SimpleNamespace(**known)).tolist() == [True, False, single]
