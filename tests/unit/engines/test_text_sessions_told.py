"""Sessions of language models over engines that move the clock by hand: llama.cpp, ONNX Runtime, OpenVINO, PyTorch."""

import ctypes
import json
import random
import sys
from contextlib import nullcontext
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from inferometer.core.errors import DomainError, EngineError
from inferometer.engines.base import Opened, Request, Stage, Target
from inferometer.engines.llamacpp import session as servers
from inferometer.engines.llamacpp.direct import DirectSession, Handles
from inferometer.engines.llamacpp.library import LlamaOptions
from inferometer.engines.llamacpp.nodes import LlamaNode, NodeWatch
from inferometer.engines.onnxruntime import recorder as recorders
from inferometer.engines.onnxruntime.fusion import Fusion
from inferometer.engines.onnxruntime.recorder import SKIP, Details, ProfileEvent, ProfileRecorder
from inferometer.engines.onnxruntime.session import DecoderSession
from inferometer.engines.torch import host as hosts
from inferometer.engines.torch.engine import TorchDevice
from inferometer.engines.torch.session import Text
from inferometer.engines.torch.trace import NoRecorder, cost_per_kernel
from unit.engines.test_sessions_told import World, event

PIECES = {7: b"\xc3", 8: b"\xa9!", 6: b"six"}  # the first two are one character and a mark
ASKED, RAN = True, False  # why llama.cpp calls back

# llama.cpp.


class Llama:
    """A vocabulary of nine. A pass takes a second a token, choosing a token a half, its text a quarter."""

    label, code, ends = "llama", 0, ()
    chosen = (7, 6, 8, 5, 6, 4)  # for two sequences: the first has 7, 8 and 6

    def __init__(self, *, batch=4, kind=1):
        self.world, self.passes, self.calls, self.batch, self.kind = World(), [], [], batch, kind
        self.sampled = 0

    def __getattr__(self, name):
        """What only has to be called."""
        return lambda *given: self.calls.append((name, given)) or name

    def llama_vocab_n_tokens(self, _vocabulary):
        return 9

    def llama_vocab_type(self, _vocabulary):
        return self.kind

    def llama_n_batch(self, _context):
        return self.batch

    def llama_n_ubatch(self, _context):
        return 2

    def llama_decode(self, context, batch):
        assert context == "context"
        count = batch.n_tokens

        def read(kind, address):
            return list((kind * count).from_address(address))

        int32 = ctypes.c_int32
        sequences = [int32.from_address(address).value for address in read(ctypes.c_void_p, batch.seq_id)]
        rows = zip(
            read(int32, batch.token), read(int32, batch.pos), sequences, read(ctypes.c_int8, batch.logits), strict=True
        )
        self.passes.append(list(rows))
        assert read(int32, batch.n_seq_id) == [1] * count
        self.world.now += count
        return self.code

    def llama_sampler_sample(self, _sampler, _context, place):
        assert self.passes[-1][place][3] == 1, "its logits were wanted"
        self.world.now += 0.5
        self.sampled += 1
        return self.chosen[self.sampled - 1]

    def llama_token_to_piece(self, _vocabulary, token, room, size, *_):
        self.world.now += 0.25
        piece = PIECES.get(token, b"")
        assert size == len(room)
        room[: len(piece)] = piece
        return len(piece) or -1

    def llama_vocab_is_eog(self, _vocabulary, token):
        return token in self.ends

    def llama_get_logits_ith(self, _context, place):
        token, position, *_ = self.passes[-1][place]
        return (ctypes.c_float * 9)(token, position)

    def llama_tokenize(self, _vocabulary, raw, length, ids, room, *_):
        needed = 40
        if room < needed:
            return -needed
        ids[:needed] = range(needed)
        return needed if raw[:length] == b"hi" else 0

    def llama_detokenize(self, _vocabulary, given, count, text, room, *_):
        words = b"w%d" % given[count - 1] * 40
        if room < len(words):
            return -len(words)
        text[: len(words)] = words
        return len(words)


def llama(*, held=50, sequences=1, watch=None, **more):
    library = Llama(**more)
    handles = Handles(library=library, model="model", context="context", keep=None, watch=watch)
    session = DirectSession(handles, held=held, sequences=sequences, seed=3, clock=library.world.ns)
    return library, session


def test_llama_cpps_batches_hold_every_sequence_in_turn_and_want_the_last_of_each():
    library, session = llama(sequences=2)
    found = list(session.generate(Request(prompt=(1, 2, 3), generate=3, depth=2)))
    draw = random.Random(3)  # noqa: S311 - as the session draws
    filler = [draw.randrange(9) for _ in range(2)]
    assert library.passes == [
        [(filler[0], 0, 0, 0), (filler[1], 1, 0, 1), (filler[0], 0, 1, 0), (filler[1], 1, 1, 1)],
        [(1, 2, 0, 0), (2, 3, 0, 0), (3, 4, 0, 1), (1, 2, 1, 0)],
        [(2, 3, 1, 0), (3, 4, 1, 1)],
        [(7, 5, 0, 1), (6, 5, 1, 1)],
        [(8, 6, 0, 1), (5, 6, 1, 1)],
    ]
    assert [row.ids for row in found] == [(7,), (8,), (6,)]
    assert [row.text for row in found] == ["", "é!", "six"], "a character that ends in the next token"
    assert [(row.kind, row.tokens, row.context) for row in found] == [
        ("prefill", 3, 2), ("token", 1, 5), ("token", 1, 6)
    ]  # fmt: skip
    assert [(row.start_ns, row.end_ns) for row in found] == [
        (4_000_000_000, 11_250_000_000), (11_250_000_000, 14_500_000_000), (14_500_000_000, 17_750_000_000)
    ]  # fmt: skip
    assert found[0].parts == pytest.approx({"run": 6.0, "sample": 1.0, "detokenise": 0.25})
    assert found[1].parts == pytest.approx({"run": 2.0, "sample": 1.0, "detokenise": 0.25})
    assert [name for name, _ in library.calls].count("llama_memory_clear") == 1


