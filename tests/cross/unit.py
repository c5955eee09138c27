"""The unit tests in Rust (`cargo test --lib`) of a target."""

import re

import build
from targets import ROOT, WORK

# On these: one of 32 bits, one big-endian.
ON = ("i686", "s390x")
# Tests that cannot be had under qemu-user, and why.
LEFT_OUT = {}


def run(target):
    """(How many tests passed, the names of those left out.)"""
    runner = target.runner()
    if target.loader:
        # Not by a flag of the linker: with other flags all of Rust's library would be built once more.
        runner = [f"{target.libc}/{target.loader}", "--library-path", str(target.libc)]
    name = target.triple.upper().replace("-", "_")
    said = build.environment(target, is_quick=True) | {f"CARGO_TARGET_{name}_RUNNER": " ".join(runner)}
    left_out = LEFT_OUT if target.qemu else {}
    log = WORK / "logs" / f"{target.name}-unit"
    flags = build.cargo_flags(target, is_quick=True)
    folder = build.folder(is_quick=True) / "install"
    command = ["cargo", "test", "--release", *flags, "--lib", "--target-dir", folder, "--"]
    for test in left_out:
        command += ["--skip", test]
    build.run(command, log, env=said, cwd=ROOT)
    passed = re.findall(r"^test result: ok\. (\d+) passed", log.read_text(), re.MULTILINE)
    return int(passed[0]), left_out
