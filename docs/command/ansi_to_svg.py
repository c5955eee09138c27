"""Turns what a terminal shows, as `tmux capture-pane -e -p` gives it, into SVG. Standard library only.

Usage: ansi_to_svg.py TITLE < text > picture.svg
"""

import re
import sys
import unicodedata
from html import escape

WIDTH, HEIGHT, SIZE = 8.4, 18, 14  # of a cell; of the letters
PAD, BAR = 14, 30
FRONT, BACK = "#d8dee9", "#1e222a"
COLORS = [
    "#3b4252", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#d8dee9",
    "#5c6370", "#ef7f88", "#a9d68a", "#f0cf8a", "#74bdfb", "#d48ee8", "#6ecbd6", "#ffffff",
]  # fmt: skip


def color_of(codes: list[int]) -> str:
    """The color of `38;5;N` or `38;2;R;G;B`; takes its codes off the list."""
    if codes.pop(0) == 2:
        red, green, blue = (codes.pop(0) for _ in range(3))
        return f"#{red:02x}{green:02x}{blue:02x}"
    number = codes.pop(0)
    if number < 16:
        return COLORS[number]
    if number >= 232:
        return "#" + f"{8 + (number - 232) * 10:02x}" * 3
    levels = [0, 95, 135, 175, 215, 255]
    red, rest = divmod(number - 16, 36)
    return "#{:02x}{:02x}{:02x}".format(levels[red], levels[rest // 6], levels[rest % 6])


class Pen:
    """What the letters look like from here on."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.front, self.back = FRONT, BACK
        self.bold = self.dim = self.underlined = self.reversed = False

    def obey(self, codes: list[int]) -> None:
        while codes:
            code = codes.pop(0)
            if code == 0:
                self.reset()
            elif code == 1:
                self.bold = True
            elif code == 2:
                self.dim = True
            elif code == 4:
                self.underlined = True
            elif code == 7:
                self.reversed = True
            elif code == 22:
                self.bold = self.dim = False
            elif code == 24:
                self.underlined = False
            elif code == 27:
                self.reversed = False
            elif 30 <= code <= 37:
                self.front = COLORS[code - 30]
            elif code == 38:
                self.front = color_of(codes)
            elif code == 39:
                self.front = FRONT
            elif 40 <= code <= 47:
                self.back = COLORS[code - 40]
            elif code == 48:
                self.back = color_of(codes)
            elif code == 49:
                self.back = BACK
            elif 90 <= code <= 97:
                self.front = COLORS[code - 82]
            elif 100 <= code <= 107:
                self.back = COLORS[code - 92]

    def style(self) -> tuple[str, str, str]:
        """The colors of letters and ground, and the rest of the letters' style."""
        front, back = (self.back, self.front) if self.reversed else (self.front, self.back)
        rest = ' font-weight="bold"' if self.bold else ""
        rest += ' opacity="0.6"' if self.dim else ""
        rest += ' text-decoration="underline"' if self.underlined else ""
        return front, back, rest


def runs_of(line: str, pen: Pen) -> list[tuple[int, int, str, tuple[str, str, str]]]:
    """The parts of a line that look the same: the first column, the number of columns, the text, the style."""
    runs: list[tuple[int, int, str, tuple[str, str, str]]] = []
    column = 0
    for part in re.split(r"(\x1b\[[0-9;:]*m|\x1b[()].|[\x0e\x0f])", line):
        if part.startswith("\x1b["):
            pen.obey([int(code or 0) for code in re.split("[;:]", part[2:-1])])
        elif part and part[0] not in "\x1b\x0e\x0f":
            width = sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in part)
            runs.append((column, width, part, pen.style()))
            column += width
    return runs


# Parts of a cell that letters of most fonts fill badly: left, top, width, height.
BLOCKS = {"█": (0.0, 0.0, 1.0, 1.0)}
BLOCKS |= {c: (0.0, 0.0, n / 8, 1.0) for n, c in enumerate("▏▎▍▌▋▊▉", 1)}
BLOCKS |= {c: (0.0, 1 - n / 8, 1.0, n / 8) for n, c in enumerate("▁▂▃▄▅▆▇", 1)}


# Lines of boxes, which are to meet whatever the font is: paths over a cell whose corners are (0, 0) and (1, 1).
BOXES = {
    "│": "M.5 0V1", "─": "M0 .5H1", "╭": "M.5 1Q.5 .5 1 .5", "╮": "M0 .5Q.5 .5 .5 1",
    "╰": "M.5 0Q.5 .5 1 .5", "╯": "M0 .5Q.5 .5 .5 0", "┌": "M.5 1V.5H1", "┐": "M0 .5H.5V1",
    "└": "M.5 0V.5H1", "┘": "M0 .5H.5V0",
}  # fmt: skip


def box(path: str, left: float, top: float, cells: int) -> str:
    """The path at its place; `cells`: how many of them a horizontal line is long."""

    def place(found: re.Match[str]) -> str:
        command, numbers = found[1], [float(number) for number in found[2].split()]
        if command == "V":
            return f"V{top + numbers[0] * HEIGHT:.1f}"
        if command == "H":
            return f"H{left + numbers[0] * WIDTH * cells:.1f}"
        pairs = zip(numbers[::2], numbers[1::2], strict=True)
        return command + " ".join(f"{left + x * WIDTH:.1f} {top + y * HEIGHT:.1f}" for x, y in pairs)

    return re.sub(r"([MVHQ])([^MVHQ]+)", place, path)


def draw(text: str, title: str) -> str:
    """The picture."""
    lines = text.rstrip("\n").split("\n")
    while lines and not re.sub(r"\x1b\[[0-9;:]*m", "", lines[-1]).strip():
        lines.pop()
    pen, shapes, columns = Pen(), [], 60
    for number, line in enumerate(lines):
        top = BAR + PAD + number * HEIGHT
        for column, width, part, (front, back, rest) in runs_of(line, pen):
            left = PAD + column * WIDTH
            if part.strip():
                columns = max(columns, column + len(part.rstrip()))
            if back != BACK:
                shapes.append(
                    f'<rect x="{left:.1f}" y="{top}" width="{width * WIDTH:.1f}" height="{HEIGHT}" fill="{back}"/>'
                )
            opacity = ' opacity="0.6"' if "opacity" in rest else ""
            for run in re.finditer(r"([█▁▂▃▄▅▆▇▏▎▍▌▋▊▉])\1*", part):
                x, y, w, h = BLOCKS[run[1]]
                span = (len(run[0]) - 1 + w) if x == 0 and w == 1 else w
                pieces = [run.start()] if w == 1 else range(run.start(), run.end())
                for at in pieces:
                    shapes.append(
                        f'<rect x="{left + at * WIDTH:.1f}" y="{top + y * HEIGHT:.1f}" '
                        f'width="{span * WIDTH:.1f}" height="{h * HEIGHT:.1f}" fill="{front}"{opacity} shape-rendering="crispEdges"/>'
                    )
            for run in re.finditer("(─)+|[│╭╮╰╯┌┐└┘]", part):
                path = box(BOXES[run[0][0]], left + run.start() * WIDTH, top, len(run[0]))
                shapes.append(f'<path d="{path}" fill="none" stroke="{front}"{opacity}/>')
            # Each run of words stands at its column, whatever the font's width is.
            letters = re.sub("[█▁▂▃▄▅▆▇▏▎▍▌▋▊▉│─╭╮╰╯┌┐└┘]", " ", part)
            for run in re.finditer(r"\S+( \S+)*", letters):
                x = left + run.start() * WIDTH
                shapes.append(
                    f'<text x="{x:.1f}" y="{top + 13}" textLength="{len(run[0]) * WIDTH:.1f}" '
                    f'fill="{front}"{rest}>{escape(run[0])}</text>'
                )
    wide, high = columns * WIDTH + 2 * PAD, len(lines) * HEIGHT + BAR + 2 * PAD
    lights = enumerate(COLORS[number] for number in (1, 3, 2))
    dots = "".join(f'<circle cx="{18 + n * 18}" cy="16" r="5.5" fill="{color}"/>' for n, color in lights)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:.0f} {high}" width="{wide:.0f}" height="{high}" '
        f'font-family="ui-monospace, Menlo, Consolas, \'DejaVu Sans Mono\', monospace" font-size="{SIZE}">\n'
        f"<title>{escape(title)}</title>\n"
        f'<rect width="{wide:.0f}" height="{high}" rx="8" fill="{BACK}"/>\n{dots}\n'
        f'<text x="{wide / 2:.0f}" y="20" text-anchor="middle" fill="#7b8494" font-size="12">{escape(title)}</text>\n'
        + "\n".join(shapes)
        + "\n</svg>\n"
    )


if __name__ == "__main__":
    sys.stdout.write(draw(sys.stdin.read(), sys.argv[1]))
