"""MkDocs hooks: links from a page to a file outside docs/, and links to the API references.

The pages use relative links, so that they also work in a checkout and in an installed copy. A target outside docs/
(`../../examples/otp_service.c`) is copied into the site below files/, as text, and the link is changed to the copy.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
# Pages of the site that hold what a file outside docs/ says.
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing/index.md"}


def on_page_markdown(markdown, page, config, files):
    def replace(match):
        before, target, _ = match.groups()
        if "://" in target or target.startswith(("/", "mailto:")):
            return match[0]
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page.file.src_uri), target))
        if path.startswith("docs/api/"):
            # docs/build adds the references after MkDocs has run, and then checks these links.
            add(path.removeprefix("docs/"), "", config, files)
        if path.startswith("docs/") or path.startswith(".."):
            return match[0]
        uri = PAGES.get(path) or add_copy(path, config, files)
        if uri is None:
            return match[0]  # MkDocs reports it
        link = posixpath.relpath(uri, posixpath.dirname(page.file.src_uri) or ".")
        return f"{before}{link})"

    # A second word after the language ("python redis") names the test that runs the block. MkDocs would not see a block.
    markdown = re.sub(r"^( *```\w+) \w+$", r"\1", markdown, flags=re.M)
    # Even pieces are text, odd ones are code blocks.
    pieces = re.split(r"(^ *```.*?^ *```)", markdown, flags=re.M | re.S)
    pieces[::2] = [LINK.sub(replace, piece) for piece in pieces[::2]]
    return "".join(pieces)


def add_copy(path, config, files):
    """Adds the file, or a list of the files of a folder, to the site. Returns its address, or None if there is none."""
    source = ROOT / path
    if source.is_dir():
        uri = f"files/{path}/index.txt"
        content = "".join(f"{entry.name}\n" for entry in sorted(source.iterdir()) if not entry.name.startswith("."))
    elif source.is_file():
        uri = f"files/{path}.txt"
        content = source.read_bytes()
    else:
        return None
    add(uri, content, config, files)
    return uri


def add(uri, content, config, files):
    if files.get_file_from_path(uri) is None:
        files.append(File.generated(config, uri, content=content))
