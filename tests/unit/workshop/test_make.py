"""`make data`, with a workshop of two makers: a list of words, and how many there are."""

import re

import msgspec
import pytest

from inferometer.core.graph import Block, Graph, Op, Tensor
from inferometer.known.atlas.measurement import PublishedMeasurement
from inferometer.known.atlas.shipped import write_table
from inferometer.known.atlas.table import table_of
from workshop.differing import difference
from workshop.make import main
from workshop.networks.archive import write_archive

FILES = """
[[maker]]
name = "words"
makes = ["data/*.txt"]
steps = [["workshop.words.copy", "{data}", "{work}"]]
data = ["*.csv"]
code = ["code"]
made = "2026-11-16"
how = ""

[[maker]]
name = "counts"
makes = ["counts.json"]
steps = [["workshop.words.count", "{made}"]]
after = ["words"]
made = "2026-11-17"
how = ""

[[maker]]
name = "elsewhere"
makes = ["elsewhere.json"]
steps = [["workshop.words.count"]]
needs = ["no-such-library==1.0"]
made = "2026-11-17"
how = ""

[[maker]]
name = "by-hand"
makes = ["rows.toml"]
made = ""
how = "by hand"
"""
COPY = """
import pathlib, sys, inferometer
data, work = map(pathlib.Path, sys.argv[1:])
(work / "calls").open("a").write("x")
target = pathlib.Path(inferometer.__file__).parent / "data"
for path in target.glob("*.txt"):
    path.unlink()
for path in data.glob("*.csv"):
    (target / f"{path.stem}.txt").write_text(path.read_text())
"""
COUNT = """
import json, pathlib, sys, inferometer
package = pathlib.Path(inferometer.__file__).parent
words = [word for path in sorted((package / "data").glob("*.txt")) for word in path.read_text().split()]
if "impossible" in words:
    sys.exit("no such word")
(package / "counts.json").write_text(json.dumps({"made": sys.argv[1], "words": len(words)}))
"""


@pytest.fixture
def root(tmp_path):
    """A repository whose package has what its data say."""
    shop, package = tmp_path / "workshop", tmp_path / "src" / "inferometer"
    for path, text in {
        shop / "files.toml": FILES, shop / "words" / "copy.py": COPY, shop / "words" / "count.py": COUNT,
        package / "__init__.py": "", package / "code" / "rules.py": "", package / "rows.toml": "",
        package / "data" / "a.txt": "one\ntwo\n", package / "elsewhere.json": "{}",
        package / "counts.json": '{"made": "2026-11-17", "words": 2}', tmp_path / "data" / "a.csv": "one\ntwo\n",
    }.items():  # fmt: skip
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.fixture
def made(root, capsys):
    """What `make data` prints, and how it ends."""

    def call(*words):
        code = main(["--data", str(root / "data"), *words], root)
        return capsys.readouterr().out.splitlines(), code

    return call


def calls(root):
    return sum(len(path.read_text()) for path in (root / "build" / "data" / "work").rglob("calls"))


def package_files(root):
    return {path.name: path.read_bytes() for path in (root / "src").rglob("*") if path.is_file()}


def test_what_the_data_say_is_equal_and_what_lacks_a_library_is_passed_over(root, made):
    said, code = made()
    assert said == [
        "words: …", "words: made; 1 of 1 files equal", "counts: …", "counts: made; 1 of 1 files equal",
        "elsewhere: not made: needs no-such-library==1.0",
    ]  # fmt: skip
    assert code == 0


def test_what_is_there_of_the_same_inputs_is_not_made_again(root, made):
    made()
    said, _ = made()
    assert said[1] == "words: nothing that goes in has changed; 1 of 1 files equal"
    assert calls(root) == 1


@pytest.mark.parametrize("changed", ["data/a.csv", "src/inferometer/code/rules.py", "workshop/words/copy.py"])
def test_other_data_rules_or_scripts_make_it_again(root, made, changed):
    made()
    (root / changed).write_text((root / changed).read_text() + "\n")
    assert "words: made" in made()[0][1]


def test_a_later_maker_reads_what_an_earlier_one_made_and_the_package_stays_as_it_is(root, made):
    made()
    before = package_files(root)
    (root / "data" / "a.csv").write_text("one\ntwo\nthree\n")
    said, _ = made()
    assert said[2] == "  data/a.txt: 2 lines stay, 1 new, 0 gone"
    assert said[5] == "  counts.json: 1 values stay, 0 new, 0 gone, 1 numbers differ by up to 0.33 of themselves"
    assert package_files(root) == before


def test_a_file_that_somebody_spoilt_is_made_again(root, made):
    made()
    (root / "build" / "data" / "made" / "words" / "data" / "a.txt").write_text("spoilt")
    assert made()[0][1] == "words: made; 1 of 1 files equal"


