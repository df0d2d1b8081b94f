"""The bodies of requests, by kind of endpoint; and a template for any other."""

from __future__ import annotations

import base64
import json
import random
import re
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from ipaddress import ip_address
from math import inf
from pathlib import Path
from typing import Any, Literal
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies_environment, proxy_bypass

from inferometer.core.errors import DomainError, FormatError, InferometerError
from inferometer.core.frozen import frozen
from inferometer.core.traffic.demand import class_of
from inferometer.core.units import format_quantity, parse_quantity
from inferometer.version import __version__

Api = Literal["chat", "completions", "embeddings", "rerank", "transcriptions", "template"]
APIS: tuple[Api, ...] = ("chat", "completions", "embeddings", "rerank", "transcriptions", "template")
_PATHS = {
    "chat": "/v1/chat/completions", "completions": "/v1/completions", "embeddings": "/v1/embeddings",
    "rerank": "/v1/rerank", "transcriptions": "/v1/audio/transcriptions",
}  # fmt: skip
_QUERY = 8  # words of a question that documents are ranked by
_MOST_PIXELS = 1 << 25
_SAMPLES_PER_S = 16_000  # what speech models are fed with
_MOST_AUDIO_S, _MOST_AUDIO_BYTES = 3600.0, 25_000_000  # OpenAI takes files of 25 MB
_AUDIO_FILES = ("wav", "mp3", "flac", "ogg", "m4a", "webm")
_BOUNDARY = b"inferometer-7c1f2a9e5b"  # between the parts of a form: in no sound but by a chance of 1 in 10^50
_PROXY_PORT = 1080  # where none is written, as curl has it
_PASSWORD = re.compile(r"//[^/@]*@")
PLACEHOLDERS = ("prompt", "model", "input_tokens", "output_tokens", "index")


@frozen
class Proxy:
    """What requests pass on their way."""

    host: str
    port: int
    authorization: str | None = None

    @property
    def shown(self) -> str:
        return f"{bracketed(self.host)}:{self.port}"


@frozen
class Address:
    """Where requests go. `base` is the path before `/v1`, for servers behind a prefix."""

    scheme: str
    host: str
    port: int
    base: str = ""
    path: str | None = None  # of the endpoint itself, where the URL named one
    authorization: str | None = None  # from a user and a password in the URL
    proxy: Proxy | None = None

    @property
    def shown(self) -> str:
        """For people and for the store: never with a password."""
        return f"{self.scheme}://{bracketed(self.host)}:{self.port}{self.path or self.base}"


def bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def parse_address(url: str) -> Address:
    """A server's address (`http://localhost:8000`, with or without `/v1`), or that of one endpoint of it."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port
    except ValueError as error:
        raise DomainError(f"{url!r} is not an address: {error}.", remedy="Write http://HOST:PORT.") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise DomainError(f"{url!r} is not an http or https address.", remedy="Write http://HOST:PORT.")
    path = parts.path.rstrip("/")
    endpoint = next((known for known in _PATHS.values() if path.endswith(known)), None)
    base = path.removesuffix(endpoint) if endpoint else path.removesuffix("/v1")
    named = path + (f"?{parts.query}" if parts.query else "")
    return Address(
        scheme=parts.scheme,
        host=parts.hostname,
        port=port or (443 if parts.scheme == "https" else 80),
        base=base,
        path=named if endpoint or (path and not path.endswith("/v1")) else None,
        authorization=_authorization(parts),
    )


def _authorization(parts: SplitResult) -> str | None:
    if parts.username is None:
        return None
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


def proxied(address: Address, proxy: str | None = None) -> Address:
    """The address by way of a proxy: the one that is named, or that the environment has for it; `off` is none.

    HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY count as elsewhere. A server on this machine is asked directly.
    """
    if proxy is None and not _is_here(address.host):
        named = getproxies_environment()
        if named and not proxy_bypass(f"{address.host}:{address.port}"):
            proxy = named.get(address.scheme) or named.get("all")
    return address if proxy in {None, "", "off"} else replace(address, proxy=_parse_proxy(str(proxy)))


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _parse_proxy(url: str) -> Proxy:
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme != "http" or not parts.hostname:
        raise DomainError(
            f"{_PASSWORD.sub('//…@', url)!r} is no proxy that is spoken to here.",
            remedy="Write --proxy http://HOST:PORT, or --proxy off for none.",
        )
    return Proxy(host=parts.hostname, port=port or _PROXY_PORT, authorization=_authorization(parts))


@frozen
class AudioAsked:
    """The audio of requests: noise of a given length, each unlike all others; or files, one after the other."""

    seconds: float = 5.0
    files: tuple[tuple[str, bytes], ...] = ()  # formats and bytes

    def __post_init__(self) -> None:
        if not 0 < self.seconds <= _MOST_AUDIO_S:
            raise DomainError(f"Audio takes up to {_MOST_AUDIO_S:g} s, and not {self.seconds:g}.")

    def sound(self, index: int, noise: int = 0) -> tuple[str, bytes]:
        """`noise` is a test's own, below 2³²: none sounds like another's."""
        return (
            self.files[index % len(self.files)] if self.files else ("wav", noise_wav(self.seconds, _of(noise, index)))
        )


@frozen
class Endpoint:
    """How a request to it is written. `extra` are further fields of every body."""

    address: Address
    api: Api
    model: str
    stream: bool = True
    headers: tuple[tuple[str, str], ...] = ()
    extra: Mapping[str, Any] | None = None
    ignore_eos: bool = True
    template: str | None = None
    method: str = "POST"
    mix: tuple[tuple[str, float], ...] = ()  # models, or adapters by their names, and the share of each
    images: tuple[int, int, int] | None = None  # of a message: how many, and their width and height
    audio: AudioAsked | None = None  # of a message, or to be transcribed
    noise: int = 0  # what images and sounds are drawn by

    @property
    def path(self) -> str:
        if self.api == "template":
            return self.address.path or self.address.base or "/"
        return self.address.base + _PATHS[self.api]

    def body(self, prompt: str | Sequence[Mapping[str, str]], *, output: int, input_tokens: int, index: int) -> bytes:
        """The body of one request. A prompt is a text, or the messages of a talk so far."""
        if self.api == "template":
            return self._filled(prompt, output=output, input_tokens=input_tokens, index=index)
        if self.api == "transcriptions":
            return self._form(index)
        fields: dict[str, Any] = {"model": self.model_of(index)}
        if self.api == "embeddings":
            fields["input"] = prompt
        elif self.api == "rerank":
            words = (prompt if isinstance(prompt, str) else str(prompt)).split()
            fields["query"] = " ".join(words[:_QUERY])
            # So many documents, all of the same words and no two alike.
            fields["documents"] = [" ".join(words[at:] + words[:at]) for at in range(max(output, 1))]
        elif self.api == "completions":
            fields["prompt"] = prompt
        else:
            messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
            parts = [] if self.images is None else _image_parts(self.images, index, self.noise)
            if self.audio is not None:
                kind, sound = self.audio.sound(index, self.noise)
                said = base64.b64encode(sound).decode()
                parts.append({"type": "input_audio", "input_audio": {"data": said, "format": kind}})
            fields["messages"] = _with_parts(messages, parts) if parts else messages
        if self.api not in {"embeddings", "rerank"}:
            fields |= {"max_tokens": max(output, 1), "temperature": 0, "stream": self.stream}
            if self.ignore_eos:
                fields["ignore_eos"] = True
            if self.stream:
                fields["stream_options"] = {"include_usage": True}
        return json.dumps({**fields, **(self.extra or {})}, ensure_ascii=False).encode()

    def _form(self, index: int) -> bytes:
        """A file to be transcribed, as a form: the one endpoint that takes no JSON."""
        kind, sound = (self.audio or AudioAsked()).sound(index, self.noise)
        fields = {"model": self.model_of(index), "response_format": "json", **(self.extra or {})}
        if self.stream:
            fields["stream"] = "true"
        lines = [
            b'--%b\r\ncontent-disposition: form-data; name="%b"\r\n\r\n%b\r\n'
            % (_BOUNDARY, name.encode(), (value if isinstance(value, str) else json.dumps(value)).encode())
            for name, value in fields.items()
        ]
        file = b'content-disposition: form-data; name="file"; filename="%d.%b"' % (index, kind.encode())
        head = b"--%b\r\n%b\r\ncontent-type: audio/%b\r\n\r\n" % (_BOUNDARY, file, kind.encode())
        return b"".join([*lines, head, sound, b"\r\n--%b--\r\n" % _BOUNDARY])

    def model_of(self, index: int) -> str:
        """The model that a request asks for."""
        return self.mix[class_of([share for _, share in self.mix], index)][0] if self.mix else self.model

    def _filled(self, prompt: Any, *, output: int, input_tokens: int, index: int) -> bytes:
        """The template with its placeholders replaced. `{prompt}` is escaped as JSON wants it between quotes."""
        text = self.template or ""
        values = {
            "prompt": json.dumps(prompt if isinstance(prompt, str) else str(prompt), ensure_ascii=False)[1:-1],
            "model": json.dumps(self.model)[1:-1],
            "input_tokens": str(input_tokens),
            "output_tokens": str(output),
            "index": str(index),
        }
        for name, value in values.items():
            text = text.replace("{" + name + "}", value)
        return text.encode()

    def request(self, body: bytes) -> bytes:
        """The bytes of a whole request."""
        headers = self.headers
        if self.api == "transcriptions":
            headers = (("content-type", f"multipart/form-data; boundary={_BOUNDARY.decode()}"), *headers)
        return _request(self.address, self.method, self.path, body, headers, stream=self.stream)


def _of(noise: int, number: int) -> int:
    """The seed of one image or sound of a test."""
    return (noise << 40) + number


def _image_parts(images: tuple[int, int, int], index: int, noise: int) -> list[dict[str, Any]]:
    """Each unlike all others, so that no cache knows it."""
    count, width, height = images
    parts: list[dict[str, Any]] = []
    for number in range(count):
        data = base64.b64encode(noise_png(width, height, _of(noise, index * count + number))).decode()
        parts.append({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}})
    return parts


def _with_parts(messages: Sequence[Mapping[str, Any]], parts: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The last message with these before its text."""
    *before, last = messages
    return [*before, {**last, "content": [*parts, {"type": "text", "text": last.get("content") or ""}]}]


