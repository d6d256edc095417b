#!/usr/bin/env python3
"""Draws the pictures of README.md as SVG, for light and dark pages.

    benches/peers/peers.py SET... | tee table.txt
    benches/peers/picture.py bars table.txt > docs/stored.svg
    benches/peers/picture.py session COMMAND... > docs/session.svg

`bars` reads the table of peers.py and draws what each tool stores of each set, with a bar for each tool, fhrd first.
The largest of a set has the whole width. `session` runs each COMMAND with bash in the current directory and draws the
commands with what they print. A command that fails ends the script. Needs Python 3.10 or newer, nothing else.
"""

import subprocess
import sys
from html import escape
from itertools import groupby

WIDTH, MARGIN, LABEL, NUMBER, BAR, GAP = 720, 16, 60, 70, 14, 4
LINE, COLUMN = 18, 7.85
STYLE = """<style>
text { font: 13px ui-sans-serif, system-ui, sans-serif; fill: #24292f }
.set { font-weight: 600 } .mono { font: 13px ui-monospace, monospace; white-space: pre } .typed { font-weight: 600 }
.page { fill: #f6f8fa } .own { fill: #0969da } .other { fill: #afb8c1 }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .page { fill: #161b22 } .own { fill: #4493f8 }
.other { fill: #57606a } }
</style>"""
# The column of peers.py's table with the stored bytes, counted from the name of the set, and the tools in order.
STORED = 7
TOOLS = ["fhrd", "restic", "rustic", "borg", "bupstash", "zipnn", "zstd-19"]


def picture(height, shapes, label):
    """The SVG text of these shapes."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img"'
    page = f'<rect class="page" width="{WIDTH}" height="{height}" rx="6"/>'
    return "\n".join([f'{head} aria-label="{escape(label)}">', STYLE, page, *shapes, "</svg>"])


def text(left, top, words, kind, end=False):
    anchor = ' text-anchor="end"' if end else ""
    return f'<text x="{left}" y="{top}" class="{kind}"{anchor}>{escape(words)}</text>'


def stored(table):
    """Pairs of a set and its stored MB by tool, in the order of the table."""
    rows = [line.split() for line in table.splitlines()]
    # Lines with the version of a tool begin with its name and a colon.
    rows = [row for row in rows if len(row) > STORED and row[1] in TOOLS and not row[0].endswith(":")]
    rows = [(row[0].removeprefix("corpus/"), row[1], float(row[STORED])) for row in rows]
    for name, group in groupby(rows, key=lambda row: row[0]):
        sizes = {tool: megabytes for _, tool, megabytes in group}
        yield name, {tool: sizes[tool] for tool in TOOLS if tool in sizes}


def bars(table):
    shapes, top = [], MARGIN
    room = WIDTH - 2 * MARGIN - LABEL - NUMBER
    sets = list(stored(table)) or sys.exit("picture.py: the input has no row of peers.py's table")
    for name, sizes in sets:
        shapes.append(text(MARGIN, top + BAR - 3, f"{name}, MB stored", "set"))
        top += BAR + GAP
        for tool, megabytes in sizes.items():
            length = max(1, round(room * megabytes / max(sizes.values())))
            kind = "own" if tool.startswith("fhrd") else "other"
            shapes.append(text(MARGIN, top + BAR - 3, tool, ""))
            left = MARGIN + LABEL
            shapes.append(f'<rect class="{kind}" x="{left}" y="{top}" width="{length}" height="{BAR}" rx="2"/>')
            shapes.append(text(left + length + GAP, top + BAR - 3, f"{megabytes:.1f}", ""))
            top += BAR + GAP
        top += MARGIN
    return picture(top, shapes, "Megabytes that each tool stores of each set")


def session(commands):
    shapes, top = [], MARGIN
    for command in commands:
        done = subprocess.run(["bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            sys.exit(f"{done.stdout}picture.py: failed ({done.returncode}): {command}")
        most = int((WIDTH - 2 * MARGIN) / COLUMN)
        for words, kind in [(f"$ {command}", "mono typed"), *((line, "mono") for line in done.stdout.splitlines())]:
            if len(words) > most:
                sys.exit(f"picture.py: a line has more than {most} characters: {words}")
            top += LINE
            shapes.append(text(MARGIN, top, words, kind))
        top += LINE // 2
    return picture(top + MARGIN, shapes, "A session in a terminal")


def main():
    match sys.argv[1:]:
        case ["bars", path]:
            with open(path, encoding="utf-8") as file:
                print(bars(file.read()))
        case ["session", *commands] if commands:
            print(session(commands))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
