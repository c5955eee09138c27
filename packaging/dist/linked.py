"""Finds the components of the binaries of a release: the crates linked for the given targets, the C code inside them, and the
parts added by the compilers. Each is a Component, with the texts of its licence. Writes no files.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import pathlib
import re
import subprocess
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
#: Names of licence files.
NOTICES = re.compile(r"(un)?licen[sc]e|copying|copyright|notice", re.IGNORECASE)
SOURCES = {".c", ".h", ".html", ".json", ".py", ".rs", ".toml", ".yml"}


def fail(message: str) -> None:
    raise SystemExit(f"crates.py: {message}")


@dataclasses.dataclass
class Component:
    name: str
    version: str
    licence: str  # an expression of SPDX
    purl: str
    texts: list[tuple[str, str]] = dataclasses.field(default_factory=list)  # where it was found, the text
    is_crate: bool = True
    is_own: bool = False
    targets: frozenset[str] = frozenset()
    depends: set[str] = dataclasses.field(default_factory=set)  # purls
    description: str = ""
    address: str = ""
    cpe: str = ""


def said(command: list[str], **more) -> str:
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, encoding="utf-8", check=False, **more)
    except OSError as error:
        raise SystemExit(f"crates.py: {command[0]}: {error.strerror}") from error
    if done.returncode != 0:
        fail(f"{' '.join(command)} failed")
    return done.stdout


def read(path: pathlib.Path) -> str:
    """Returns the text of a file, independent of its line ends and encoding."""
    data = path.read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    lines = (line.rstrip() for line in text.replace("\f", "\n").splitlines())
    return "\n".join(lines).strip("\n")


def expression(licence: str | None) -> str:
    return re.sub(r"\s*/\s*", " OR ", licence or "").strip()


def notices(folder: pathlib.Path) -> list[tuple[str, str]]:
    found = []
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if NOTICES.match(path.name) and path.suffix not in SOURCES and path.is_file():
            if not {"tests", "benches", "examples"} & set(inside.parts):
                found.append((f"{folder.name}/{inside.as_posix()}", read(path)))
    return found


# ---- crates ------------------------------------------------------------------------------------------


def linked_edges(features: str, target: str) -> dict[tuple[str, str], set[tuple[str, str]]]:
    """Returns the crates that cargo links for a target, each with its dependencies.

    Uses `cargo tree`, because `cargo metadata` merges the features of all platforms and of build dependencies.
    """
    command = ["cargo", "tree", "--locked", "--workspace", "--exclude", "xtask", "--quiet", "--features", features, "--target", target]
    lines = said([*command, "--edges", "normal,no-proc-macro", "--prefix", "depth", "--format", " {p}"], cwd=ROOT)
    edges: dict[tuple[str, str], set[tuple[str, str]]] = {}
    above: list[tuple[str, str]] = []
    for line in filter(None, lines.splitlines()):
        depth, name, version = re.match(r"(\d+) (\S+) v(\S+)", line).groups()
        del above[int(depth) :]
        edges.setdefault((name, version), set())
        if above:
            edges[above[-1]].add((name, version))
        above.append((name, version))
    return edges


def crates(features: str, targets: list[str]) -> tuple[list[Component], dict[str, dict]]:
    """Returns the linked crates, and all packages of `cargo metadata` by name."""
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--quiet", "--features", features]
    command += [word for target in targets for word in ("--filter-platform", target)]
    packages = json.loads(said(command, cwd=ROOT))["packages"]
    known = {(package["name"], package["version"]): package for package in packages}
    edges = {target: linked_edges(features, target) for target in targets}
    found = []
    for key in sorted(set().union(*edges.values())):
        package = known[key]
        kinds = {kind for target in package["targets"] for kind in target["kind"]}
        if "proc-macro" in kinds:
            fail(f"{key[0]} is a procedural macro, which is not linked in")
        if key[0].startswith(("windows", "winapi", "wasm", "js-sys", "core-foundation")):
            fail(f"{key[0]} is for another platform")
        folder = pathlib.Path(package["manifest_path"]).parent
        is_own = package["source"] is None
        found.append(
            Component(
                name=key[0],
                version=key[1],
                licence=expression(package["license"]),
                purl=f"pkg:cargo/{key[0]}@{key[1]}",
                texts=[] if is_own else notices(folder),
                is_own=is_own,
                targets=frozenset(target for target in targets if key in edges[target]),
                depends={f"pkg:cargo/{name}@{version}" for of in edges.values() for name, version in of.get(key, ())},
                description=" ".join((package["description"] or "").split()),
                address=package["repository"] or "",
            )
        )
    return found, {package["name"]: package for package in packages}


def bundled_c(packages: dict[str, dict], targets: list[str], is_vendored: bool) -> list[tuple[str, Component]]:
    """Returns the C libraries compiled into crates, each with the crate that links it."""

    def inside(crate: str, word: str) -> tuple[pathlib.Path, str]:
        """Returns a crate's folder and the version of its C library, from a version like 419.0.6+sqlcipher-4.19.0-sqlite-3.53.4."""
        of = packages[crate]
        return pathlib.Path(of["manifest_path"]).parent, re.search(rf"{word}(\d+(\.\d+)+)", of["version"].partition("+")[2])[1]

    def component(name: str, version: str, licence: str, cpe: str, address: str, texts: list[tuple[str, str]]) -> Component:
        return Component(
            name=name, version=version, licence=licence, purl=f"pkg:generic/{name}@{version}", texts=texts, is_crate=False,
            targets=frozenset(targets), address=address, cpe=f"cpe:2.3:a:{cpe}:{version}:*:*:*:*:*:*:*",
        )  # fmt: skip

    cipher, version = inside("sqlcipher-src", "sqlcipher-")
    source = cipher / "sqlcipher"
    blessing = re.search(r"^\*\* (The author disclaims.*?)\n\*{10}", read(source / "sqlite3.h"), re.DOTALL | re.MULTILINE)[1]
    blessing = re.sub(r"^\*\* ?", "", blessing, flags=re.MULTILINE).rstrip("\n")
    label = "sqlcipher-src/sqlcipher/"
    found = [
        ("libsqlite3-sys", component("sqlcipher", version, "BSD-3-Clause", "zetetic:sqlcipher", "https://www.zetetic.net/sqlcipher/",
                                     [(label + "LICENSE-sqlcipher", read(source / "LICENSE-sqlcipher"))])),
        ("libsqlite3-sys", component("sqlite", inside("sqlcipher-src", "sqlite-")[1], "blessing", "sqlite:sqlite",
                                     "https://sqlite.org/", [(label + "sqlite3.h", blessing)])),
    ]  # fmt: skip
    if is_vendored:
        folder, version = inside("openssl-src", "")
        texts = [("openssl-src/openssl/LICENSE.txt", read(folder / "openssl/LICENSE.txt"))]
        found.append(("openssl-sys", component("openssl", version, "Apache-2.0", "openssl:openssl", "https://www.openssl.org/", texts)))
    return found


