"""Packet tables and wanted frames -> decode jobs. Pure: no files, no devices, nothing decoded."""

from __future__ import annotations

from framefeed.plan.cost import random_frame_cost
from framefeed.plan.frames import Cursor, Plan, plan_frames

__all__ = ["Cursor", "Plan", "plan_frames", "random_frame_cost"]