def test_the_same_inputs_make_the_same_bytes(root, made):
    (root / "data" / "b.csv").write_text("four\n")
    made()
    first = {path: path.read_bytes() for path in (root / "build" / "data" / "made").rglob("*.*") if path.is_file()}
    for path in first:
        path.unlink()
    made()
    assert {path: path.read_bytes() for path in first} == first


def test_writing_puts_what_differs_into_the_package_and_takes_out_what_is_gone(root, made):
    (root / "data" / "a.csv").rename(root / "data" / "b.csv")
    said, _ = made("--write")
    assert said[2:4] == ["  data/a.txt: gone", "  data/b.txt: new, with 2 lines"]
    assert [path.name for path in (root / "src" / "inferometer" / "data").iterdir()] == ["b.txt"]
    assert made()[0][1].endswith("1 of 1 files equal")


def test_a_file_whose_name_has_a_seal_of_its_contents_is_compared_with_the_one_before(root, made):
    (root / "workshop" / "files.toml").write_text(FILES.replace('"counts.json"', '"counts*.json"'))
    script = root / "workshop" / "words" / "count.py"
    script.write_text(COUNT.replace('"counts.json")', '"counts-0123abcd.json")') + '(package / "counts.json").unlink()')
    assert made()[0][3:] == ["counts: made; 1 of 1 files equal", "elsewhere: not made: needs no-such-library==1.0"]


def test_a_maker_that_fails_says_so_and_the_others_go_on_with_what_is_shipped(root, made):
    (root / "data" / "a.csv").write_text("impossible")
    said, code = made()
    assert re.match(r"counts: failed: workshop.words.count says 'no such word' \(.*log.txt\); 1 of 1", said[4])
    assert said[5].startswith("elsewhere: not made")
    assert code == 1


def test_a_maker_without_its_data_says_what_it_lacks(root, capsys):
    main(["--data", str(root / "workshop")], root)
    assert f"words: not made: {root / 'workshop'} has no *.csv" in capsys.readouterr().out
    main([], root)
    assert "words: not made: needs DATA=folder, with *.csv" in capsys.readouterr().out


def test_one_maker_can_be_asked_for_and_an_unknown_one_is_told_of(root, made, capsys):
    assert [line.partition(":")[0] for line in made("--only", "counts")[0]] == ["counts", "counts"]
    with pytest.raises(SystemExit):
        made("--only", "by-hand")
    assert "there is no maker by-hand that runs; there are: words, counts, elsewhere" in capsys.readouterr().err


# What differs


def row(model, line):
    return PublishedMeasurement(
        dataset="d", source="s", file="f", line=line, device_published="x", model_published=model, quantity="forward",
        figure=0.1, figure_unit="s",
    )  # fmt: skip


def test_rows_of_a_table_are_the_same_wherever_they_stand(tmp_path):
    shipped, found = tmp_path / "a.json.gz", tmp_path / "b.json.gz"
    write_table(shipped, table_of([row("m", 2), row("n", 3)]))
    write_table(found, table_of([row("new", 2), row("m", 3), row("n", 4)]))
    assert difference(shipped, found) == "2 rows stay, 1 new, 0 gone"
    write_table(found, table_of([row("m", 5), row("n", 9)]))
    assert re.fullmatch(r"the same 2 rows in other bytes \(\d+ → \d+\)", difference(shipped, found))


def test_graphs_of_an_archive_are_counted(tmp_path):
    def graph(features):
        out = Tensor(name="y", shape=(1, features))
        return Graph(name="g", blocks=(Block(name="b", ops=(Op(name="fc", kind="linear", outputs=(out,)),)),))

    shipped, found = tmp_path / "a.json.gz", tmp_path / "b.json.gz"
    write_archive(shipped, {"small": (graph(3), 8), "large": (graph(4), 8)})
    write_archive(found, {"small": (graph(3), 8), "large": (graph(5), 8)})
    assert difference(shipped, found) == "1 graphs stay, 1 new, 1 gone"


def test_values_of_a_document_are_told_by_where_they_are(tmp_path):
    shipped, found = tmp_path / "a.json", tmp_path / "b.json"
    shipped.write_bytes(msgspec.json.encode({"a": [1, 2], "b": {"c": 1}, "d": {}}))
    found.write_bytes(msgspec.json.encode({"a": [4, 2], "b": {"c": "one"}, "e": {}}))
    assert difference(shipped, found) == (
        "1 values stay, 1 new, 1 gone, 1 numbers differ by up to 0.75 of themselves, 1 other values differ"
    )
    found.write_bytes(b"\n" + shipped.read_bytes())
    assert difference(shipped, found) == "4 values stay, 0 new, 0 gone"
