"""The command `fhrd` that the package installs: it behaves like the program, although Python starts it."""

from __future__ import annotations

import fcntl
import importlib.metadata
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

# Seconds in which a command that waits for nothing ends.
LONG = 60


def installed() -> list[str]:
    """The words that start the command: the installed script, or the package where there is none."""
    script = pathlib.Path(sys.executable).parent / "fhrd"
    return [str(script)] if script.exists() else [sys.executable, "-m", "fhrd"]


COMMANDS = [installed(), [sys.executable, "-m", "fhrd"]]


def run(*arguments: str | bytes, command: list[str] | None = None, **options: object) -> subprocess.CompletedProcess[str]:
    words = [*(command or installed()), *arguments]
    options = {"capture_output": True, "text": True, "timeout": LONG, **options}
    return subprocess.run(words, **options)  # type: ignore[call-overload, no-any-return]


@pytest.fixture
def where(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A working directory with a repository and something to back up."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FHRD_REPO", str(tmp_path / "repo"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "text").write_text("text\n" * 1000)
    (tmp_path / "source" / "noise").write_bytes(os.urandom(300_000))
    assert run("init", "--quiet").returncode == 0
    assert run("backup", "source", "--quiet").returncode == 0
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
def test_it_says_what_the_program_says(command: list[str], program: str, tmp_path: pathlib.Path) -> None:
    for arguments in (["--version"], ["-V"], ["--help"], ["backup", "--help"], [], ["no-such-verb"], ["completions", "zsh"]):
        # A program that was built with the tests breaks the lines of the help elsewhere.
        ours, theirs = run(*arguments, command=command), run(*arguments, command=[program])
        assert ours.returncode == theirs.returncode
        assert (ours.stdout.split(), ours.stderr.split()) == (theirs.stdout.split(), theirs.stderr.split()), arguments
    for name, words in (("ours", command), ("theirs", [program])):
        assert run("man", str(tmp_path / name), command=words).returncode == 0
    pages = sorted(path.name for path in (tmp_path / "theirs").iterdir())
    assert "fhrd-backup.1" in pages and sorted(path.name for path in (tmp_path / "ours").iterdir()) == pages
    for page in pages:
        assert (tmp_path / "ours" / page).read_text() == (tmp_path / "theirs" / page).read_text()


def test_a_backup_comes_back_whatever_its_names_are(where: pathlib.Path) -> None:
    # No text of any locale, so Python must hand over the bytes.
    name = b"source/\xff\xe4 name"
    pathlib.Path(os.fsdecode(name)).write_bytes(b"content")
    for environment in ({}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}):
        done = run("backup", name, "--json", env={**os.environ, **environment})
        assert (done.returncode, done.stderr) == (0, "")
        snapshot = json.loads(done.stdout)["snapshot"]
        assert run("restore", snapshot, "--target", f"back-{len(environment)}", "--quiet").returncode == 0
        assert (where / f"back-{len(environment)}" / os.fsdecode(name)).read_bytes() == b"content"
    assert run("restore", "latest~2", "--target", "back", "--quiet").returncode == 0
    for file in ("text", "noise"):
        assert (where / "back/source" / file).read_bytes() == (where / "source" / file).read_bytes()
    assert run("check", "--read-data").returncode == 0


