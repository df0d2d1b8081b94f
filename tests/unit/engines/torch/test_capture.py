"""Passes captured in a CUDA graph, without CUDA: a capture that replays by calling again stands for it."""

import warnings
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed: captured sessions are not tested")
pytest.importorskip("transformers", reason="transformers is not installed: captured sessions are not tested")

import torch  # noqa: TID251 - the bare engine is what sessions are compared with
import transformers
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: TID251 - as above

from inferometer.core.errors import EngineError
from inferometer.engines.base import Missing, Request, Target
from inferometer.engines.torch import eager, lacks_cuda
from inferometer.engines.torch.arrays import Arrays
from inferometer.engines.torch.capture import as_captured, capture_graph, kept_constants, looks_at_values
from inferometer.engines.torch.forward import Eager, Static, counted_layer
from inferometer.engines.torch.modules import spare_masks
from inferometer.engines.torch.session import Text, open_session
from unit.engines.torch.configs import ARRAYS, AWKWARD, TEXT, written
from unit.engines.torch.test_text import PROMPT, Cuda, Engine, Place, stepped

pytestmark = pytest.mark.filterwarnings("ignore")  # the libraries' own remarks

RANDOM = np.random.default_rng(0)


class Replays:
    """Captures, and how often each was replayed. A replay reads and writes the tensors of the capture."""

    def __init__(self):
        self.counts = []

    def __call__(self, _torch, call, *, ready=lambda: None, **_):
        ready()
        result = call()
        place = len(self.counts)
        self.counts.append(0)

        def replay():
            self.counts[place] += 1
            fresh = call()
            for old, new in zip(_tensors(result), _tensors(fresh), strict=True):
                old.copy_(new)

        return replay, result


def _tensors(result):
    if result is None:  # the call leaves what it made where it is read
        return []
    return [result] if isinstance(result, torch.Tensor) else [each for each in result.values() if each is not None]


@pytest.fixture
def opened(tmp_path):
    sessions = []

    def open_(config, **changes):
        path = written(tmp_path, config)
        sessions.append(eager.open(Target(path=path, format="config", threads=1, unit="cpu", **changes)))
        return sessions[-1]._host

    yield open_
    for session in sessions:
        session.close()


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gpt2", "gemma3_text"])
def test_captured_prompts_and_steps_make_the_same_tokens(opened, kind):
    host, replays = opened(TEXT[kind], text=True), Replays()
    host.landing = torch.zeros((1, 1), dtype=torch.long)
    expected = stepped(Eager(host.module), PROMPT, 8)
    real = host.torch, host.place
    host.torch, host.place = Engine(), Place()
    with torch.inference_mode():
        forward = Static(host, compiled=False, capture=replays)
    assert stepped(forward, PROMPT, 8) == expected
    assert stepped(forward, PROMPT, 8) == expected  # the cache is empty again
    assert forward.captured
    assert replays.counts == [14, 2]  # decode steps, and the prompt
    assert int(host.landing) == expected[-1], "a captured step sends its token to the host"
    deep = stepped(forward, PROMPT, 4, before=(7, 8, 9, 10))
    assert deep == stepped(Eager(host.module), PROMPT, 4, before=(7, 8, 9, 10))
    assert {stage.name for stage in forward.stages} == {"capture", "capture prefill"}
    host.torch, host.place = real


