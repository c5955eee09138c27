"""Runs the Rust unit tests (`cargo test --lib`) for a target."""

import re

import build
from targets import ROOT, WORK

# Targets on which they run: a 32-bit one and a big-endian one.
ON = ("i686", "s390x")
# Tests that cannot run under qemu-user, with the reasons.
LEFT_OUT = {}


def run(target):
    """Returns the number of tests passed, and the names of those left out."""
    runner = target.runner()
    if target.loader:
        # The library path is not set with a linker flag, because other flags would make cargo
        # compile Rust's standard library again.
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
