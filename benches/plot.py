#!/usr/bin/env python3
"""Draws the bench's output as bars of ratios: `cargo bench | tee out.tsv; benches/plot.py out.tsv > plot.svg`."""
import sys
from html import escape

rows = [line.rstrip("\n").split("\t") for line in open(sys.argv[1]) if line.count("\t") == 4]
shown = [r for r in rows if (r[0], r[2]) in {("cli", "wall ms"), ("cli", "CPU ms"), ("cli", "peak MiB"), ("pairs", "pairs/s")}]
top = max(float(r[4]) for r in shown)
height = 22 * len(shown) + 30
print(f'<svg xmlns="http://www.w3.org/2000/svg" width="760" height="{height}" font-family="sans-serif" font-size="12">')
print('<rect width="100%" height="100%" fill="white"/>')
print('<text x="10" y="18">ratio to the first subject of each measure</text>')
for n, (group, subject, measure, value, ratio) in enumerate(shown):
    y = 28 + 22 * n
    width = max(1, 380 * float(ratio) / top)
    colour = "#3465a4" if subject.startswith("dislock") else "#babdb6"
    print(f'<text x="10" y="{y + 13}">{escape(f"{measure}: {subject}")}</text>')
    print(f'<rect x="260" y="{y}" width="{width:.1f}" height="16" fill="{colour}"/>')
    print(f'<text x="{266 + width:.1f}" y="{y + 13}">{ratio} ({value})</text>')
print("</svg>")