@pytest.mark.parametrize("compiled", [False, True], ids=["captured", "compiled"])
def test_a_session_on_a_gpu_reads_its_tokens_where_they_land(opened, monkeypatch, compiled):
    """The whole loop of a GPU, with a capture that replays by calling again: only launches and waits are missing."""
    host, replays = opened(TEXT["llama"], text=True, batch=2), Replays()
    request = Request(prompt=PROMPT, generate=6, depth=3)
    expected = [event.ids for event in Text(host, Eager(host.module)).generate(request)]
    real = host.torch, host.place
    host.torch, host.place, host.landing = Engine(), Place(), torch.zeros((2, 1), dtype=torch.long)
    host.wait = lambda: None
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
    with torch.inference_mode():
        forward = Static(host, compiled=compiled, capture=replays)
    session = Text(host, forward)
    for _ in range(2):
        events = list(session.generate(request))
        assert [event.ids for event in events] == expected
        assert [list(event.parts) for event in events] == [
            ["write", "launch", "run", "read"], *[["launch", "run", "read"]] * 5
        ]  # fmt: skip
    assert [event.ids for event in Text(host, Eager(host.module)).generate(request)] == expected, "launched on a GPU"
    before = list(replays.counts)
    bare = list(session.generate(replace(request, bare=True)))
    assert [(event.kind, event.tokens, list(event.parts)) for event in bare] == [
        ("prefill", len(PROMPT), ["launch", "run"]), ("token", 5, ["launch", "run"]),
    ]  # fmt: skip
    assert sum(replays.counts) - sum(before) == (5 if compiled else 6)
    host.torch, host.place = real


def test_a_captured_module_of_arrays_reads_new_inputs_where_it_was_captured(opened):
    host, replays = opened(ARRAYS["bert"]), Replays()
    plain, session = Arrays(host), Arrays(host, execution="captured", capture=replays)
    for shape, captures in (((2, 7), 1), ((2, 7), 1), ((1, 5), 2)):
        inputs = {"input_ids": RANDOM.integers(0, 160, shape)}
        for each in (plain, session):
            each.feed(inputs)
            each.step()
        np.testing.assert_allclose(
            session.outputs()["last_hidden_state"], plain.outputs()["last_hidden_state"], rtol=1e-5, atol=1e-6
        )
        assert len(replays.counts) == captures
    assert [stage.name for stage in session.opened.stages][-1] == "capture"
    assert replays.counts == [2, 1]


def test_a_compiled_network_is_captured_on_a_gpu_and_launched_where_it_cannot_be(opened):
    """As `mode="reduce-overhead"` does for production users; a network that a graph cannot hold still runs."""
    host, replays = opened(ARRAYS["bert"]), Replays()
    plain = Arrays(host)
    inputs = {"input_ids": RANDOM.integers(0, 160, (2, 7))}
    plain.feed(inputs)
    plain.step()
    assert not plain.launches_s, "a CPU launches nothing"

    def refuse(*_, **__):
        raise EngineError("No CUDA graph holds this pass.", remedy="Choose torch-eager.")

    real = host.torch, host.place
    host.torch, host.place = Engine(), Place()
    refused = "launched kernel by kernel. No CUDA graph holds this pass."
    for capture, note in ((replays, "Steps are replayed from a CUDA graph."), (refuse, refused)):
        session = Arrays(host, execution="compiled", capture=capture)
        session.feed(inputs)
        session.step()
        session.feed({"input_ids": inputs["input_ids"][::-1]})
        session.step()
        np.testing.assert_allclose(
            session.outputs()["last_hidden_state"][::-1], plain.outputs()["last_hidden_state"], rtol=1e-4, atol=1e-5
        )
        assert any(note in told for told in session.opened.notes)
        assert len(session.launches_s) == 2
    assert replays.counts == [2]
    host.torch, host.place = real


@pytest.mark.parametrize("execution", ["captured", "compiled"])
def test_nothing_is_recorded_before_the_steps_that_count(opened, monkeypatch, execution):
    """A process that has recorded once launches more slowly from then on, so whose kernels are whose is asked later."""
    recorded = []
    for module in ("arrays", "forward"):
        monkeypatch.setattr(f"inferometer.engines.torch.{module}.kernels_in_order", lambda *_: recorded.append(1) or ())
    host, replays = opened(ARRAYS["bert"], watched=True), Replays()
    monkeypatch.setattr(type(host), "watched", True)
    place, host.place = host.place, Place()
    host.torch, real = Engine(), host.torch
    arrays = Arrays(host, execution=execution, capture=replays)
    arrays.feed({"input_ids": RANDOM.integers(0, 160, (2, 7))})
    arrays.step()
    assert recorded == []
    arrays.instrumented()
    arrays.instrumented()
    assert recorded == [1], "once a graph"
    host.torch, host.place = real, place


