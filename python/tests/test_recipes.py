"""The recipes and the example run, each in a process of its own, as a reader would run them."""

from __future__ import annotations

import importlib.util
import os
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


def run(script: Path, *arguments: str, temporary: Path | None = None) -> str:
    absent = missing(script)
    if absent:
        pytest.skip(f"{script.name} needs {', '.join(absent)}, not installed here")
    command = [sys.executable, "-W", "ignore", str(script), *arguments]
    environment = {**os.environ, **({} if temporary is None else {"TMPDIR": str(temporary)})}
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_there_are_ten_recipes() -> None:
    assert len(RECIPES) == 10


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda one: one.stem)
def test_recipe(recipe: Path, tmp_path: Path) -> None:
    run(recipe, str(tmp_path))
    assert any(tmp_path.iterdir())


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda one: one.stem)
def test_a_recipe_without_an_argument_leaves_nothing(recipe: Path, tmp_path: Path) -> None:
    run(recipe, temporary=tmp_path)
    assert not list(tmp_path.glob("tmp*"))


@pytest.mark.parametrize("script", [*RECIPES, *sorted((HERE / "examples").glob("*.py"))], ids=lambda one: one.stem)
def test_no_reader_learns_to_trust_or_to_pickle(script: Path) -> None:
    for word in ("trusted", "allow_pickle", 'method="pickle"', "weights_only=False"):
        assert word not in script.read_text(), word


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


def test_the_scenario_of_tensorcas_in_small(tmp_path: Path) -> None:
    script = HERE / "examples/tensorcas.py"
    absent = [name for name in ("sklearn", "skops", "xgboost") if importlib.util.find_spec(name) is None]
    if absent:
        pytest.skip(f"NOT CHECKED: the trees of the scenario need {', '.join(absent)}, not installed here")
    has_torch = importlib.util.find_spec("torch") is not None
    output = run(script, str(tmp_path), "--small", *([] if has_torch else ["--trees-only"]))
    print(output)
    stored = dict(re.findall(r"^(.*?)  .*-> ([0-9.]+) MB$", output, re.MULTILINE))
    assert float(stored["all these steps, scikit-learn"]) > 0 and float(stored["all these steps, XGBoost"]) > 0
    if not has_torch:
        pytest.skip("NOT CHECKED: the networks of the scenario need torch, not installed here; the trees are checked")
    one, sweep = float(stored["one run of 4 steps"]), float(stored["2 learning rates x 2 steps"])
    # The backbone is stored once, whoever has it.
    assert sweep < 1.3 * one and float(stored["best step kept, all others deleted"]) <= sweep
