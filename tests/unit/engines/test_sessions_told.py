"""What sessions make of what their engines give: an engine is a script of a few lines that moves the clock itself."""

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from inferometer.core.errors import DomainError, EngineError
from inferometer.engines.base import Event, FileNode, Kernel, Opened, Port, Request, Stage, Target
from inferometer.engines.ctranslate2 import session as ctranslate2
from inferometer.engines.executorch import session as executorch
from inferometer.engines.executorch.session import RanKernel
from inferometer.engines.mnn import session as mnn
from inferometer.engines.ncnn import session as ncnn
from inferometer.engines.onnxruntime.recorder import SKIP
from inferometer.engines.onnxruntime_genai import session as genai
from inferometer.engines.onnxruntime_genai.session import GenaiModel

OPENED = Opened(stages=(), versions={})


class World:
    """The one clock of a test; what runs moves it."""

    now = 0.0

    def __call__(self):
        return self.now

    def ns(self):
        return round(self.now * 1e9)


def nodes(*names):
    return tuple(FileNode(name=name, kind="conv") for name in names)


def port(name, *shape):
    return Port(name=name, dtype="float32", shape=shape)


# MNN.


class MnnTensor:
    def __init__(self, shape, kind="float", data=None, layout="rows"):
        self.shape, self.kind, self.layout = tuple(shape), kind, layout
        self.data = np.zeros(shape, np.float32) if data is None else data

    def getShape(self):  # noqa: N802 - the engine's names, here and below
        return list(self.shape)

    def getDataType(self):  # noqa: N802
        return self.kind

    def getDimensionType(self):  # noqa: N802
        return self.layout

    def getNumpyData(self):  # noqa: N802
        return self.data

    def copyFrom(self, other):  # noqa: N802
        assert (other.shape, other.kind, other.layout) == (self.shape, self.kind, self.layout)
        self.data = other.data.copy()

    copyToHostTensor = lambda self, host: host.copyFrom(self)  # noqa: E731, N815


class Mnn:
    """A network that doubles `b` and adds `a`, in operators of 1, 2 and 4 seconds; a callback's pair costs 1/4."""

    operators = (("conv_raster_0", "Raster", 1.0), ("conv", "Convolution", 2.0), ("end", "ConvertTensor", 4.0))
    wrong = 0

    def __init__(self, world, shape=(1, 3)):
        self.world, self.resized = world, []
        self.inputs = {"b": MnnTensor(shape), "a": MnnTensor((1, 3))}
        self.outputs = {"y": MnnTensor((1, 3))}

    def createSession(self, settings):  # noqa: N802
        self.settings, self.world.now = settings, self.world.now + 5.0
        return "session"

    def getSessionInputAll(self, _session):  # noqa: N802
        return self.inputs

    def getSessionOutputAll(self, _session):  # noqa: N802
        return self.outputs

    def resizeTensor(self, tensor, shape):  # noqa: N802
        tensor.shape = shape
        self.resized.append(shape)

    def resizeSession(self, _session):  # noqa: N802
        self.world.now += 2.0

    def runSession(self, _session):  # noqa: N802
        self.outputs["y"].data = self.inputs["a"].data + 2 * self.inputs["b"].data
        return self.wrong

    def runSessionWithCallBackInfo(self, session, before, after):  # noqa: N802
        for name, kind, seconds in self.operators:
            self.world.now += seconds if before([], None) else 0.25
            assert after([], SimpleNamespace(getName=lambda name=name: name, getType=lambda kind=kind: kind))
            self.world.now += 100.0  # between two operators
        return self.runSession(session)


def opened_mnn(tmp_path, monkeypatch, *, shape=(1, 3), **target):
    world = World()
    engine = Mnn(world, shape)
    (tmp_path / "m.mnn").touch()
    module = SimpleNamespace(Interpreter=lambda path: path == str(tmp_path / "m.mnn") and engine, Tensor=MnnTensor)
    monkeypatch.setitem(sys.modules, "_mnncengine", module)
    monkeypatch.setattr(mnn, "version", lambda package: f"{package} 3")
    monkeypatch.setattr(mnn, "hardware_counters", lambda: None)
    asked = Target(path=tmp_path / "m.mnn", format="mnn", threads=3, **target)
    return engine, mnn.open_session(asked, "mnn", clock=world)