def test_no_mask_is_written_where_none_is_given():
    spare_masks()
    spare_masks()
    masks = import_module("transformers.masking_utils")
    ignored = masks._ignore_bidirectional_mask_sdpa
    assert ignored(None, 197)
    assert not ignored(None, 197, 128), "a window of its own is a mask"
    assert not ignored(torch.tensor([[True, False]]), 2), "so is padding"
    assert not getattr(ignored.__closure__[0].cell_contents, "spares", False), "put there once"


def test_a_capture_warms_up_and_leaves_everything_ready():
    said = []
    engine = type("Torch", (), {"cuda": Cuda()})()
    replay, result = capture_graph(
        engine, lambda: said.append("call") or len(said), warm=2, ready=lambda: said.append("ready")
    )
    assert said == ["ready", "call", "ready", "call", "ready", "call"]
    assert result == 6
    replay()


class Faulty:
    """torch.cuda as PyTorch 2.11 leaves it where a capture fails: everything but the graph goes on capturing.

    `wait` is what a model does that no capture allows; `unseen` is a fault that only a capture shows.
    """

    def __init__(self):
        self.mode, self.captures, self.broken = "default", 0, False
        self.streams, self.capturing, self.recording, self.held = ["main"], False, None, []
        self.generator = self.default_generators = self
        self.device, self.counting = "cuda:0", False
        self.Stream, self.CUDAGraph = self.made_stream, self.made_graph
        self.engine = SimpleNamespace(
            cuda=self,
            Generator=Generator,
            _C=SimpleNamespace(_cuda_endAllocateToPool=self.end_recording, _cuda_releasePool=self.release),
        )

    def wait(self):
        if self.mode == "error":
            raise RuntimeError("called a synchronizing CUDA operation")
        self.unseen()

    def unseen(self):
        if self.capturing:
            self.broken = True
            raise RuntimeError("operation not permitted when stream is capturing")

    def draw(self):
        if self.counting and not self.capturing:
            raise RuntimeError("Offset increment outside graph capture encountered unexpectedly.")

    # What capture_graph uses.

    def made_stream(self):
        return SimpleNamespace(wait_stream=lambda _: None)

    def current_stream(self):
        return SimpleNamespace(name=self.streams[-1], wait_stream=lambda _: None)

    @contextmanager
    def stream(self, stream):
        depth = len(self.streams)
        self.streams.append(getattr(stream, "name", "side"))
        try:
            yield
        finally:
            del self.streams[depth:]

    def get_sync_debug_mode(self):
        return self.mode

    def set_sync_debug_mode(self, mode):
        warnings.warn("Synchronization debug mode is a prototype feature", UserWarning, stacklevel=2)  # as torch does
        self.mode = mode

    def synchronize(self):
        self.unseen()

    def empty_cache(self):
        assert self.recording is None, "nothing is given back while a capture has the allocator"
        self.held.clear()

    def graph_pool_handle(self):
        return (0, self.captures + 1)

    def current_device(self):
        return 0

    def made_graph(self):
        graph = SimpleNamespace(replay=lambda: None, reset=lambda: None, ended=False)

        def pool():
            if not graph.ended:
                raise RuntimeError("Called CUDAGraph::pool() without a preceding successful capture.")

        graph.pool = pool
        return graph

    @contextmanager
    def graph(self, graph, pool):
        assert self.recording is None, "one capture at a time"
        self.captures, self.capturing, self.counting, self.recording = self.captures + 1, True, True, pool
        self.streams.append("capture")
        self.held.append(pool)
        try:
            yield
        finally:
            self.capturing = False
            if self.broken:
                self.broken = False
                raise RuntimeError("operation failed due to a previous error during capture")
            graph.ended, self.counting, self.recording = True, False, None
            self.streams.pop()

    # What a failed capture is put right with.

    def end_recording(self, _device, pool):
        assert pool == self.recording
        self.recording = None

    def release(self, _device, pool):
        assert pool in self.held

    def __getitem__(self, _device):
        return self

    def initial_seed(self):
        return 7

    def graphsafe_set_state(self, state):
        self.counting = state != "fresh:7"


