"""How a report looks: by day, by night, on paper and on a phone. Every colour has a name, also inside the pictures."""

__all__ = ["COLOURS", "CSS", "in_colours"]

COLOURS = {
    "ink": ("#1f2933", "#e4e8ec"),
    "soft": ("#5b6672", "#a3adb8"),
    "line": ("#dde2e7", "#3a434d"),
    "paper": ("#ffffff", "#1d2329"),
    "desk": ("#f4f6f8", "#14181c"),
    "ours": ("#22577a", "#7fb8dd"),
    "twin": ("#e07a1f", "#f0a35c"),
    "gate": ("#b5446e", "#e58aae"),
    "guide": ("#7a9e3f", "#a9cc70"),
    "lean": ("#5fa8a3", "#7cc5c0"),
    "quiet": ("#eef1f4", "#2a323a"),
    "limit": ("#9a1b1b", "#ff8f85"),
    "blush": ("#fdf3f3", "#33191a"),
    "none": ("#b8c0c8", "#6b7681"),
}
"""Each by its name, on light paper and in the dark."""


def _names(column: int) -> str:
    return "".join(f"--{name}:{pair[column]};" for name, pair in COLOURS.items())


def in_colours(picture: str) -> str:
    """A picture's own colours by their names, so that it follows the page; outside of one they stay what they were.

    Examples
    --------
    >>> in_colours("fill: #22577a")
    'fill: var(--ours, #22577a)'
    """
    for name, (light, _) in COLOURS.items():
        picture = picture.replace(light, f"var(--{name}, {light})")
    return picture


CSS = f"""
:root {{ color-scheme:light dark; {_names(0)} }}
@media screen and (prefers-color-scheme:dark) {{ :root {{ {_names(1)} }} }}
""" + """
* { box-sizing: border-box; }
body { margin:0; background:var(--desk); color:var(--ink); font:15px/1.55 system-ui, "DejaVu Sans", sans-serif; }
.banner { background:#9a1b1b; color:#fff; padding:.7rem 1rem; text-align:center; }
.banner b { letter-spacing:.02em; }
main { max-width:1080px; margin:0 auto; padding:1.6rem 1.2rem 3rem; }
h1 { font-size:1.7rem; margin:.2rem 0 .1rem; overflow-wrap:anywhere; } h2 { font-size:1.08rem; margin:0 0 .5rem; }
.sub { color:var(--soft); margin:0 0 1.2rem; } .sub .stopped { color:var(--limit); font-weight:600; }
.cards { display:grid; gap:.8rem; margin-bottom:.8rem; }
.cards { grid-template-columns:repeat(auto-fit,minmax(min(290px,100%),1fr)); }
.card, section { background:var(--paper); border:1px solid var(--line); border-radius:10px; }
.card { padding:.8rem 1rem; } .card .big { font-size:1.75rem; font-weight:650; line-height:1.2; color:var(--ours); }
.card .what { color:var(--soft); font-size:.86rem; }
section { padding:1rem 1.2rem; margin-bottom:.8rem; overflow-x:auto; }
.two { display:grid; grid-template-columns:repeat(auto-fit,minmax(min(440px,100%),1fr)); gap:.8rem; }
.two section { margin-bottom:0; min-width:0; }
.two .wide, .two > section:last-child:nth-child(odd) { grid-column:1/-1; } .two + section { margin-top:.8rem; }
section svg { width:100%; max-width:680px; height:auto; display:block; margin:auto; }
section svg text { font-family:inherit; }
.promise { border-left:5px solid var(--ours); } .promise p { margin:.2rem 0; font-size:1.03rem; }
.halted { border:1px solid var(--limit); border-left-width:5px; background:var(--blush); }
.halted h2 { color:var(--limit); } .halted pre { background:var(--paper); }
.warn { border-left:5px solid var(--twin); }
section.warn th, section.warn td { text-align:left; }
.note { color:var(--soft); font-size:.88rem; margin:.5rem 0 0; }
table { border-collapse:collapse; font-variant-numeric:tabular-nums; }
th, td { padding:.3rem .7rem; text-align:right; border-bottom:1px solid var(--line); }
th { color:var(--soft); font-weight:550; font-size:.86rem; } td:first-child, th:first-child { text-align:left; }
pre { background:var(--desk); border-radius:8px; padding:.8rem 1rem; font-size:.85rem; white-space:pre-wrap; }
pre { overflow-wrap:anywhere; } pre span { white-space:nowrap; }
ul { margin:.2rem 0; padding-left:1.2rem; } details { margin:.5rem 0; } summary { cursor:pointer; color:var(--soft); }
.bar { display:flex; height:1.3rem; border-radius:6px; overflow:hidden; margin:.2rem 0 .7rem; background:var(--quiet); }
.bar i { display:block; } .coverage table { width:100%; } .coverage td:first-child { width:100%; }
.dot { display:inline-block; width:.7rem; height:.7rem; border-radius:3px; margin-right:.5rem; }
.hint { color:var(--soft); }
.copies { background:var(--ours); } .lean { background:var(--lean); } .guide { background:var(--guide); }
.fallback { background:var(--none); } .refused { background:var(--limit); }
td.right { background:color-mix(in srgb, var(--ours) var(--part), transparent); }
td.wrong { background:color-mix(in srgb, var(--limit) var(--part), transparent); }
@media (max-width:560px) { .two { grid-template-columns:1fr; } main { padding:1rem .6rem 2rem; }
  section { padding:.8rem; } .cards { grid-template-columns:1fr 1fr; } .card .big { font-size:1.35rem; }
  .hint { display:none; } th, td { padding:.3rem .45rem; } th:last-child, td:last-child { padding-right:0; } }
@media print { body { background:#fff; font-size:12px; } main { max-width:none; padding:.5rem 0; }
  * { print-color-adjust:exact; -webkit-print-color-adjust:exact; }
  section, .card, svg, tr { break-inside:avoid; } h2 { break-after:avoid; } }
"""
