"""Opens one file with FFmpeg, and nothing else.

FFmpeg reads playlists, session descriptions and scripts that name other files and servers, and takes them by their
content, whatever a file is called. Here it is given formats that are one file, and no way to open a second one: bytes
and file objects come through Python, a file on disk as an open descriptor, whose name FFmpeg never sees.
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

# Formats of one file, by FFmpeg's names. Not here: what opens others (concat, dash, hls, imf, mlv, rtp, rtsp, sap, sdp,
# vobsub, webm_dash_manifest), what takes its name for a pattern (image2), devices, text and subtitles.
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

_HEAD = 1 << 16  # bytes in which FFmpeg, too, looks for what makes a text a playlist

# Texts that name other files or servers, by how they begin or by a line of theirs.
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
    """Opens a video with FFmpeg's demuxer for it.

    Args:
        media: The video.
        options: FFmpeg's, for the demuxer and for the decoders it looks into the streams with.

    Raises:
        SourceError: The file cannot be read.
        InvalidFile: It is no video, damaged beyond use, or names others that it is made of.
    """
    if not media.fingerprint[0]:  # raises for what is missing or no file, before FFmpeg words it worse
        raise InvalidFile(media.name, "empty file (0 bytes)")
    check_declared(media)
    try:
        return _open(media, options or {})
    except av.error.FFmpegError as error:
        refuse_playlist(media)
        raise invalid_file(media, error) from error


def invalid_file(media: Media, error: av.error.FFmpegError) -> InvalidFile:
    """The error for what FFmpeg cannot read."""
    reason = error.strerror or error
    return InvalidFile(media.name, f"not a video file that can be read, or a damaged one ({reason})")


def max_pixels() -> int:
    """Pixels of the largest picture that is read: ``FRAMEFEED_MAX_PIXELS``, or 2**27, which is more than 16K video has.

    Raises:
        ValueError: The variable is no such number.
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
            os.close(source)  # FFmpeg has a copy
    for stream in container.streams.video:
        if stream.codec_context is not None:
            stream.codec_context.options = limits
    return container


def refuse_playlist(media: Media) -> None:
    """Raises for a text that names other files or servers; also for libraries that open files by themselves.

    Raises:
        InvalidFile: The file is one.
    """
    head = media.read(0, _HEAD).removeprefix(b"\xef\xbb\xbf").lstrip()
    for pattern, name in _TEXTS:
        if b"\0" not in head and pattern.search(head):
            raise InvalidFile(media.name, f"{name} that names other files; framefeed reads one file: give that")