class Generator:
    def __init__(self, device):
        assert device == "cuda:0"

    def manual_seed(self, seed):
        self.seed = seed

    def graphsafe_get_state(self):
        return f"fresh:{self.seed}"


@pytest.mark.parametrize(
    ("fault", "captures", "words"),
    [("wait", 0, "called a synchronizing CUDA operation"), ("unseen", 1, "operation not permitted when stream")],
)
def test_a_pass_that_cannot_be_captured_is_refused_and_harms_nothing_after_it(fault, captures, words):
    cuda = Faulty()
    with pytest.raises(EngineError) as caught:
        capture_graph(cuda.engine, getattr(cuda, fault))
    assert words in caught.value.message
    assert "torch-compile or torch-eager" in caught.value.remedy
    assert f"{__name__.rpartition('.')[2]}.py, line " in caught.value.message, "the model's line is named"
    assert cuda.captures == captures, "what can be seen beforehand never begins a capture"
    assert (cuda.mode, cuda.streams, cuda.recording, cuda.held) == ("default", ["main"], None, [])
    cuda.draw()
    replay, result = capture_graph(cuda.engine, lambda: 3)
    assert result == 3
    replay()


def test_a_compiled_model_that_cannot_be_captured_is_launched_and_a_captured_one_refused(opened):
    def refuse(*_, **__):
        raise EngineError("No CUDA graph holds this pass.", remedy="Choose torch-eager.")

    host = opened(TEXT["llama"], text=True)
    expected, real = stepped(Eager(host.module), PROMPT, 4), (host.torch, host.place)
    host.torch, host.place = Engine(), Place()
    with torch.inference_mode():
        forward, captured = (Static(host, compiled=compiled, capture=refuse) for compiled in (True, False))
    assert stepped(forward, PROMPT, 4) == expected
    assert not forward.captured
    assert "Decode steps are launched. No CUDA graph holds this pass." in forward.notes
    with pytest.raises(EngineError):
        stepped(captured, PROMPT, 4)
    host.torch, host.place = real


def test_memory_that_runs_out_in_a_capture_is_said_to_have_run_out():
    cuda = Faulty()

    def full():
        if cuda.capturing:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    with pytest.raises(torch.OutOfMemoryError):
        capture_graph(cuda.engine, full)
    assert cuda.recording is None


