"""The tables of the package, made anew in a folder of the test's own."""

import msgspec
import pytest

from inferometer.known.atlas import shipped
from inferometer.known.atlas.shipped import AtlasIndex, read_table
from workshop.atlas import build

TIDY = "device,model,engine,quantity,figure,figure_unit,batch,weights,date\n"


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Where tables and index would be written; the folder is not there to begin with."""
    folder, index = tmp_path / "tables", tmp_path / "index.json"
    index.write_bytes(msgspec.json.encode(AtlasIndex()))
    for module in (build, shipped):
        monkeypatch.setattr(module, "TABLES", folder)
        monkeypatch.setattr(module, "INDEX", index)
    monkeypatch.setenv("INFEROMETER_DATA", str(tmp_path / "data"))
    shipped.index.cache_clear()
    yield folder
    shipped.index.cache_clear()


def files_in(folder):
    return {path.name: [row.line for row in read_table(path).rows()] for path in sorted(folder.iterdir())}


def csv_file(folder, name, *lines):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(TIDY + "".join(f"{line}\n" for line in lines), encoding="utf-8")


def test_files_of_a_form_become_one_table_and_the_index_says_what_is_where(package, tmp_path, monkeypatch):
    monkeypatch.setattr(build, "_allowed", lambda table: table)
    source = tmp_path / "csv"
    csv_file(
        source, "a.csv", "nvidia-rtx-4090,resnet50,onnxruntime,forward,5,ms,1,f16,2026", "x,y,,forward,-1,ms,1,f16,"
    )
    csv_file(source, "b.csv", "my board,my net,,forward,7,ms,1,f16,2026")
    (source / "c.csv").write_text("hello,world\n1,2\n", encoding="utf-8")
    package.mkdir()
    (package / "old.json.gz").write_bytes(b"goes")
    told = build.build(source).splitlines()
    assert told[:3] == [
        "a.csv: 1 rows as tidy, 1 lines set aside", "b.csv: 1 rows as tidy, 0 lines set aside",
        "c.csv: no table of measurements; left out",
    ]  # fmt: skip
    assert told[3].startswith("2 rows in 1 tables, ")
    assert files_in(package) == {"tidy.json.gz": [2, 2]}
    index = shipped.index()
    assert (index.files, dict(index.models), dict(index.devices)) == (
        ("tidy",), {"timm:resnet50": (0,)}, {"nvidia-rtx-4090": (0,)}
    )  # fmt: skip
    assert [len(table) for table in shipped.tables_with({"timm:resnet50"}, "nvidia-rtx-4090")] == [2]
    assert shipped.tables_with({"timm:resnet50"}, "other") == shipped.tables_with({"other"}) == ()


def test_a_large_table_is_one_file_a_device(package, tmp_path, monkeypatch):
    monkeypatch.setattr(build, "_allowed", lambda table: table)
    monkeypatch.setattr(build, "_LARGE", 2)
    lines = [
        f"{device},resnet50,,forward,{number},ms,1,f16,2026" for number, device in enumerate(("B 1", "a", "B 1"), 1)
    ]
    csv_file(tmp_path / "csv", "a.csv", *lines)
    build.build(tmp_path / "csv")
    assert files_in(package) == {"tidy~a.json.gz": [3], "tidy~b-1.json.gz": [2, 4]}
    assert shipped.shipped_datasets() == ("tidy",)
    assert len(shipped.load(["tidy"])) == 3


def test_other_tables_stay_where_only_one_form_is_read(package, tmp_path, monkeypatch):
    monkeypatch.setattr(build, "_allowed", lambda table: table)
    csv_file(tmp_path / "csv", "a.csv", "my board,my net,,forward,7,ms,1,f16,2026")
    build.build(tmp_path / "csv")
    assert build.build(tmp_path / "csv", only="timm").startswith("1 rows in 1 tables")
    assert files_in(package) == {"tidy.json.gz": [2]}


def test_rows_whose_licence_does_not_allow_it_stay_out(package, tmp_path, monkeypatch):
    known = {key: shipped.AtlasSource(key=key, title="", short="", url="", licence="", shipped=key == "own")
             for key in ("own", "secret")}  # fmt: skip
    monkeypatch.setattr(build, "sources", lambda: known)
    source = tmp_path / "csv"
    source.mkdir()
    (source / "a.csv").write_text(
        TIDY.replace("date", "date,source") + "b,n,,forward,7,ms,1,f16,2026,own\nb,n,,forward,8,ms,1,f16,2026,secret\n"
    )
    assert build.build(source).startswith(
        "a.csv: 1 rows as tidy, 0 lines set aside, 1 rows whose licence does not allow it"
    )
    assert files_in(package) == {"tidy.json.gz": [2]}


def test_names_are_mapped_again_from_what_was_published(package, tmp_path, monkeypatch):
    monkeypatch.setattr(build, "_allowed", lambda table: table)
    csv_file(
        tmp_path / "csv", "a.csv", "my board,my net,,forward,7,ms,1,f16,2026", "my board,resnet50,,forward,8,ms,1,f16,"
    )
    build.build(tmp_path / "csv")
    assert build.map_names().splitlines()[0] == "tidy: 0 of 2 rows have other names now"
    monkeypatch.setattr("workshop.atlas.renaming.catalog_device", lambda name, unit: f"{name} as {unit}")
    assert build.map_names().splitlines()[0] == "tidy: 2 of 2 rows have other names now"
    assert [row.device for row in shipped.load(["tidy"]).rows()] == ["my board as None"] * 2
    assert [row.model for row in shipped.load(["tidy"]).rows()] == [None, "timm:resnet50"]
