"""What a compiler calls and for which modules: noted while it compiles, kept beside its cache, and read with it."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from inferometer.engines.torch import provenance
from inferometer.engines.torch.provenance import compiler_calls


class Compiler:
    """In the place of the compiler's modules: its settings, its notes, and the class that writes code."""

    def __init__(self, monkeypatch):
        self.patched, self.written = [], []

        class GraphLowering:
            @staticmethod
            def save_output_code(code):
                self.written.append(code)

        @contextmanager
        def patch(given=None, **more):
            self.patched.append({**(given or {}), **more})
            yield
            self.patched.append("undone")

        self.config = SimpleNamespace(
            patch=patch, trace=SimpleNamespace(provenance_tracking_level=0),
            cpp=SimpleNamespace(enable_kernel_profile=False),
        )  # fmt: skip
        self.debug, self.lowering = SimpleNamespace(), GraphLowering
        self.modules = {
            "torch._inductor.config": self.config, "torch._inductor.debug": self.debug,
            "torch._inductor.graph": SimpleNamespace(GraphLowering=GraphLowering),
            "torch._functorch.config": SimpleNamespace(patch=patch),
        }  # fmt: skip
        monkeypatch.setattr(provenance, "import_module", self.module)

    def module(self, name):
        try:
            return self.modules[name]
        except KeyError:
            raise ImportError(name) from None

    def compiles(self, code, **kernels):
        """A graph of two nodes of one module and one of another, then its code; or the code alone, from the cache."""
        if kernels:
            stacks = {"n1": "a", "n2": "b", "n3": "b", "n4": None}
            nodes = [SimpleNamespace(name=name, meta={"nn_module_stack": {"x": (path, "Module")}} if path else {})
                     for name, path in stacks.items()]  # fmt: skip
            self.patched[0]["post_grad_custom_post_pass"](SimpleNamespace(nodes=nodes))
            self.debug._inductor_triton_kernel_to_post_grad_node_info = kernels
        self.lowering.save_output_code(code)


NAMES = frozenset({"a", "b"})
KERNELS = {"triton_fused:3": ["n1", "n2", "n3", "n4"], "cpp_one:4": ["n1"]}
CALLS = [("triton_fused", ("b", "a")), ("cpp_one", ("a",))]


@pytest.mark.parametrize("timers", [True, False])
def test_calls_are_noted_as_graphs_are_compiled_and_the_compiler_is_left_as_it_was(monkeypatch, timers):
    compiler = Compiler(monkeypatch)
    before = compiler.lowering.__dict__["save_output_code"]
    with compiler_calls(NAMES, timers=timers) as calls:
        (settings, *_) = compiler.patched
        assert settings["trace.provenance_tracking_level"] == 1
        assert settings.get("cpp.enable_kernel_profile") == (True if timers else None)
        compiler.compiles("code", **KERNELS)
        compiler.compiles("other")  # it was not compiled: nobody knows what it calls
    assert calls == CALLS
    # Without a folder nothing comes from a cache, where its calls would not be known.
    assert compiler.patched[1:] == [
        {"fx_graph_cache": False}, {"enable_autograd_cache": False}, "undone", "undone", "undone",
    ]  # fmt: skip
    assert compiler.lowering.__dict__["save_output_code"] is before
    assert compiler.written == []


def test_calls_of_code_from_the_cache_are_those_that_were_kept_for_it_and_these_modules(monkeypatch, tmp_path):
    compiler = Compiler(monkeypatch)
    with compiler_calls(NAMES, timers=False, folder=tmp_path) as calls:
        compiler.compiles("code", **KERNELS)
    assert calls == CALLS
    assert compiler.patched[1:] == ["undone"], "the cache stays on"
    for names, code, found in ((NAMES, "code", CALLS), (NAMES, "else", []), (frozenset({"a"}), "code", [])):
        with compiler_calls(names, timers=False, folder=tmp_path) as calls:
            compiler.compiles(code)
        assert calls == found


def test_a_compiler_that_says_nothing_of_it_is_left_alone(monkeypatch):
    compiler = Compiler(monkeypatch)
    del compiler.modules["torch._inductor.debug"]
    with compiler_calls(NAMES, timers=True) as calls:
        assert (calls, compiler.patched) == ([], [])
    compiler = Compiler(monkeypatch)
    compiler.config.cpp = compiler.config.trace = None
    with compiler_calls(NAMES, timers=True):
        assert list(compiler.patched[0]) == ["post_grad_custom_post_pass"], "settings that it does not have"
