"""Maintains the table of docs/contributing/platforms.md, with one row per target. `make cross`
updates the rows of the targets that it has tested and keeps all other rows. Each row names its
commit."""

import re
import subprocess

from targets import ALL, ROOT

PAGE = ROOT / "docs/contributing/platforms.md"
BEGIN, END = "<!-- written by make cross -->", "<!-- end of what make cross writes -->"
HEAD = (
    "target", "run", "scenarios, `btree`, `.so`", "scenarios, `sql`, `.a`", "examples", "unit tests in Rust", "`.so`", "`.a`", "of"
)  # fmt: skip


def counted(total, failures, left_out=()):
    """Returns a cell such as "7 of 8": successes and total."""
    return f"{total - len(failures) - len(left_out)} of {total}"


def size(n):
    return f"{n / 1e6:.2f} MB"


def git(*arguments):
    """Returns git's output, or nothing if this is no work tree."""
    if not (ROOT / ".git").exists():
        return ""
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def source():
    """Returns a cell with the tested commit and its date; without git, with the version."""
    commit = git("log", "-1", "--format=%h, %cs")
    if not commit:
        return "version " + re.search(r'^version = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs")
    return commit + (", changed" if changed else "")


def rows(page):
    """Returns the present rows by target name."""
    table = page.split(BEGIN)[1].split(END)[0]
    found = [line for line in table.splitlines() if line.startswith("| `")]
    return {line.split("`")[1]: line for line in found}


def write(name, cells):
    """Replaces the row of a target. `cells` are in the order of HEAD, without the first."""
    page = PAGE.read_text()
    known = rows(page) | {name: f"| `{name}` ({ALL[name].triple}) | " + " | ".join(cells) + " |"}
    put(page, known, exchanged(page))


def write_exchange(said):
    page = PAGE.read_text()
    put(page, rows(page), f"Stores exchanged: {said}.")


def exchanged(page):
    """Returns the line below the table."""
    lines = page.split(BEGIN)[1].split(END)[0].splitlines()
    return next((line for line in lines if line.startswith("Stores exchanged")), "")


def put(page, known, said):
    lines = ["| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
    lines += [known[name] for name in ALL if name in known]
    if said:
        lines += ["", said]
    before, rest = page.split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n" + "\n".join(lines) + f"\n{END}{rest.split(END)[1]}")