# ---- parts added by the compilers --------------------------------------------------------------------------


def stanzas(text: str) -> list[dict[str, str]]:
    """Parses a Debian copyright file into paragraphs of fields."""
    found = []
    for paragraph in re.split(r"\n(?:[ \t]*\n)+", text):
        fields = re.findall(r"^([A-Za-z-]+):((?:.*)(?:\n[ \t].*)*)", paragraph, re.MULTILINE)
        found.append({name: value.strip() for name, value in fields})
    return found


def rust_notices(text: str, crate: str = "", also: str = "") -> list[tuple[str, str]]:
    """Returns the notices and licence texts for std, or for a crate in it, from the copyright file of Debian's Rust compiler.
    `also`: one more licence, by Debian's name."""
    paragraphs = stanzas(text)
    wanted = []
    for paragraph in paragraphs:
        files = [file for file in paragraph.get("Files", "").split() if "fuchsia" not in file]
        if any(file.startswith(f"vendor/{crate}-") if crate else file.startswith("library/") for file in files):
            wanted.append(paragraph)
    names = {name.strip(" ()").lower() for of in wanted
             for name in re.split(r" or | and ", of["License"].splitlines()[0], flags=re.IGNORECASE)}  # fmt: skip
    names.add(also.lower())
    found = []
    for of in wanted:
        lines = [line.strip() for line in of.get("Copyright", "").splitlines()]
        found.append("\n".join(f"Copyright: {line}" for line in lines))
    texts = [("rustc-web: copyright", "\n".join(dict.fromkeys(found)))] if found else []
    for paragraph in paragraphs:
        first, _, body = paragraph.get("License", "").partition("\n")
        if "Files" not in paragraph and body and first.lower() in names and first != "Apache-2.0":
            lines = (re.sub(r"^\.$", "", line[1:] if line.startswith(" ") else line) for line in body.splitlines())
            texts.append((f"rustc-web: copyright, {first}", "\n".join(lines)))
    return texts


