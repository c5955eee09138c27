"""The programs of examples/python print what they should, at the first and at later runs, in an empty directory.

Those for frameworks are in contrib/test_examples_of_frameworks.py, those for recipes and asyncio in
test_examples_recipes.py.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from helpers import assert_clean, run_python

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "python"

#: The output of each program at its first run, and at later ones.
SESSIONS = "{'user': 'ada', 'cart': ['tea']} for 30 minutes\nNone"
CODES = "False True False\n[False, False, False] False"
DOCUMENTS = "['ada', 'alan'] 1815\n['ada'] ['alan']"
LISTING = "000.jpg 001.jpg 002.jpg\n003.jpg 004.jpg 005.jpg\n006.jpg 007.jpg\nnewest: photos/007.jpg photos/006.jpg"
PRINTS = {
    "session_store.py": SESSIONS,
    "one_time_codes.py": CODES,
    "json_documents.py": DOCUMENTS,
    "prefix_listing.py": LISTING,
    "pool.py": "200 done, 200 kept, 200 computed",
}
WITH_FRAMEWORKS = {"preloaded.py", "flask_site.py", "django_site.py", "fastapi_app.py"}
OF_RECIPES = {"lock.py", "job_queue.py", "rate_limit.py", "cache_decorator.py", "asyncio_service.py"}


@pytest.mark.parametrize("name", sorted(PRINTS))
def test_example_prints_expected_output(name: str, tmp_path: Path) -> None:
    for _ in range(2):  # the second time it finds the store of the first
        assert_clean(run_python(EXAMPLES / name, cwd=tmp_path), PRINTS[name])


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_pool_example_works_with_every_start_method(method: str, tmp_path: Path) -> None:
    """As the main program of another Python, whose default it is."""
    program = (EXAMPLES / "pool.py").read_text()
    program = program.replace("multiprocessing.Pool", f"multiprocessing.get_context({method!r}).Pool")
    (tmp_path / "pool.py").write_text(program)
    result = subprocess.run(
        [sys.executable, "pool.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL
    )
    assert_clean(result, PRINTS["pool.py"])


def test_every_example_is_tested() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(PRINTS) | WITH_FRAMEWORKS | OF_RECIPES
