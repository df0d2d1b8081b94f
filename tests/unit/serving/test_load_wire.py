"""The load generator on real sockets: what a network does to it, and the stream that stalled others."""

import asyncio
import base64
import socket
import ssl
import sys
import time
from datetime import UTC, datetime, timedelta

import pytest

from fakes.scripted_server import (
    HEAD,
    Reset,
    ScriptedProxy,
    ScriptedServer,
    Send,
    Wait,
    chunk,
    ending,
    event,
    plain,
    speak,
    whole,
)
from inferometer.core.codec import decode, encode
from inferometer.core.errors import DomainError
from inferometer.core.profile import Profile
from inferometer.core.traffic.arrivals import Arrivals
from inferometer.core.traffic.figures import figures_of
from inferometer.core.traffic.lengths import Lengths
from inferometer.serving.load.answers import SseReader
from inferometer.serving.load.apis import parse_address, proxied
from inferometer.serving.load.plan import LoadPlan, LoadStep
from inferometer.serving.load.pool import Security
from inferometer.serving.load.run import load
from inferometer.serving.load.wire import Connection


def fixed(tokens):
    return Lengths(kind="fixed", mean=tokens)


def quick(asked):
    if not asked.body.get("stream"):
        return whole(asked)
    return speak(asked, first_s=0.02, step_s=0.002)


def plan(url, **more):
    given = {"requests": 12, "prompt": fixed(16), "generate": fixed(4), "warmup": 0, "timeout_s": 120.0}
    return LoadPlan(url=url, **{**given, **more})


def only(profile):
    return profile.served.levels[0], figures_of(profile.served.levels[0])


def closed_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_a_real_server_is_asked_what_it_is_and_measured():
    pages = {
        "/v1/models": {"data": [{"id": "tiny", "owned_by": "vllm"}]},
        "/version": {"version": "0.19.0"},
        "/tokenize": lambda body: {"tokens": body["prompt"].split(), "count": len(body["prompt"].split())},
        "/metrics": '# HELP\nvllm:generation_tokens_total{a="b"} 5.0\nvllm:num_requests_running 1\n',
    }
    with ScriptedServer(quick, pages=pages) as server:
        profile = load(plan(server.url, steps=(LoadStep(concurrency=2),)))
    level, figures = only(profile)
    assert (profile.model.name, profile.runtime) == ("tiny", "vllm")
    assert profile.environment.versions["vllm"] == "0.19.0"
    assert profile.served.prompts.startswith("by the server's tokenizer and usage: 1 token a word")
    assert set(level.requests.input_tokens) == {16}
    assert figures.completed == 12
    assert level.server.counters["generated_tokens"] == 0  # the page is always the same
    assert level.server.gauges["running"] == (1.0, 1.0)
    assert server.asked[-1].body["stream_options"]["continuous_usage_stats"] is True
    assert decode(encode(profile), Profile) == profile


def test_several_processes_share_a_load():
    with ScriptedServer(quick) as server:
        profile = load(plan(server.url, steps=(LoadStep(concurrency=4),), processes=2))
    level, figures = only(profile)
    assert figures.completed == 12
    assert level.client.processes == 2
    assert len(set(level.requests.session)) == 12


def test_nothing_listens_and_the_test_completes():
    level, figures = only(load(plan(f"http://127.0.0.1:{closed_port()}", steps=(LoadStep(concurrency=3),))))
    assert figures.errors == {"refused": 12}
    assert level.messages["refused"] == "connection refused"


def test_a_name_that_is_not_known():
    _, figures = only(load(plan("http://no-such-host.invalid", steps=(LoadStep(concurrency=3),), requests=2)))
    assert figures.errors == {"dns": 2}