def rust_std(toolchain: pathlib.Path, targets: list[str], version: str) -> list[Component]:
    """Returns Rust's std, and the crates in it that are both dependencies of std and compiled for it."""
    rust = toolchain / "rustc-web"
    folder = next(iter((rust / "root/usr/src").glob("rustc-*/library")), None)
    if folder is None:
        fail(f"{rust} has no sources of Rust's std (.ci/rustc-web unpacks them)")
    text = read(rust / "root/usr/share/doc/libstd-rust-web-dev/copyright")
    compiled = {path.name[3:].rpartition("-")[0] for path in (rust / "root/usr/lib/rustlib").glob("*/lib/lib*.rlib")}
    locked = tomllib.loads((folder / "Cargo.lock").read_text(encoding="utf-8"))["package"]
    by_name = {package["name"]: package for package in locked if package["name"].replace("-", "_") in compiled}
    todo, seen = ["std"], set()
    while todo:
        name = todo.pop()
        if name in by_name and name not in seen:
            seen.add(name)
            todo += [of.split()[0] for of in by_name[name].get("dependencies", [])]

    def manifest(of: pathlib.Path) -> str:
        return expression(tomllib.loads((of / "Cargo.toml").read_text(encoding="utf-8"))["package"].get("license"))

    found = []
    for name in sorted(seen):
        if "source" not in by_name[name]:
            continue
        of = by_name[name]["version"]
        purl = f"pkg:cargo/{name}@{of}"
        vendored = folder / "vendor" / f"{name}-{of}"
        texts = notices(vendored) or rust_notices(text, name)
        found.append(Component(name, of, manifest(vendored), purl, texts, targets=frozenset(targets),
                               description="In Rust's standard library", address=f"https://crates.io/crates/{name}"))  # fmt: skip
    builtins = manifest(folder / "compiler-builtins/compiler-builtins")
    own = Component(
        "rust-std", version, f"{manifest(folder / 'std')} AND Unicode-3.0", f"pkg:generic/rust-std@{version}", rust_notices(text),
        is_crate=False, targets=frozenset(targets), description="Rust's standard library: core, alloc, std, panic_unwind, unwind",
        address="https://github.com/rust-lang/rust", cpe=f"cpe:2.3:a:rust-lang:rust:{version}:*:*:*:*:*:*:*",
    )  # fmt: skip
    own.licence = own.licence.replace("MIT OR Apache-2.0", "(MIT OR Apache-2.0)")
    # Its licence text is not in Debian's sources. It has the same licences as std, and LLVM's.
    intrinsics = Component(
        "compiler_builtins", version, builtins, f"pkg:generic/compiler_builtins@{version}",
        rust_notices(text, also="Apache-2.0 with LLVM exception"), is_crate=False,
        targets=frozenset(targets), description="Of Rust: what processors have no instructions for",
        address="https://github.com/rust-lang/compiler-builtins/blob/main/LICENSE.txt",
    )  # fmt: skip
    own.depends = {of.purl for of in [*found, intrinsics]}
    return [own, intrinsics, *found]


def first_comment(path: pathlib.Path) -> str:
    return re.sub(r"^ {3}", "", re.search(r"/\* ?(.*?) *\*/", read(path), re.DOTALL)[1], flags=re.MULTILINE)


