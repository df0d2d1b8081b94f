"""The timeline of a trace, in a real browser: whatever wrote it, however long it is, and wherever it is cut."""

import gzip
import json

import pytest

from e2e.test_new_run import visiting
from unit.hub.web.samples import HOSTILE, decoder, hub

pytestmark = pytest.mark.slow
# A trace in pieces of so many bytes each: what was read may not depend on where the network cuts it.
PIECES = """async ([text, size]) => {
    const { readTrace } = await import("/static/trace_reading.js");
    const bytes = new TextEncoder().encode(text);
    const count = Math.ceil(bytes.length / size);
    const cuts = Array.from({ length: count }, (_, at) => bytes.slice(at * size, (at + 1) * size));
    const fill = (to) => { for (const cut of cuts) to.enqueue(cut); to.close(); };
    const spans = await readTrace(new ReadableStream({ start: fill }));
    const told = (span) => [spans.names[spans.name[span]], spans.start[span], spans.time[span], spans.own[span]];
    return [...Array(spans.length).keys()].map((span) => [...told(span), spans.lanes[spans.lane[span]].title]);
}"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with hub(tmp_path_factory.mktemp("timelines")) as (store, client):
        yield store, str(client.base_url).rstrip("/")


@pytest.fixture
def page(browser, lab):
    with visiting(browser, lab[1]) as opened:
        opened.goto("/timeline")
        yield opened


def span(name, start_us, time_us, tid=7):
    return {"ph": "X", "name": name, "ts": start_us, "dur": time_us, "pid": 1, "tid": tid, "args": {"a": [{"b": 1}]}}


PYTORCH = {
    "schemaVersion": 1,
    "deviceProperties": [{"id": 0, "name": "a GPU"}],
    "traceEvents": [
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": 7, "args": {"name": "main"}},
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}},
        span("aten::linear", 100, 50),
        span('aten::mm "{\\', 110, 30),
        {"ph": "B", "name": "step", "ts": 200, "pid": 1, "tid": 7},
        {"ph": "E", "ts": 260, "pid": 1, "tid": 7},
        {"ph": "i", "name": "a mark", "ts": 5, "pid": 1, "tid": 7},
        span("gemm", 120, 20, tid=9),
    ],
}
NSYS = """Generating SQLite file report.sqlite from report.nsys-rep

Start (ns),Duration (ns),CorrId,GrdX,Device,Ctx,Strm,Name
1000,500,1,8,H200 (0),1,7,"void gemm<float, 4>(""a"")"
2000,250,2,,H200 (0),1,7,[CUDA memcpy Host-to-Device]
"""


def opened(page, tmp_path, name, data):
    path = tmp_path / name
    path.write_bytes(data)
    page.locator("#file").set_input_files(path)


def test_a_trace_of_pytorch_is_drawn_with_its_lanes_and_its_names(page, tmp_path):
    opened(page, tmp_path, "trace.json.gz", gzip.compress(json.dumps(PYTORCH).encode()))
    page.locator("#told", has_text="4 spans in 2 lanes, 160 µs").wait_for()
    rows = [row.split("\t") for row in page.locator("#names tr").all_inner_texts()]
    assert [(row[0], row[2]) for row in rows] == [
        ("step", "60 µs"),
        ('aten::mm "{\\', "30 µs"),
        ("aten::linear", "20 µs"),  # 50 µs less what is in it
        ("gemm", "20 µs"),
    ]
    page.get_by_role("button", name="aten::linear").click()
    page.locator('#timeline canvas[data-selected="aten::linear"]').wait_for()
    assert "python · main" in page.locator("#chosen").inner_text()


def test_a_trace_of_onnx_runtime_is_a_list_of_events(page, tmp_path):
    opened(page, tmp_path, "onnxruntime.json", json.dumps([span("conv_kernel_time", 0, 5), span("add", 6, 1)]).encode())
    page.locator("#told", has_text="2 spans in 1 lane, 7 µs").wait_for()


def test_a_table_of_nsys_is_drawn_stream_by_stream(page, tmp_path):
    opened(page, tmp_path, "trace.csv", NSYS.encode())
    page.locator("#told", has_text="2 spans").wait_for()
    assert 'void gemm<float, 4>("a")' in page.locator("#names").inner_text()
    page.locator("#names button").first.click()
    assert "H200 (0) · stream 7" in page.locator("#chosen").inner_text()


@pytest.mark.parametrize(
    "text", [json.dumps(PYTORCH), json.dumps(PYTORCH["traceEvents"]), NSYS], ids=["object", "list", "table"]
)
def test_what_is_read_does_not_depend_on_where_the_file_is_cut(page, text):
    whole = page.evaluate(PIECES, [text, 10**6])
    assert len(whole) >= 2
    for size in (1, 2, 3, 7, 64):
        assert page.evaluate(PIECES, [text, size]) == whole


def test_a_long_trace_is_drawn_by_pixels_and_shows_more_the_closer_one_looks(page, tmp_path):
    opened(page, tmp_path, "long.json", json.dumps([span(f"op {n % 50}", 10 * n, 9) for n in range(200_000)]).encode())
    page.locator("#told", has_text="200,000 spans").wait_for()
    canvas = page.locator("#timeline canvas")
    page.locator("#timeline canvas[data-drawn]").wait_for()
    wide = canvas.bounding_box()["width"]
    assert 0.5 * wide < int(canvas.get_attribute("data-drawn")) <= wide + 2
    before = float(canvas.get_attribute("data-shown"))
    canvas.press("+")
    page.wait_for_function(
        "before => Number(document.querySelector('#timeline canvas').dataset.shown) < before", arg=before
    )
    canvas.press("0")
    page.wait_for_function(
        "before => Number(document.querySelector('#timeline canvas').dataset.shown) >= before", arg=before
    )


def test_a_run_is_shown_as_the_trace_that_it_exports(page, lab):
    run = lab[0].add(decoder(), "p")
    page.goto(f"/runs/{run}")
    page.locator(".actions").get_by_role("link", name="Timeline").click()
    page.locator("#told", has_text="spans in").wait_for()
    assert "attn.q_proj" in page.locator("#names").inner_text()


@pytest.mark.parametrize(
    "data", [b"not a trace", b"{}", b"", b"\x00\x01\x02"], ids=["text", "empty", "nothing", "bytes"]
)
def test_a_file_that_is_no_trace_is_told_in_a_sentence(page, tmp_path, data):
    opened(page, tmp_path, "model.onnx.json", data)
    page.locator("#problem", has_text="There is no span").wait_for()


def test_names_of_a_trace_stay_text(page, tmp_path):
    opened(page, tmp_path, "trace.json", json.dumps([span(HOSTILE, 0, 5)]).encode())
    page.locator("#names tr").wait_for()
    page.locator("#names button").click()
    assert page.evaluate("window.hacked") is None
    assert HOSTILE in page.locator("#chosen").inner_text()