def test_mnn_is_opened_with_the_sizes_that_will_be_fed(tmp_path, monkeypatch):
    engine, session = opened_mnn(tmp_path, monkeypatch, shapes={"a": (1, 3), "b": (2, 3), "other": (9,)})
    assert engine.settings == {"backend": "CPU", "numThread": 3, "precision": "high"}
    assert engine.resized == [(2, 3)], "of what has other sizes alone"
    assert session.opened == Opened(
        stages=(Stage(name="load", seconds=7.0),), versions={"MNN": "MNN 3"}, inputs=(port("a", 1, 3), port("b", 2, 3)),
        outputs=(port("y", 1, 3),), threads=3, precision="f32",
    )  # fmt: skip
    assert session.cost_per_kernel_s is None
    for size in (0, -1):
        with pytest.raises(EngineError, match="does not say the sizes of its input 'b'"):
            opened_mnn(tmp_path, monkeypatch, shape=(1, max(size, 0)), shapes={"b": (1, size)})


def test_mnn_that_gives_no_session_or_an_error_of_a_step_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(Mnn, "createSession", lambda *_: None)
    with pytest.raises(EngineError, match="it gave no reason"):
        opened_mnn(tmp_path, monkeypatch)
    monkeypatch.undo()
    engine, session = opened_mnn(tmp_path, monkeypatch)
    engine.wrong = 3
    with pytest.raises(EngineError, match=r"in a step: error 3\."):
        session.step()
    with pytest.raises(EngineError, match="which is no file"):
        mnn.open_session(Target(path=tmp_path / "none.mnn", format="mnn"), "mnn")


@pytest.mark.parametrize("instrument", [False, True])
def test_mnn_is_given_its_inputs_anew_with_each_step(tmp_path, monkeypatch, instrument):
    engine, session = opened_mnn(tmp_path, monkeypatch, instrument=instrument)
    a, b = np.ones((1, 3), np.float32), np.arange(6, dtype=np.float32).reshape(3, 2).T[:1]
    session.feed({"a": a, "b": b})
    for _ in range(2):
        for tensor in engine.inputs.values():  # the engine puts results where inputs lay
            tensor.data = tensor.data * 0 + 99
        session.step()
    first = session.outputs()["y"]
    np.testing.assert_array_equal(first, [[1.0, 5.0, 9.0]])
    engine.outputs["y"].data[:] = 0
    assert first[0, 2] == 9.0, "a copy"
    session.close()
    for use in (session.step, session.outputs, lambda: session.feed({})):
        with pytest.raises(EngineError, match="closed"):
            use()


def test_mnns_kernels_are_the_steps_that_ran_as_many_operators_as_the_last(tmp_path, monkeypatch):
    engine, session = opened_mnn(tmp_path, monkeypatch, instrument=True, nodes=nodes("conv", "conv/bias", "other/x"))
    assert session.cost_per_kernel_s == 0.25
    assert session.kernels() == {}, "measuring the cost is no step"
    engine.operators = engine.operators[:1]
    session.step()
    engine.operators = Mnn.operators
    session.step()
    engine.operators = tuple((name, kind, 8 * seconds) for name, kind, seconds in Mnn.operators)
    session.step()
    raster, conv, end = session.kernels()["forward"]
    layers = ("conv", "conv/bias")
    assert raster == Kernel(
        name="conv_raster_0", kind="Raster", samples_s=(1.0, 8.0), layers=layers, own=True, provider="cpu"
    )
    assert conv == Kernel(name="conv", kind="Convolution", samples_s=(2.0, 16.0), layers=layers, provider="cpu")
    assert (end.own, end.layers, end.samples_s) == (True, (), (4.0, 32.0))
    assert session.kernels() == {}


def test_mnns_operators_are_counted_in_a_step_of_their_own(tmp_path, monkeypatch):
    engine, session = opened_mnn(tmp_path, monkeypatch, instrument=True)

    class Counters:
        descriptors, counted, inside = {"cycles": 5}, 0, []

        def read(self):
            return {"cycles": engine.world.now}

        def counting(self):
            return self

        def __enter__(self):
            self.inside.append(engine.world.now)

        def __exit__(self, *_):
            self.inside.append(engine.world.now)

    session._counters = Counters()
    session.step()
    before = engine.world.now
    kernels = session.kernels()["forward"]
    assert [kernel.counters for kernel in kernels] == [{"cycles": seconds} for *_, seconds in Mnn.operators]
    assert [kernel.samples_s for kernel in kernels] == [(1.0,), (2.0,), (4.0,)], "which adds no sample"
    assert Counters.inside == [before, before + 307.0]
    assert [kernel.layers for kernel in kernels] == [("conv_raster_0",), ("conv",), ("end",)], "nothing was read"
    session.step()
    engine.operators = engine.operators[:2]
    assert [kernel.counters for kernel in session.kernels()["forward"]] == [{}, {}, {}], "another number ran"


