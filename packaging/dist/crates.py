"""Lists the components of a release of kvstore: crates.py WHAT FEATURES TOOLCHAIN [--rust VERSION] TARGET...

  sbom         a list of components in CycloneDX 1.5
  licences     THIRD-PARTY.txt: the components with the texts of their licences, each text once
  copyright    Debian's copyright file (https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/)
  expression   one line, for a wheel: the licences of all components; of alternatives, the chosen one

TARGETs are Rust's names. TOOLCHAIN is the folder of the compilers of packaging/dist/build. --rust: the release was built by
another Rust compiler, of that version, and the system's C compiler. The output does not depend on folder, language or time.
"""

import json
import pathlib
import re
import sys
import uuid

from linked import ROOT, Component, components, fail, read


def operands(licence: str) -> list[str]:
    """Returns the operands of AND, outside of parentheses."""
    return [part.strip() for part in re.split(r" AND (?![^()]*\))", licence)]


def chosen(part: str) -> str:
    """Returns the chosen operand of OR: MIT, else Apache-2.0, else the first."""
    choices = [choice.strip() for choice in part.strip("()").split(" OR ")]
    return next((choice for choice in ("MIT", "Apache-2.0") if choice in choices), choices[0])


def one_expression(found: list[Component]) -> str:
    of_others = {chosen(part) for component in found if not component.is_own for part in operands(component.licence)}
    return " AND ".join(["(MIT OR Apache-2.0)", *sorted(of_others)])


def only_for(component: Component, targets: list[str]) -> list[str]:
    return [] if component.targets == frozenset(targets) else sorted(component.targets)


def numbered(found: list[Component]) -> tuple[dict[str, int], dict[int, tuple[str, list[str]]]]:
    """Numbers the texts; equal ones (but for line breaks) once. Returns numbers by words, (text, components) by number."""
    numbers: dict[str, int] = {}
    texts: dict[int, tuple[str, list[str]]] = {}
    for component in found:
        for _, text in component.texts:
            number = numbers.setdefault(" ".join(text.split()), len(numbers) + 1)
            whose = texts.setdefault(number, (text, []))[1]
            if f"{component.name} {component.version}" not in whose:
                whose.append(f"{component.name} {component.version}")
    return numbers, texts


def licences(found: list[Component], targets: list[str]) -> str:
    third = [component for component in found if not component.is_own]
    numbers, texts = numbered(third)
    lines = [
        "The released libraries, commands and wheels of kvstore for Linux have the following compiled in. kvstore itself is",
        "under MIT OR Apache-2.0, as LICENSE says. Each component has its licence as its authors wrote it (SPDX), where there",
        "is a choice kvstore takes MIT, or else Apache-2.0; and the numbers of its texts, which follow. All together:",
        "", f"  {one_expression(found)}", "",
        "What is under GPL and LGPL here is for a compiler's own parts, whose exceptions permit to link them into anything.", "",
    ]  # fmt: skip
    for component in third:
        lines.append(f"{component.name} {component.version}: {component.licence}")
        if not component.is_crate and component.description:
            lines.append(f"    {component.description}.")
        only = only_for(component, targets)
        if only:
            lines.append(f"    Only for {', '.join(only)}")
        if component.address:
            lines.append(f"    {component.address}")
        of = sorted({numbers[" ".join(text.split())] for _, text in component.texts})
        lines.append(f"    Texts: {', '.join(map(str, of))}" if of else "    Its text is at that address.")
    for number, (text, whose) in texts.items():
        lines += ["", "=" * 100, f"Text {number}, of {', '.join(whose)}", "=" * 100, "", text]
    return "\n".join(lines) + "\n"


APACHE = "TERMS AND CONDITIONS FOR USE, REPRODUCTION, AND DISTRIBUTION"


def indented(text: str) -> list[str]:
    return [f" {line}" if line.strip() else " ." for line in text.splitlines()]


