"""Structures that NVIDIA's driver is called with, as far as they matter here. Names are not those of its headers."""

from __future__ import annotations

import ctypes

ON_DEVICE = (2, 4)  # CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_UNIFIED

_long, _uint, _int, _byte, _pointer = ctypes.c_ulong, ctypes.c_uint, ctypes.c_int, ctypes.c_ubyte, ctypes.c_void_p


class Area(ctypes.Structure):
    _fields_ = tuple((side, ctypes.c_short) for side in ("left", "top", "right", "bottom"))

    def sides(self) -> tuple[int, int, int, int]:
        return self.left, self.top, self.right, self.bottom


class WideArea(ctypes.Structure):
    _fields_ = tuple((side, ctypes.c_int) for side in ("left", "top", "right", "bottom"))


class Create(ctypes.Structure):
    """CUVIDDECODECREATEINFO."""

    _fields_ = (
        ("width", _long), ("height", _long), ("surfaces", _long), ("codec", _int), ("chroma", _int), ("flags", _long),
        ("depth", _long), ("intra_only", _long), ("max_width", _long), ("max_height", _long), ("reserved", _long),
        ("area", Area), ("format", _int), ("deinterlacing", _int), ("target_width", _long), ("target_height", _long),
        ("mapped", _long), ("lock", _pointer), ("target_area", Area), ("histogram", _long), ("more", _long * 4),
    )  # fmt: skip


class Reconfigure(ctypes.Structure):
    """CUVIDRECONFIGUREDECODERINFO."""

    _fields_ = (
        ("width", _uint), ("height", _uint), ("target_width", _uint), ("target_height", _uint), ("surfaces", _uint),
        ("reserved", _uint * 12), ("area", Area), ("target_area", Area), ("more", _uint * 11),
    )  # fmt: skip


class Capabilities(ctypes.Structure):
    """CUVIDDECODECAPS."""

    _fields_ = (
        ("codec", _int), ("chroma", _int), ("depth", _uint), ("reserved", _uint * 3), ("supported", _byte),
        ("units", _byte), ("formats", ctypes.c_ushort), ("max_width", _uint), ("max_height", _uint),
        ("max_blocks", _uint), ("min_width", ctypes.c_ushort), ("min_height", ctypes.c_ushort), ("more", _uint * 11),
    )  # fmt: skip


class Format(ctypes.Structure):
    """CUVIDEOFORMAT."""

    _fields_ = (
        ("codec", _int), ("rate", _uint * 2), ("progressive", _byte), ("luma_depth", _byte), ("chroma_depth", _byte),
        ("surfaces", _byte), ("width", _uint), ("height", _uint), ("area", WideArea), ("chroma", _int),
        ("bit_rate", _uint), ("aspect", _int * 2), ("signal", _byte * 4), ("more", _uint),
    )  # fmt: skip


class Picture(ctypes.Structure):
    """CUVIDPICPARAMS. Hardware finds pictures by ``data``, which here is a number."""

    _fields_ = (
        ("columns", _int), ("rows", _int), ("place", _int), ("field", _int), ("bottom", _int), ("second", _int),
        ("length", _uint), ("data", _pointer), ("slices", _uint), ("offsets", _pointer), ("is_reference", _int),
        ("is_intra", _int), ("reserved", _uint * 30), ("specific", _uint * 1024),
    )  # fmt: skip


class Display(ctypes.Structure):
    """CUVIDPARSERDISPINFO."""

    _fields_ = (
        ("place", _int), ("progressive", _int), ("top_first", _int), ("repeat", _int), ("time", ctypes.c_longlong),
    )  # fmt: skip


class Parser(ctypes.Structure):
    """CUVIDPARSERPARAMS."""

    _fields_ = (
        ("codec", _int), ("surfaces", _uint), ("clock", _uint), ("threshold", _uint), ("delay", _uint),
        ("flags", _uint), ("reserved", _uint * 4), ("user", _pointer), ("on_sequence", _pointer),
        ("on_decode", _pointer), ("on_display", _pointer), ("more", _pointer * 8),
    )  # fmt: skip


class Source(ctypes.Structure):
    """CUVIDSOURCEDATAPACKET."""

    _fields_ = (("flags", _long), ("size", _long), ("payload", _pointer), ("time", ctypes.c_longlong))


class Step(ctypes.Structure):
    """What a parser calls next."""

    _fields_ = (("call", _pointer), ("user", _pointer), ("what", _pointer))


class Copy(ctypes.Structure):
    """CUDA_MEMCPY2D."""

    _fields_ = tuple(
        field
        for end in ("source", "target")
        for field in (
            (f"{end}_x", _long), (f"{end}_y", _long), (f"{end}_type", _int), (f"{end}_host", _pointer),
            (f"{end}_device", _pointer), (f"{end}_array", _pointer), (f"{end}_pitch", _long),
        )
    ) + (("columns", _long), ("rows", _long))  # fmt: skip

    def at(self, end: str) -> int:
        """Where it begins."""
        on_device = getattr(self, f"{end}_type") in ON_DEVICE
        base = getattr(self, f"{end}_device" if on_device else f"{end}_host")
        return int(base + getattr(self, f"{end}_y") * getattr(self, f"{end}_pitch") + getattr(self, f"{end}_x"))