def test_a_reset_in_the_middle_of_a_stream():
    def breaking(asked):
        if not asked.body.get("stream"):
            return whole(asked)
        if asked.index % 2:
            return quick(asked)
        return iter([(Send, HEAD + chunk(event("t"))), (Wait, 0.01), (Reset, None)])

    with ScriptedServer(breaking) as server:
        _, figures = only(load(plan(server.url, steps=(LoadStep(arrivals=Arrivals(rate_per_s=200)),))))
    assert figures.errors.keys() == {"reset"}
    assert figures.completed + figures.errors["reset"] == 12


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate of our own for 127.0.0.1, which no authority has signed."""
    x509 = pytest.importorskip("cryptography.x509")
    from ipaddress import ip_address

    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "scripted")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path_factory.mktemp("tls") / "both.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return file


def test_certificates_are_checked(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    step = (LoadStep(concurrency=2),)
    with ScriptedServer(quick, tls=context) as server:
        level, figures = only(load(plan(server.url, steps=step, requests=2)))
        assert figures.errors == {"tls": 2}
        assert "self-signed" in level.messages["tls"]
        for security in (Security(authorities=certificate), Security(insecure=True)):
            assert only(load(plan(server.url, steps=step, security=security)))[1].completed == 12


def test_requests_pass_a_proxy_in_the_open_or_in_a_tunnel(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    step, trusted = (LoadStep(concurrency=2),), Security(authorities=certificate)
    word = base64.b64encode(b"ann:s3").decode().lower()
    with ScriptedProxy(password=word) as proxy, ScriptedServer(quick) as plain_server:
        way = f"http://ann:s3@127.0.0.1:{proxy.port}"
        profile = load(plan(plain_server.url, steps=step, proxy=way))
        assert only(profile)[1].completed == 12
        assert f"pass the proxy 127.0.0.1:{proxy.port}" in profile.provenance.notes[0]
        assert f"POST http://127.0.0.1:{plain_server.port}/v1/chat/completions" in proxy.let_through
        proxy.let_through.clear()
        with ScriptedServer(quick, tls=context) as server:
            _, figures = only(load(plan(server.url, steps=step, proxy=way, security=trusted)))
            assert figures.completed == 12
            assert set(proxy.let_through) == {f"CONNECT 127.0.0.1:{server.port}"}
            assert only(load(plan(server.url, steps=step, proxy=way, requests=2)))[1].errors == {"tls": 2}
            level, figures = only(load(plan(server.url, steps=step, proxy=way.replace("s3", "s4"), requests=2)))
            assert (figures.errors, "407" in level.messages["proxy"]) == ({"proxy": 2}, True)
            nobody = f"127.0.0.1:{closed_port()}"
            level, figures = only(load(plan(server.url, steps=step, proxy=nobody, requests=2)))
            assert (figures.errors, nobody in level.messages["proxy"]) == ({"proxy": 2}, True)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_tokenizer_on_this_machine_counts_what_the_server_does_not(tmp_path, monkeypatch, processes):
    """Of a server without a tokenizer's page and without usage: words of one token, and answers by their text."""
    package = tmp_path / "tokenizers.py"
    package.write_text(TOKENIZERS)
    (tmp_path / "tokenizer.json").write_text("{}")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.delitem(sys.modules, "tokenizers", raising=False)

    def silent(asked):
        if not asked.body.get("stream"):
            yield Send, plain(404)
            return
        yield Send, HEAD + chunk(event("one two three")) + chunk(event(" four five"))
        yield Send, chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"

    with ScriptedServer(silent) as server:
        given = {"tokenizer": str(tmp_path), "processes": processes, "steps": (LoadStep(concurrency=2),)}
        profile = load(plan(server.url, requests=4, **given))
        prompts = [asked.body["messages"][0]["content"].split() for asked in server.asked if asked.body.get("stream")]
    level, figures = only(profile)
    assert (figures.completed, level.counting) == (4, "counted by a tokenizer on this machine")
    assert set(level.requests.output_tokens) == {5}
    assert prompts
    assert all(len(words) == 16 and "world" not in words for words in prompts)  # which has two tokens there


TOKENIZERS = """
from types import SimpleNamespace

class Tokenizer:
    @staticmethod
    def from_file(path):
        return Tokenizer()

    def encode(self, text, add_special_tokens):
        return SimpleNamespace(ids=text.replace("world", "wor ld").split())
"""


@pytest.mark.parametrize(
    ("url", "environment", "proxy", "expected"),
    [
        ("http://server:8000", {}, None, None),
        ("http://server:8000", {"HTTP_PROXY": "http://gate:3128"}, None, "gate:3128"),
        ("https://server", {"HTTP_PROXY": "http://gate:3128"}, None, None),
        ("https://server", {"https_proxy": "gate"}, None, "gate:1080"),
        ("https://server", {"ALL_PROXY": "http://gate:3128"}, None, "gate:3128"),
        ("https://server", {"ALL_PROXY": "http://gate:3128", "NO_PROXY": "x,server"}, None, None),
        ("https://server", {"ALL_PROXY": "http://gate:3128"}, "off", None),
        ("https://server", {"ALL_PROXY": "http://gate:3128", "NO_PROXY": "*"}, "http://[::1]:8", "[::1]:8"),
        ("http://127.0.0.1:8000", {"ALL_PROXY": "http://gate:3128"}, None, None),
        ("http://localhost:8000", {"ALL_PROXY": "http://gate:3128"}, None, None),
        ("http://[::1]:8000", {"ALL_PROXY": "http://gate:3128"}, None, None),
    ],
)
def test_the_environment_names_a_proxy_as_elsewhere(monkeypatch, url, environment, proxy, expected):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    found = proxied(parse_address(url), proxy).proxy
    assert (found and found.shown) == expected


@pytest.mark.parametrize("proxy", ["socks5://ann:s3@gate:1", "https://ann:s3@gate", "http://", "http://gate:x"])
def test_a_proxy_that_cannot_be_spoken_to_is_refused_without_its_password(proxy):
    with pytest.raises(DomainError, match="no proxy") as refused:
        proxied(parse_address("https://server"), proxy)
    assert "s3" not in str(refused.value)


def test_a_clock_that_steps_changes_nothing(monkeypatch):
    """Somebody sets the machine's clock back an hour in the middle: no time here comes from it, and a note says so."""
    real = time.time
    with ScriptedServer(quick) as server:
        monkeypatch.setattr(time, "time", lambda: real() - (3600 if len(server.asked) > 3 else 0))
        profile = load(plan(server.url, steps=(LoadStep(arrivals=Arrivals(rate_per_s=30, process="constant")),)))
    _, figures = only(profile)
    assert 0.02 < figures.ttft_s.min <= figures.e2e_s.max < 1000
    assert "clock was set by -3.6e+03 s" in profile.provenance.notes[0]