def test_llama_cpp_reads_a_prompt_alone_stops_at_the_end_and_may_have_no_words():
    library, session = llama(kind=0)
    (only,) = session.generate(Request(prompt=(1, 2), generate=0))
    assert only == event("prefill", 0.0, 2.0, 2, 0, ids=(), run=2.0)
    assert only.text is None
    library.ends = (8,)
    library.chosen = (5, 8, 4)
    assert [row.ids for row in session.generate(Request(prompt=(1,), generate=3, ignore_end=False))] == [(5,), (8,)]
    library.sampled = 0
    assert len(list(session.generate(Request(prompt=(1,), generate=3)))) == 3
    with pytest.raises(DomainError, match="without a vocabulary"):
        session.tokenise("hi")
    for code, words in ((1, "no room"), (2, "aborted"), (-1, "not valid"), (9, "code 9")):
        library.code = code
        with pytest.raises(EngineError, match=f"failed to compute 1 tokens: .*{words}"):
            list(session.generate(Request(prompt=(1,), generate=1)))


def test_llama_cpps_logits_are_of_every_token_in_passes_of_a_batch():
    library, session = llama()
    found = session.score((1, 2, 3, 4, 5))
    assert library.passes == [[(token, token - 1, 0, 1) for token in (1, 2, 3, 4)], [(5, 4, 0, 1)]]
    assert found[:, :2].tolist() == [[token, token - 1] for token in (1, 2, 3, 4, 5)]
    assert (found.shape, found.dtype) == ((5, 9), np.float32)
    with pytest.raises(DomainError, match="the context holds 50"):
        session.score((1,) * 51)


def test_llama_cpp_is_asked_again_where_the_room_was_too_small_and_freed_once():
    library, session = llama()
    assert session.tokenise("hi") == tuple(range(40))
    assert session.detokenise((3, 4)) == "w4" * 40
    session.close()
    session.close()
    names = [name for name, _ in library.calls]
    assert names[-4:] == ["llama_sampler_free", "llama_free", "llama_model_free", "release"]
    assert names.count("release") == names.count("hold") == 1
    assert dict(library.calls)["llama_free"] == ("context",)
    assert dict(library.calls)["llama_model_free"] == ("model",)
    for use in (lambda: session.tokenise("hi"), lambda: session.score((1,)),
                lambda: session.generate(Request(prompt=(1,), generate=1))):  # fmt: skip
        with pytest.raises(EngineError, match="closed"):
            use()


class Watched:
    """One node a pass, which takes as many seconds as passes were taken before."""

    broken, taken = None, 0

    def __init__(self):
        self.active, self.seen = None, []

    def take(self):
        self.taken += 1
        return [(LlamaNode(name="mm-0", kind="MUL_MAT"), float(self.taken))] if self.active else []


def test_llama_cpps_nodes_are_taken_after_every_pass_of_a_phase_and_of_nothing_else():
    watch = Watched()
    library, session = llama(watch=watch)
    list(session.generate(Request(prompt=(1, 2, 3), generate=3, depth=3)))
    assert [len(rows) for rows in library.passes] == [2, 1, 2, 1, 1, 1], "a pass is what is computed at once"
    kernels = session.kernels()
    assert {phase: rows[0].samples_s for phase, rows in kernels.items()} == {
        "prefill": (1.0 + 2.0,), "decode": (3.0, 4.0)
    }  # fmt: skip
    assert session.kernels() == {}
    assert session.check_nodes() is None
    assert session.kernels() == {}
    library.passes.clear()
    session.warm_up()
    assert (library.passes, watch.active, session.kernels()) == ([[(0, 0, 0, 1)]], False, {})


def test_llama_cpp_says_why_nodes_cannot_be_timed():
    assert llama()[1].check_nodes() == "llama does not show where its callback is set"
    watch = Watched()
    watch.take = list
    assert llama(watch=watch)[1].check_nodes() == "llama did not call back"
    watch.broken = "another shape"
    _, session = llama(watch=watch)
    assert session.check_nodes() == "another shape"
    assert session.check_nodes() == "llama does not show where its callback is set", "it is not asked any more"


