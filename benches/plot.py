#!/usr/bin/env python3
"""Draws the bench's output as bars of ratios.

    scripts/with-postgres cargo bench | tee out.tsv
    benches/plot.py out.tsv > docs/benchmarks.svg

A bar is a subject's median ratio to the first subject of its panel; a thin line reaches from the lowest
ratio of a round to the highest.
"""

import sys
from html import escape

# Group and measure of each panel, its title, and on which side of 1 the better values are.
PANELS = [
    ("cli", "wall ms", "One run of `true`: wall time, ms", "shorter is better"),
    ("cli", "CPU ms", "One run of `true`: CPU time, ms", "shorter is better"),
    ("cli", "peak MiB", "One run of `true`: memory, MiB", "shorter is better"),
    ("link", "wall ms", "Over a link with 20 ms each way: wall time, ms", "shorter is better"),
    ("herd", "CPU ms per contender", "500 at once: CPU time of each, ms", "shorter is better"),
    ("pairs, 1 at a time", "pairs/s", "Acquire and release, 1 at a time: pairs a second", "longer is better"),
    ("pairs, 16 at a time", "pairs/s", "Acquire and release, 16 at a time: pairs a second", "longer is better"),
]
WIDTH, LABELS, BAR, LONGEST = 760, 230, 18, 360
# A bar that is longer than so many of the first subject's is cut off.
MOST = 8

STYLE = """
    text { font: 13px system-ui, sans-serif; fill: #1f2328 }
    .title { font-weight: 600 } .small { font-size: 12px; fill: #59636e }
    .ours { fill: #0969da } .other { fill: #afb8c1 }
    .range, .cut { stroke: #1f2328; stroke-width: 1; fill: none }
    @media (prefers-color-scheme: dark) {
      text { fill: #f0f6fc } .small { fill: #9198a1 }
      .ours { fill: #1f6feb } .other { fill: #656c76 } .range, .cut { stroke: #f0f6fc }
    }
"""


def read(path):
    """The bench's lines with a ratio: (group, measure) -> [(subject, value, ratio, low, high)]."""
    panels = {}
    for line in open(path):
        fields = line.rstrip("\n").split("\t")
        if len(fields) != 8 or "-" in fields[4:7]:
            continue
        group, subject, measure, *numbers = fields
        panels.setdefault((group, measure), []).append((subject, *map(float, numbers[:4])))
    return panels


def bar(y, scale, subject, value, ratio, low, high):
    end = LABELS + min(ratio, MOST) * scale
    kind = "ours" if subject.startswith("dislock") else "other"
    yield f'<text x="{LABELS - 8}" y="{y + 13}" text-anchor="end">{escape(subject)}</text>'
    yield f'<rect class="{kind}" x="{LABELS}" y="{y}" width="{end - LABELS:.1f}" height="{BAR - 2}" rx="2"/>'
    if ratio > MOST:
        yield f'<path class="cut" d="M{end - 14:.1f},{y + BAR} l6,{-BAR - 2} m5,0 l-6,{BAR + 2}"/>'
    elif low != high:
        right = LABELS + min(high, MOST) * scale
        yield f'<path class="range" d="M{LABELS + low * scale:.1f},{y + 8} H{right:.1f}"/>'
        end = max(end, right)
    short = f"{value:.0f}" if value >= 100 else f"{value:.3g}"
    yield f'<text class="small" x="{end + 6:.1f}" y="{y + 13}">{ratio:.2f} ({short})</text>'


def draw(panels):
    y = 14
    for group, measure, title, better in PANELS:
        rows = panels.get((group, measure))
        if not rows:
            continue
        longest = max(min(max(ratio, high), MOST) for _, _, ratio, _, high in rows)
        yield f'<text class="title" x="10" y="{y + 10}">{escape(title)}</text>'
        yield f'<text class="small" x="{WIDTH - 10}" y="{y + 10}" text-anchor="end">{better}</text>'
        y += 20
        for row in rows:
            yield from bar(y, LONGEST / longest, *row)
            y += BAR
        y += 18
    yield y


def main():
    *shapes, height = draw(read(sys.argv[1]))
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"', end=" ")
    print(f'width="{WIDTH}" height="{height}" role="img" aria-labelledby="title desc">')
    print('  <title id="title">dislock beside other programs</title>')
    print('  <desc id="desc">Ratios to the first bar of each panel; BENCHMARKS.md has the figures.</desc>')
    print(f"  <style>{STYLE}  </style>")
    for shape in shapes:
        print(f"  {shape}")
    print("</svg>")


main()