def test_exit_codes_are_those_of_the_program(where: pathlib.Path) -> None:
    assert run("restore", "latest", "--target", "source/text/x").returncode == 1
    assert run("restore", "--no-such-option").returncode == 2
    assert run("backup", "source", "missing").returncode == 3
    assert run("status", "--expect", "1h", "--host", "another").returncode == 4
    missing = run("snapshots", "--repo", "nothing", "--json")
    assert (missing.returncode, json.loads(missing.stderr.splitlines()[-1])["exit_code"]) == (10, 10)
    sealed = {**os.environ, "FHRD_PASSWORD": "right"}
    assert run("init", "--repo", "sealed", env=sealed).returncode == 0
    assert run("snapshots", "--repo", "sealed", env={**os.environ, "FHRD_PASSWORD": "wrong"}).returncode == 12
    for container in (where / "repo" / "containers").rglob("*"):
        if container.is_file():
            container.write_bytes(b"damaged")
    assert run("check", "--read-data").returncode == 20


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_signal_interrupts(command: list[str], number: signal.Signals, where: pathlib.Path) -> None:
    words = [*command, "backup", "--stdin", "--stdin-filename", "stream"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stderr is not None
        # More than a pipe holds, so the backup has begun when all is written.
        process.stdin.write(b"x" * (4 << 20))
        process.stdin.flush()
        process.send_signal(number)
        code = process.wait(LONG)
        errors = process.stderr.read().decode()
    assert (code, errors.splitlines()[-1]) == (130, "error: interrupted")
    assert "Traceback" not in errors
    assert len(json.loads(run("snapshots", "--json").stdout)) == 1


def test_a_signal_ends_what_does_not_listen_to_it_yet(where: pathlib.Path) -> None:
    read_end, write_end = os.pipe()
    held = fcntl.fcntl(write_end, 1031, 4096)
    os.write(write_end, b"x" * held)
    # The help is written before the command looks for signals, and nobody reads it.
    with subprocess.Popen([*installed(), "--help"], stdout=write_end, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(2)
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(5) == -signal.SIGINT
            assert process.stderr.read() == b""
        finally:
            process.kill()
            os.close(read_end)
            os.close(write_end)


def test_a_signal_while_the_command_is_loaded_prints_no_traceback() -> None:
    code = """if True:
        import os, signal, sys
        class Finder:
            def find_spec(self, name, path=None, target=None):
                if name == "fhrd._engine":
                    os.kill(os.getpid(), signal.SIGINT)
        sys.meta_path.insert(0, Finder())
        sys.argv = ["/usr/bin/fhrd", "--help"]
        import fhrd.__main__
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=LONG, check=False)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, b"")


@pytest.mark.parametrize("arguments", [["ls", "latest"], ["dump", "latest:source/noise"], ["--help"], ["snapshots", "--json"]])
def test_a_reader_that_goes_away_is_no_failure(arguments: list[str], where: pathlib.Path) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = run(*arguments, capture_output=False, stdout=write_end, stderr=subprocess.PIPE)
    os.close(write_end)
    assert (done.returncode, done.stderr) == (0, "")


def closed(*descriptors: int) -> Callable[[], None]:
    def close() -> None:
        for descriptor in descriptors:
            os.close(descriptor)

    return close


def test_streams_that_are_closed_are_no_files_of_a_repository(where: pathlib.Path) -> None:
    done = run("dump", "latest:source/text", capture_output=False, stderr=subprocess.PIPE, preexec_fn=closed(1))
    assert (done.returncode, "it is closed" in done.stderr) == (1, True), done.stderr
    for count in (1, 2, 3):
        (where / "source" / "more").write_bytes(os.urandom(200_000))
        done = run("backup", "source", "-v", capture_output=False, preexec_fn=closed(*range(count)))
        assert done.returncode == 0
    done = run("check", "--read-data")
    assert (done.returncode, done.stderr) == (0, "")
    # What the command starts has streams, too.
    hook = "echo out; echo error >&2; read line; test -e /dev/fd/0 -a -e /dev/fd/1 -a -e /dev/fd/2 && touch had-all"
    words = ["backup", "--stdin-from-command", "--stdin-filename", "x", "--", "sh", "-c", hook]
    assert run(*words, capture_output=False, preexec_fn=closed(0, 1, 2)).returncode == 0
    assert (where / "had-all").exists()


def test_a_schedule_starts_the_same_command(where: pathlib.Path) -> None:
    profiles = where / "profile.toml"
    profiles.write_text('repo = "/backup"\nbackup.paths = ["/data"]\n')
    for command in COMMANDS:
        done = run("schedule", "--daily", "02:30", "--profile", str(profiles), "--print", command=command)
        assert done.returncode == 0, done.stderr
        [line] = re.findall("ExecStart=(.*)", done.stdout)
        # Python takes no package from the working directory of the timer.
        safe = ["-P"] if len(command) > 1 and sys.version_info >= (3, 11) else []
        assert line == " ".join([command[0], *safe, *command[1:], "backup", "--profile", str(profiles)])
    # A name that is looked up is no path from elsewhere.
    script = pathlib.Path(installed()[0])
    done = run("schedule", "--daily", "02:30", "--profile", str(profiles), "--crontab",
               command=[os.path.relpath(script, where), *installed()[1:]])  # fmt: skip
    assert f"30 2 * * * {script}" in done.stdout


def test_the_program_of_the_measurements_is_found_or_asked_for(where: pathlib.Path) -> None:
    path = {**os.environ, "PATH": "/usr/bin:/bin"}
    done = run("bench", "micro.toml", env=path)
    assert (done.returncode, "need the program `fhrd-bench`" in done.stderr) == (1, True), done.stderr
    bench = where / "fhrd-bench"
    bench.write_text('#!/bin/sh\necho "$@"\n')
    bench.chmod(0o755)
    done = run("bench", "micro.toml", env={**path, "PATH": f"{where}:/usr/bin:/bin"})
    assert (done.returncode, done.stdout) == (0, "bench micro.toml\n"), done.stderr


def test_a_shell_gets_completions(where: pathlib.Path) -> None:
    environment = {**os.environ, "COMPLETE": "bash", "_CLAP_COMPLETE_INDEX": "1", "_CLAP_IFS": "\n"}
    script = run(env=environment).stdout
    assert '"fhrd" -- "${words[@]}"' in script and "python" not in script
    assert run("--", "fhrd", "snap", env=environment).stdout == "snapshots"
    [snapshot] = json.loads(run("snapshots", "--json").stdout)
    environment["_CLAP_COMPLETE_INDEX"] = "2"
    assert snapshot["id"][:8] in run("--", "fhrd", "restore", "", env=environment).stdout


def test_the_command_imports_little() -> None:
    done = run("--version", command=[sys.executable, "-X", "importtime", *COMMANDS[1][1:]])
    imported = {line.split("|")[-1].strip() for line in done.stderr.splitlines()}
    assert "fhrd._engine" in imported
    assert not imported & {"numpy", "json", "fhrd._public", "fhrd.repository"}


def test_the_version_is_that_of_the_installed_package() -> None:
    """Installers compare versions in Python's form, which has no hyphen before a release candidate."""
    stated = run("-c", "import fhrd; print(fhrd.__version__)", command=[sys.executable]).stdout.strip()
    assert re.fullmatch(r"\d+\.\d+\.\d+(rc\d+)?", stated), stated
    try:
        assert stated == importlib.metadata.version("fhrd")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the package is not installed: it was imported from the sources")


def test_the_package_offers_its_names_without_further_imports() -> None:
    code = "import fhrd; print(fhrd.arrays.register_converter.__name__, fhrd.__version__, [getattr(fhrd, n) for n in fhrd.__all__])"
    done = run("-c", code, command=[sys.executable])
    assert done.stdout.startswith("register_converter "), done.stderr
    done = run("-c", "import fhrd.repository; from fhrd import *; print(open, sorted(dir(fhrd)))", command=[sys.executable])
    assert "function open" in done.stdout and "'Repository'" in done.stdout, done.stderr
    done = run("-c", "import fhrd; fhrd.nothing", command=[sys.executable])
    assert "AttributeError: module 'fhrd' has no attribute 'nothing'" in done.stderr