def test_the_watch_stops_at_what_computes_and_only_while_a_phase_runs():
    world = World()
    names = ["NONE", "ADD", "VIEW", "ROPE", "RESHAPE"]
    library = SimpleNamespace(
        ggml_op_name=lambda number: names[number].encode(), tensor_layout=lambda *_, **__: "layout", label="llama"
    )
    watch = NodeWatch(library, clock=world.ns)
    tensors = [(ctypes.c_int * 30)() for _ in names]
    for number, tensor in enumerate(tensors):
        tensor[20] = number
    none, add, view, rope, _ = (ctypes.addressof(tensor) for tensor in tensors)
    assert not watch._observe(add, ASKED, None), "nothing is asked for"
    watch.active = True
    assert [watch._observe(tensor, ASKED, None) for tensor in (none, view)] == [False, False]
    for tensor, seconds in ((add, 2.0), (rope, 3.0)):
        assert watch._observe(tensor, ASKED, None)
        world.now += seconds
        assert watch._observe(tensor, RAN, None)
        world.now += 7.0
    assert watch._seen == [(add, 2_000_000_000), (rope, 3_000_000_000)]
    watch._node = lambda tensor, fields: (tensor, fields)
    assert watch.take() == [((add, "layout"), 2.0), ((rope, "layout"), 3.0)]
    assert watch.take() == []
    library.tensor_layout = lambda *_, **__: None
    other = NodeWatch(library, clock=world.ns)
    other.active = True
    assert not other._observe(add, ASKED, None)
    assert (other.broken, other.take()) == ("llama has tensors of another shape than those known here", [])


class Server:
    """Tokens of a second each; what was asked is kept."""

    listening_address = "http://here"

    def __init__(self, world, documents=None):
        self.world, self.asked, self.documents = world, [], documents

    def handle_completions(self, given, hand_over):
        self.asked.append(given)
        cached = len(self.asked[-2]["prompt"]) if given["cache_prompt"] else 0
        for made in range(max(1, given["n_predict"])):
            self.world.now += 1.0
            timings = {"prompt_n": len(given["prompt"]) - cached, "cache_n": cached, "prompt_ms": 500.0,
                       "predicted_n": made + 1, "predicted_ms": 250.0 * made}  # fmt: skip
            document = {"timings": timings, "choices": [{"text": f"t{made}"}]}
            if hand_over(self.documents.pop(0) if self.documents else document):
                return


@pytest.fixture
def served(monkeypatch):
    calls = []

    def urlopen(call):
        calls.append((call.full_url, call.data and json.loads(call.data)))
        answers = {"/v1/models": {"data": [{"meta": {"n_vocab": 9}}]}, "/tokenize": {"tokens": [1, 2]},
                   "/detokenize": {"content": "words"}}  # fmt: skip
        return BytesIO(json.dumps(answers[call.full_url.removeprefix("http://here")]).encode())

    monkeypatch.setattr(servers, "urlopen", urlopen)

    def make(**more):
        world = World()
        server = Server(world, **more)
        opened = Opened(stages=(), versions={})
        return server, servers.ServerSession(server, opened, held=20, seed=3, clock=world.ns), calls

    return make


def test_llama_cpps_server_fills_the_cache_first_and_reads_only_the_prompt(served):
    server, session, calls = served()
    found = list(session.generate(Request(prompt=(1, 2), generate=2, depth=3, ignore_end=False)))
    draw = random.Random(3)  # noqa: S311 - as the session draws
    filler = [draw.randrange(9) for _ in range(3)]
    plain = {"temperature": 0, "stream": True, "timings_per_token": True, "return_tokens": True}
    assert server.asked == [
        {**plain, "prompt": filler, "n_predict": 0, "cache_prompt": False, "ignore_eos": True},
        {**plain, "prompt": [*filler, 1, 2], "n_predict": 2, "cache_prompt": True, "ignore_eos": False},
    ]
    assert [(row.kind, row.tokens, row.context, row.text) for row in found] == [
        ("prefill", 2, 3, "t0"), ("token", 1, 5, "t1")
    ]  # fmt: skip
    assert [row.parts for row in found] == [{"run": 0.5}, {"run": 0.25}]
    assert (session.tokenise("hi"), session.detokenise((3, 4))) == ((1, 2), "words")
    assert calls == [("http://here/v1/models", None), ("http://here/tokenize", {"content": "hi", "add_special": True}),
                     ("http://here/detokenize", {"tokens": [3, 4]})]  # fmt: skip
    list(session.generate(Request(prompt=(1, 2), generate=1)))
    assert (server.asked[-1]["cache_prompt"], server.asked[-1]["ignore_eos"]) == (False, True)
    with pytest.raises(EngineError, match="Logits of 2 tokens"):
        session.score((1, 2))
    session.close()
    with pytest.raises(EngineError, match="closed"):
        session.generate(Request(prompt=(1,), generate=1))


def test_an_error_of_llama_cpps_server_is_raised_where_its_chunks_are_read(served):
    _, session, _ = served(documents=[{"error": {"message": "too long"}}])
    with pytest.raises(EngineError, match=r"refused the request: too long\."):
        list(session.generate(Request(prompt=(1,), generate=2)))
    server, session, _ = served()
    server.handle_completions = lambda *_: (_ for _ in ()).throw(RuntimeError("gone"))
    with pytest.raises(EngineError, match=r"failed: gone\."):
        list(session.generate(Request(prompt=(1,), generate=2)))