# ncnn.


class Extractor:
    """Layers of 1 and 2 seconds; a result that is there already takes 1/8."""

    def __init__(self, net):
        self.net, self.given, self.there = net, {}, set()

    def input(self, name, mat):
        self.given[name] = mat

    def extract(self, name, layout=0):
        assert layout == (1 if isinstance(name, int) else 0), "layers as they are, results as rows"
        self.net.asked.append(name)
        self.net.world.now += 0.125 if name in self.there else self.net.seconds.get(name, 0.0)
        self.there.add(name)
        return int(name in self.net.failing), sum(self.given.values()) * 2


class Net:
    def __init__(self, world):
        self.world, self.asked, self.failing, self.loaded = world, [], set(), []
        self.opt, self.seconds = SimpleNamespace(), {1: 1.0, 3: 2.0}

    def load_param(self, path):
        self.world.now += 3.0
        return self.loaded.append(path) or 0

    load_model = load_param

    def input_names(self):
        return ["x"]

    def output_names(self):
        return ["y", "z"]

    def create_extractor(self):
        return Extractor(self)

    def layers(self):
        rows = (("in", "Input", [0]), ("conv/1", "Convolution", [1, 2]), ("end", "Noop", []), ("fc", "Gemm", [3]),
                ("w", "MemoryData", [4]))  # fmt: skip
        return [SimpleNamespace(name=name, type=kind, tops=tops) for name, kind, tops in rows]


class Mat(np.ndarray):
    def clone(self):
        return self.copy()


def opened_ncnn(tmp_path, monkeypatch, *, able=0, **target):
    world = World()
    net = Net(world)
    for name in ("m.param", "m.bin"):
        (tmp_path / name).touch()
    module = SimpleNamespace(Net=lambda: net, Mat=lambda row: row.view(Mat), cpu_support_arm_asimdhp=lambda: able)
    monkeypatch.setitem(sys.modules, "ncnn", module)
    monkeypatch.setattr(ncnn, "version", lambda _: "9")
    monkeypatch.setattr(ncnn, "_wait_asleep", lambda *_: None)
    asked = Target(
        **{"path": tmp_path / "m.param", "format": "ncnn", "threads": 3, "shapes": {"x": (1, 2, 5)}, **target}
    )
    return net, ncnn.open_session(asked, "ncnn", clock=world)


@pytest.mark.parametrize(
    ("able", "asked", "half"), [(0, None, False), (1, None, True), (1, "f32", False), (1, "f16", True)]
)
def test_ncnn_computes_in_half_where_it_can_unless_asked_otherwise(tmp_path, monkeypatch, able, asked, half):
    net, session = opened_ncnn(tmp_path, monkeypatch, able=able, precision=asked)
    assert vars(net.opt) == {
        "num_threads": 3, "lightmode": True, "use_fp16_packed": half, "use_fp16_storage": half,
        "use_fp16_arithmetic": half,
    }  # fmt: skip
    assert net.loaded == [str(tmp_path / "m.param"), str(tmp_path / "m.bin")]
    assert session.opened == Opened(
        stages=(Stage(name="load", seconds=6.0),), versions={"ncnn": "9"}, inputs=(port("x", 1, 2, 5),),
        outputs=(port("y", 1, 2, 5), port("z", 1, 2, 5)), threads=3, placed={"cpu": 5},
        precision="f16" if half else "f32", sums="f16" if half else None,
    )  # fmt: skip


def test_ncnn_refuses_half_where_it_cannot_a_batch_and_what_it_cannot_compute(tmp_path, monkeypatch):
    with pytest.raises(EngineError, match="in f16 only on Arm"):
        opened_ncnn(tmp_path, monkeypatch, precision="f16")
    with pytest.raises(DomainError, match="one input at a time, and 2"):
        opened_ncnn(tmp_path, monkeypatch, batch=2)
    net, session = opened_ncnn(tmp_path, monkeypatch)
    session.feed({"x": np.ones((1, 2, 5), np.float32)})
    net.failing = {"z"}
    with pytest.raises(EngineError, match="could not compute 'z'"):
        session.step()
    monkeypatch.setattr(Net, "load_model", lambda *_: 1)
    with pytest.raises(EngineError, match="it gave no reason"):
        opened_ncnn(tmp_path, monkeypatch)


