"""Checks that the binaries of a release run on all supported systems: elf.py LIBC FILE...

A FILE is a program, a library or a wheel; wheels are also checked by auditwheel. LIBC is `musl`, or for example `glibc-2.17`: the
newest version whose functions may be used. Checked are:

- Each symbol of glibc has a version. A symbol without one was found in no C library, and fails only when it is called.
  (auditwheel does not check this.)
- Nothing loads code from files (`dlopen`).
- The extension of a wheel exports one symbol, a program none, a library only those that begin with kvstore_.
"""

import io
import json
import pathlib
import re
import subprocess
import sys
import zipfile

from elftools.elf.elffile import ELFFile

LIBRARIES = {
    "glibc": ("libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "ld-linux"),
    "musl": ("libc.musl-",),
}


def needed(elf: ELFFile) -> list[str]:
    dynamic = elf.get_section_by_name(".dynamic")
    return [tag.needed for tag in dynamic.iter_tags("DT_NEEDED")] if dynamic else []


def number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def members(archive: bytes):
    """Yields the members of a static library, without its symbol table (ar(5), GNU variant)."""
    at = len(b"!<arch>\n")
    while at < len(archive):
        name, size = archive[at : at + 16].strip(), int(archive[at + 48 : at + 58])
        if name not in (b"/", b"//"):
            yield archive[at + 60 : at + 60 + size]
        at += 60 + size + size % 2


def is_ours(name: str) -> bool:
    return name.startswith("kvstore_")


def complaints_of_object(data: bytes) -> list[str]:
    """Returns the faults of a member of a static library: foreign global symbols, relocations outside their section."""
    elf = ELFFile(io.BytesIO(data))
    sections = list(elf.iter_sections())
    found = []
    for section in sections:
        if section["sh_type"] == "SHT_SYMTAB":
            shown = {symbol.name for symbol in section.iter_symbols()
                     if symbol["st_info"]["bind"] != "STB_LOCAL" and symbol["st_shndx"] != "SHN_UNDEF"}  # fmt: skip
            found += [f"shows {name}" for name in sorted(shown) if not is_ours(name)]
        if section["sh_type"] in ("SHT_REL", "SHT_RELA"):
            size = sections[section["sh_info"]]["sh_size"]
            if any(relocation["r_offset"] >= size for relocation in section.iter_relocations()):
                found.append(f"{section.name} is not about its section")
    return found


def complaints(data: bytes, libc: str, newest: str, exported: set[str] | None) -> list[str]:
    """Returns the faults of a binary. `exported`: the symbols it must export; None: a library, which exports kvstore_ symbols."""
    elf = ELFFile(io.BytesIO(data))
    # (The reason for ARM is in zig-cc.)
    allowed = (*LIBRARIES[libc], "libgcc_s.so.1") if elf["e_machine"] == "EM_ARM" else LIBRARIES[libc]
    found = [f"needs {library}" for library in needed(elf) if not library.startswith(allowed)]
    symbols = list(elf.get_section_by_name(".dynsym").iter_symbols())
    versions = elf.get_section_by_name(".gnu.version")
    wanted = elf.get_section_by_name(".gnu.version_r")
    names = {aux["vna_other"]: aux.name for _, list_of in wanted.iter_versions() for aux in list_of} if wanted else {}
    for index, symbol in enumerate(symbols):
        if symbol["st_shndx"] != "SHN_UNDEF" or not symbol.name or symbol.name.startswith(("Py", "_Py")):
            continue
        if symbol.name == "dlopen":
            found.append("loads code from files")
        if libc == "musl" or symbol["st_info"]["bind"] == "STB_WEAK":
            continue
        said = versions.get_symbol(index)["ndx"] if versions else 0
        version = names.get(said & 0x7FFF if isinstance(said, int) else 0)
        if version is None:
            found.append(f"asks for {symbol.name} of no version")
    for version in names.values():
        if libc == "musl" or (version.startswith("GLIBC_") and number(version[6:]) > number(newest)):
            found.append(f"asks for {version}")
    # (The linker exports these of musl's start files.)
    of_the_start = {"_init", "_fini"} if libc == "musl" else set()
    visible = {symbol.name for symbol in symbols if symbol["st_shndx"] != "SHN_UNDEF" and symbol.name} - of_the_start
    if exported is None:
        found += [f"exports {name}" for name in sorted(visible) if not is_ours(name)]
    else:
        found += [f"exports {name}" for name in sorted(visible ^ exported)]
    return found


def files(path: pathlib.Path):
    """Yields the binaries to check: (name, bytes, symbols that it must export)."""
    if path.suffix != ".whl":
        yield path.name, path.read_bytes(), None if path.name.startswith("lib") else set()
        return
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.endswith((".so", ".data/scripts/kvstore"))]
        assert len(names) == 2, f"{path.name}: has {names}"
        for name in names:
            yield f"{path.name}: {name}", archive.read(name), {"PyInit__kvstore"} if name.endswith(".so") else set()


def audited(path: pathlib.Path, libc: str, newest: str) -> list[str]:
    """Returns auditwheel's complaints about a wheel."""
    command = [sys.executable, "-m", "auditwheel", "show", "--json", str(path)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        return [f"auditwheel: {done.stderr}"]
    said = json.loads(done.stdout)
    tag = said["overall_tag"]
    oldest = re.fullmatch(r"manylinux_(2_[0-9]+)_.*" if libc == "glibc" else r"musllinux_(1_[0-9]+)_.*", tag)
    if oldest is None or said["external_libs"] or (newest and number(oldest[1].replace("_", ".")) > number(newest)):
        return [f"auditwheel: {tag}, {said['external_libs']}"]
    return []


def main() -> None:
    libc, _, newest = sys.argv[1].partition("-")
    looked = []
    for path in map(pathlib.Path, sys.argv[2:]):
        if path.suffix == ".a":
            looked += [(path.name, complaints_of_object(member)) for member in members(path.read_bytes())]
            continue
        looked += [(name, complaints(data, libc, newest, exported)) for name, data, exported in files(path)]
    for path in map(pathlib.Path, sys.argv[2:]):
        if path.suffix == ".whl":
            looked.append((path.name, audited(path, libc, newest)))
    bad = [f"{name}: {complaint}" for name, said in looked for complaint in said]
    if bad:
        sys.exit("\n".join(bad))
    print(f"{', '.join(sorted({pathlib.Path(path).name for path in sys.argv[2:]}))}: uses only permitted symbols and libraries")


if __name__ == "__main__":
    main()
