"""The recipes and the example run, each in a process of its own, as a reader would run them."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent.parent
RECIPES = sorted((HERE / "recipes").glob("*.py"))


def missing(script: Path) -> list[str]:
    """The packages that a script imports and that are not installed."""
    names = re.findall(r"^(?:import|from) ([A-Za-z_]\w*)", script.read_text(), re.MULTILINE)
    return [name for name in names if importlib.util.find_spec(name) is None]


def run(script: Path, *arguments: str) -> str:
    absent = missing(script)
    if absent:
        pytest.skip(f"{script.name} needs {', '.join(absent)}, not installed here")
    command = [sys.executable, "-W", "ignore", str(script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_there_are_ten_recipes() -> None:
    assert len(RECIPES) == 10


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda one: one.stem)
def test_recipe(recipe: Path, tmp_path: Path) -> None:
    run(recipe, str(tmp_path))


def test_the_example_resumes_bit_for_bit_and_shows_the_space(tmp_path: Path) -> None:
    output = run(HERE / "examples/train_and_resume.py", str(tmp_path))
    assert "killed" in output and "bit for bit" in output
    sizes = {
        line.split("  ")[0].strip(): int(line.split()[-2].replace(",", ""))
        for line in output.splitlines()
        if line.endswith("bytes")
    }
    plain, packed = sizes["50 plain safetensors files"], sizes["the same, each compressed with zstd -3"]
    whole, best = sizes["repository with all 50 steps"], sizes["repository with the best 3 and the last, pruned"]
    assert best < whole < packed < plain, output
