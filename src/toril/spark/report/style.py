"""The look of a report: one style sheet, light and dark, from a phone to a wide screen."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from typing import Final

CSS: Final = """
:root {
  color-scheme: light dark;
  --paper: #f5f2ec; --card: #fffdf9; --ink: #211c18; --soft: #655d54; --rule: #e3ddd3;
  --none: #efeae2; --link: #0e5f70; --hover: #211c1812; --alarm: #a8321d; --alarm-back: #fbece7;
  --done: #2a8797; --failed: #cf4a32; --added: #211c18; --retried: #bd7c17; --stalled: #7d51a6;
  --cancelled: #8a8379; --backlog: #4669a3; --busy: #5a8a55;
  --p50: #4c8fc9; --p95: #205a9c; --p99: #10284b;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #151311; --card: #1e1b18; --ink: #f1ece4; --soft: #b0a699; --rule: #39332d;
    --none: #2a2622; --link: #6fc7d8; --hover: #f1ece41c; --alarm: #ff9d85; --alarm-back: #3a211b;
    --done: #3fa3b5; --failed: #ef7359; --added: #f1ece4; --retried: #e3a845; --stalled: #b48be0;
    --cancelled: #8f877c; --backlog: #85a7e0; --busy: #84b97e;
    --p50: #3f6ea3; --p95: #7fb1ea; --p99: #dfeaf9;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  font-variant-numeric: tabular-nums; overflow-wrap: anywhere;
}
header, main, footer { max-width: 1240px; margin: 0 auto; padding: 0 20px; }
header { padding-top: 28px; }
footer { padding-top: 12px; padding-bottom: 40px; color: var(--soft); font-size: 13px; }
h1, h2, h3 { line-height: 1.2; margin: 0; font-weight: 650; letter-spacing: -.01em; }
h1 { font-size: 30px; }
h2 { font-size: 22px; margin: 40px 0 14px; }
h3 { font-size: 16px; }
p { margin: 0; }
a { color: var(--link); text-underline-offset: 2px; }
:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
.skip { position: absolute; left: -999px; }
.skip:focus { position: static; }
.made { color: var(--soft); margin-top: 4px; }
.lead { font-size: 17px; max-width: 64em; margin-bottom: 16px; }
.warnings {
  list-style: none; margin: 0 0 16px; padding: 10px 14px; border-left: 4px solid var(--alarm);
  background: var(--alarm-back); border-radius: 4px;
}
.warnings li::before { content: "▲ "; color: var(--alarm); font-size: 12px; }

.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(132px, 1fr)); gap: 10px; }
.tiles { margin: 0 0 10px; }
.tiles.broad { grid-template-columns: repeat(auto-fit, minmax(220px, 1fr)); }
.tiles + details.sql { margin: 0 0 12px; padding: 0; }
.tile { background: var(--card); border: 1px solid var(--rule); border-radius: 8px; }
.tile { padding: 10px 14px 11px; }
.tile dt { color: var(--soft); font-size: 13px; }
.tile dd { margin: 0; }
.tile b { display: block; font-size: 23px; line-height: 1.3; font-weight: 600; }
.tile b.long { font-size: 16px; line-height: 1.87; }
.tile.bad b { color: var(--alarm); }
.tile small { display: block; color: var(--soft); font-size: 12.5px; line-height: 1.35; }

.figures { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 14px; }
.card {
  margin: 0; padding: 16px 18px 12px; min-width: 0; background: var(--card);
  border: 1px solid var(--rule); border-radius: 8px; break-inside: avoid;
  display: flex; flex-direction: column;
}
.wide { grid-column: 1 / -1; }
.about, .note { color: var(--soft); font-size: 13px; }
.note { margin-top: 6px; }
.nothing { color: var(--soft); padding: 26px 0; text-align: center; flex: 1; }
.legend {
  display: flex; flex-wrap: wrap; gap: 2px 14px; margin: 6px 0 0; padding: 0; list-style: none;
  font-size: 13px; color: var(--soft);
}
.legend li { display: flex; align-items: center; gap: 6px; }
.key { width: 11px; height: 11px; border-radius: 2px; background: var(--c); opacity: var(--o, 1); }
.key { flex: none; }
.key.line { height: 3px; width: 16px; border-radius: 2px; }
.key.dot { border-radius: 50%; }

