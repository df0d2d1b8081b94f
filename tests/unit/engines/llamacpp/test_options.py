import pytest

from inferometer.core.errors import DomainError, UnknownNameError
from inferometer.engines.llamacpp.library import CACHE_TYPES, LlamaOptions, parse_options


def test_nothing_asked_is_the_engines_own_default():
    assert parse_options({}) == LlamaOptions()


def test_everything_can_be_asked():
    found = parse_options({
        "api": "server", "type_k": "Q8_0", "type_v": "bf16", "flash_attention": "on", "n_gpu_layers": "0",
        "n_batch": "64", "n_ubatch": "32", "warmup": "on",
    })  # fmt: skip
    assert found == LlamaOptions(
        api="server", type_k="q8_0", type_v="bf16", flash=1, layers=0, batch=64, ubatch=32, warmup=True
    )


def test_types_have_the_numbers_of_the_engines_enumeration():
    engine = pytest.importorskip("xllamacpp", reason="SKIPPED LOUDLY: xllamacpp is not installed")
    assert {name: engine.ggml_type[f"GGML_TYPE_{name.upper()}"].value for name in CACHE_TYPES} == CACHE_TYPES


@pytest.mark.parametrize(
    ("name", "text"),
    [("type_k", "f12"), ("flash_attention", "maybe"), ("n_batch", "0"), ("n_ubatch", "-1"), ("warmup", "yes"),
     ("n_gpu_layers", "²"), ("api", "grpc")],
)  # fmt: skip
def test_what_it_does_not_take_is_named_with_what_it_takes(name, text):
    with pytest.raises(DomainError) as caught:
        parse_options({name: text})
    assert name in str(caught.value)
    assert text in str(caught.value)


def test_an_option_that_does_not_exist_is_named():
    with pytest.raises(UnknownNameError, match="type_k"):
        parse_options({"tipe_k": "f16"})