def test_ncnn_is_given_one_input_without_its_batch_and_asked_for_every_result(tmp_path, monkeypatch):
    net, session = opened_ncnn(tmp_path, monkeypatch)
    net.asked.clear()
    session.feed({"x": np.arange(10, dtype=np.float32).reshape(1, 5, 2).transpose(0, 2, 1)})
    session.step()
    assert net.asked == ["y", "z"]
    found = session.outputs()
    assert {name: array.shape for name, array in found.items()} == {"y": (1, 2, 5), "z": (1, 2, 5)}
    np.testing.assert_array_equal(found["y"][0, 1], [2.0, 6.0, 10.0, 14.0, 18.0])
    assert session.kernels() == {}
    session.close()
    with pytest.raises(EngineError, match="closed"):
        session.outputs()


def test_ncnns_layers_are_asked_for_one_after_another_and_the_asking_is_measured_once(tmp_path, monkeypatch):
    net, session = opened_ncnn(tmp_path, monkeypatch, instrument=True, nodes=nodes("conv/1", "conv/act", "gone"))
    session.feed({"x": np.ones((1, 2, 5), np.float32)})
    assert (session.kernels(), session.cost_per_kernel_s) == ({}, None)
    net.asked.clear()
    session.step()
    assert net.asked == [1, 3, *[3] * 200, "y", "z"]
    net.seconds, net.asked = {1: 4.0, 3: 8.0}, []
    session.step()
    assert net.asked == [1, 3, "y", "z"]
    assert session.cost_per_kernel_s == 0.125
    assert session.kernels()["forward"] == (
        Kernel(name="conv/1", kind="Convolution", samples_s=(1.0, 4.0), layers=("conv/1", "conv/act"), provider="cpu"),
        Kernel(name="fc", kind="Gemm", samples_s=(2.0, 8.0), provider="cpu"),
    )
    assert session.kernels() == {}
    net.failing = {1}
    with pytest.raises(EngineError, match="could not compute 'conv/1'"):
        session.step()
    _, plain = opened_ncnn(tmp_path, monkeypatch, instrument=True)
    plain.feed({"x": np.ones((1, 2, 5), np.float32)})
    plain.step()
    assert [kernel.layers for kernel in plain.kernels()["forward"]] == [("conv/1",), ("fc",)], "nothing was read"


# ExecuTorch.


class Pte:
    """A program of one method that adds its two inputs."""

    def __init__(self, world):
        self.world, self.pool, self.loaded, self.wrong = world, 4, None, None
        self.Verification = SimpleNamespace(InternalConsistency="consistent")

    def _threadpool_get_thread_count(self):
        return self.pool

    def _unsafe_reset_threadpool(self, threads):
        self.pool = threads

    def _load_program(self, path, **more):
        self.loaded, self.world.now = (path, more), self.world.now + 3.0
        return self

    def num_methods(self):
        return 1

    def get_method_name(self, number):
        return ["forward"][number]

    def load_method(self, name):
        assert name == "forward"
        return self

    def method_meta(self):
        return self

    def num_inputs(self):
        return 2

    def num_outputs(self):
        return 1

    def input_tensor_meta(self, number):
        return SimpleNamespace(dtype=lambda: 6, sizes=lambda: [(2, 3), (4, 3)][number])

    def output_tensor_meta(self, number):
        return SimpleNamespace(dtype=lambda: [4][number], sizes=lambda: (2,))

    def set_inputs(self, given):
        self.given = given

    def execute(self):
        if self.wrong:
            raise RuntimeError(self.wrong)

    def get_outputs(self, copied):
        assert copied
        return [SimpleNamespace(numpy=lambda: self.given[0] + self.given[1])]

    def write_etdump_result_to_file(self, path):
        Path(path).write_bytes(b"etdump")