def test_llama_cpps_server_is_opened_with_what_was_asked_for(monkeypatch):
    world, made = World(), []

    class Params(SimpleNamespace):
        def __init__(self):
            super().__init__(model=SimpleNamespace(), cpuparams=SimpleNamespace(), cpuparams_batch=SimpleNamespace())

    def server(parameters):
        world.now += 6.0
        return made.append(parameters) or "server"

    engine = SimpleNamespace(
        CommonParams=Params, Server=server, get_device_info=lambda: [{"name": "CPU", "type": SimpleNamespace(value=0)}],
        llama_flash_attn_type=lambda number: f"flash {number}",
        ggml_type={"GGML_TYPE_Q8_0": "eight", "GGML_TYPE_F16": "half"},
    )  # fmt: skip
    monkeypatch.setattr(servers, "ServerSession", lambda server, opened, **more: (server, opened, more))
    monkeypatch.setitem(sys.modules, "xllamacpp", engine)
    monkeypatch.setattr(servers, "version", lambda _: "1")
    target = Target(path=Path("m.gguf"), format="gguf", text=True, threads=3, seed=8, instrument=True)
    options = LlamaOptions(type_k="q8_0", batch=64, ubatch=32, flash=1)
    found, opened, more = servers.open_server(target, options, "a reason", clock=world)
    (parameters,) = made
    assert (found, more) == ("server", {"held": 4096, "seed": 8})
    assert (opened.stages, opened.versions, opened.threads, opened.unit) == (
        (Stage(name="load", seconds=6.0),), {"xllamacpp": "1"}, 3, "cpu"
    )  # fmt: skip
    assert [note.partition(" ")[0] for note in opened.notes] == ["Timed", "The", "a"]
    assert (parameters.model.path, parameters.n_ctx, parameters.n_parallel) == ("m.gguf", 4096, 1)
    assert (parameters.cpuparams.n_threads, parameters.cpuparams_batch.n_threads) == (3, 3)
    assert (parameters.n_batch, parameters.n_ubatch, parameters.flash_attn_type) == (64, 32, "flash 1")
    assert (parameters.cache_type_k, parameters.cache_type_v) == ("eight", "half")
    assert (parameters.fit_params, parameters.cache_ram_mib) == (False, 0)
    with pytest.raises(DomainError, match="A batch of 2"):
        servers.open_server(Target(path=Path("m"), format="gguf", batch=2), options, "")
    plain = Target(path=Path("m"), format="gguf", context=99)
    assert len(servers.open_server(plain, options, "")[1].notes) == 1
    assert made[-1].n_ctx == 99


def test_what_the_engine_says_of_an_error_may_come_after_it():
    said = iter(["", "words", "words; exiting due to an error"])
    assert servers._last_words(lambda: next(said), pause_s=0) == "words; exiting due to an error"
    assert servers._last_words(lambda: "words", tries=3, pause_s=0) == "words"
    assert servers._errors("0.1 E load: no file\n0.2 I fine thing\nshort E\n0.3 E more words here") == (
        "load: no file; more words here"
    )


# ONNX Runtime.


def profile_event(name, dur, cat="Node"):
    return ProfileEvent(cat=cat, name=f"{name}_kernel_time", ts=0, dur=dur, args=Details(op_name=name))


def profiled(tmp_path, monkeypatch, *, events_a_run=10):
    """A recorder over sessions that write how long each of their runs took."""
    made = object.__new__(ProfileRecorder)
    made._folder = SimpleNamespace(name=str(tmp_path), cleanup=lambda: made.sessions.append("gone"))
    made.sessions, made.plan, made._renamed, made._ended = [], "plan", False, False
    made._tables, made._phases, made._events_a_run = {}, [], events_a_run
    made.optimised, made.fusion = SimpleNamespace(nodes=(), stored={}), Fusion(layers={})

    def begin(plan, profile):
        assert (plan, profile) == ("plan", tmp_path / "profile")
        session = SimpleNamespace(runs=[])
        made.sessions.append(session)

        def end_profiling():
            (tmp_path / "written.json").write_text(json.dumps(session.runs))
            return str(tmp_path / "written.json")

        session.end_profiling = end_profiling
        return session

    def parse(text):
        return [[profile_event("conv", took)] for took in json.loads(text)]

    made._begin, made.session = begin, begin("plan", tmp_path / "profile")
    monkeypatch.setattr(recorders, "parse_profile", parse)
    monkeypatch.setattr(recorders, "EVENTS_AT_MOST", 50)

    def run(phase, took, runs=1):
        made.ready(runs, lambda session: (session.runs.append(999), made.ran(SKIP)))
        made.session.runs.append(took)
        made.ran(phase)

    return made, run


def samples(kernels):
    return {phase: pytest.approx([s * 1e6 for s in row[0].samples_s]) for phase, row in kernels.items()}


def test_a_profile_is_read_before_it_is_too_long_and_runs_of_no_phase_are_left_out(tmp_path, monkeypatch):
    made, run = profiled(tmp_path, monkeypatch)
    for took in range(1, 6):
        run("decode", took)
    assert len(made.sessions) == 1, "five runs of ten events are as many as there may be"
    run("decode", 6)
    run(SKIP, 50)
    run("prefill", 7)
    assert len(made.sessions) == 2
    assert samples(made.take()) == {"decode": [1, 2, 3, 4, 5, 6], "prefill": [7]}
    assert not (tmp_path / "written.json").exists()
    assert made.take() == {}
    run("decode", 8)
    assert len(made.sessions) == 3, "a profile that was read has ended"
    assert samples(made.take()) == {"decode": [8]}
    made.close()
    assert (made.sessions[-1], made.session) == ("gone", None)


