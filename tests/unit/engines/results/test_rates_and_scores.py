"""What others measure of a disk, a network, a memory and of answers, as profiles with rates and figures."""

import json
import struct

import pytest
from click.testing import CliRunner

from inferometer.cli.commands import import_
from inferometer.core.errors import FormatError
from inferometer.engines.results.detect import parse_document
from inferometer.store import open_store
from unit.engines.results.sources import DATA, OURS, only, parsed, sample, taken, written


def host(profile):
    return profile.environment.host


def told(profile):
    return " ".join(profile.provenance.notes)


def test_fio_gives_a_rate_for_each_way_of_each_job():
    reads, mixed = sample("fio.json")
    assert reads.model.name == "fio seqread"
    assert [(phase.name, phase.time_s, phase.bytes) for phase in reads.phases] == [("read", 10.0, 32e9)]
    assert host(reads)["read_bytes_per_s"] == 3.2e9
    assert "--storage 3.2GB/s" in told(reads)
    assert "cache" not in told(reads)  # the option of all jobs holds where a job has none of its own
    assert [phase.name for phase in mixed.phases] == ["read", "write"]
    assert host(mixed)["write_latency_s"] == pytest.approx(18e-6)
    assert "may come from the system's cache" in told(mixed)


def test_iperf3_gives_what_arrived_as_a_link():
    profile = only("iperf3.json")
    assert host(profile)["send_bytes_per_s"] == 1.175e9
    assert host(profile)["receive_bytes_per_s"] == pytest.approx(9354581673.3 / 8)
    assert "`--link 1.169GB/s`" in told(profile)


def test_iperf3_over_udp_says_what_was_lost(tmp_path):
    test = parsed("iperf3.json")
    test["start"]["test_start"]["protocol"] = "UDP"
    test["end"] = {"sum": {"seconds": 10, "bytes": 1_310_000, "lost_percent": 1.25}}
    (profile,) = taken(written(tmp_path, test))
    assert (profile.model.name, host(profile)["send_bytes_per_s"]) == ("iperf3 UDP", 131_000)
    assert "1.25 % of the packets were lost" in told(profile)


def test_sysbench_measures_memory_files_and_cpus():
    memory, files, cpu = (only(f"sysbench_{kind}.txt") for kind in ("memory", "files", "cpu"))
    assert host(memory)["read_bytes_per_s"] == pytest.approx(20480 * 2**20)
    assert 'bandwidth = "21.47 GB/s"' in told(memory)
    assert memory.environment.threads == 4
    assert host(files)["read_bytes_per_s"] == pytest.approx(125 * 2**20)
    assert host(files)["write_bytes_per_s"] == pytest.approx(83.33 * 2**20)
    assert (host(cpu)["events_per_s"], cpu.phase("run").time_s) == (1325.89, 10.0006)


def test_a_small_block_of_sysbench_is_a_cache_and_no_memory(tmp_path):
    report = (DATA / "sysbench_memory.txt").read_text(encoding="utf-8").replace("262144KiB", "1KiB")
    (profile,) = taken(written(tmp_path, report, "report.txt"))
    assert "stay in a cache" in told(profile)
    assert "bandwidth =" not in told(profile)


def test_scores_of_lm_eval_stand_beside_the_time():
    profile = only("lm_eval.json")
    assert (profile.model.name, profile.phase("run").time_s) == ("HuggingFaceTB/SmolLM2-135M", 312.25)
    assert host(profile) == {
        "arc_easy/acc": 0.6536, "arc_easy/acc_stderr": 0.0098, "arc_easy/acc_norm": 0.6081,
        "arc_easy/acc_norm_stderr": 0.01, "wikitext/word_perplexity": 21.5, "wikitext/bits_per_byte": 0.83,
    }  # fmt: skip
    assert "arc_easy/acc: 0.6536" in told(profile)