def opened_pte(tmp_path, monkeypatch, *, engine=None, **target):
    world = World()
    engine = engine or Pte(world)
    (tmp_path / "m.pte").touch()
    monkeypatch.setattr(executorch, "loaded_engine", lambda: engine)
    monkeypatch.setattr(executorch, "version", lambda package: f"{package} 1")
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(from_numpy=lambda row: row))
    asked = Target(**{"path": tmp_path / "m.pte", "format": "pte", "threads": 2, **target})
    return engine, executorch.open_session(asked, "executorch", clock=world)


def test_executorchs_ports_are_as_asked_for_where_they_fit_into_the_largest(tmp_path, monkeypatch):
    placed = (*nodes("a", "b"), FileNode(name="c", kind="XNNAdd"))
    engine, session = opened_pte(
        tmp_path, monkeypatch, instrument=True, nodes=placed, shapes={"input_0": (2, 4), "input_1": (4, 1)}
    )
    assert engine.loaded == (
        str(tmp_path / "m.pte"), {"enable_etdump": True, "program_verification": "consistent"}
    )  # fmt: skip
    assert session.opened == Opened(
        stages=(Stage(name="load", seconds=3.0),),
        versions={"executorch": "executorch 1", "torch": "torch 1"},
        inputs=(port("input_0", 2, 3), port("input_1", 4, 1)),
        outputs=(Port(name="output_0", dtype="int64", shape=(2,)),), threads=2,
        placed={"portable": 2, "XnnpackBackend": 1},
    )  # fmt: skip
    session.close()
    _, session = opened_pte(tmp_path, monkeypatch, shapes={"input_0": (2, 3, 1)})
    assert session.opened.inputs[0].shape == (2, 3), "of another rank"
    session.close()


def test_executorchs_pool_of_threads_stays_while_a_program_is_open(tmp_path, monkeypatch):
    engine, first = opened_pte(tmp_path, monkeypatch)
    assert engine.pool == 2
    _, second = opened_pte(tmp_path, monkeypatch, engine=engine)
    with pytest.raises(EngineError, match=r"holds on to one of 2; 3 were asked for"):
        opened_pte(tmp_path, monkeypatch, engine=engine, threads=3)
    first.close()
    with pytest.raises(EngineError, match="holds on"):
        opened_pte(tmp_path, monkeypatch, engine=engine, threads=3)
    second.close()
    _, third = opened_pte(tmp_path, monkeypatch, engine=engine, threads=3)
    assert engine.pool == 3
    third.close()


def test_executorch_is_given_rows_of_its_own_in_the_order_of_its_ports(tmp_path, monkeypatch):
    engine, session = opened_pte(tmp_path, monkeypatch, shapes={"input_1": (2, 3)})
    one = np.arange(6, dtype=np.float32).reshape(3, 2).T
    fixed = np.full((2, 3), 10, np.float32)
    fixed.flags.writeable = False
    session.feed({"input_1": fixed, "input_0": one})
    session.step()
    assert all(row.flags.c_contiguous and row.flags.writeable for row in engine.given)
    np.testing.assert_array_equal(session.outputs()["output_0"], one + 10)
    np.testing.assert_array_equal(engine.given[0], one)
    assert session.kernels() == {}, "it is not instrumented"
    engine.wrong = "Error 18"
    with pytest.raises(EngineError, match=r"in a step: Error 18\."):
        session.step()
    session.close()
    with pytest.raises(EngineError, match="closed"):
        session.step()


