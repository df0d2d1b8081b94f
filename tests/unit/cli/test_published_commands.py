"""`calibrate --from` and `accuracy --atlas`, as they are typed."""

from click.testing import CliRunner

from inferometer.cli.run import cli


def run(*words):
    return CliRunner().invoke(cli, words, catch_exceptions=True)


def test_a_fit_needs_a_device_and_an_engine():
    result = run("calibrate", "--from", "atlas")
    assert result.exit_code != 0
    assert "name both" in f"{result.output}{result.exception}"


def test_a_missing_table_is_said(tmp_path):
    result = run("accuracy", "--atlas", str(tmp_path / "none.csv"))
    assert result.exit_code != 0
    assert "There is no file" in f"{result.output}{result.exception}"


def test_what_was_left_out_is_shown_by_dataset():
    result = run("accuracy", "--published", "--format", "csv")
    assert result.exit_code == 0
    assert "timm" in result.output
    assert "device left out" in result.output
