"""framefeed opens one file: whatever names others is refused, and reaches neither files nor sockets."""

from __future__ import annotations

import ast
import io
import os
import random
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import pytest

import framefeed
from framefeed import InvalidFile, VideoDecoder, readers
from framefeed.testing.samples import write_clip

ROOT = Path(framefeed.__file__).parent
SECONDS = 5.0  # of a refusal; FFmpeg waits 20 s for the first packet of a session

# Modules in which PyAV opens a file: they write one, or stand for users of PyAV.
OPENERS = {
    "media/opening.py": ["r"],
    "testing/samples.py": ["w"],
    "prepare/encoding/write.py": ["w"],
    "compare/exercise/exercise_sources.py": ["r"],
}

Text = Callable[[str, int], str]

# What names a sibling file (by name) or a server (by port).
TEXTS: dict[str, Text] = {
    "ffconcat": lambda name, port: f"ffconcat version 1.0\nfile {name}\n",
    "ffconcat_network": lambda name, port: f"ffconcat version 1.0\nfile http://127.0.0.1:{port}/a.ts\n",
    "hls": lambda name, port: (
        f"#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-TARGETDURATION:2\n#EXTINF:2.0,\n{name}\n#EXTINF:2.0,\n"
        f"http://127.0.0.1:{port}/b.ts\n#EXT-X-ENDLIST\n"
    ),
    "hls_master": lambda name, port: f"#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\nhttp://127.0.0.1:{port}/a.m3u8\n",
    "hls_with_bom": lambda name, port: (
        f"\ufeff#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXTINF:2.0,\n{name}\n#EXT-X-ENDLIST\n"
    ),
    "plain_m3u": lambda name, port: f"#EXTM3U\n{name}\n",
    "dash": lambda name, port: (
        '<?xml version="1.0"?>\n<MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="static" '
        'profiles="urn:mpeg:dash:profile:isoff-on-demand:2011" mediaPresentationDuration="PT2S">'
        '<Period><AdaptationSet mimeType="video/mp4">'
        f'<Representation id="1" bandwidth="1"><BaseURL>http://127.0.0.1:{port}/{name}</BaseURL></Representation>'
        "</AdaptationSet></Period></MPD>\n"
    ),
    "sdp": lambda name, port: (
        f"v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video {port} RTP/AVP 96\n"
        "a=rtpmap:96 H264/90000\n"
    ),
    "sdp_short": lambda name, port: f"v=0\r\nm=video {port} RTP/AVP 96\r\nc=IN IP4 0.0.0.0\r\n",
    "imf": lambda name, port: (
        '<?xml version="1.0"?>\n<CompositionPlaylist xmlns="http://www.smpte-ra.org/schemas/2067-3/2016">'
        f"<Id>urn:uuid:0</Id><x>{name}</x></CompositionPlaylist>\n"
    ),
    "smooth": lambda name, port: f'<SmoothStreamingMedia MajorVersion="2"><x url="{name}"/></SmoothStreamingMedia>\n',
    "pls": lambda name, port: f"[playlist]\nFile1=http://127.0.0.1:{port}/a.mp4\nNumberOfEntries=1\n",
    "asx": lambda name, port: f'<asx version="3.0"><entry><ref href="http://127.0.0.1:{port}/a"/></entry></asx>\n',
    "rtsp_link": lambda name, port: f"rtsp://127.0.0.1:{port}/a\n",
}
SUFFIXES = (".mp4", ".mkv", ".ts", ".m3u8", ".mpd", ".sdp", ".ffconcat", ".txt", "")


@contextmanager
def _server() -> Iterator[tuple[int, list[object]]]:
    """A TCP server that notes who comes."""
    found: list[object] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            while True:
                try:
                    connection, address = server.accept()
                except OSError:
                    return
                found.append(address)
                connection.close()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield server.getsockname()[1], found
        time.sleep(0.05)
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


@contextmanager
def _sibling(path: Path) -> Iterator[list[str]]:
    """A named pipe; notes whether somebody opens it to read."""
    os.mkfifo(path)
    found: list[str] = []
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.01):
            with suppress(OSError):  # nobody reads
                os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
                found.append(path.name)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield found
        time.sleep(0.03)
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize("kind", TEXTS)
def test_texts_that_name_others_are_refused(kind: str, tmp_path: Path) -> None:
    rng = random.Random(kind)
    sibling = tmp_path / "sib.ts"
    with _sibling(sibling) as opened, _server() as (port, connections):
        text = TEXTS[kind](rng.choice([sibling.name, str(sibling)]), port).encode()
        sources: list[tuple[str, Any]] = [("<", text), ("<", io.BytesIO(text))]
        for suffix in rng.sample(SUFFIXES, 3):
            path = tmp_path / f"video{suffix}"
            path.write_bytes(text)
            sources.append((str(path), path))
        with path.open("rb") as file:
            sources.append((str(path), file))
            for name, source in sources:
                began = time.monotonic()
                with pytest.raises(InvalidFile, match="names other files; pass the video file") as caught:
                    VideoDecoder(source)
                assert caught.value.path.startswith(name)
                assert time.monotonic() - began < SECONDS
    assert connections == []
    assert opened == []