def test_executorchs_kernels_are_numbered_where_several_stand_for_one_layer(tmp_path, monkeypatch):
    _, session = opened_pte(tmp_path, monkeypatch, instrument=True, nodes=nodes("add_2"))

    def step(*seconds):
        kinds = (("add.out", 2, False, False), ("add.out", 2, False, False), ("mul.out", 7, True, False),
                 ("DELEGATE_CALL", 7, True, True))  # fmt: skip
        return [RanKernel(kind=kind, instruction=at, seconds=took, delegated=delegated, rest=rest)
                for (kind, at, delegated, rest), took in zip(kinds, seconds, strict=False)]  # fmt: skip

    dumped = [[step(9), step(1, 2, 3, 4), step(5, 6, 7, 8)], []]
    monkeypatch.setattr(executorch, "steps_of", lambda data, label: data == b"etdump" and label.name and dumped.pop(0))
    monkeypatch.setattr(
        executorch,
        "layers_of",
        lambda ran, known: tuple((known[0].name,) if row.instruction == 2 else () for row in ran),
    )
    assert session.kernels() == {}, "before a step the engine would crash"
    session.feed({name: np.zeros(shape, np.float32) for name, shape in (("input_0", (2, 3)), ("input_1", (4, 3)))})
    session.step()
    found = session.kernels()["forward"]
    assert found[0] == Kernel(name="add_2", kind="add.out", samples_s=(1, 5), layers=("add_2",), provider="portable")
    assert [(kernel.name, kernel.samples_s, kernel.layers, kernel.own, kernel.provider) for kernel in found[1:]] == [
        ("add_2#2", (2, 6), ("add_2",), False, "portable"), ("mul.out (7)", (3, 7), (), False, "delegate"),
        ("DELEGATE_CALL (7)", (4, 8), (), True, "delegate"),
    ]  # fmt: skip
    assert session.kernels() == {}
    assert len(dumped) == 1, "asked again without a step, it would crash"
    session.step()
    assert session.kernels() == {}
    session.close()
    monkeypatch.setattr(executorch, "layers_of", lambda ran, _: ((),) * len(ran))
    session._nodes = ()
    found = session._named([step(1, 2, 3, 4)])
    assert [kernel.layers for kernel in found] == [("add.out (2)",), ("add.out (2)",), ("mul.out (7)",), ()]


# CTranslate2.


def opened_ctranslate2(tmp_path, monkeypatch, *, computed="float32", cards=0, **target):
    world, asked = World(), []

    class Generator:
        compute_type = computed

        def __init__(self, folder, **more):
            asked.append((folder, more))
            world.now += 4.0

        def generate_batch(self, prompts, *, callback, max_length, **more):
            asked.append((prompts, max_length, more.get("static_prompt")))
            for step in range(max_length):
                for sequence, _ in enumerate(prompts):
                    world.now += 1.0 + step
                    assert callback(SimpleNamespace(step=step, token_id=10 * sequence + step)) is False

    (tmp_path / "model.bin").touch()
    (tmp_path / "vocabulary.txt").write_text("\n".join("abcdefghijk"), encoding="utf-8")
    engine = SimpleNamespace(Generator=Generator, get_cuda_device_count=lambda: cards)
    monkeypatch.setitem(sys.modules, "ctranslate2", engine)
    monkeypatch.setattr(ctranslate2, "version", lambda _: "4")
    monkeypatch.setattr(ctranslate2, "_wait_asleep", lambda *_: ("asleep",))
    clocks = SimpleNamespace(perf_counter_ns=world.ns, process_time_ns=lambda: 2 * world.ns())
    monkeypatch.setattr(ctranslate2, "time", clocks)
    given = Target(**{"path": tmp_path, "format": "ctranslate2", "text": True, "threads": 3, **target})
    return asked, ctranslate2.open_session(given, "ctranslate2", clock=world)


@pytest.mark.parametrize(
    ("asked", "computed", "told", "products"),
    [
        (None, "float32", ("default", "f32"), ()),
        ("f16", "float16", ("float16", "f16"), ()),
        ("bf16", "int8_bfloat16", ("bfloat16", "bf16"),
         ("Products are computed in int8, everything else in bfloat16.",)),
        (None, "int16", ("default", None), ()),
    ],
)  # fmt: skip
def test_ctranslate2_says_what_it_really_computes_in(*, tmp_path, monkeypatch, asked, computed, told, products):
    calls, session = opened_ctranslate2(
        tmp_path, monkeypatch, computed=computed, cards=2, precision=asked, unit="gpu:1", path=tmp_path / "model.bin"
    )
    more = {"device": "cuda", "device_index": 1, "inter_threads": 1, "intra_threads": 3, "compute_type": told[0]}
    assert calls == [(str(tmp_path), more)]
    assert session.opened == Opened(
        stages=(Stage(name="load", seconds=4.0),), versions={"ctranslate2": "4"}, threads=3, unit="gpu:1",
        precision=told[1], notes=(ctranslate2.NO_LAYERS, *products, "asleep"),
    )  # fmt: skip


