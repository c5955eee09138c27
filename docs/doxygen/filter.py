"""Prepares kvstore.h for Doxygen, which runs this program as INPUT_FILTER and reads its output.

The header itself is readable without Doxygen. For the HTML, the filter:
- puts each function and constant into a group, named by the file of src/ffi that defines it; the first line
  of that file is the title of the group;
- turns the names of functions and constants in comments into links;
- turns "Errors:" into a heading;
- turns the conventions at the top of the header into a page.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def sections():
    """Yield the sources of the header in its order, with their titles and functions."""
    order = re.search(r"const SOURCES.*?\[(.*?)\];", (ROOT / "tests/c_api/header_generator.rs").read_text(), re.S)
    for name in re.findall(r'"(\w+)\.rs"', order.group(1)):
        text = (ROOT / "src/ffi" / f"{name}.rs").read_text()
        title = text.partition("\n")[0].removeprefix("//!").strip()
        yield name, title, re.findall(r"\bfn (kvstore_\w+)", text)


def page_of_conventions(banner):
    """Return the introduction of kvstore.h as a page: a table of names and texts."""
    entries = re.findall(r"^ \*   (\w+) +(\S.*(?:\n \*  {5,}\S.*)*)", banner, re.M)
    lines = ["/**", " * @page conventions Conventions of the C API", " * <table>"]
    for name, text in entries:
        text = re.sub(r"\n \* +", " ", text)
        lines.append(f" * <tr><th>{name}</th><td>{linked(text)}</td></tr>")
    return "\n".join(lines + [" * </table>", " */"])


def linked(comment):
    comment = re.sub(r"(?<![\w`#])(KVSTORE_[A-Z0-9_]*[A-Z0-9])(?![\w*])", known("#{}"), comment)
    return re.sub(r"(?<![\w`])(kvstore_[a-z0-9_]*[a-z0-9])(?![\w*(])", known("{}()"), comment)


def known(pattern):
    return lambda match: pattern.format(match[1]) if match[1] in NAMES else match[1]


def main():
    path = pathlib.Path(sys.argv[1])
    header = path.read_text()
    if path.name != "kvstore.h":
        sys.stdout.write(header)
        return
    global NAMES
    NAMES = set(re.findall(r"\b(kvstore_\w+)\(", header)) | set(re.findall(r"#define (\w+) ", header))

    section_of, groups = {}, []
    for name, title, functions in sections():
        title = title.rstrip(".")
        if name == "codes":
            title = "Result codes and other constants"
        elif name == "types":
            title = "Handles and structs"
        groups.append(f"/** @defgroup {name} {re.split('[.:] ', title)[0]}\n * {title}. */")
        section_of.update((function, name) for function in functions)

    end = header.index("*/") + 2
    banner, rest = header[:end], header[end:]
    out = [page_of_conventions(banner), "/** @file */"] + groups
    comment = re.compile(r"/\*\*.*?\*/\n(?=([^\n]*))", re.S)

    def rewritten(match):
        if match[0].count("\n") > 1 and match[1].startswith(" "):
            return linked(match[0])  # of a field
        text, following = linked(match[0]), match[1]
        text = re.sub(r"\n \* Errors:(?: |$|(?=\n))", "\n * @par Errors\n * ", text)
        function = re.search(r"\b(kvstore_\w+)\(", following)
        section = section_of.get(function[1]) if function else "codes" if "#define" in following else "types"
        return text.replace("/**", f"/** @ingroup {section}\n *", 1)

    out.append(comment.sub(rewritten, rest))
    sys.stdout.write("\n".join(out))


main()
