"""Checks the symbols of the library on Windows: the DLL exports, and the static library defines,
exactly the functions of the header. So a program with its own SQLite can link it. Also checks
that the table of functions for unwinding is complete."""

import re

from kit import GCC, HERE, NATIVE, ROOT, Compiler, Failed, run, sqlite

TOOLS = "x86_64-w64-mingw32-"


def declared():
    return set(re.findall(r"\b(kvstore_\w+)\(", (ROOT / "include/kvstore.h").read_text()))


def imports(file):
    """Returns the DLLs that it needs, in lower case and without suffix."""
    said = run([f"{TOOLS}objdump", "-p", file], text=True)
    return {name.lower() for name in re.findall(r"DLL Name: (\S+?)(?:\.dll)?$", said, re.MULTILINE | re.IGNORECASE)}


def exported(dll):
    said = run([f"{TOOLS}objdump", "-p", dll], text=True)
    table = said.split("[Ordinal/Name Pointer] Table")[1].split("\n\n")[0]
    return set(re.findall(r"\s(\w+)$", table, re.MULTILINE)) - {"Table"}


def defined(archive):
    """Returns the symbols without imported functions, which are the same for every program."""
    symbols, member = set(), ""
    for line in run([f"{TOOLS}nm", "--plugin=/dev/null", "-g", "--defined-only", archive], text=True).splitlines():
        if line.endswith(":"):
            member = line
        elif line.strip() and not re.search(r"\.dll[hst]\d*\.o:$", member):
            symbols.add(line.split()[-1])
    return symbols


def unwinds(program):
    """Raises Failed unless the unwind table of the program lists each piece of code exactly once."""
    said = run([f"{TOOLS}objdump", "-p", program], text=True).split("The Function Table")[1].split("\n\n")[0]
    found = re.findall(r"^ [0-9a-f]+:\t([0-9a-f]+) ([0-9a-f]+) ", said, re.MULTILINE)
    entries = [(int(begin, 16), int(end, 16)) for begin, end in found]
    wrong = sum(begin < before for (_, before), (begin, _) in zip(entries, entries[1:]))
    if len(entries) < 1000 or wrong:
        raise Failed(f"{program.name}: {wrong} of {len(entries)} entries of .pdata have code that another one has")


def check(prefix):
    wanted = declared()
    for what, found in (("the DLL", exported(prefix / "bin/kvstore.dll")), ("libkvstore.a", defined(prefix / "lib/libkvstore.a"))):
        if found != wanted:
            raise Failed(f"{what}: missing {sorted(wanted - found)[:9]}, too many {sorted(found - wanted)[:9]}")
    compiler = Compiler(prefix, is_static=True)
    program = compiler.folder / "two_sqlites.exe"
    run([
        GCC, "-O1", "-w", "-I", prefix / "include", "-I", sqlite(), "-o", program, HERE / "two_sqlites.c", sqlite() / "sqlite3.c",
        prefix / "lib/libkvstore.a", *NATIVE,
    ])  # fmt: skip
    unwinds(program)
    compiler.run_in_empty_folder(program)
    return len(wanted)