.chart { padding: 38px 12px 42px 46px; }
.plot { display: block; overflow: visible; }
.plot svg { overflow: visible; }
.plot path, .plot rect, .spark path, .bar rect { fill: var(--c); }
.plot path.stroke {
  fill: none; stroke: var(--c); stroke-width: 1.8; vector-effect: non-scaling-stroke;
  stroke-linecap: round; stroke-linejoin: round;
}
.plot path.lone { stroke-width: 7; }
.plot path.area { fill-opacity: .2; }
.plot path.stroke.added { stroke-width: 1.3; stroke-opacity: .75; }
.plot rect.hit { fill: transparent; }
.plot rect.hit:hover { fill: var(--hover); }
.plot rect.cell { fill-opacity: var(--o, 1); }
.plot rect.cell:hover { stroke: var(--ink); stroke-width: 1.5; vector-effect: non-scaling-stroke; }
.grid { stroke: var(--rule); stroke-width: 1; shape-rendering: crispEdges; }
.grid.base, .foot { stroke: var(--soft); }
.foot { stroke-width: 1; shape-rendering: crispEdges; }
.tick, .axis { font-size: 11.5px; fill: var(--soft); }
.tick.x { text-anchor: middle; }
.tick.y, .axis.end { text-anchor: end; }
.spark { display: block; min-width: 90px; border-bottom: 1px solid var(--rule); }
.bar { display: block; overflow: visible; margin-top: 3px; }
.reach { stroke: var(--soft); stroke-width: 1.5; }
.bar .dot { fill: var(--c); stroke: var(--card); stroke-width: 1; }

.done { --c: var(--done); } .failed { --c: var(--failed); } .added { --c: var(--added); }
.retried { --c: var(--retried); } .stalled { --c: var(--stalled); } .busy { --c: var(--busy); }
.cancelled { --c: var(--cancelled); } .backlog { --c: var(--backlog); }
.p50 { --c: var(--p50); } .p95 { --c: var(--p95); } .p99 { --c: var(--p99); }
.heat0 { --c: var(--none); } .heat1 { --o: .25; } .heat2 { --o: .42; } .heat3 { --o: .6; }
.heat4 { --o: .8; } .heat5 { --o: 1; }

table { width: 100%; border-collapse: collapse; font-size: 13.5px; line-height: 1.4; }
table { margin-top: 10px; }
caption { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
th, td { text-align: left; vertical-align: top; padding: 6px 14px 6px 0; }
th:last-child, td:last-child { padding-right: 0; }
th { border-bottom: 1px solid var(--soft); white-space: nowrap; }
th { font-weight: 600; color: var(--soft); }
td { border-bottom: 1px solid var(--rule); }
tbody tr:last-child td { border-bottom: 0; }
.number { text-align: right; white-space: nowrap; }
td.name { min-width: 8em; }
td.word { white-space: nowrap; }
time { white-space: nowrap; }
.rows td > span { display: block; }
.rows td:first-child { min-width: 9em; }
.scroll { overflow-x: auto; }
.scroll th, .scroll td { white-space: nowrap; }

details.sql, details.numbers { font-size: 13px; margin-top: auto; padding-top: 8px; }
details.numbers { margin-top: 6px; }
summary { cursor: pointer; }
.sql > summary, .numbers > summary { color: var(--soft); width: fit-content; }
pre {
  margin: 6px 0; padding: 10px 12px; background: var(--paper); border-radius: 6px;
  white-space: pre-wrap; font: 12.5px/1.5 ui-monospace, "SF Mono", Menlo, Consolas, monospace;
}
details.queue { border-top: 1px solid var(--rule); }
details.queue > summary { padding: 10px 0; }
details.queue h2 { display: inline; font-size: 18px; }
.gist { color: var(--soft); margin-left: 10px; }

@media (max-width: 900px) {
  .figures { grid-template-columns: minmax(0, 1fr); }
}
@media (max-width: 640px) {
  header, main, footer { padding-left: 12px; padding-right: 12px; }
  h1 { font-size: 25px; }
  .tiles, .tiles.broad { grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 8px; }
  .tiles { margin-bottom: 8px; }
  .tile { padding: 8px 11px; }
  .tile:last-child:nth-child(odd) { grid-column: 1 / -1; }
  .tile b { font-size: 21px; }
  .tile b.long { font-size: 15px; }
  .card { padding: 13px 12px 10px; }
  .minor { display: none; }
  .rows, .rows tbody, .rows tr, .rows td { display: block; }
  .rows thead { display: none; }
  .rows tr { padding: 10px 0; border-bottom: 1px solid var(--rule); }
  .rows tbody tr:last-child { border-bottom: 0; }
  .rows td, .rows td:first-child { padding: 1px 0; border: 0; min-width: 0; }
  .rows td { display: grid; grid-template-columns: 7.5em minmax(0, 1fr); gap: 10px; }
  .rows td::before { content: attr(data-label); color: var(--soft); }
  .rows td.number { text-align: left; white-space: normal; }
  .dense tr { display: grid; grid-template-columns: 1fr 1fr; gap: 0 14px; }
  .dense td { grid-template-columns: 6em minmax(0, 1fr); gap: 8px; }
  .dense td.number { text-align: right; }
  .dense td.number::before { text-align: left; }
  .dense td:nth-child(-n + 2) { display: block; grid-column: 1 / -1; }
  .dense td:nth-child(-n + 2)::before { content: none; }
}
@media print {
  body { background: none; }
  .sql, .numbers { display: none; }
}
"""

CSS_HASH: Final = "sha256-" + b64encode(sha256(CSS.encode()).digest()).decode()
"""Names the style sheet in the page's security policy, which allows nothing else."""