def noise_wav(seconds: float, seed: int) -> bytes:
    """Noise as loud as quiet speech, of one channel and 16 bits a sample: a header of 44 bytes, and the samples."""
    size = 2 * max(1, round(seconds * _SAMPLES_PER_S))
    # The upper byte of each sample is 0: up to 255 of 32,767.
    samples = bytearray(size)
    samples[::2] = random.Random(seed).randbytes(size // 2)  # noqa: S311 - noise
    form = struct.pack("<IHHIIHH", 16, 1, 1, _SAMPLES_PER_S, 2 * _SAMPLES_PER_S, 2, 16)
    parts = b"WAVEfmt " + form + b"data" + struct.pack("<I", size)
    return b"RIFF" + struct.pack("<I", len(parts) + size) + parts + bytes(samples)


def parse_audio(text: str) -> AudioAsked:
    """A time, or a file or folder of one's own."""
    path = Path(text)
    try:
        is_there = path.exists()
    except OSError:  # longer than a name can be
        is_there = False
    if not is_there:
        try:
            return AudioAsked(seconds=parse_quantity(text, "s"))
        except InferometerError:
            raise DomainError(
                f"{text[:80]!r} is no time and no file.", remedy="Write --audio 10s, or --audio FOLDER."
            ) from None
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    files = [file for file in files if file.suffix.lower().lstrip(".") in _AUDIO_FILES and file.is_file()]
    if not files or any(not 0 < file.stat().st_size <= _MOST_AUDIO_BYTES for file in files):
        known = f"files of {', '.join(_AUDIO_FILES)} with up to {format_quantity(_MOST_AUDIO_BYTES, 'B')}"
        raise FormatError(f"{text[:80]} has no sound.", remedy=f"Name {known}.")
    return AudioAsked(files=tuple((file.suffix.lower().lstrip("."), file.read_bytes()) for file in files))


def noise_png(width: int, height: int, seed: int) -> bytes:
    """A grey image of noise: three chunks with their checksums, each row after a byte for "no filter"."""
    rows = random.Random(seed).randbytes(width * height)  # noqa: S311 - noise
    raw = b"".join(b"\0" + rows[at : at + width] for at in range(0, width * height, width))
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)  # 8 bits, grey
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(raw, 1)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )


