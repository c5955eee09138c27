"""What a release of kvstore is made of, from `cargo metadata` on standard input: crates.py copyright | sbom.

`copyright` is Debian's file of licences; `sbom` a list of components in CycloneDX 1.5. Both name the crates that are
compiled in, in an order that does not depend on the run.
"""

import json
import os
import pathlib
import re
import sys
import uuid

HERE = pathlib.Path(__file__).resolve().parent


def linked(metadata: dict) -> list[dict]:
    """The packages that the library and the command are linked from, without those that only help to build or to test."""
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    todo, seen = list(metadata["workspace_members"]), set()
    while todo:
        package = todo.pop()
        if package in seen:
            continue
        seen.add(package)
        for dependency in nodes[package]["deps"]:
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                todo.append(dependency["pkg"])
    packages = [package for package in metadata["packages"] if package["id"] in seen]
    return sorted(packages, key=lambda package: (package["name"], package["version"]))


def licence(package: dict) -> str:
    return (package["license"] or "").replace("/", " OR ").replace("  ", " ")


def copyright_file(packages: list[dict]) -> str:
    own = (HERE.parent.parent / "LICENSE").read_text(encoding="utf-8").strip()
    mit = (HERE.parent.parent / "LICENSE-MIT").read_text(encoding="utf-8").strip()
    lines = [own, "", mit, ""]
    lines += ["On Debian systems the Apache License, version 2.0, is in /usr/share/common-licenses/Apache-2.0.", ""]
    lines += ["Compiled in are these crates of crates.io, each with the licence that it names:", ""]
    for package in packages:
        if package["source"]:
            lines.append(f"  {package['name']} {package['version']}: {licence(package)}")
            lines += [f"    {author}" for author in package["authors"]]
    return "\n".join(lines) + "\n"


def bundled_c(metadata: dict) -> list[tuple]:
    """What is in C inside of crates: (name, version, terms, the crate that links it)."""
    found = {package["name"]: package for package in metadata["packages"]}

    def version(crate: str, word: str) -> str:
        """A version of what is inside, as that of the crate has it: 419.0.6+sqlcipher-4.19.0-sqlite-3.53.4."""
        return re.search(rf"{word}([0-9]+(\.[0-9]+)+)", found[crate]["version"].partition("+")[2])[1]

    sqlite = found["libsqlite3-sys"]
    return [
        ("openssl", version("openssl-src", ""), {"license": {"id": "Apache-2.0"}}, found["openssl-sys"]),
        ("sqlcipher", version("sqlcipher-src", "sqlcipher-"), {"license": {"id": "BSD-3-Clause"}}, sqlite),
        ("sqlite", version("sqlcipher-src", "sqlite-"), {"license": {"name": "blessing"}}, sqlite),
    ]


def sbom(metadata: dict, packages: list[dict]) -> str:
    own = next(package for package in packages if package["name"] == "kvstore-ttl")
    reference = {package["id"]: f"pkg:cargo/{package['name']}@{package['version']}" for package in packages}

    def component(package: dict) -> dict:
        found = {
            "type": "application" if package["name"] == "kvstore-cli" else "library",
            "bom-ref": reference[package["id"]],
            "name": package["name"],
            "version": package["version"],
            "purl": reference[package["id"]],
            "licenses": [{"expression": licence(package)}],
        }
        if package["description"]:
            found["description"] = " ".join(package["description"].split())
        if package["repository"]:
            found["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
        return found

    bundled = bundled_c(metadata)
    c_components = [
        {
            "type": "library",
            "bom-ref": f"pkg:generic/{name}@{version}",
            "name": name,
            "version": version,
            "purl": f"pkg:generic/{name}@{version}",
            "licenses": [terms],
            "description": f"In {into['name']}, compiled in",
        }
        for name, version, terms, into in bundled
    ]
    dependencies = []
    for node in metadata["resolve"]["nodes"]:
        if node["id"] in reference:
            on = {
                reference[dependency["pkg"]]
                for dependency in node["deps"]
                if dependency["pkg"] in reference and any(kind["kind"] is None for kind in dependency["dep_kinds"])
            }
            on |= {f"pkg:generic/{name}@{version}" for name, version, _, into in bundled if into["id"] == node["id"]}
            dependencies.append({"ref": reference[node["id"]], "dependsOn": sorted(on)})
    components = [component(package) for package in packages if package is not own] + c_components
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": component(own)},
        "components": components,
        "dependencies": sorted(dependencies, key=lambda dependency: dependency["ref"]),
    }
    # A number that says which contents it has.
    document["serialNumber"] = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(document, sort_keys=True)).urn
    return json.dumps(document, indent=2, sort_keys=True) + "\n"


def main() -> None:
    metadata = json.load(sys.stdin)
    packages = linked(metadata)
    match sys.argv[1:]:
        case ["copyright"]:
            sys.stdout.write(copyright_file(packages))
        case ["sbom"]:
            sys.stdout.write(sbom(metadata, packages))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUTF8", "1")
    main()
