"""Targets of `make cross`, with their names in Rust, Debian, GCC and QEMU. Runs no commands.

    python3 tests/cross/targets.py packages [--quick] [NAME...]     the Debian packages they need
    python3 tests/cross/targets.py musl [--quick] [NAME...]         ARCHITECTURE PREFIX of those on musl, a line each
"""

import dataclasses
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORK = ROOT / "target/cross"
TOOLCHAIN = WORK / "toolchain"


@dataclasses.dataclass(frozen=True)
class Target:
    name: str  # in TARGETS= and in the table
    triple: str  # Rust's
    gcc: str  # GCC's prefix, without the last "-"
    packages: str  # of GCC and of the libc
    qemu: str = ""  # qemu-user's name of the processor; "": this machine runs it
    musl: str = ""  # Debian's name of the architecture, where the libc is musl
    loader: str = ""  # where Debian's cross package has it; programs that this machine runs name it
    is_host: bool = False
    links_static: bool = True  # whether the scenarios are linked with the static library, too
    bits: int = 64

    def tool(self, name):
        return f"{self.gcc}-{name}"

    @property
    def kit(self):
        return TOOLCHAIN / f"musl-{self.musl}"

    @property
    def cc(self):
        return str(self.kit / "cc") if self.musl else self.tool("gcc")

    @property
    def libc(self):
        """Folder of the libc's shared libraries."""
        if self.musl:
            return next(self.kit.glob("root/usr/lib/*-linux-musl*"))
        return pathlib.Path(f"/usr/{self.gcc}/lib")

    def runner(self):
        """Command that runs a program of the target."""
        return [f"qemu-{self.qemu}-static", "-L", f"/usr/{self.gcc}"] if self.qemu else []

    def how(self):
        if self.qemu:
            return f"qemu-{self.qemu}"
        return "natively, by its own loader" if self.loader or self.musl else "natively"


def glibc(name, triple, gcc, debian, **more):
    packages = f"gcc-{gcc} libc6-dev-{debian}-cross" if debian else ""
    return Target(name, triple, gcc, packages, **more)


HOST = Target("x86_64", "x86_64-unknown-linux-gnu", "x86_64-linux-gnu", "", is_host=True)

ALL = {
    target.name: target
    for target in (
        glibc("aarch64", "aarch64-unknown-linux-gnu", "aarch64-linux-gnu", "arm64", qemu="aarch64"),
        glibc("armv7", "armv7-unknown-linux-gnueabihf", "arm-linux-gnueabihf", "armhf", qemu="arm", bits=32),
        glibc("i686", "i686-unknown-linux-gnu", "i686-linux-gnu", "i386", loader="ld-linux.so.2", bits=32),
        Target("x86_64-musl", "x86_64-unknown-linux-musl", "x86_64-linux-gnu", "", musl="amd64"),
        Target(
            "aarch64-musl", "aarch64-unknown-linux-musl", "aarch64-linux-gnu",
            "gcc-aarch64-linux-gnu libc6-dev-arm64-cross", qemu="aarch64", musl="arm64",
        ),
        glibc("riscv64gc", "riscv64gc-unknown-linux-gnu", "riscv64-linux-gnu", "riscv64", qemu="riscv64"),
        glibc("s390x", "s390x-unknown-linux-gnu", "s390x-linux-gnu", "s390x", qemu="s390x"),
        glibc(
            "mipsel", "mipsel-unknown-linux-gnu", "mipsel-linux-gnu", "mipsel",
            qemu="mipsel", links_static=False, bits=32,
        ),
        glibc("armv5te", "armv5te-unknown-linux-gnueabi", "arm-linux-gnueabi", "armel", qemu="arm", bits=32),
    )
}  # fmt: skip

DEFAULT = ("aarch64", "armv7", "i686", "x86_64-musl", "aarch64-musl")
QUICK = ("i686", "aarch64", "x86_64-musl")


def chosen(arguments):
    """Parses the arguments [--quick] [NAME...]. Returns the targets and the flag."""
    is_quick = "--quick" in arguments
    names = [name for name in arguments if name != "--quick"] or (QUICK if is_quick else DEFAULT)
    unknown = [name for name in names if name not in ALL]
    if unknown:
        sys.exit(f"cross: no such target: {' '.join(unknown)}; there are {' '.join(ALL)}")
    return [ALL[name] for name in names], is_quick


def main():
    what, (targets, _) = sys.argv[1], chosen(sys.argv[2:])
    if what == "packages":
        needed = ["qemu-user-static"] if any(target.qemu for target in targets) else []
        print(*needed, *sorted({package for target in targets for package in target.packages.split()}))
    else:
        for line in sorted({f"{target.musl} {target.gcc}-" for target in targets if target.musl}):
            print(line)


if __name__ == "__main__":
    main()
