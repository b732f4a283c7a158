"""How a report looks."""

__all__ = ["CSS"]

CSS = """
:root { --ink:#1f2933; --soft:#5b6672; --line:#dde2e7; --ours:#22577a; --paper:#fff; }
* { box-sizing: border-box; }
body { margin:0; background:#f4f6f8; color:var(--ink); font:15px/1.55 system-ui, "DejaVu Sans", sans-serif; }
.banner { background:#9a1b1b; color:#fff; padding:.7rem 1rem; text-align:center; }
.banner b { letter-spacing:.02em; }
main { max-width:1080px; margin:0 auto; padding:1.6rem 1.2rem 3rem; }
h1 { font-size:1.7rem; margin:.2rem 0 .1rem; } h2 { font-size:1.08rem; margin:0 0 .5rem; }
.sub { color:var(--soft); margin:0 0 1.2rem; }
.cards { display:grid; grid-template-columns:repeat(auto-fit,minmax(165px,1fr)); gap:.8rem; margin-bottom:.8rem; }
.card, section { background:var(--paper); border:1px solid var(--line); border-radius:10px; }
.card { padding:.8rem 1rem; } .card .big { font-size:1.75rem; font-weight:650; line-height:1.2; color:var(--ours); }
.card .what { color:var(--soft); font-size:.86rem; }
section { padding:1rem 1.2rem; margin-bottom:.8rem; overflow-x:auto; }
.two { display:grid; grid-template-columns:repeat(auto-fit,minmax(min(440px,100%),1fr)); gap:.8rem; }
.two section { margin-bottom:0; min-width:0; } .two .wide { grid-column:1/-1; } .two + section { margin-top:.8rem; }
section svg { width:100%; height:auto; display:block; } section svg text { font-family:inherit; }
.promise { border-left:5px solid var(--ours); } .promise p { margin:.2rem 0; font-size:1.03rem; }
.halted { border-left:5px solid #9a1b1b; background:#fdf3f3; } .halted h2 { color:#9a1b1b; }
.halted pre { background:#fff; }
.warn { border-left:5px solid #e07a1f; max-height:22rem; overflow-y:auto; }
section.warn th, section.warn td { text-align:left; }
.note { color:var(--soft); font-size:.88rem; margin:.5rem 0 0; }
table { border-collapse:collapse; font-variant-numeric:tabular-nums; }
th, td { padding:.3rem .7rem; text-align:right; border-bottom:1px solid var(--line); }
th { color:var(--soft); font-weight:550; font-size:.86rem; } td:first-child, th:first-child { text-align:left; }
pre { background:#f4f6f8; border-radius:8px; padding:.8rem 1rem; font-size:.85rem; white-space:pre-wrap; }
ul { margin:.2rem 0; padding-left:1.2rem; } details { margin:.5rem 0; } summary { cursor:pointer; color:var(--soft); }
.bar { display:flex; height:1.1rem; border-radius:6px; overflow:hidden; margin:.2rem 0 .7rem; background:#eef1f4; }
.bar i { display:block; }
.dot { display:inline-block; width:.7rem; height:.7rem; border-radius:3px; margin-right:.5rem; }
.copies { background:#22577a; } .lean { background:#5fa8a3; } .guide { background:#7a9e3f; }
.fallback { background:#b8c0c8; } .refused { background:#9a1b1b; }
@media (max-width:560px) { .two { grid-template-columns:1fr; } main { padding:1rem .6rem 2rem; }
  section { padding:.8rem .8rem; } .cards { grid-template-columns:1fr 1fr; } .card .big { font-size:1.35rem; } }
@media print { body { background:#fff; } section, .card { break-inside:avoid; } }
"""
