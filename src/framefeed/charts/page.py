"""Style sheet of HTML pages with charts."""

from __future__ import annotations

from framefeed.charts.svg import FONT, SHAPES, palette

__all__ = ["STYLE"]

_COLOURS = """bad #a3261b #ff9d90  bad-page #fbe4e0 #47211d  good-page #e6f1ea #1b3327  note-page #fff3d6 #40340f
    shade #0003 #fff2"""

STYLE = (
    palette(_COLOURS, media="screen and ")
    + SHAPES
    + """
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body { margin: 0 auto; max-width: 72rem; padding: 2rem 1rem 4rem; background: var(--page); color: var(--text);
  font: 1rem/1.5 FONT;
  font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
h1, h2, h3, h4 { line-height: 1.25; font-weight: 600; margin: 0; }
h1 { font-size: 1rem; color: var(--quiet); }
h2 { font-size: 1.375rem; margin-top: 3rem; padding-top: 1rem; border-top: 1px solid var(--rule); }
h3 { font-size: 1.0625rem; margin-top: 1.75rem; }
h4, .panel h3 { font-size: .875rem; margin: 0 0 .25rem; }
h3 small, h4 small { font-weight: 400; font-size: 1em; color: var(--quiet); }
p, ul { margin: .75rem 0; max-width: 46rem; }
ul { padding-left: 1.25rem; }
.lead { font-size: clamp(1.25rem, 1rem + 1.5vw, 1.75rem); line-height: 1.3; margin: .5rem 0 1rem; max-width: 48rem; }
.notice { background: var(--note-page); padding: .75rem 1rem; border-radius: .25rem; max-width: none; }
.caption, figcaption, small { color: var(--quiet); }
figcaption, small { font-size: .875rem; }
dl { display: grid; grid-template-columns: minmax(5rem, max-content) 1fr; gap: .25rem 1.5rem; margin: 1rem 0; }
dt { color: var(--quiet); }
dd { margin: 0; min-width: 0; }
h3 small.line { display: block; font-size: .875rem; }
figure { margin: .5rem 0 0; }
figure + figure { margin-top: 1.75rem; }
.panels { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 20rem), 1fr)); gap: 1.5rem 2rem;
  margin-top: .75rem; }
.panel { min-width: 0; max-width: 26rem; break-inside: avoid; }
svg { display: block; width: 100%; height: auto; overflow: visible; font-size: 12px; fill: var(--text); }
svg .bar { fill: var(--ink); }
svg .bar { opacity: .8; }
svg .ink0 .bar { opacity: 1; }
svg .void { fill: none; stroke: var(--quiet); }
svg .hatch { fill: none; stroke: var(--quiet); opacity: .7; }
svg .note { fill: var(--bad); }
svg .note, svg .value { paint-order: stroke; stroke: var(--page); stroke-width: 4px; stroke-linejoin: round; }
svg .whisker { fill: none; stroke: var(--text); stroke-width: 1.25; }
.scroll { overflow-x: auto; margin: .75rem 0; background: /* a shade where there is more to the right */
  linear-gradient(to left, var(--page) 1rem, transparent) right / 2.5rem 100% no-repeat local,
  linear-gradient(to left, var(--shade), transparent) right / .75rem 100% no-repeat scroll; }
table { border-collapse: collapse; font-size: .875rem; overflow-wrap: normal; }
th, td { padding: .3rem .75rem; text-align: right; vertical-align: top; border-bottom: 1px solid var(--rule);
  white-space: nowrap; }
th:first-child, td:first-child { padding-left: 0; }
thead th { color: var(--quiet); font-weight: 400; vertical-align: bottom; white-space: normal; }
th:first-child, .message { text-align: left; }
tbody th { font-weight: 500; }
th[scope="rowgroup"] { padding-top: 1rem; font-weight: 600; }
.told thead th:last-child, .told td:last-child, .plain td, .plain thead th { text-align: left; }
.told td:nth-child(2), .told th:nth-child(2) { text-align: left; }
.repeats { color: var(--quiet); }
.message { white-space: normal; min-width: 14rem; overflow-wrap: anywhere; }
.matrix td, .matrix thead th { text-align: left; }
.matrix td small { display: block; font-size: .75rem; }
.matrix td, .matrix td:first-child { padding-left: .75rem; border-left: 2px solid var(--page); }
.wrong { background: var(--bad-page); color: var(--bad); }
.wrong small { color: inherit; }
.right { background: var(--good-page); }
.failed { background: var(--note-page); }
.none { color: var(--quiet); }
@media (max-width: 30rem) { dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: .5rem; } }
@media print { body { max-width: none; padding: 0; font-size: 10pt; } .scroll { overflow: visible; }
  h2, h3, h4, figcaption { break-after: avoid; } tr, li { break-inside: avoid; } table { font-size: 7.5pt; }
  th, td { padding: .15rem .35rem; } .message, .repeats { white-space: normal; min-width: 0; }
  td, th, rect, svg { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
""".replace("FONT", FONT)
)