@pytest.mark.parametrize(("generate", "ids"), [(3, [(0,), (1,), (2,)]), (0, [()])])
def test_a_step_of_ctranslate2_ends_with_the_last_of_its_sequences(tmp_path, monkeypatch, generate, ids):
    calls, session = opened_ctranslate2(tmp_path, monkeypatch, batch=2)
    calls.clear()
    request = Request(prompt=(1, 2), generate=generate, depth=2)
    start = 4.0 + 2.0  # it was loaded, and the depth filled
    for _ in range(2):
        events = list(session.generate(request))
        ends = [start + 2.0, start + 6.0, start + 12.0][: len(events)]  # two sequences, a second more each step
        assert [event.end_ns for event in events] == [round(end * 1e9) for end in ends]
        assert [event.start_ns for event in events] == [round(begun * 1e9) for begun in (start, *ends[:-1])]
        start = ends[-1]
    assert [event.ids for event in events] == ids, "those of the first sequence"
    assert [event.kind for event in events] == ["prefill", "token", "token"][: len(ids)]
    assert [event.tokens for event in events] == [2, 1, 1][: len(ids)]
    assert [event.context for event in events] == [2, 4, 5][: len(ids)]
    assert [event.own_s for event in events] == pytest.approx([4.0, 8.0, 12.0][: len(ids)])
    filled = ["b", "i"]  # through the vocabulary of eleven by sevens, from the second
    count = max(1, generate)
    assert calls == [([["b", "c"]] * 2, 1, filled), *[([["b", "c"]] * 2, count, filled)] * 2], "filled once"
    session.close()
    with pytest.raises(EngineError, match="closed"):
        list(session.generate(request))


def test_ctranslate2s_logits_are_those_of_the_one_text_without_the_padding(tmp_path, monkeypatch):
    _, session = opened_ctranslate2(tmp_path, monkeypatch)
    moved = []

    class Logits(np.ndarray):
        def to(self, kind):
            return self.astype(kind).view(Logits)

        def to_device(self, device):
            return moved.append(device) or self

    padded = np.arange(2 * 16, dtype=np.float64).reshape(1, 2, 16).view(Logits)
    session._engine = SimpleNamespace(
        DataType=SimpleNamespace(float32=np.float32), Device=SimpleNamespace(cpu="the host")
    )
    session._generator = SimpleNamespace(forward_batch=lambda rows: padded if rows == [[3, 4]] else None)
    found = session.score((3, 4))
    assert (found.shape, found.dtype, found[1, 10], moved) == ((2, 11), np.float32, 26.0, [])
    session.opened = replace(session.opened, unit="gpu")
    assert session.score((3, 4)).shape == (2, 11)
    assert moved == ["the host"]


# ONNX Runtime GenAI.


class Generator:
    """The prompt takes a second a token, a step one and a half, reading a token a quarter; it ends after `ends`."""

    ends = 99

    def __init__(self, model, params):
        self.world, self.made, self.rows, self.options = model, [], [], params.options
        model.generators.append(self)

    def append_tokens(self, rows):
        self.world.now += rows.shape[1]
        self.rows.append(rows)

    def is_done(self):
        return len(self.made) >= self.ends

    def generate_next_token(self):
        self.world.now += 1.5
        self.made.append(len(self.made) + 40)

    def get_next_tokens(self):
        self.world.now += 0.25
        return np.array([self.made[-1], 7])

    def get_output(self, name):
        assert name == "logits"
        tokens = self.rows[-1].shape[1] if self.world.every else 1
        last = sum(rows.shape[1] for rows in self.rows)
        return np.array([[[last - tokens + place + 1, 0, 0, 5, 99] for place in range(tokens)]], np.float64)


def genai_session(monkeypatch, *, recorder=None, every=True, **target):
    world = World()
    world.generators, world.every = [], every

    class Params:
        def __init__(self, model):
            assert model is world

        def set_search_options(self, **options):
            self.options = options

    engine = SimpleNamespace(GeneratorParams=Params, Generator=Generator)
    monkeypatch.setitem(sys.modules, "onnxruntime_genai", engine)
    monkeypatch.setattr(genai, "time", SimpleNamespace(perf_counter_ns=world.ns))
    asked = Target(path=Path("m"), format="onnxruntime-genai", text=True, **target)
    config = {"model": {"vocab_size": 4, "context_length": 12}}
    model = GenaiModel(model=world)
    return world, genai.GenaiSession(asked, Path("m"), config, model, OPENED, recorder)


def event(kind, start, end, tokens, context, *, ids, **parts):
    return Event(
        kind=kind, start_ns=round(start * 1e9), end_ns=round(end * 1e9), tokens=tokens, context=context, ids=ids,
        parts={name: pytest.approx(seconds) for name, seconds in parts.items()},
    )  # fmt: skip


