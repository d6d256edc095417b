"""Writes the licences of all that a released program or wheel is made of: crates, the C in them, Rust's library and musl.

    python3 dist/notices.py OUT TARGET... [-- LABEL=FILE...]

Names, versions and licences come from `cargo metadata`, for the crates that a target links. Texts are the licence files in
their packages, each once. FILE is the text of something else, which LABEL names. The same input gives the same bytes.
"""

import json
import os
import re
import subprocess
import sys
from html import unescape
from pathlib import Path

ROOTS = {"fhrd", "fhrd-python"}
IS_LICENCE = re.compile(r"(LICEN[CS]E|COPYING|COPYRIGHT|NOTICE|UNLICENSE)([-_.].*)?", re.IGNORECASE)
# What a package has for its tests and its documents is not in a program.
SKIPPED = {"test", "tests", "testdata", "docs", "doc", "examples", "fuzz", "util", "tools", "benches", "contrib", "build"}


def linked(target: str) -> dict[tuple[str, str], dict]:
    """The packages that programs for a target are made of, by name and version."""
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", target]
    metadata = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    open_ids = [id for id, package in packages.items() if package["source"] is None and package["name"] in ROOTS]
    assert len(open_ids) == len(ROOTS), open_ids
    found: set[str] = set()
    while open_ids:
        id = open_ids.pop()
        if id not in found:
            found.add(id)
            kinds = {edge["pkg"]: [kind["kind"] for kind in edge["dep_kinds"]] for edge in nodes[id]["deps"]}
            open_ids += [dependency for dependency, kind in kinds.items() if None in kind]
    outside = [packages[id] for id in found if packages[id]["source"] is not None]
    return {(package["name"], package["version"]): package for package in outside}


def texts(package: dict) -> list[str]:
    """The licence files of a package and of the C sources in it."""
    found = []
    for directory, names, files in os.walk(Path(package["manifest_path"]).parent):
        names[:] = sorted(name for name in names if name not in SKIPPED)
        for file in sorted(file for file in files if IS_LICENCE.fullmatch(file)):
            path = Path(directory, file)
            if path.suffix not in {".rs", ".py", ".go", ".c", ".h"}:
                found.append(plain(path))
    return found


def plain(path: Path) -> str:
    """The text of a file, without the marks of HTML."""
    text = path.read_text(encoding="utf-8", errors="replace").replace("\r\n", "\n")
    if path.suffix == ".html":
        text = re.sub(r"<(style|script).*?</\1>", "", text, flags=re.DOTALL)
        text = unescape(re.sub(r"<[^>]+>", "", text))
        text = re.sub(r"\n\s*\n\s*(\n\s*)+", "\n\n", text)
    return "\n".join(line.rstrip() for line in text.strip("\n").split("\n"))


def main() -> None:
    out, arguments = Path(sys.argv[1]), sys.argv[2:]
    at = arguments.index("--") if "--" in arguments else len(arguments)
    packages: dict[tuple[str, str], dict] = {}
    for target in arguments[:at]:
        packages |= linked(target)
    # Texts that differ in white space alone are one.
    owners: dict[str, tuple[str, list[str]]] = {}

    def add(text: str, owner: str) -> None:
        names = owners.setdefault(" ".join(text.split()), (text, []))[1]
        if owner not in names:
            names.append(owner)

    lines = [
        "fhrd is licensed under MIT or Apache-2.0, at your option: see LICENSE. Its programs contain the following works.",
        "",
    ]
    for (name, version), package in sorted(packages.items()):
        found = texts(package)
        licence = package["license"] or "see below"
        lines.append(f"{name} {version}: {licence}" + ("" if found else " (its package has no text)"))
        for text in found:
            add(text, f"{name} {version}")
    for file in arguments[at + 1 :]:
        label, path = file.split("=", 1)
        lines.append(label)
        add(plain(Path(path)), label)
    for text, names in sorted(owners.values(), key=lambda entry: entry[1]):
        lines += ["", "=" * 100, *names, "-" * 100, text]
    out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
