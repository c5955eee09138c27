"""What a release of kvstore is made of, from `cargo metadata` on standard input: crates.py copyright | sbom.

`copyright` is Debian's file of licences; `sbom` a list of components in CycloneDX 1.5. Both name the crates that are
compiled in, in an order that does not depend on the run.
"""

import json
import os
import pathlib
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

    sqlite = next(package for package in packages if package["name"] == "libsqlite3-sys")
    header = pathlib.Path(sqlite["manifest_path"]).parent / "sqlite3" / "sqlite3.h"
    words = [line.split() for line in header.read_text(encoding="utf-8").splitlines()]
    version = next(line[2].strip('"') for line in words if line[:2] == ["#define", "SQLITE_VERSION"])
    bundled = {
        "type": "library",
        "bom-ref": f"pkg:generic/sqlite@{version}",
        "name": "sqlite",
        "version": version,
        "purl": f"pkg:generic/sqlite@{version}",
        "licenses": [{"license": {"name": "blessing"}}],
        "description": "In libsqlite3-sys, compiled in",
    }
    dependencies = []
    for node in metadata["resolve"]["nodes"]:
        if node["id"] in reference:
            on = {
                reference[dependency["pkg"]]
                for dependency in node["deps"]
                if dependency["pkg"] in reference and any(kind["kind"] is None for kind in dependency["dep_kinds"])
            }
            on |= {bundled["bom-ref"]} if node["id"] == sqlite["id"] else set()
            dependencies.append({"ref": reference[node["id"]], "dependsOn": sorted(on)})
    components = [component(package) for package in packages if package is not own] + [bundled]
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
