"""The documentation of the package: examples run, and docstrings have one style and name true arguments."""

from __future__ import annotations

import ast
import doctest
import importlib
import importlib.util
import os
import pathlib
import re

import pytest

import fhrd

PACKAGE = pathlib.Path(fhrd.__file__).parent
MODULES = sorted(path.stem for path in PACKAGE.glob("*.py") if path.stem != "__main__")
#: What the example of a module imports, for modules that do not import it themselves.
ADAPTERS = {
    "distributed": "torch",
    "filesystem": "fsspec",
    "jax": "numpy",
    "lightgbm": "lightgbm",
    "lightning": "lightning",
    "mlflow": "mlflow",
    "ray": "ray",
    "sklearn": "sklearn",
    "torch": "torch",
    "transformers": "transformers",
    "xgboost": "xgboost",
}
#: What other modules need beside NumPy.
LIBRARIES = ADAPTERS | {"staged_file": "fsspec"}
#: Markup of Sphinx.
_OTHER_STYLE = re.compile(r"^\s*:(param|raises|returns?|type|rtype)\b|(?<!`)``(?!`)|:(func|class|meth|mod|attr):", re.MULTILINE)


def docstrings(module: str) -> list[tuple[str, ast.AST, str]]:
    tree = ast.parse((PACKAGE / f"{module}.py").read_text())
    found: list[tuple[str, ast.AST, str]] = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            text = ast.get_docstring(node)
            if text is not None:
                found.append((getattr(node, "name", module), node, text))
    return found


@pytest.mark.parametrize("module", MODULES)
def test_docstrings_have_one_style_and_name_true_arguments(module: str) -> None:
    for name, node, text in docstrings(module):
        found = _OTHER_STYLE.search(text)
        assert found is None, f"{module}.{name}: {found}"
        args = re.search(r"^Args:\n((?:    .*\n?|\n)+)", text, re.MULTILINE)
        if args is None:
            continue
        if isinstance(node, ast.FunctionDef):
            known = {one.arg for one in (*node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg) if one}
        else:
            # A class of fields.
            assert isinstance(node, ast.ClassDef), f"{module}.{name}"
            known = {one.target.id for one in node.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)}
        named = re.findall(r"^    (\w+): ", args[1], re.MULTILINE)
        assert named and set(named) <= known, f"{module}.{name}: {set(named) - known}"


@pytest.mark.parametrize("module", MODULES)
def test_what_is_public_has_a_docstring(module: str) -> None:
    tree = ast.parse((PACKAGE / f"{module}.py").read_text())
    for node in tree.body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and not node.name.startswith("_"):
            assert ast.get_docstring(node), f"{module}.{node.name}"


def test_each_adapter_has_a_start_of_a_few_lines() -> None:
    for module in ADAPTERS:
        text = docstrings(module)[0][2]
        lines = [line for line in text.splitlines() if line.startswith((">>> ", "... "))]
        assert 3 <= len(lines) <= 7, f"{module}: {lines}"


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_of_docstrings_run(
    module: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = LIBRARIES.get(module, "numpy")
    if importlib.util.find_spec(needed) is None:
        pytest.skip(f"NOT CHECKED: the example of fhrd.{module} needs {needed}, not installed here")
    monkeypatch.chdir(tmp_path)
    name = "fhrd" if module == "__init__" else f"fhrd.{module}"
    imported = importlib.import_module(name)
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for at, (owner, _, text) in enumerate(docstrings(module)):
        directory = tmp_path / str(at)
        directory.mkdir()
        os.chdir(directory)
        test = parser.get_doctest(text, {}, f"{name}.{owner}", imported.__file__, 0)
        result = runner.run(test)
        assert result.failed == 0, f"the example of {name}.{owner}"
