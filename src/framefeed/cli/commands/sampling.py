"""``framefeed sampling``: compares orders: batch statistics, and decoding cost."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from framefeed.cli.arguments import byte_size, count, frame_size, number, whole

if TYPE_CHECKING:
    from framefeed.catalog.catalog import Catalog
    from framefeed.sampling import Correlation, Row, Study

__all__ = ["add_parser"]

STDOUT = "-"
_correlation = number("a number from -1 to 1", -1, 1)


def add_parser(commands: Any) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "sampling",
        help="compare orders: their statistics and their cost",
        description="Compares orders of the loader on the videos of a catalog: draw probabilities, the probability "
        "that two frames of a batch share a group, the effect on the variance of a batch's mean, and the decoding "
        "cost. The similarity of frames of a group is measured as mean luma of a sample, or from your own numbers.",
        epilog="exit codes: 0 success, 2 nothing could be done",
        allow_abbrev=False,
    )
    parser.add_argument("catalog", metavar="CATALOG", help="made by framefeed index, or a packet store")
    parser.add_argument("--batch-size", metavar="N", type=count, default=128, help="frames in a batch (default: 128)")
    parser.add_argument(
        "--orders",
        metavar="NAMES",
        help="as shuffle,chunked:8,buffered:4096; also window:16, file-first (default: a selection)",
    )
    parser.add_argument(
        "--memory", metavar="SIZE", type=byte_size, help="memory limit, as 8GiB (default: several amounts)"
    )
    parser.add_argument(
        "--frame-size", metavar="WxH", type=frame_size, help="size of cached frames (default: the videos' own)"
    )
    parser.add_argument(
        "--steps", metavar="N", type=count, default=10, help="consecutive batches to evaluate together (default: 10)"
    )
    given = parser.add_mutually_exclusive_group()
    given.add_argument("--values", metavar="FILE", help="CSV or Parquet with the columns video, frame, value")
    given.add_argument("--correlation", metavar="R", type=_correlation, help="of two frames of a group, in -1..1")
    parser.add_argument("--seed", metavar="S", type=whole, default=0, help="seed of all random choices (default: 0)")
    parser.add_argument("--plot", metavar="FILE", type=Path, help="write a plot, as plot.svg")
    parser.add_argument("--json", metavar="FILE", nargs="?", const=STDOUT, help="write JSON; print it without FILE")
    parser.set_defaults(run=run, fail=parser.error)


def run(args: argparse.Namespace) -> int:
    """Runs the command."""
    import json

    from framefeed import Catalog
    from framefeed._util.atomic_write import write
    from framefeed.charts.plots import study_plot
    from framefeed.cli import console
    from framefeed.errors import FramefeedError
    from framefeed.sampling import study

    with Catalog.open(args.catalog) as catalog:
        try:
            correlation, source = _find_correlation(args, catalog)
            with console.progress("orders", show=args.json != STDOUT) as report:
                found = study(
                    catalog,
                    correlation,
                    batch_size=args.batch_size,
                    entries=None if args.orders is None else args.orders.split(","),
                    steps=args.steps,
                    frame_bytes=None if args.frame_size is None else 3 * args.frame_size[0] * args.frame_size[1],
                    memory_bytes=args.memory,
                    seed=args.seed,
                    progress=report,
                )
        except FramefeedError:
            raise
        except ValueError as error:
            args.fail(str(error))
    document = {"catalog": str(args.catalog), "values": source, **found.as_json()}
    if args.plot is not None:
        write(args.plot, study_plot(document), parents=True)
    if args.json == STDOUT:
        console.print_json(document)
        return 0
    if args.json is not None:
        write(Path(args.json), json.dumps(document, indent=1, allow_nan=False) + "\n", parents=True)
    _print(found, source)
    console.print_lines(*(str(path) for path in (args.plot, args.json) if path is not None))
    return 0


def _find_correlation(args: argparse.Namespace, catalog: Catalog) -> tuple[Correlation, str]:
    """Returns the correlation, and its origin."""
    from framefeed.cli import console
    from framefeed.sampling import Correlation, measure_luma, read_values

    if args.correlation is not None:
        return Correlation(args.correlation), "given"
    if args.values is not None:
        values = read_values(args.values, catalog)
        return values.correlation(seed=args.seed), f"{len(values):,} values of {args.values}"
    with console.progress("mean luma", show=args.json != STDOUT) as report:
        values = measure_luma(catalog, seed=args.seed, progress=report)
    if args.json != STDOUT:
        console.print_lines(*(f"left out: {reason}" for reason in values.skipped))
    return values.correlation(seed=args.seed), f"mean luma of {len(values):,} frames"


def _print(found: Study, source: str) -> None:
    """Prints the table, a legend, and the recommendation."""
    from framefeed.cli import console

    columns = (
        "order",
        "unbiased",
        "min/max",
        "group",
        "effect",
        f"in {found.steps}",
        "decoded",
        "price",
        "memory",
    )
    console.print_table(console.make_table(columns, [_cells(row) for row in found.rows]))
    values = found.correlation
    error = "" if values.error is None else f" \u00b1 {values.error:.2g}"
    near = f" (neighbours {values.by_distance[0]:.2f})" if values.by_distance else ""
    console.print_lines(
        f"{found.num_files:,} files, {found.num_groups:,} groups, {found.num_frames:,} frames; batches of "
        f"{found.batch_size}. Correlation of two frames of a group {values.group:.2f}{error}{near}, of two groups of a "
        f"file {values.file:.2f}: {source}.",
        "",
        "unbiased  expected mean of a batch is that of all frames: at all steps, at inner ones, over epochs, never",
        "min/max   probability of the least likely frame relative to the most likely one",
        "group     probability that two frames of a batch share a group; ~ is simulated",
        "effect    variance of a batch's mean relative to as many independent frames",
        f"in {found.steps:<7}the same for the mean of {found.steps} consecutive batches",
        "decoded   packets decoded per frame",
        "price     packets decoded per independent frame's worth of information, over these batches",
        "",
        *found.recommendation,
    )


def _cells(row: Row) -> tuple[object, ...]:
    share = f"{'~' if row.how == 'simulated' else ''}{row.same_group:.2%}"
    over = None if row.over_steps is None else _figure(row.over_steps)
    memory = "\u2013" if row.is_model or not row.memory_bytes else _memory(row.memory_bytes)
    figures = (_figure(row.design_effect), over, _figure(row.decoded_per_delivered), _figure(row.price))
    return (row.name, row.unbiased, f"{row.least / row.most:.2g}", share, *figures, memory)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _memory(amount: int) -> str:
    return f"{amount / 2**30:.1f} GiB" if amount >= 2**30 else f"{amount / 2**20:.0f} MiB"
