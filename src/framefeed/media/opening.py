"""Opens one file with FFmpeg, without letting FFmpeg open any other.

FFmpeg reads playlists, session descriptions and scripts that name other files and servers, and recognises them by
content, not by file name. Here FFmpeg gets only single-file formats and no protocol to open a second file: bytes and
file objects come through Python, a file on disk as an open descriptor without a name.
"""

from __future__ import annotations

import os
import re

import av
import av.error
from av.container import InputContainer

from framefeed.errors import InvalidFile
from framefeed.media.declared import check_declared
from framefeed.media.ffmpeg import quiet
from framefeed.media.media import Media

__all__ = ["invalid_file", "max_pixels", "open_input", "refuse_playlist"]

quiet()

# Single-file formats, by FFmpeg's names. Left out: formats that open other files (concat, dash, hls, imf, mlv, rtp,
# rtsp, sap, sdp, vobsub, webm_dash_manifest), that take the file name as a pattern (image2), devices, text and
# subtitles.
_VIDEO = (
    "asf,asf_o,avi,dhav,dv,flv,gxf,ivf,ivr,kux,live_flv,lmlm4,lxf,matroska,mov,mpeg,mpegts,mpjpeg,mxf,nsv,nut,nuv,ogg,"
    "pva,rm,swf,ty,usm,wtv,yuv4mpegpipe"
)
_STREAMS = (
    "apv,av1,avs2,avs3,cavsvideo,dirac,dnxhd,evc,h261,h263,h264,hevc,ingenient,ipu,m4v,mjpeg,mjpeg_2000,mpegvideo,obu,"
    "vc1,vc1test,vvc"
)
_PICTURES = (
    "apng,bmp_pipe,cri_pipe,dds_pipe,dpx_pipe,exr_pipe,fits,gem_pipe,gif,gif_pipe,hdr_pipe,ico,j2k_pipe,jpeg_pipe,"
    "jpegls_pipe,jpegxl_anim,jpegxl_pipe,jpegxs_pipe,pam_pipe,pbm_pipe,pcx_pipe,pfm_pipe,pgm_pipe,pgmyuv_pipe,pgx_pipe,"
    "phm_pipe,photocd_pipe,pictor_pipe,png_pipe,ppm_pipe,psd_pipe,qdraw_pipe,qoi_pipe,sgi_pipe,sunrast_pipe,tiff_pipe,"
    "vbn_pipe,webp_pipe,xbm_pipe,xpm_pipe,xwd_pipe"
)
_CAMERAS_AND_GAMES = (
    "4xm,anm,avs,bethsoftvid,bfi,bink,bmv,c93,cdg,cdxl,cine,dfa,dsicin,dxa,ea,film_cpk,filmstrip,flic,"
    "frm,gdv,hnm,hxvs,idcin,iff,ifv,ipmovie,iv8,jv,lvf,mgsts,mm,mods,moflex,msnwctcp,mtv,mv,mvi,mxg,nc,paf,pdv,pmp,"
    "psxstr,r3d,rl2,roq,rpl,sdr2,ser,sga,siff,simbiosis_imx,smk,smush,thp,tiertexseq,tmv,txd,vividas,vivo,vmd,wc3movie,"
    "wsvqa,xmv,yop"
)
_SOUND = "aac,ac3,aiff,amr,ape,au,caf,dts,dtshd,eac3,flac,loas,mlp,mp3,mpc,mpc8,tak,truehd,tta,w64,wav,wv"
_FORMATS = ",".join((_VIDEO, _STREAMS, _PICTURES, _CAMERAS_AND_GAMES, _SOUND))

MAX_PIXELS = 1 << 27
MOST_PIXELS = (1 << 31) - 1  # FFmpeg's own limit

_HEAD = 1 << 16  # FFmpeg, too, looks for playlist marks in this many bytes

# Texts that name other files or servers, recognised by their beginning or by one line.
_TEXTS = tuple(
    (re.compile(pattern, re.MULTILINE | re.IGNORECASE), name)
    for pattern, name in (
        (rb"\A#EXTM3U", "an M3U playlist"),
        (rb"\Affconcat version", "an ffconcat script"),
        (rb"\Av=0\s|^c=IN IP", "a session description (SDP)"),
        (rb"<MPD[\s>]", "a DASH manifest"),
        (rb"<(\w+:)?CompositionPlaylist[\s>]", "an IMF playlist"),
        (rb"<SmoothStreamingMedia[\s>]", "a Smooth Streaming manifest"),
        (rb"\A\[(playlist|reference)\]|<(playlist|asx|smil)[\s>]", "a playlist"),
        (rb"\A(rtsp|https?|rtp)://|\ARTSPtext", "a link"),
    )
)


def open_input(media: Media, options: dict[str, str] | None = None) -> InputContainer:
    """Opens a video with FFmpeg's demuxer.

    Args:
        media: The video.
        options: FFmpeg's options for the demuxer and the decoders that it probes streams with.

    Raises:
        SourceError: The file cannot be read.
        InvalidFile: The file is not a readable video, or names other files.
    """
    if not media.fingerprint[0]:  # raises for a missing file with a clearer message than FFmpeg's
        raise InvalidFile(media.name, "empty file (0 bytes)")
    check_declared(media)
    try:
        return _open(media, options or {})
    except av.error.FFmpegError as error:
        refuse_playlist(media)
        raise invalid_file(media, error) from error


def invalid_file(media: Media, error: av.error.FFmpegError) -> InvalidFile:
    """Returns the error for a file that FFmpeg cannot read."""
    reason = error.strerror or error
    return InvalidFile(media.name, f"not a video file, or a damaged one ({reason})")


def max_pixels() -> int:
    """Returns the largest allowed picture in pixels: ``FRAMEFEED_MAX_PIXELS``, or 2**27, which exceeds 16K video.

    Raises:
        ValueError: The variable is not such a number.
    """
    text = os.environ.get("FRAMEFEED_MAX_PIXELS", "")
    if not text:
        return MAX_PIXELS
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= MOST_PIXELS:
        raise ValueError(f"FRAMEFEED_MAX_PIXELS={text!r} should be a number of pixels from 1 to {MOST_PIXELS}")
    return int(text)


def _open(media: Media, options: dict[str, str]) -> InputContainer:
    source = media.for_demuxer()
    limits = {"max_pixels": str(max_pixels())}
    restricted = {**options, **limits, "format_whitelist": _FORMATS, "protocol_whitelist": ""}
    if isinstance(source, int):
        restricted |= {"protocol_whitelist": "fd", "fd": str(source)}
    try:
        container = av.open(
            "fd:" if isinstance(source, int) else source, "r", options=restricted, metadata_errors="replace"
        )
    finally:
        if isinstance(source, int):
            os.close(source)  # FFmpeg has duplicated it
    for stream in container.streams.video:
        if stream.codec_context is not None:
            stream.codec_context.options = limits
    return container


def refuse_playlist(media: Media) -> None:
    """Raises if the file is a text that names other files or servers. Readers that open files themselves call it too.

    Raises:
        InvalidFile: The file is such a text.
    """
    head = media.read(0, _HEAD).removeprefix(b"\xef\xbb\xbf").lstrip()
    for pattern, name in _TEXTS:
        if b"\0" not in head and pattern.search(head):
            raise InvalidFile(media.name, f"{name} that names other files; pass the video file itself")