def copyright_file(found: list[Component]) -> str:
    """One paragraph for all components with the same expression and texts. The text of Apache-2.0 is a file of Debian's."""
    lines = [
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/",
        "Upstream-Name: kvstore",
        "Comment: Compiled in are the crates of crates.io that stand below as vendor/NAME-VERSION, SQLCipher with SQLite,",
        " and Rust's standard library. OpenSSL is the system's.",
        "", "Files: *", "Copyright: The kvstore developers", "License: MIT or Apache-2.0",
        *indented(read(ROOT / "LICENSE-MIT")), " .", " Or the Apache License, version 2.0: /usr/share/common-licenses/Apache-2.0",
    ]  # fmt: skip
    groups: dict[tuple, list[Component]] = {}
    for component in found:
        if not component.is_own:
            words = tuple(" ".join(text.split()) for _, text in component.texts)
            groups.setdefault((component.licence, words), []).append(component)
    for (licence, _), of in groups.items():
        texts = list({" ".join(text.split()): text for _, text in of[0].texts}.values())
        holders = {line.strip(" #*-|\t") for text in texts for line in text.splitlines()
                   if re.match(r"\W*copyright\b.*\d{4}", line, re.IGNORECASE)}  # fmt: skip
        holders = sorted(re.sub(r"^copyright:? *", "", holder, flags=re.IGNORECASE) for holder in holders)
        no_holder = "none, its authors disclaim it" if licence == "blessing" else f"the authors of {of[0].name}"
        lines += ["", *[f"{'Files:' if first == 0 else '      '} vendor/{component.name}-{component.version}/*"
                        for first, component in enumerate(of)]]  # fmt: skip
        lines += [f"{'Copyright:' if first == 0 else '          '} {holder}"
                  for first, holder in enumerate(holders or [no_holder])]  # fmt: skip
        lines.append("License: " + licence.replace(" OR ", " or ").replace(" AND ", " and ").replace(" WITH ", " with "))
        body = []
        for text in texts:
            if APACHE in text:
                exceptions = " With LLVM's exceptions." if "LLVM Exceptions" in text else ""
                text = f"The Apache License, version 2.0: /usr/share/common-licenses/Apache-2.0.{exceptions}"
            if text not in body:
                body.append(text)
        if not body:
            body = [f"Its text is at {of[0].address}"]
        for number, text in enumerate(body):
            lines += ([" ."] if number else []) + indented(text)
    return "\n".join(lines) + "\n"


def sbom(found: list[Component], targets: list[str]) -> str:
    def entry(component: Component) -> dict:
        made = {
            "type": "application" if component.name == "kvstore-cli" else "library",
            "bom-ref": component.purl,
            "name": component.name,
            "version": component.version,
            "purl": component.purl,
            "licenses": [{"license": {"id": component.licence}} if re.fullmatch(r"[\w.+-]+", component.licence)
                         else {"expression": component.licence}],
        }  # fmt: skip
        if component.description:
            made["description"] = component.description
        if component.cpe:
            made["cpe"] = component.cpe
        if component.address:
            kind = "vcs" if component.is_crate else "website"
            made["externalReferences"] = [{"type": kind, "url": component.address}]
        only = only_for(component, targets)
        if only:
            made["properties"] = [{"name": "kvstore:target", "value": target} for target in only]
        return made

    own = next(component for component in found if component.name == "kvstore-ttl")
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": entry(own)},
        "components": [entry(component) for component in found if component is not own],
        "dependencies": [{"ref": component.purl, "dependsOn": sorted(component.depends)}
                         for component in sorted(found, key=lambda component: component.purl)],
    }  # fmt: skip
    # Identifies the contents.
    document["serialNumber"] = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(document, sort_keys=True)).urn
    return json.dumps(document, indent=2, sort_keys=True) + "\n"


def main() -> None:
    arguments, rust = sys.argv[1:], None
    if "--rust" in arguments[:-1]:
        at = arguments.index("--rust")
        rust = arguments[at + 1]
        del arguments[at : at + 2]
    makers = {
        "sbom": sbom,
        "licences": licences,
        "copyright": lambda found, _: copyright_file(found),
        "expression": lambda found, _: one_expression(found) + "\n",
    }
    if len(arguments) < 4 or arguments[0] not in makers:
        sys.exit(__doc__)
    what, features, toolchain, *targets = arguments
    found = components(features, targets, pathlib.Path(toolchain), rust)
    if len({component.purl for component in found}) != len(found):
        fail("two components have one name")
    sys.stdout.buffer.write(makers[what](found, targets).encode("utf-8"))


if __name__ == "__main__":
    main()