def test_as_many_runs_as_are_announced_must_fit_unless_nothing_ran_yet(tmp_path, monkeypatch):
    made, run = profiled(tmp_path, monkeypatch)
    run("decode", 1, runs=9)
    assert len(made.sessions) == 1
    run("decode", 2, runs=4)
    assert len(made.sessions) == 1
    run("decode", 3, runs=4)
    assert len(made.sessions) == 2
    made.session.runs.append(5)
    with pytest.raises(EngineError, match="ran 2 times and its profile holds 3 runs"):
        made.take()


def test_events_of_onnxruntime_are_between_the_marks_of_each_run(monkeypatch):
    world, runs = World(), []
    made = object.__new__(DecoderSession)
    made._now_ns, made._recorder, made._session = world.ns, None, "session"
    made._plan, made._target = SimpleNamespace(path=Path("m")), Target(path=Path("m"), format="onnx", context=400)
    made._decoder = SimpleNamespace(vocabulary=5, last_only=True)
    made._empty = list
    made._ready = runs.append

    def run(ids, cache, cached, phase):
        marks = []
        for seconds in (1, 2, 4):
            world.now += seconds
            marks.append(world.ns())
        runs.append((list(ids), list(cache), cached, phase))
        logits = np.zeros((1, len(ids), 5))
        logits[0, :, (cached + len(ids)) % 5] = 1
        return logits, [*cache, len(ids)], tuple(marks)

    made._run = run
    found = list(made.generate(Request(prompt=(1, 2), generate=2, depth=300)))
    filler = [(1 + 7 * place) % 5 for place in range(300)]
    assert runs == [
        5, (filler[:256], [], 0, SKIP), (filler[256:], [256], 256, SKIP), ([1, 2], [256, 44], 300, "prefill"),
        ([2], [256, 44, 2], 302, "decode"),
    ]  # fmt: skip
    parts = {"write": 1.0, "run": 2.0, "read": 4.0, "sample": 0.0}
    assert found == [event("prefill", 14, 21, 2, 300, ids=(2,), **parts),
                     event("token", 21, 28, 1, 302, ids=(3,), **parts)]  # fmt: skip
    runs.clear()
    (only,) = made.generate(Request(prompt=(1, 2), generate=0))
    assert (only.ids, only.kind, runs[0]) == ((), "prefill", 2)
    runs.clear()
    scores = made.score((1, 2, 3))
    assert runs == [3, *[([token], [1] * place, place, SKIP) for place, token in enumerate((1, 2, 3))]]
    assert scores.argmax(-1).tolist() == [1, 2, 3]
    made._decoder.last_only = False
    runs.clear()
    assert made.score((1, 2, 3)).shape == (3, 5)
    assert runs == [1, ([1, 2, 3], [], 0, SKIP)]
    monkeypatch.setattr("inferometer.engines.onnxruntime.session.end_tokens", lambda _: {3})
    assert len(list(made.generate(Request(prompt=(1, 2, 3), generate=9, ignore_end=False)))) == 1
    assert len(list(made.generate(Request(prompt=(1, 2, 3), generate=9)))) == 9


# OpenVINO and its pipelines.


@pytest.fixture
def openvino():
    pytest.importorskip("openvino_genai", reason="openvino-genai is not installed")
    from inferometer.engines.openvino_genai import session

    return session


def pipeline_session(openvino, *, pipeline=None, network=None, **target):
    asked = Target(path=Path("m"), format="openvino-genai", text=True, **target)
    opened = Opened(stages=(), versions={}, notes=("first",))
    return openvino.PipelineSession(asked, Path("m"), ("CPU", {"a": 1}), pipeline, network, opened, 4)


def test_a_pipelines_tokens_follow_each_other_by_its_own_record(openvino, monkeypatch):
    world, asked = World(), []
    world.now = 2.0
    raw = SimpleNamespace(
        m_times_to_first_token=[3e6], m_durations=[1e6, 2e6], token_infer_durations=[2e6, 9e5],
        sampling_durations=[5e5, 2e5],
    )  # fmt: skip

    def generate(rows, chosen):
        asked.append((np.array(rows.data), chosen))
        return SimpleNamespace(perf_metrics=SimpleNamespace(raw_metrics=raw), tokens=[[3, 2, 1], [0, 0, 0]])

    config = SimpleNamespace(eos_token_id=-1)
    pipeline = SimpleNamespace(get_generation_config=lambda: config, generate=generate)
    monkeypatch.setattr(openvino, "time", SimpleNamespace(perf_counter_ns=world.ns))
    session = pipeline_session(openvino, pipeline=pipeline, batch=2)
    found = list(session.generate(Request(prompt=(1, 2), generate=3)))
    assert found == [
        event("prefill", 2, 5, 2, 0, ids=(3,), run=2.0, sample=0.5),
        event("token", 5, 6, 1, 2, ids=(2,)),  # its parts would be longer than it
        event("token", 6, 8, 1, 3, ids=(1,)),  # nothing is said of them
    ]
    assert asked[0][0].tolist() == [[1, 2], [1, 2]]
    assert vars(config) == {
        "eos_token_id": 0, "stop_token_ids": {0}, "max_new_tokens": 3, "do_sample": False, "apply_chat_template": False,
        "num_beams": 1, "ignore_eos": True,
    }  # fmt: skip
    config.eos_token_id, config.stop_token_ids = 7, {7}
    only, *_ = session.generate(Request(prompt=(1, 2), generate=0, ignore_end=False))
    assert (only.ids, config.max_new_tokens, config.ignore_eos, config.stop_token_ids) == ((), 1, False, {7})
    assert openvino._parts((1e6, 2e6), 3e6) == pytest.approx({"run": 1.0, "sample": 2.0})