def test_a_run_of_mlflow_is_read_in_both_of_its_shapes():
    listed, described = sample("mlflow_search.json"), only("mlflow_run.json")
    assert [profile.model.name for profile in listed] == ["quantised", "0a1c"]
    assert host(listed[0]) == {"latency_ms": 12.5, "loss": -0.25, "param weights": "i8"}
    assert (described.phase("run").time_s, host(described)["latency_ms"]) == (90.5, 12.5)
    assert listed[1].phases == ()  # it still runs


def test_the_last_scalar_of_each_tag_of_tensorboard():
    profile = only("tensorboard.tfevents")
    assert host(profile) == {"loss": 0.25, "latency_ms": 12.5}
    assert profile.phase("run").time_s == 40.5


def test_an_event_file_that_is_still_written_gives_what_is_whole(tmp_path):
    data = (DATA / "tensorboard.tfevents").read_bytes()
    for length in range(30, len(data)):
        document = parse_document(tmp_path / "events", data[:length])
        try:
            (profile,) = OURS["tensorboard"].read(document)
        except FormatError:
            continue
        assert host(profile)["loss"] in {0.5, 0.25}


def test_a_record_as_long_as_it_claims_is_not_believed(tmp_path):
    claimed = struct.pack("<QI", 1 << 62, 0) + b"brain.Event:2" + bytes(64)
    with pytest.raises(FormatError, match="no scalars"):
        OURS["tensorboard"].read(parse_document(tmp_path / "events", claimed))


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("fio.json", {"jobs": []}, "no jobs"),
        ("fio.json", {"jobs": [{"jobname": "a", "read": {"io_bytes": 5, "runtime": 0}}]}, "'a' moved nothing"),
        ("fio.json", {"jobs": [{"read": {"io_bytes": -5, "runtime": 1}}]}, "read.io_bytes"),
        ("fio.json", {"jobs": [3]}, "should be an object"),
        ("iperf3.json", {"error": "unable to connect to server"}, "unable to connect"),
        ("iperf3.json", {"end": {}}, "carried nothing"),
        ("iperf3.json", {"end": {"sum_sent": {"bytes": "many", "seconds": 1}}}, "should be a number"),
        ("iperf3.json", {"end": {"sum_sent": {"bytes": 1e9, "seconds": 1e-300}}}, "no measurement can be"),
        ("lm_eval.json", {"results": {"task": {"alias": "task"}}}, "no scores"),
        ("lm_eval.json", {"total_evaluation_time_seconds": -3}, "total_evaluation_time_seconds"),
        ("mlflow_run.json", {"data": {"metrics": {"loss": "low"}}}, "metrics.loss"),
        ("mlflow_run.json", {"info": {"run_id": "a", "start_time": 2000, "end_time": 1000}}, "before it started"),
        ("mlflow_run.json", {"info": {"run_id": "a"}, "data": {}}, "no metrics and no times"),
    ],
)
def test_what_cannot_be_is_named(tmp_path, name, change, words):
    with pytest.raises(FormatError, match=words):
        taken(written(tmp_path, {**parsed(name), **change}))


@pytest.mark.parametrize("cut", ["total time", "MiB transferred"])
def test_a_report_of_sysbench_that_was_cut_is_refused(tmp_path, cut):
    lines = (DATA / "sysbench_memory.txt").read_text(encoding="utf-8").splitlines()
    kept = "\n".join(line for line in lines if cut not in line)
    with pytest.raises(FormatError, match=r"does not tell how long|moved nothing"):
        taken(written(tmp_path, kept, "report.txt"))


def test_figures_of_a_stored_run_are_its_metrics(tmp_path):
    store = f"sqlite:///{tmp_path / 'runs.db'}"
    asked = [str(DATA / "lm_eval.json"), "--as", "lm-eval", "--name", "quality", "--store", store]
    done = CliRunner().invoke(import_.command, asked)
    assert done.exit_code == 0, done.output
    with open_store(store) as opened:
        metrics = {metric.name: metric.value for metric in opened.metrics("quality")}
    assert metrics["arc_easy/acc"] == 0.6536
    assert json.loads(json.dumps(metrics))