def parse_images(text: str) -> tuple[int, int, int]:
    found = re.fullmatch(r"(\d{1,3}):(\d{1,5})x(\d{1,5})", text, re.ASCII)
    sizes = tuple(int(part) for part in found.groups()) if found else ()
    if not sizes or min(sizes) < 1 or sizes[1] * sizes[2] > _MOST_PIXELS:
        raise DomainError(f"{text!r} are no images.", remedy="Write how many and their size: --images 2:640x480.")
    return sizes[0], sizes[1], sizes[2]


def parse_mix(text: str) -> tuple[tuple[str, float], ...]:
    """`NAME=SHARE,NAME=SHARE`, whose shares are made to sum to 1."""
    pairs = [part.rpartition("=") for part in text.split(",")]
    try:
        shares = [(name.strip(), float(share)) for name, _, share in pairs]
    except ValueError:
        shares = []
    whole = sum(share for _, share in shares)
    if not all(name and 0 < share < inf for name, share in shares) or not 0 < whole < inf:
        raise DomainError(f"{text!r} is no mix of models.", remedy="Write --model base=0.8,adapter=0.2.")
    return tuple((name, share / whole) for name, share in shares)


def plain_request(
    address: Address, method: str, path: str, body: bytes = b"", headers: Sequence[tuple[str, str]] = ()
) -> bytes:
    return _request(address, method, path, body, headers, stream=False)


def _request(  # noqa: PLR0913 - the parts of a request
    address: Address, method: str, path: str, body: bytes, headers: Sequence[tuple[str, str]], *, stream: bool
) -> bytes:
    default = {"http": 80, "https": 443}[address.scheme]
    host = bracketed(address.host) + ("" if address.port == default else f":{address.port}")
    lines = {
        "host": host,
        "user-agent": f"inferometer/{__version__}",
        "accept": "text/event-stream" if stream else "application/json",
        "accept-encoding": "identity",  # a compressed stream is held back until a block is full
        "content-type": "application/json",
        "content-length": str(len(body)),
    }
    if address.authorization:
        lines["authorization"] = address.authorization
    lines |= {name.lower(): value for name, value in headers}
    if address.proxy is not None and address.scheme == "http":  # it is told the whole address; https has a tunnel
        path = f"http://{host}{path}"
        lines |= proxy_headers(address.proxy)
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body


def proxy_headers(proxy: Proxy) -> dict[str, str]:
    return {} if proxy.authorization is None else {"proxy-authorization": proxy.authorization}


def parse_header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip() or any(sign in text for sign in "\r\n\0"):
        raise DomainError(f"{text!r} is not a header.", remedy="Write 'Name: value'.")
    return name.strip(), value.strip()


def read_template(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FormatError(f"{path} cannot be read ({getattr(error, 'strerror', None) or error}).") from None
    if not text.strip():
        raise FormatError(f"{path} is empty.", remedy=f"It may hold {', '.join('{' + n + '}' for n in PLACEHOLDERS)}.")
    return text