def test_a_depth_is_stepped_and_every_phase_counted_once(openvino, monkeypatch):
    world, told = World(), []

    class Network:
        def begin(self):
            told.append("begin")

        def count(self, phase):
            told.append(phase)

        def step(self, ids):
            told.append(list(ids))
            world.now += len(ids)
            return np.eye(4)[[(ids[-1] + 1) % 4] * len(ids)]

        def kernels(self):
            return {"decode": ()}

    monkeypatch.setattr(openvino, "time", SimpleNamespace(perf_counter_ns=world.ns))
    session = pipeline_session(openvino, pipeline="there", network=Network())
    for _ in range(2):
        told.clear()
        world.now = 0.0
        found = list(session.generate(Request(prompt=(1, 2), generate=3, depth=5)))
    assert told == ["begin", [1, 0, 3, 2, 1], None, [1, 2], "prefill", [3], [0], "decode"]
    assert found == [
        event("prefill", 5, 7, 2, 5, ids=(3,), run=2.0, sample=0.0),
        event("token", 7, 8, 1, 7, ids=(0,), run=1.0, sample=0.0),
        event("token", 8, 9, 1, 8, ids=(1,), run=1.0, sample=0.0),
    ]
    assert session.opened.notes == ("first", openvino._DEEP), "said once"
    assert session.kernels() == {"decode": ()}
    alone = pipeline_session(openvino, network=Network())
    told.clear()
    (only,) = alone.generate(Request(prompt=(1, 2), generate=0))
    assert (only.ids, only.kind, told) == ((), "prefill", ["begin", None, [1, 2], "prefill", "decode"])
    assert alone.opened.notes == ("first",)
    alone._scoring = Network()
    assert alone.score((1, 2)).argmax(-1).tolist() == [3, 3]
    alone.close()
    assert alone.kernels() == {}
    with pytest.raises(DomainError, match="closed"):
        alone.generate(Request(prompt=(1,), generate=1))


@pytest.mark.parametrize(
    ("target", "device", "settings"),
    [
        ({}, "CPU", {"INFERENCE_NUM_THREADS": 3, "NUM_STREAMS": "1"}),
        ({}, "GPU", {}),
        ({"precision": "bf16"}, "CPU",
         {"INFERENCE_NUM_THREADS": 3, "NUM_STREAMS": "1", "INFERENCE_PRECISION_HINT": "bf16"}),
        ({"precision": "f32"}, "GPU", {"INFERENCE_PRECISION_HINT": "f32"}),
        ({"precision": "f32", "options": {"NUM_STREAMS": "2"}}, "CPU",
         {"INFERENCE_NUM_THREADS": 3, "NUM_STREAMS": "2", "INFERENCE_PRECISION_HINT": "f32",
          "KV_CACHE_PRECISION": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}),
    ],
)  # fmt: skip
def test_a_pipeline_is_set_to_latency_and_f32_throughout_only_where_it_is_asked_for(openvino, target, device, settings):
    asked = Target(path=Path("m"), format="openvino-genai", **target)
    assert openvino._settings(asked, device, 3) == {"PERFORMANCE_HINT": "LATENCY", **settings}


def test_a_network_that_is_stepped_sees_all_tokens_and_the_places_of_the_new_ones(openvino):
    from inferometer.engines.openvino_genai.session import SteppedNetwork

    fed = []
    made = object.__new__(SteppedNetwork)
    made._target, made._file = Target(path=Path("m"), format="openvino-genai", batch=2), Path("m")
    made._inputs = {"input_ids", "attention_mask", "position_ids"}
    made._request = SimpleNamespace(
        infer=lambda rows, **_: fed.append(rows) or {0: np.array([[[1.0, 2.0]], [[3.0, 4.0]]])},
        reset_state=lambda: fed.append("reset"),
    )
    made._counting, made._steps = True, 0
    compiled = []
    made._compile = lambda: compiled.append(made._steps)
    made.begin()
    assert made.step((5, 6)).tolist() == [[1.0, 2.0]], "the first sequence's"
    made.step((7,))
    assert [{name: row.tolist() for name, row in rows.items()} for rows in fed[1:]] == [
        {"input_ids": [[5, 6]] * 2, "attention_mask": [[1, 1]] * 2, "position_ids": [[0, 1]] * 2},
        {"input_ids": [[7]] * 2, "attention_mask": [[1, 1, 1]] * 2, "position_ids": [[2]] * 2},
    ]
    for steps, again in ((48, []), (49, [49])):
        made._steps = steps
        made.begin()
        assert (compiled, made._cached) == (again, 0)
    made._counting, made._steps = False, 99
    made.begin()
    assert compiled == [49], "nothing is counted"


