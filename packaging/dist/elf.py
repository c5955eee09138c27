"""Whether programs and libraries of a release run where they shall: elf.py LIBC FILE...; a wheel is a file, too, and has to
please auditwheel as well.

LIBC is `glibc-2.17`, the newest whose functions they may ask for, or `musl`. That a name has a version is asked for as well:
without one it was found in no C library, and whether the system has it shows only when it is called. (auditwheel does not
look at that.) A wheel's extension exports one name only.
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


def complaints(data: bytes, libc: str, newest: str, exported: set[str] | None) -> list[str]:
    elf = ELFFile(io.BytesIO(data))
    found = [f"needs {library}" for library in needed(elf) if not library.startswith(LIBRARIES[libc])]
    symbols = list(elf.get_section_by_name(".dynsym").iter_symbols())
    versions = elf.get_section_by_name(".gnu.version")
    wanted = elf.get_section_by_name(".gnu.version_r")
    names = {aux["vna_other"]: aux.name for _, list_of in wanted.iter_versions() for aux in list_of} if wanted else {}
    for index, symbol in enumerate(symbols):
        if symbol["st_shndx"] != "SHN_UNDEF" or not symbol.name or symbol.name.startswith(("Py", "_Py")):
            continue
        if libc == "musl" or symbol["st_info"]["bind"] == "STB_WEAK":
            continue
        said = versions.get_symbol(index)["ndx"] if versions else 0
        version = names.get(said & 0x7FFF if isinstance(said, int) else 0)
        if version is None:
            found.append(f"asks for {symbol.name} of no version")
    for version in names.values():
        if libc == "musl" or (version.startswith("GLIBC_") and number(version[6:]) > number(newest)):
            found.append(f"asks for {version}")
    if exported is not None:
        visible = {symbol.name for symbol in symbols if symbol["st_shndx"] != "SHN_UNDEF" and symbol.name}
        found += [f"exports {name}" for name in sorted(visible ^ exported)]
    return found


def files(path: pathlib.Path):
    """What is to be looked at: (name, bytes, what it may export)."""
    if path.suffix != ".whl":
        yield path.name, path.read_bytes(), None
        return
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.endswith((".so", ".data/scripts/kvstore"))]
        assert len(names) == 2, f"{path.name}: has {names}"
        for name in names:
            yield f"{path.name}: {name}", archive.read(name), {"PyInit__kvstore"} if name.endswith(".so") else None


def audited(path: pathlib.Path, libc: str, newest: str) -> list[str]:
    """What auditwheel has against a wheel."""
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
    looked = [(name, complaints(data, libc, newest, exported)) for path in sys.argv[2:]
              for name, data, exported in files(pathlib.Path(path))]  # fmt: skip
    for path in map(pathlib.Path, sys.argv[2:]):
        if path.suffix == ".whl":
            looked.append((path.name, audited(path, libc, newest)))
    bad = [f"{name}: {complaint}" for name, said in looked for complaint in said]
    if bad:
        sys.exit("\n".join(bad))
    print(f"{', '.join(sorted({pathlib.Path(path).name for path in sys.argv[2:]}))}: needs what it may only")


if __name__ == "__main__":
    main()