def runtimes(toolchain: pathlib.Path, targets: list[str]) -> list[Component]:
    """Returns the parts that the compilers of packaging/dist/targets link: from zig for glibc, from GCC and Debian's musl for musl."""
    gnu, musl = (frozenset(target for target in targets if word in target) for word in ("gnu", "musl"))
    packages = next(iter((toolchain / "python/lib").glob("python3*/site-packages")), toolchain)

    def installed(name: str) -> tuple[pathlib.Path, str]:
        """Returns the metadata folder of an installed Python package, and its version."""
        of = next(iter(packages.glob(f"{name}-*.dist-info")), None)
        if of is None:
            fail(f"{toolchain}/python has no {name} (packaging/dist/build installs it)")
        return of, of.name.removeprefix(f"{name}-").removesuffix(".dist-info")

    folder, version = installed("cffi")
    found = [Component("cffi", version, "MIT", f"pkg:pypi/cffi@{version}", notices(folder), is_crate=False, targets=frozenset(targets),
                       description="Its headers are compiled into the extension of a wheel", address="https://cffi.readthedocs.io/")]  # fmt: skip
    if gnu:
        zig, version = packages / "ziglang", installed("ziglang")[1]
        for name, folder, licence, text, what in [
            ("libunwind", "lib/libunwind", "Apache-2.0 WITH LLVM-exception",
             ("ziglang/lib/libunwind/LICENSE.TXT", read(zig / "lib/libunwind/LICENSE.TXT")), "LLVM's unwinder, as zig has it"),
            ("compiler-rt", "lib/compiler_rt", "MIT", ("ziglang/LICENSE", read(zig / "LICENSE")),
             "Of zig: what processors have no instructions for"),
            ("glibc-start", "lib/libc/glibc", "LGPL-2.1-or-later WITH GCC-exception-2.0",
             ("ziglang/lib/libc/glibc/stdlib/atexit.c", first_comment(zig / "lib/libc/glibc/stdlib/atexit.c")),
             "The start files of glibc and what it has in libc_nonshared.a; they may be linked into anything. "
             "glibc itself is the system's"),
        ]:  # fmt: skip
            # On ARM the unwinder is the system's (packaging/dist/zig-cc).
            of = frozenset(target for target in gnu if name != "libunwind" or not target.startswith("arm"))
            found.append(Component(name, version, licence, f"pkg:pypi/ziglang@{version}#{folder}", [text], is_crate=False,
                                   targets=of, description=what, address="https://ziglang.org/"))  # fmt: skip
    if musl:
        version = said(["x86_64-linux-gnu-gcc", "-dumpfullversion"]).strip()
        text = pathlib.Path(f"/usr/share/doc/gcc-{version.partition('.')[0]}-base/copyright")
        texts = []
        if text.exists():
            whole = read(text)
            terms = re.search(r"^GCC is Copyright.*?(?=^The following runtime)", whole, re.DOTALL | re.MULTILINE)
            exception = re.search(r"^GCC RUNTIME LIBRARY EXCEPTION.*?license of GCC\.", whole, re.DOTALL | re.MULTILINE)
            if not (terms and exception):
                fail(f"{text} does not have the terms of GCC and its exception where they were")
            texts = [(f"gcc: copyright, {number}", part[0].strip()) for number, part in enumerate((terms, exception), 1)]
        found.append(Component("libgcc", version, "GPL-3.0-or-later WITH GCC-exception-3.1", f"pkg:generic/gcc@{version}#libgcc", texts,
                               is_crate=False, targets=musl, address="https://gcc.gnu.org/onlinedocs/libstdc++/manual/license.html",
                               description="GCC's unwinder, start files, and what processors have no instructions for. Its exception "
                               "lets what GCC compiled have any licence"))  # fmt: skip
        folder = next(iter(sorted(toolchain.glob("musl-*/root/usr/share/doc/musl-dev"))), None)
        if folder is None:
            fail(f"{toolchain} has no musl (packaging/dist/build unpacks it)")
        version = gzip.decompress((folder / "changelog.Debian.gz").read_bytes()).decode().partition("(")[2].partition(")")[0]
        licence = next(of for of in stanzas(read(folder / "copyright")) if of.get("License", "").startswith("MIT\n"))["License"]
        body = "\n".join(re.sub(r"^ \.?", "", line) for line in licence.splitlines()[1:])
        body = "Copyright © 2005-2020 Rich Felker, et al.\n\n" + body
        found.append(Component("musl-start", version, "MIT", f"pkg:deb/debian/musl-dev@{version}", [("musl-dev: copyright, MIT", body)],
                               is_crate=False, targets=musl, address="https://musl.libc.org/",
                               description="The start files of musl. musl itself is the system's"))  # fmt: skip
    return found


def components(features: str, targets: list[str], toolchain: pathlib.Path, rust: str | None) -> list[Component]:
    """All of it, by name. `rust`: the version of a std that another compiler than `toolchain`'s has, which links nothing else."""
    found, packages = crates(features, targets)
    by_name = {component.name: component for component in found}
    for into, component in bundled_c(packages, targets, "vendored" in features):
        by_name[into].depends.add(component.purl)
        found.append(component)
    version = rust or re.search(r"\d+\.\d+\.\d+", said([str(toolchain / "rustc-web/rustc"), "--version"]))[0]
    std = rust_std(toolchain, targets, version)
    added = [std[0], *(runtimes(toolchain, targets) if rust is None else [])]
    known = {component.purl: component for component in found}
    found += [component for component in [*std, *added[1:]] if component.purl not in known]
    for name in ("kvstore-ttl", "kvstore-cli"):
        by_name[name].depends |= {component.purl for component in added}
    for component in found:
        if not component.licence:
            fail(f"{component.name} {component.version} names no licence")
        if not (component.texts or component.is_own or component.address):
            fail(f"{component.name} {component.version} has no text of its licence, and no address")
    return sorted(found, key=lambda component: (component.name, component.version, component.purl))