@pytest.mark.parametrize("last_only", [True, False])
def test_openvinos_kernels_have_a_sample_for_each_step_since_they_were_asked_for(openvino, monkeypatch, last_only):
    from inferometer.engines.openvino import recorded

    told = iter([{"a": 1.0}, {"a": 2.0, "b": 4.0}, {"b": 8.0}, {"b": 16.0}] if last_only else [{"a": 1.0}, {"a": 2.0}])
    monkeypatch.setattr(recorded, "executed_seconds", lambda _: next(told))
    monkeypatch.setattr(recorded.OpenvinoRecordedSession, "_described", lambda _, samples: samples)
    made = object.__new__(recorded.OpenvinoRecordedSession)
    made._fed, made._request = {"x": 1}, SimpleNamespace(infer=lambda **_: None)
    made._means, made._steps, made._samples, made._taken = recorded.RunningMeans(), 0, {}, 0
    made._last_only = last_only
    assert made.kernels() == {}
    for _ in range(3):
        made.step()
    first = made.kernels()["forward"]
    assert made.kernels() == {}
    made.step()
    second = made.kernels()["forward"]
    if last_only:
        assert first == {"a": (1.0, 2.0, 0.0), "b": (0.0, 4.0, 8.0)}
        assert second == {"b": (16.0,)}
    else:
        assert first == {"a": pytest.approx((1.0,) * 3, abs=1e-6)}
        assert second == {"a": pytest.approx((5.0,), abs=1e-5)}, "a mean of two over four steps, of one over three"


# PyTorch.


class Pass:
    """A forward that takes 2 seconds, and gives logits."""

    samples, stages, notes, captured, prepared = False, (), (), False, False

    def __init__(self, world, torch):
        self.world, self.torch, self.told, self.made = world, torch, [], 0

    def prepare(self, **more):
        self.told.append(more)

    def reset(self):
        self.told.append("reset")

    def fill(self, ids):
        self.told.append(("fill", tuple(ids.shape)))

    def settled(self):
        self.told.append("settled")

    def read(self, ids):
        self.world.now += 2.0
        self.told.append(tuple(ids.shape))
        self.made += 1
        return self.torch.eye(9)[[self.made, 8]]

    token = read

    def mapped(self, phase, rows):
        return [(phase, row) for row in rows]


def torch_text(*, config=None, batch=2, context=None):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    world, recorder = World(), NoRecorder()
    forward = Pass(world, torch)
    plain = {"vocab_size": 9, "eos_token_id": None, "max_position_embeddings": 30, **(config or {})}
    about = SimpleNamespace(**plain)
    about.get_text_config = lambda: about
    model = SimpleNamespace(named_modules=lambda: [("layers.0.rotary_emb", None)] if "rotary" in plain else [])
    host = SimpleNamespace(
        module=SimpleNamespace(config=about, model=model, folder=None),
        target=Target(path=Path("m"), format="config", text=True, batch=batch, context=context, seed=4),
        torch=torch, recorder=recorder, place=TorchDevice(unit="cpu", device="cpu"), running=lambda _: nullcontext(),
        sync=lambda: None, require_open=lambda: None, landing=None,
    )  # fmt: skip
    return forward, Text(host, forward, clock_ns=world.ns)


def test_events_of_pytorch_are_the_prompt_and_each_token_with_their_parts():
    forward, session = torch_text()
    found = list(session.generate(Request(prompt=(1, 2, 3), generate=3, depth=5)))
    nothing = {"sample": 0.0, "read": 0.0}
    assert found == [
        event("prefill", 0, 2, 3, 5, ids=(1, 8), write=0.0, run=2.0, **nothing),
        event("token", 2, 4, 1, 8, ids=(2, 8), run=2.0, **nothing),
        event("token", 4, 6, 1, 9, ids=(3, 8), run=2.0, **nothing),
    ]
    assert forward.told == [
        {"prompt": 3, "depth": 5, "needed": 11}, "reset", ("fill", (2, 5)), (2, 3), (2, 1), (2, 1), "settled",
    ]  # fmt: skip
    (only,) = session.generate(Request(prompt=(1,), generate=0))
    assert (only.ids, only.kind) == ((), "prefill")


def test_a_device_runs_on_while_the_host_waits_and_only_the_token_comes_back():
    """The host's clock tells a launch from the wait for its end, and what the device does in a launch not apart."""
    forward, session = torch_text()
    host, torch = session._host, session._torch
    host.landing, waits = torch.zeros((2, 1), dtype=torch.long), []

    def wait():
        waits.append(host.landing.tolist())
        forward.world.now += 16.0

    host.wait = wait
    first, *tokens = session.generate(Request(prompt=(1, 2), generate=3))
    assert first == event("prefill", 0, 18, 2, 0, ids=(1, 8), write=0.0, launch=2.0, run=16.0, read=0.0)
    assert tokens[0] == event("token", 18, 36, 1, 2, ids=(2, 8), launch=2.0, run=16.0, read=0.0)
    assert waits == [[[1], [8]], [[2], [8]], [[3], [8]]], "the token is on its way before the host waits"


def test_a_step_that_chooses_its_token_has_no_sampling_apart():
    forward, session = torch_text()
    forward.samples, given = True, []
    forward.token = lambda ids: given.append(ids) or session._torch.tensor([[4], [8]])
    forward.read = lambda _ids: session._torch.tensor([[3], [8]])
    first, second = session.generate(Request(prompt=(1, 2), generate=2))
    assert (first.ids, second.ids) == ((3, 8), (4, 8))
    assert list(second.parts) == ["run", "read"]
    assert given[0].tolist() == [[3], [8]]


