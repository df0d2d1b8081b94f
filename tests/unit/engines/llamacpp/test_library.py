"""The C functions of a package: found, checked, or refused with what is missing."""

import ctypes

import pytest

from inferometer.core.errors import EngineError
from inferometer.engines.llamacpp import library as module
from inferometer.engines.llamacpp.library import Library, Parameters, candidates, find_library


class Spec:
    def __init__(self, place):
        self.submodule_search_locations = [str(place)]


def test_a_parameter_is_put_where_it_belongs():
    parameters = Parameters()
    parameters.put(4, -1)
    parameters.put(16, 2**40, size=8)
    raw = bytes(parameters.raw)
    assert raw[4:8] == b"\xff" * 4
    assert raw[16:24] == (2**40).to_bytes(8, "little")
    assert not any(raw[:4] + raw[8:16] + raw[24:])


def test_xllamacpp_comes_before_llama_cpp_python(tmp_path, monkeypatch):
    for name in ("xllamacpp/xllamacpp.abi3.so", "llama_cpp/lib/libllama.so", "llama_cpp/lib/libggml-base.so"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.setattr(module, "find_spec", lambda name: Spec(tmp_path / name))
    found = [(package, [path.name for path in files]) for package, files in candidates()]
    assert found == [("xllamacpp", ["xllamacpp.abi3.so"]), ("llama_cpp", ["libllama.so", "libggml-base.so"])]


def test_a_library_that_cannot_be_loaded_is_passed_over_with_its_reason(tmp_path, monkeypatch):
    path = tmp_path / "xllamacpp.abi3.so"
    path.write_bytes(b"no library")
    monkeypatch.setattr(module, "candidates", lambda: (("xllamacpp", (path,)),))
    library, reason = find_library()
    assert library is None
    assert "xllamacpp.abi3.so" in reason


def test_a_library_without_the_functions_says_which_it_lacks():
    with pytest.raises(EngineError, match="llama_backend_init"):
        Library([ctypes.CDLL(None)], label="libc")


def test_nothing_installed_is_said(monkeypatch):
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    assert find_library() == (None, "No package with llama.cpp's functions is installed.")
