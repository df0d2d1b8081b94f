import pytest

from inferometer.core import plugins
from inferometer.core.errors import FormatError, PluginError, UnknownNameError
from inferometer.engines.results import detect
from inferometer.engines.results.detect import import_file
from unit.engines.results.sources import DATA, OURS, only, parsed, taken, written


def test_what_nobody_knows_says_what_was_found_and_what_is_known(tmp_path):
    with pytest.raises(FormatError) as caught:
        taken(written(tmp_path, {"hello": 1, "world": 2}, "mystery.json"))
    said = str(caught.value)
    assert "mystery.json" in said
    assert "JSON with the keys hello, world" in said
    for importer in OURS.values():
        assert f"{importer.name} ({importer.title})" in said


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "an empty file"),
        (" \n\t", "an empty file"),
        ('[{"cat": "Node", "dur": 1', "JSON that cannot be read"),
        ("[1, 2, 3]", "a JSON list of 3"),
        ('[{"a": 1}]', "the first with the keys a"),
        ("[]", "a JSON list of 0"),
        ("{}", "JSON with no keys"),
        ('{"a": 1}\n{"a": 2}', "2 lines of JSON with the keys a"),
        ("hello there", "begin with 'hello there'"),
        ("null", "begin with 'null'"),
    ],
)
def test_the_error_says_what_the_file_is(tmp_path, text, found):
    with pytest.raises(FormatError) as caught:
        taken(written(tmp_path, text))
    assert found in str(caught.value)


def test_a_truncated_sample_says_where_it_ends(tmp_path):
    text = (DATA / "qai_hub.json").read_text()
    with pytest.raises(FormatError, match="cannot be read"):
        taken(written(tmp_path, text[: len(text) // 2]))


def test_the_suffix_means_nothing(tmp_path):
    (profile,) = taken(written(tmp_path, parsed("qai_hub.json"), "model.onnx"))
    assert profile.provenance.tool == "Qualcomm AI Hub profile"


def test_an_importer_asked_for_by_name():
    assert only("qai_hub.json", source="qai-hub").phases == only("qai_hub.json").phases


def test_the_wrong_importer_says_what_the_file_looks_like():
    with pytest.raises(FormatError) as caught:
        only("qai_hub.json", source="hyperfine")
    assert "was to be read as hyperfine" in str(caught.value)
    assert "It looks like Qualcomm AI Hub profile; leave --as out." in str(caught.value)


def test_an_importer_that_is_not_known_suggests_one():
    with pytest.raises(UnknownNameError, match="Did you mean hyperfine"):
        only("hyperfine.json", source="hyperfin")


def test_a_file_that_two_know_asks_which(tmp_path):
    class Other:
        name, title = "other", "Another tool"

        def matches(self, document):
            return bool(document.data)

        def read(self, document):
            return () if document.json else (document,)

    with pytest.raises(FormatError, match=r"could be from hyperfine or other.*--as NAME"):
        import_file(DATA / "hyperfine.json", importers=[*OURS.values(), Other()])
    assert import_file(DATA / "hyperfine.json", importers=[*OURS.values(), Other()], source="other") == ()


def test_the_model_and_device_that_the_file_does_not_name():
    profile = only("onnxruntime.json", model="resnet50", device="raspberry-pi-5")
    assert (profile.model.name, profile.device.name) == ("resnet50", "raspberry-pi-5")
    unnamed = only("onnxruntime.json")
    assert (unnamed.model.name, unnamed.device.name, unnamed.device.title) == ("onnxruntime", "unknown", None)


def test_a_name_given_does_not_lose_what_the_file_knows():
    assert only("llama_bench.json", model="mine").model.parameters == 7615616512


def test_the_time_of_the_import_stands_in_for_one_that_is_not_known():
    assert only("onnxruntime.json").provenance.created == "2026-01-01T00:00:00+00:00"
    assert only("aiperf.json").provenance.created == "2026-03-02T10:00:00"


def test_an_error_of_an_importer_names_the_file_and_the_source(tmp_path):
    path = written(tmp_path, {"results": [{"command": "a", "times": [-1]}]}, "broken.json")
    with pytest.raises(FormatError, match=r"broken\.json' cannot be imported from hyperfine: `times`\[0\] is -1"):
        taken(path)


def test_a_file_over_the_limit_is_refused():
    with pytest.raises(FormatError, match="larger than"):
        only("hyperfine.json", limit=10)


def test_installed_importers_come_through_the_entry_points(monkeypatch):
    broken = PluginError("The plug-in 'x' cannot be loaded.")
    found = {"inferometer.importers": OURS}
    monkeypatch.setattr(plugins, "load_all", lambda group: (found.get(group, {}), (broken,)))
    assert import_file(DATA / "hyperfine.json")[0].model.name == "./old --size 8"
    with pytest.raises(FormatError, match="'x' cannot be loaded"):
        import_file(__file__)


def test_the_group_is_one_that_plug_ins_know():
    assert detect.GROUP in plugins.GROUPS


@pytest.mark.parametrize("kind", ["profile", "run"])
def test_our_own_documents_are_named_with_the_commands_for_them(tmp_path, kind):
    path = tmp_path / "ours.json"
    path.write_text(f'{{"schema": "inferometer.{kind}/1"}}', encoding="utf-8")
    with pytest.raises(FormatError, match=f"is a {kind} of Inferometer's own") as caught:
        import_file(path)
    assert f"`inferometer import {path}`" in caught.value.remedy
