"""Every decision of a request: jobs, threads, windows, retries. Pure: no files, no devices, nothing decoded."""

from __future__ import annotations

from framefeed.plan.cost import random_frame_cost
from framefeed.plan.frames import Cursor, Plan, plan_frames
from framefeed.plan.request import is_worth_staying, join_jobs, plan_request
from framefeed.plan.retries import Attempt, Losses, Probed, retry_job, retry_run

__all__ = [
    "Attempt",
    "Cursor",
    "Losses",
    "Plan",
    "Probed",
    "is_worth_staying",
    "join_jobs",
    "plan_frames",
    "plan_request",
    "random_frame_cost",
    "retry_job",
    "retry_run",
]