@pytest.mark.parametrize("apart", [False, True])
def test_events_of_onnxruntime_genai_are_the_prompt_and_each_step(monkeypatch, apart):
    world, session = genai_session(monkeypatch)
    found = list(session.generate(Request(prompt=(1, 2), generate=3, depth=4, apart=apart)))
    assert found == [
        event("prefill", 4.0, 7.75, 2, 4, ids=(40,), run=2.0, sample=1.75),
        event("token", 7.75, 9.5, 1, 6, ids=(41,), run=1.5, read=0.25),
        event("token", 9.5, 11.25, 1, 7, ids=(42,), run=1.5, read=0.25),
    ]
    (made,) = world.generators
    assert [rows.tolist() for rows in made.rows] == [[[1, 0, 3, 2]], [[1, 2]]], "by sevens through four words"
    assert all(rows.dtype == np.int32 for rows in made.rows)
    assert made.options == {"batch_size": 1, "max_length": 9, "min_length": 9, "do_sample": False, "num_beams": 1}


def test_onnxruntime_genai_stops_where_a_text_ends_and_never_makes_more_than_asked_for(monkeypatch):
    world, session = genai_session(monkeypatch, batch=3)
    (only,) = session.generate(Request(prompt=(1,), generate=0))
    assert only == event("prefill", 0.0, 2.75, 1, 0, ids=(), run=1.0, sample=1.75)
    assert world.generators[0].rows[0].tolist() == [[1]] * 3
    monkeypatch.setattr(Generator, "ends", 3)
    found = list(session.generate(Request(prompt=(1,), generate=9, ignore_end=False)))
    assert [row.ids for row in found] == [(40,), (41,), (42,)]
    assert world.generators[1].options == {
        "batch_size": 3, "max_length": 10, "min_length": 0, "do_sample": False, "num_beams": 1
    }  # fmt: skip
    with pytest.raises(DomainError, match="one sequence alone"):
        list(session.generate(Request(prompt=(1,), generate=1, depth=1)))
    with pytest.raises(DomainError, match="the context holds 12"):
        list(session.generate(Request(prompt=(1,), generate=12)))
    _, wide = genai_session(monkeypatch, context=13)
    assert list(wide.generate(Request(prompt=(1,), generate=12)))


@pytest.mark.parametrize("every", [True, False])
def test_onnxruntime_genais_logits_are_of_every_token_however_the_file_gives_them(monkeypatch, every):
    world, session = genai_session(monkeypatch, every=every)
    found = session.score((1, 2, 3))
    assert (found.dtype, found.tolist()) == (np.float32, [[1, 0, 0, 5], [2, 0, 0, 5], [3, 0, 0, 5]])
    assert [made.options["max_length"] for made in world.generators] == ([4] if every else [4, 4])


def test_onnxruntime_genais_record_knows_every_run_and_what_was_no_step(monkeypatch):
    class Recorder:
        timers, runs, session = SimpleNamespace(node_s=3.0, step_s=4.0), [], None

        def ready(self, runs, renew):
            self.runs.append(runs)
            self.renew = renew

        def ran(self, phase):
            self.runs.append(phase)

        def take(self):
            return {"decode": ()}

        def close(self):
            self.runs.append("closed")

    recorder = Recorder()
    _, session = genai_session(monkeypatch, recorder=recorder)
    list(session.generate(Request(prompt=(1, 2), generate=3, depth=4)))
    assert recorder.runs == [4, SKIP, "prefill", "decode", "decode"]
    assert (session.cost_per_kernel_s, session.idle_per_step_s, session.kernels()) == (3.0, 4.0, {"decode": ()})
    recorder.runs.clear()
    list(session.generate(Request(prompt=(1, 2), generate=0)))
    session.score((1, 2, 3))
    assert recorder.runs == [1, "prefill", 4, SKIP]
    recorder.runs.clear()
    world = session._model.model
    recorder.renew(GenaiModel(model=world))
    assert recorder.runs == [SKIP, SKIP]
    assert (world.generators[-1].rows[0].tolist(), len(world.generators[-1].made)) == ([[0, 0]], 2)
    session.close()
    session.close()
    assert recorder.runs[2:] == ["closed"]
    with pytest.raises(EngineError, match="closed"):
        session.score((1,))
    _, plain = genai_session(monkeypatch)
    assert (plain.cost_per_kernel_s, plain.idle_per_step_s, plain.kernels()) == (None, None, {})