def test_no_port_is_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Path("/proc/self/net/udp").read_text().count("\n")
    seen: list[int] = []
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.02):
            seen.append(Path("/proc/self/net/udp").read_text().count("\n"))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with pytest.raises(InvalidFile, match="session description"):
            VideoDecoder(
                b"v=0\r\no=- 0 0 IN IP4 0.0.0.0\r\ns=x\r\nc=IN IP4 0.0.0.0\r\nt=0 0\r\nm=video 5004 RTP/AVP 96\r\n"
            )
        time.sleep(0.1)
    finally:
        done.set()
        watcher.join()
    assert max(seen, default=before) <= before


def test_patterns_in_names_are_letters(tmp_path: Path) -> None:
    write_clip(tmp_path / "clip.mp4", frames=8, width=64, height=48)
    movie = (tmp_path / "clip.mp4").read_bytes()
    pictures = {number: _png(number) for number in (1, 2, 3)}
    for number, picture in pictures.items():
        (tmp_path / f"img{number:03d}.png").write_bytes(picture)
    for name in ("img%03d.png", "img*.png", "img?.png", "img{001,002}.png"):
        with pytest.raises(framefeed.SourceError, match="no such file"):
            VideoDecoder(tmp_path / name)
        (tmp_path / name).write_bytes(pictures[2])
        assert len(VideoDecoder(tmp_path / name)) == 1
    for name in ("a%03d.mp4", "http:a.mp4", "concat:a|b.mp4", "%d.jpg", "fd:", "-"):
        (tmp_path / name).write_bytes(movie)
        assert len(VideoDecoder(tmp_path / name)) == 8


def _png(shade: int) -> bytes:
    frame = av.VideoFrame(32, 32, "gray")
    frame.planes[0].update(bytes([shade]) * frame.planes[0].buffer_size)
    encoder = av.CodecContext.create("png", "w")
    encoder.width, encoder.height, encoder.pix_fmt = 32, 32, "gray"
    encoder.time_base = Fraction(1)
    return b"".join(bytes(packet) for packet in [*encoder.encode(frame), *encoder.encode(None)])


def test_an_external_data_reference_opens_nothing(tmp_path: Path) -> None:
    """A track of MOV can say that its media is in another file."""
    write_clip(tmp_path / "media.mov", frames=8, width=64, height=48)
    data = (tmp_path / "media.mov").read_bytes()
    at = data.index(b"dref") - 4
    size = struct.unpack_from(">I", data, at)[0]
    other = tmp_path / "other.mov"
    url = b"file:" + str(other).encode() + b"\0"
    entry = struct.pack(">I4sI", 12 + len(url), b"url ", 0) + url
    box = struct.pack(">I4sII", 16 + len(entry), b"dref", 0, 1) + entry
    changed = bytearray(data[:at] + box + data[at + size :])
    for kind in (b"moov", b"trak", b"mdia", b"minf", b"dinf"):
        place = changed.index(kind) - 4
        struct.pack_into(">I", changed, place, struct.unpack_from(">I", changed, place)[0] + len(box) - size)
    path = tmp_path / "refers.mov"
    path.write_bytes(bytes(changed))
    with _sibling(other) as opened, suppress(framefeed.FramefeedError):
        VideoDecoder(path)[0]
    assert opened == []


@pytest.mark.parametrize("reader", ["pyav", "framefeed", "opencv", "torchcodec", "decord"])
def test_readers_refuse_playlists(reader: str, tmp_path: Path) -> None:
    if next(each for each in readers.usable() if each.name == reader).version is None:
        pytest.skip("not installed")
    path = tmp_path / "video.mp4"
    path.write_text("ffconcat version 1.0\nfile sib.ts\n")
    with pytest.raises(InvalidFile, match="ffconcat script that names other files"):
        readers.open_reader(reader, path)


def _modes(path: Path) -> list[str]:
    """The modes in which a module calls ``av.open``."""
    calls = [
        node
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("av.open", "av.container.open")
    ]
    return [ast.literal_eval(call.args[1]) if len(call.args) > 1 else "r" for call in calls]


def test_files_are_opened_in_one_place() -> None:
    found = {path.relative_to(ROOT).as_posix(): _modes(path) for path in sorted(ROOT.rglob("*.py"))}
    assert {name: sorted(set(modes)) for name, modes in found.items() if modes} == OPENERS
    others = [
        path.relative_to(ROOT).as_posix()
        for path in sorted(ROOT.rglob("*.py"))
        if re.search(r"_library\.open\(|from av import .*\bopen\b", path.read_text("utf-8"))
    ]
    assert others == []