def test_steps_come_together_unless_they_are_wanted_apart():
    forward, session = torch_text()
    counts = []
    for apart in (False, True):
        forward.told.clear()
        events = session.generate(Request(prompt=(1, 2), generate=4, apart=apart))
        next(events), next(events)
        counts.append(forward.told.count((2, 1)))
        list(events)
    assert counts == [3, 1]


@pytest.mark.parametrize(("end", "count"), [(2, 2), ([7, 2], 2), (None, 4), (8, 1)])
def test_pytorch_stops_after_an_end_of_any_sequence(end, count):
    _, session = torch_text(config={"eos_token_id": end})
    assert len(list(session.generate(Request(prompt=(1,), generate=4, ignore_end=False)))) == count
    _, session = torch_text(config={"eos_token_id": end})
    assert len(list(session.generate(Request(prompt=(1,), generate=4)))) == 4


@pytest.mark.parametrize(
    ("config", "context", "room"),
    [({}, None, 30), ({}, 20, 20), ({}, 40, 30), ({"rotary": 1}, None, None), ({"rotary": 1}, 40, 40),
     ({"max_position_embeddings": None}, None, None)],
)  # fmt: skip
def test_a_table_of_positions_and_the_context_both_end_a_text(config, context, room):
    assert torch_text(config=config, context=context)[1]._room() == room


def test_recording_costs_what_it_adds_to_each_kernel():
    world = World()
    marks = SimpleNamespace(on=False)

    class Recorder(NoRecorder):
        def start(self):
            marks.on = True

        def stop(self):
            return [("chain", ["row"] * rows) for rows in (3, 4, 9)]

    def step():
        world.now += 10.0 if marks.on else 2.0

    assert cost_per_kernel(step, lambda: None, Recorder(), clock=world) == (10.0 - 2.0) / 4


class Cuda:
    """What a host asks of PyTorch on the second of two cards."""

    def __init__(self):
        self.calls, self.version, self.__version__ = [], SimpleNamespace(cuda="12"), "2"
        self.cuda = SimpleNamespace(
            reset_peak_memory_stats=lambda card: self.calls.append(("reset", card)),
            synchronize=lambda card: self.calls.append(("sync", card)), is_available=lambda: True,
            max_memory_allocated=lambda card: self.calls.append(("allocated", card)) or 70,
            max_memory_reserved=lambda card: self.calls.append(("reserved", card)) or 90,
            get_device_name=lambda: "card", device=lambda card: self.calls.append(("on", card)) or nullcontext(),
            empty_cache=lambda: self.calls.append("emptied"),
            current_stream=lambda _card: SimpleNamespace(synchronize=lambda: self.calls.append("waited")),
        )  # fmt: skip
        self.inference_mode, self.long = nullcontext, "long"

    def zeros(self, shape, dtype):
        assert dtype == "long"
        return SimpleNamespace(pin_memory=lambda: SimpleNamespace(pinned=shape))


def torch_host(device, **target):
    torch, closed = Cuda(), []
    leaf = SimpleNamespace(children=list)
    model = SimpleNamespace(modules=lambda: [SimpleNamespace(children=lambda: [leaf]), leaf, leaf])
    module = SimpleNamespace(model=model, config=None, inputs=(), precision="f16", notes=("one",))
    place = TorchDevice(unit="gpu:1" if device != "cpu" else "cpu", device=device)
    made = hosts.TorchHost(
        torch=torch, target=Target(path=Path("m"), format="config", **target), place=place, module=module,
        threads=SimpleNamespace(close=lambda: closed.append(True), count=3, hold=lambda: torch.calls.append("held")),
        paid=(Stage(name="load", seconds=1.0),), execution="compiled",
    )  # fmt: skip
    return torch, made, closed


def test_a_card_of_pytorch_is_awaited_counted_and_given_back():
    torch, host, closed = torch_host("cuda:1", watched=True)
    assert torch.calls == [("reset", "cuda:1")]
    torch.calls.clear()
    with host.running("x"):
        host.sync()
    assert torch.calls == ["held", ("on", "cuda:1"), ("sync", "cuda:1")]
    assert (host.memory_peak_bytes, host.memory_reserved_bytes, host.watched) == (70, 90, True)
    opened = host.opened(stages=(Stage(name="compile", seconds=2.0),), notes=("two",))
    assert (opened.stages, opened.notes) == (
        (Stage(name="load", seconds=1.0), Stage(name="compile", seconds=2.0)), ("one", "two")
    )  # fmt: skip
    assert (opened.placed, opened.threads, opened.unit, opened.precision) == ({"cuda:1": 2}, 3, "gpu:1", "f16")
    torch.calls.clear()
    host.wait()
    assert (torch.calls, host.landing.pinned) == (["waited"], (1, 1)), "a stream of the card is awaited"
    host.close()
    host.close()
    assert (closed, torch.calls.count("emptied")) == ([True], 1)
    with pytest.raises(EngineError, match="closed"), host.running("x"):
        raise AssertionError("nothing runs any more")


def test_pytorch_on_the_cpu_has_no_memory_of_a_cards():
    torch, host, _ = torch_host("cpu", watched=True)
    with host.running("x"):
        host.sync()
    assert (host.memory_peak_bytes, host.memory_reserved_bytes, host.landing) == (None, None, None)
    assert (host.watched, host.cost_per_kernel_s()) == (False, None)
    host.close()
    assert torch.calls == ["held"]