# The stream that stalled others: thousands of tokens

LONG = 20_000


def test_a_long_stream_does_not_delay_the_first_token_of_another():
    """All 20,000 tokens of four streams stand ready at once, in one write each; the first token came at 0.1 s.

    A client that stops reading when its buffer is full, or joins what it has anew at each piece, reports seconds.
    """
    body = b"".join(chunk(event(" word")) for _ in range(LONG - 1))

    def flood(asked):
        if not asked.body.get("stream"):
            yield from whole(asked)
            return
        yield Send, HEAD
        yield Wait, 0.1
        yield Send, chunk(event("word"))
        yield Wait, 0.1
        yield Send, body + chunk(ending(16, LONG)) + b"0\r\n\r\n"

    with ScriptedServer(flood) as server:
        profile = load(plan(server.url, steps=(LoadStep(concurrency=4),), requests=4, generate=fixed(LONG)))
        truth = [asked.sent[1] - asked.at for asked in server.asked if asked.body.get("stream")]
    level, figures = only(profile)
    assert level.requests.output_tokens == (LONG,) * 4
    reading_s = figures.e2e_s.max - figures.ttft_s.max
    assert figures.ttft_s.max < max(truth) + reading_s / 4
    assert figures.ttft_s.min > 0.1


def test_reading_is_linear_however_small_the_pieces_are():
    """Ten times the bytes take about ten times as long, also where an event of a megabyte comes in small pieces.

    The times are this thread's own: what else runs does not count.
    """

    def seconds(size):
        reader = SseReader()
        begin = time.thread_time()
        for _ in range(size // 100):
            reader.feed(b"x" * 100)
        assert len(reader.feed(b"\n\ndata: y\n\n")) == 1
        return time.thread_time() - begin

    few, many = (min(seconds(size) for _ in range(3)) for size in (1_000_000, 10_000_000))
    assert many < 40 * few  # copying the rest at each piece would take a hundred times as long


def test_an_event_keeps_its_lines_and_comments_carry_nothing():
    reader = SseReader()
    assert reader.feed(b": ping\r\n\r\nevent: x\r\ndata: a\r\ndata: b\r\n\r\nid: 3\ndata:c") == [b"a\r\nb"]
    assert reader.feed(b"\n\n") == [b"c"]


class _Sink:
    # ruff: noqa: ARG002 - the exchange's signature
    def __init__(self):
        self.body, self.ended, self.fault = b"", False, None

    def on_head(self, status, headers, now):
        self.status = status

    def on_body(self, data, now):
        self.body += data

    def on_end(self, now):
        self.ended = True

    def on_fault(self, fault, now):
        self.fault = fault.kind


class _Silent(asyncio.Transport):
    def __init__(self):
        self.shut = False

    def write(self, data): ...

    def is_closing(self):
        return self.shut

    def close(self):
        self.shut = True

    abort = close


ANSWERS = {
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello": (b"hello", True),
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nhe\r\n3\r\nllo\r\n0\r\nTrailer: a\r\n\r\n": (
        b"hello",
        True,
    ),
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No\r\n\r\n": (b"", True),
    b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi": (b"hi", False),
    b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi": (b"hi", False),
}


@pytest.mark.parametrize("step", [1, 3, 10_000])
@pytest.mark.parametrize("answer", ANSWERS)
def test_bodies_of_every_kind_in_pieces_of_any_size(answer, step):
    connection, sink, kept = Connection(), _Sink(), []
    connection.connection_made(_Silent())
    connection.released = lambda _, usable: kept.append(usable)
    connection.send(b"", sink)
    for at in range(0, len(answer), step):
        connection.data_received(answer[at : at + step])
    assert (sink.body, sink.ended, kept) == (ANSWERS[answer][0], True, [ANSWERS[answer][1]])


BROKEN = [
    b"SSH-2.0-OpenSSH\r\n\r\n",
    b"HTTP/2 200\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhello",
    b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 20_000,
]


@pytest.mark.parametrize("answer", BROKEN, ids=range(len(BROKEN)))
def test_what_is_no_http_is_malformed(answer):
    connection, sink = Connection(), _Sink()
    connection.connection_made(_Silent())
    connection.send(b"", sink)
    connection.data_received(answer)
    assert sink.fault == "malformed"


def test_a_test_goes_on_from_the_levels_that_were_played_before():
    steps = tuple(LoadStep(concurrency=places) for places in (1, 2, 3))
    with ScriptedServer(quick) as server:
        first = load(plan(server.url, model="m", steps=steps[:2]))
        asked = len(server.asked)
        whole = load(plan(server.url, model="m", steps=steps, done=first.served.levels))
        assert len(server.asked) - asked < 12 + 8  # one level more, and a few questions about the server
    assert [level.concurrency for level in whole.served.levels] == [1, 2, 3]
    assert whole.served.levels[:2] == first.served.levels
