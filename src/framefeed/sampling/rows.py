"""Results of a study, and its recommendation."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from framefeed.dataset.orders import Order
from framefeed.sampling.chances.pairs import How
from framefeed.sampling.correlation import Correlation
from framefeed.sampling.models import Model

__all__ = ["Entry", "Row", "Study", "Unbiased"]

Unbiased = Literal["steps", "inner", "epochs", "never"]
"""Steps at which the expected mean of a batch is the mean of all frames.

At every step of an epoch; at steps away from its start and end; on average over an epoch only; never.
"""


@dataclass(frozen=True)
class Entry:
    """An order or model to compare.

    Attributes:
        method: An order or a model.
        memory_frames: Number of frames that may be cached for it.
        name: Name in tables; None for the method's own name.
    """

    method: Order | Model
    memory_frames: int = 0
    name: str | None = None

    @property
    def label(self) -> str:
        """Name in tables."""
        return self.method.name if self.name is None else self.name


@dataclass(frozen=True)
class Row:
    """Results of one sampling method.

    Attributes:
        name: Name in tables.
        order: Name of the order for loaders; for models the same as ``name``.
        is_model: True for models, which are shown for comparison.
        unbiased: Steps at which the expected mean of a batch is that of all frames.
        least, most: Probabilities of the least and the most likely frame, relative to uniform.
        same_group: Probability that two frames of a batch share a group.
        same_file: Probability that they share a file.
        how: Accuracy of these.
        error: Standard error of ``same_group``, if simulated.
        design_effect: Squared error of a batch's mean, relative to independent frames.
        over_steps: The same for the mean of several consecutive batches; None if an epoch has fewer.
        decoded_per_delivered: Packets decoded per frame.
        memory_frames: Number of cached frames for that.
        memory_bytes: Their size.
    """

    name: str
    order: str
    is_model: bool
    unbiased: Unbiased
    least: float
    most: float
    same_group: float
    same_file: float
    how: How
    error: float
    design_effect: float
    over_steps: float | None
    decoded_per_delivered: float
    memory_frames: int
    memory_bytes: int

    @property
    def lasting_effect(self) -> float:
        """Design effect over several batches if known, otherwise of one."""
        return self.design_effect if self.over_steps is None else self.over_steps

    @property
    def price(self) -> float:
        """Packets decoded per independent frame's worth of information, over several batches."""
        return self.decoded_per_delivered * self.lasting_effect


@dataclass(frozen=True)
class Study:
    """Comparison of orders.

    Attributes:
        num_files, num_groups, num_frames: Size of the population.
        batch_size: Frames in a batch.
        steps: Number of consecutive batches evaluated together.
        correlation: Correlation of values within groups and files.
        planned_frames: Number of frames that decoding was planned for; a part if there are many.
        memory_bytes: Memory limit of the recommendation.
        rows: The orders and models.
    """

    num_files: int
    num_groups: int
    num_frames: int
    batch_size: int
    steps: int
    correlation: Correlation
    planned_frames: int
    memory_bytes: int
    rows: tuple[Row, ...]

    def as_json(self) -> dict[str, Any]:
        """Returns the study as plain values."""
        rows = [{**asdict(row), "price": row.price} for row in self.rows]
        return {**asdict(self), "rows": rows, "recommendation": self.recommendation}

    @property
    def recommendation(self) -> list[str]:
        """Returns the recommended orders, in words."""
        orders = [row for row in self.rows if not row.is_model and row.memory_bytes <= self.memory_bytes]
        if not orders:
            return []
        cheap = min(orders, key=lambda row: row.price)
        exact = min(orders, key=lambda row: (row.unbiased != "steps", round(row.lasting_effect, 2), row.price))
        lines = [
            f"Decoding is the bottleneck: take {self._told(cheap)}. Nothing else here that fits into "
            f"{_bytes(self.memory_bytes)} decodes less for the same precision."
        ]
        if exact is cheap:
            lines.append("The model is the bottleneck: take the same; nothing else is more exact.")
        else:
            lines.append(f"The model is the bottleneck: take {self._told(exact)}.")
        return lines

    def _told(self, row: Row) -> str:
        kept = f", memory_budget={_bytes(row.memory_bytes)!r}" if row.memory_bytes else ""
        worth = min(self.batch_size, round(self.batch_size / row.design_effect))
        return (
            f"order={row.order!r}{kept} ({row.decoded_per_delivered:.1f} packets for each frame; a batch of "
            f"{self.batch_size} is worth {worth} independent frames)"
        )


def _bytes(amount: int) -> str:
    """Formats an amount of memory as the loader accepts it, rounded up."""
    mebibytes = -(-amount // 2**20)
    return f"{mebibytes}MiB" if mebibytes < 10 * 2**10 else f"{-(-mebibytes // 2**10)}GiB"
