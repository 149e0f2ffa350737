"""Statistics of orders, and what they cost to decode.

Relaxed sampling is faster. This package computes its price: how likely each frame is drawn, how likely two frames of a
batch share a group, the variance of a batch's mean relative to independent frames, and the packets to decode.
docs/sampling.md has the derivation.
"""

from __future__ import annotations

from framefeed.sampling.chances.pair_chances import PairChances
from framefeed.sampling.chances.pairs import Pairs, find_pairs
from framefeed.sampling.chances.probabilities import (
    batch_probabilities,
    draw_probabilities,
    place_probabilities,
    probability_range,
)
from framefeed.sampling.chances.simulation import simulate_batches
from framefeed.sampling.correlation import Correlation
from framefeed.sampling.cost import DecodingCost, Excerpt, decoding_cost, memory_needed
from framefeed.sampling.effect import bias, design_effect
from framefeed.sampling.estimate import Components, estimate_correlation, variance_components
from framefeed.sampling.models import FileFirst, Independent, Model, OneFile, SlidingWindow
from framefeed.sampling.population import Population
from framefeed.sampling.rows import Entry, Row, Study
from framefeed.sampling.study import default_entries, method_named, study
from framefeed.sampling.values import FrameValues, measure_luma, read_values

__all__ = [
    "Components",
    "Correlation",
    "DecodingCost",
    "Entry",
    "Excerpt",
    "FileFirst",
    "FrameValues",
    "Independent",
    "Model",
    "OneFile",
    "PairChances",
    "Pairs",
    "Population",
    "Row",
    "SlidingWindow",
    "Study",
    "batch_probabilities",
    "bias",
    "decoding_cost",
    "default_entries",
    "design_effect",
    "draw_probabilities",
    "estimate_correlation",
    "find_pairs",
    "measure_luma",
    "memory_needed",
    "method_named",
    "place_probabilities",
    "probability_range",
    "read_values",
    "simulate_batches",
    "study",
    "variance_components",
]