class Copies(TorchDispatchMode):
    """Counts what would be copied from the host to a device: tensors made of Python's numbers."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, _types, args=(), kwargs=None):
        self.count += func is torch.ops.aten.lift_fresh.default
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("kind", AWKWARD)
def test_steps_that_are_captured_copy_nothing_and_ask_nothing(opened, kind):
    """The same tokens as without a graph, and from the second pass on no copy from the host and no look at a value."""
    host, replays = opened(AWKWARD[kind], text=True), Replays()
    expected = stepped(Eager(host.module), PROMPT, 8)
    real = host.torch, host.place
    host.torch, host.place = Engine(), Place()
    with torch.inference_mode():
        forward = Static(host, compiled=False, capture=replays)
    assert stepped(forward, PROMPT, 8) == expected

    def step():
        with as_captured(host.torch, forward._constants):
            forward._decode()

    with torch.inference_mode(), Copies() as copies:
        forward.reset()
        step()
        assert not looks_at_values(torch, step)
    assert copies.count == 0
    host.torch, host.place = real


def test_constants_are_whatever_they_would_have_been():
    x = torch.arange(24.0).reshape(2, 3, 4)
    mode = kept_constants("cpu")

    def made():
        y = x.clone()
        y[:, [0, 2]] = torch.tensor(-1.0, device="cpu", dtype=torch.float64).float()
        return [y, x[..., [-2], :], x[[1]], x[x > 5], x[0, 1], torch.tensor([1, 2], device="cpu"), torch.tensor(3)]

    expected = made()
    for _ in range(2):
        with mode:
            given = made()
            torch.tensor(-1.0, device="cpu", dtype=torch.float64).add_(5)  # whoever made it may write to it
        for old, new in zip(expected, given, strict=True):
            assert torch.equal(old, new)
            assert old.dtype == new.dtype


def test_without_cuda_it_says_what_is_missing(tmp_path):
    driver = tmp_path / "version"
    gone = lacks_cuda("2.13.0", driver=driver, find=lambda _: None)
    assert isinstance(gone, Missing)
    assert "no driver" in gone.reason
    assert "for CPUs" in lacks_cuda("2.13.0+cpu", driver=driver, find=lambda _: "/usr/bin/nvidia-smi").reason
    assert lacks_cuda("2.13.0", driver=driver, find=lambda _: "/usr/bin/nvidia-smi") is None
    driver.touch()
    assert lacks_cuda("2.13.0+cu130", driver=driver, find=lambda _: None) is None


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_a_cpu_captures_nothing(tmp_path):
    target = Target(path=written(tmp_path, ARRAYS["bert"]), format="config")
    with pytest.raises(EngineError, match="CUDA graphs need a CUDA device"):
        open_session(target, "torch-graph")


def test_an_encoder_that_is_traced_is_given_a_mask_as_a_tokeniser_gives_one(opened):
    """Without one, what is traced attends by kernels that no encoder in production runs."""
    host, seen = opened(ARRAYS["bert"]), []
    forward = host.module.model.forward
    assert host.module.padded
    assert not opened(ARRAYS["vit"]).module.padded, "patches of an image have no padding"

    def watched(*given, **named):
        seen.append(named.get("attention_mask"))
        return forward(*given, **named)

    host.module.model.forward = watched
    for execution in ("captured", "launched"):
        session = Arrays(host, execution=execution, capture=Replays())
        session.feed({"input_ids": RANDOM.integers(0, 160, (2, 7))})
        session.step()
    *traced, launched = seen
    assert all(mask.shape == (2, 7) and mask.all() for mask in traced)
    assert launched is None, "looked at, a mask that hides nothing is dropped"


@pytest.mark.parametrize("prompt", [1, 5, 8, 9, 20])
def test_a_ring_sees_what_its_window_does(opened, monkeypatch, prompt):
    """Within a graph masks are made whatever they hold: there a step must see the last eight tokens and no others."""
    host = opened(TEXT["gemma3_text"], text=True)
    model, config, count = host.module.model, host.module.config, prompt + 14
    monkeypatch.setattr(import_module("transformers.masking_utils"), "is_tracing", lambda *_: True)
    ids = torch.randint(0, 160, (1, count), generator=torch.Generator().manual_seed(prompt))
    cache = transformers.StaticCache(config=config, max_cache_len=count)
    kept = torch.zeros((), dtype=torch.long)
    cache.layers = [counted_layer(layer, config, kept, deep=False) for layer in cache.layers]
    with torch.inference_mode():
        expected, made = model(input_ids=ids, use_cache=False).logits, []
        for begin, end in ((0, prompt), *((each, each + 1) for each in range(prompt, count))):
            positions = torch.arange(begin, end)[None]
            made.append(model(input_ids=ids[:, begin:end], past_key_values=cache, position_ids=positions).logits)
            kept.add_(end - begin)
    torch.testing.assert_close(torch.cat(made, 1), expected)
    assert {layer.keys.shape[2] for layer in cache.layers if layer.is_sliding} == {8}
    assert all(layer.cumulative_length is kept for layer in cache.layers), "one count serves all layers"
