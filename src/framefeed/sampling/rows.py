"""What is found of orders beside each other, and which one to take."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from framefeed.dataset.orders import Order
from framefeed.sampling.chances.pairs import How
from framefeed.sampling.correlation import Correlation
from framefeed.sampling.models import Model

__all__ = ["Entry", "Row", "Study", "Unbiased"]

Unbiased = Literal["steps", "inner", "epochs", "never"]
"""When the expected mean of a batch is the mean of all frames.

At every step of an epoch; at steps that are not near its beginning or end; not at a given step, but on average over an
epoch; never.
"""


@dataclass(frozen=True)
class Entry:
    """What is compared.

    Attributes:
        method: An order or a model.
        memory_frames: How many frames may be kept for it.
        name: What tables call it; None for the method's own name.
    """

    method: Order | Model
    memory_frames: int = 0
    name: str | None = None

    @property
    def label(self) -> str:
        """What tables call it."""
        return self.method.name if self.name is None else self.name


@dataclass(frozen=True)
class Row:
    """What was found of one way to draw.

    Attributes:
        name: What it is called.
        order: What loaders call the order; for models the same as ``name``.
        is_model: Whether it is no order of the loader but shown for comparison.
        unbiased: When the expected mean of a batch is that of all frames.
        least, most: The chances of the least and the most likely frame, as multiples of an even chance.
        same_group: How likely two frames of a batch are of one group.
        same_file: How likely they are of one file.
        how: How good these are.
        error: Standard error of ``same_group``, where it is simulated.
        design_effect: Squared error of a batch's mean beside that of independent frames.
        over_steps: The same of the mean of several batches in a row; None where an epoch has no more.
        decoded_per_delivered: Packets decoded for each frame.
        memory_frames: How many frames are kept for that.
        memory_bytes: What they take.
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
        """The design effect over several batches in a row, as far as it is known."""
        return self.design_effect if self.over_steps is None else self.over_steps

    @property
    def price(self) -> float:
        """Packets decoded for as much as one independent frame tells, over several batches."""
        return self.decoded_per_delivered * self.lasting_effect


@dataclass(frozen=True)
class Study:
    """Orders beside each other.

    Attributes:
        num_files, num_groups, num_frames: What is drawn from.
        batch_size: Frames of a batch.
        steps: Batches in a row that are looked at together.
        correlation: Of values within groups and files.
        planned_frames: Frames that decoding was planned for; all, or some where there are many.
        memory_bytes: What may be kept, where one order is recommended.
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
        """All of it as plain values."""
        rows = [{**asdict(row), "price": row.price} for row in self.rows]
        return {**asdict(self), "rows": rows, "recommendation": self.recommendation}

    @property
    def recommendation(self) -> list[str]:
        """Which order to take, in words."""
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
    """An amount of memory as the loader takes it, rounded up."""
    mebibytes = -(-amount // 2**20)
    return f"{mebibytes}MiB" if mebibytes < 10 * 2**10 else f"{-(-mebibytes // 2**10)}GiB"
