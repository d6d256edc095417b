#!/usr/bin/env python3
"""Compares fhrd with restic, borg, rustic, bupstash and zipnn on the same files: whole processes, one table of medians.

    benches/peers/peers.py [--versions] [--strongest] [--cold] [--warm] [--bounds] [--rounds N] [--work DIR] SET...

SET is a directory or a file. In each round every tool creates a repository, backs up the set, backs it up again
unchanged, prints one file of the last snapshot and restores it. The tools take turns at being first. With --versions
each regular file of the directory becomes a snapshot of its own, in name order. The backup times are then the sum
over all files (for memory the largest), and the last file is restored.

The set is read once before each backup, so sources are in the page cache; with --cold they are dropped from it
instead. Before a restore, all files of the tool's repository and cache are written out and dropped from the page
cache, unless --warm is given (posix_fadvise DONTNEED; needs no root; names and inodes stay cached). Restored files
are compared with the source byte by byte. A difference is reported, and the script exits with code 1.

`MB stored` is the size of the repository as `du` counts it. `CPU s` is user and system time. `RSS MB` is the largest
resident memory (values below this script's own, some 15 MB, cannot be seen). `MB/s` is content restored per second.

Each tool runs with its defaults: restic, rustic and bupstash encrypt and choose their compression. fhrd runs
twice, plain and encrypted (`fhrd-enc`, with a password, as restic), and so does borg, with `--compression zstd,3`
(`borg-enc`: repokey-blake2). With --strongest, each tool has its strongest compression instead: `fhrd backup --level
archive`, `restic --compression max`, `borg --compression zstd,22`, `rustic init --set-compression 22`, `bupstash put
--compression zstd:19`, fhrd and borg again both ways. bupstash takes directories only.

`again s` is the second backup, `file s` the file in the middle of all names. With --bounds, packers that read
everything back for one file are measured once, too: `tar` sorted by name through `zstd -19 --long=31`, `lrzip -z` and
`zpaq -m3`, and on directories `git repack -adf --depth=50 --window=250` of all files, those that are installed. zipnn
is no backup tool: it runs only on sets with .safetensors files and compresses each of them with one thread.
zipnn_files.py describes the other files. Its times exclude the seconds for imports, its memory includes them.

FHRD (target/release/fhrd), RESTIC, BORG, RUSTIC and BUPSTASH select other programs, ZIPNN another Python that has zipnn
(python3). Missing tools are skipped and listed. Needs Python 3.9 or newer, nothing else. Works in --work
(peers-work), which must not exist, and removes it unless a tool failed.
"""

import argparse
import json
import os
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from statistics import median

READ_BYTES = 1 << 20
TITLES = ["MB", "snapshots", "backup s", "CPU s", "RSS MB", "MB stored", "ratio", "again s", "file s", "restore s",
    "CPU s", "RSS MB", "MB/s"]


class Tool:
    """A program with a repository, and its commands. Snapshots are numbered from 0."""

    name, program, variable, version_arguments, reports_times = "", "", "", ["--version"], False

    def __init__(self, work):
        self.directory = work / self.name
        self.repository = self.directory / "repository"
        named = shutil.which(os.environ.get(self.variable or self.name.upper(), self.program))
        self.command = [os.path.realpath(named)] if named else []

    def version(self):
        """Its version, or None if it is missing."""
        if not self.command:
            return None
        done = subprocess.run(self.command + self.version_arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        return done.stdout.decode().strip().replace("\n", ", ") if done.returncode == 0 else None

    def takes(self, _paths):
        return True

    def backups(self, paths):
        """A command for every path."""
        return [self.backup(number, path) for number, path in enumerate(paths)]

    def print_file(self, _number, _file):
        """A command that prints a file of a snapshot, or None if the tool has none."""
        return None

    def environment(self):
        """Only the cache and the settings of this run."""
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("FHRD_")}
        variables = ("XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME")
        directories = {name: str(self.directory / "cache") for name in variables}
        return inherited | directories | {
            "RESTIC_PASSWORD": "x",
            "RUSTIC_PASSWORD": "x",
            "BORG_BASE_DIR": str(self.directory / "cache"),
            "BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK": "yes",
        }


class Fhrd(Tool):
    name, program = "fhrd", "target/release/fhrd"

    def create(self):
        return ["init", "-q", "--repo", self.repository]

    def backup(self, _number, path):
        return ["backup", "-q", "--repo", self.repository, path]

    def restore(self, _number, target):
        return ["restore", "-q", "--repo", self.repository, "latest", "--target", target]

    def print_file(self, _number, file):
        return ["cat", "--repo", self.repository, f"latest:{str(file).lstrip('/')}"]


class FhrdEncrypted(Fhrd):
    name, variable = "fhrd-enc", "FHRD"

    def create(self):
        return ["init", "-q", "--encrypt", "--repo", self.repository]

    def environment(self):
        return super().environment() | {"FHRD_PASSWORD": "x"}


class Archive:
    """The strongest compression of fhrd."""

    def backup(self, _number, path):
        return ["backup", "-q", "--level", "archive", "--repo", self.repository, path]


class FhrdMax(Archive, Fhrd):
    name, variable = "fhrd-max", "FHRD"


class FhrdEncryptedMax(Archive, FhrdEncrypted):
    name, variable = "fhrd-max-enc", "FHRD"


class Restic(Tool):
    name, program, version_arguments = "restic", "restic", ["version"]
    compression = []

    def options(self):
        return ["-q", "--cache-dir", self.directory / "cache", "-r", self.repository, *self.compression]

    def create(self):
        return [*self.options(), "init"]

    def backup(self, _number, path):
        return [*self.options(), "backup", path]

    def restore(self, _number, target):
        return [*self.options(), "restore", "latest", "--target", target]

    def print_file(self, _number, file):
        return [*self.options(), "dump", "latest", file]


class ResticMax(Restic):
    name, variable, compression = "restic-max", "RESTIC", ["--compression", "max"]


class Borg(Tool):
    name, program = "borg", "borg"
    encryption, compression = "none", "zstd,3"

    def create(self):
        return ["init", f"--encryption={self.encryption}", self.repository]

    def backup(self, number, path):
        return ["create", "--compression", self.compression, f"{self.repository}::{number}", path]

    def print_file(self, number, file):
        return ["extract", "--stdout", f"{self.repository}::{number}", str(file).lstrip("/")]

    def restore(self, number, _target):
        """Extracts into the directory in which it runs."""
        return ["extract", f"{self.repository}::{number}"]


class BorgEncrypted(Borg):
    name, variable, encryption = "borg-enc", "BORG", "repokey-blake2"

    def environment(self):
        return super().environment() | {"BORG_PASSPHRASE": "x"}


class BorgMax(Borg):
    name, variable, compression = "borg-max", "BORG", "zstd,22"


class BorgEncryptedMax(BorgEncrypted):
    name, variable, compression = "borg-max-enc", "BORG", "zstd,22"


class Rustic(Tool):
    name, program = "rustic", "rustic"
    compression = []

    def options(self):
        return ["--log-level", "error", "--no-progress", "-r", self.repository, "--no-cache"]

    def create(self):
        return [*self.options(), "init", *self.compression]

    def backup(self, _number, path):
        return [*self.options(), "backup", path]

    def restore(self, _number, target):
        return [*self.options(), "restore", "latest", target]

    def print_file(self, _number, file):
        return [*self.options(), "dump", f"latest:{file}"]


class RusticMax(Rustic):
    name, variable, compression = "rustic-max", "RUSTIC", ["--set-compression", "22"]


class Bupstash(Tool):
    """Stores the content of one directory, encrypted with a key from a file."""

    name, program = "bupstash", "bupstash"
    compression = []

    def takes(self, paths):
        return all(path.is_dir() for path in paths)

    def environment(self):
        files = {"KEY": "key", "SEND_LOG": "cache/sent", "QUERY_CACHE": "cache/queries", "REPOSITORY": "repository"}
        return super().environment() | {f"BUPSTASH_{name}": str(self.directory / file) for name, file in files.items()}

    def create(self):
        subprocess.run([*self.command, "new-key", "-o", str(self.directory / "key")], check=True)
        return ["init"]

    def backup(self, number, path):
        self.path = path
        return ["put", "-q", *self.compression, f"name={number}", path]

    def restore(self, number, target):
        below = target.joinpath(*self.path.parts[1:])
        below.mkdir(parents=True)
        return ["restore", "-q", "--ownership", "--xattrs", "--into", below, f"name={number}"]

    def print_file(self, number, file):
        return ["get", "-q", "--pick", file.relative_to(self.path), f"name={number}"]


class BupstashMax(Bupstash):
    name, variable, compression = "bupstash-max", "BUPSTASH", ["--compression", "zstd:19"]


class Zipnn(Tool):
    name, program, version_arguments, reports_times = "zipnn", "python3", ["version"], True

    def __init__(self, work):
        super().__init__(work)
        if self.command:
            # Not resolved: the interpreter of a virtual environment is a link to a file outside.
            named = shutil.which(os.environ.get("ZIPNN", self.program))
            self.command = [os.path.abspath(named), str(Path(__file__).resolve().with_name("zipnn_files.py"))]

    def takes(self, paths):
        return any(path.suffix == ".safetensors" for path in files_below(paths))

    def create(self):
        return ["init", self.repository]

    def backups(self, paths):
        """One command for all paths, because imports take seconds."""
        return [["backup", self.repository, *paths]]

    def restore(self, number, target):
        return ["restore", self.repository, number, target]


def files_below(paths):
    """Every regular file at or below the paths."""
    for path in paths:
        if path.is_file() and not path.is_symlink():
            yield path
        for parent, _, names in os.walk(path):
            below = (Path(parent, name) for name in names)
            yield from (file for file in below if stat.S_ISREG(file.lstat().st_mode))


def bytes_of(paths):
    return sum(file.stat().st_size for file in files_below(paths))


def disk_bytes(directory):
    """Blocks of everything at and below the directory, hard links once."""
    inodes = {}
    for parent, _, names in os.walk(directory):
        for path in [parent, *(os.path.join(parent, name) for name in names)]:
            status = os.lstat(path)
            inodes[status.st_ino] = status.st_blocks * 512
    return sum(inodes.values())


def read(paths):
    """Reads the files into the page cache."""
    for path in files_below(paths):
        with open(path, "rb", buffering=0) as file:
            while file.read(READ_BYTES):
                pass


def forget(directory):
    """Writes out the file, or the files below the directory, and drops them from the page cache."""
    for path in files_below([directory]):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def difference(source, restored):
    """The first difference between two trees in names, types, link targets or content, or None."""
    if not os.path.lexists(restored):
        return f"{source} is missing"
    kinds = [stat.S_IFMT(path.lstat().st_mode) for path in (source, restored)]
    if kinds[0] != kinds[1]:
        return f"{source} has another type"
    if stat.S_ISLNK(kinds[0]):
        return None if os.readlink(source) == os.readlink(restored) else f"{source} points elsewhere"
    if stat.S_ISDIR(kinds[0]):
        names = [sorted(os.listdir(path)) for path in (source, restored)]
        if names[0] != names[1]:
            return f"{source} holds other names: {sorted(set(names[0]) ^ set(names[1]))[:3]}"
        below = (difference(source / name, restored / name) for name in names[0])
        return next((found for found in below if found), None)
    if not stat.S_ISREG(kinds[0]):
        return None
    with open(source, "rb") as one, open(restored, "rb") as other:
        while data := one.read(READ_BYTES):
            if data != other.read(READ_BYTES):
                return f"{source} has other content"
        return f"{source} is longer than before" if other.read(1) else None


def measure(tool, arguments, directory):
    """Runs the tool in the directory; returns wall seconds, CPU seconds and peak KiB."""
    log = tool.directory / "output"
    command = [str(part) for part in [*tool.command, *arguments]]
    with open(log, "wb") as output:
        start = time.perf_counter()
        process = subprocess.Popen(command, cwd=directory, env=tool.environment(), stdin=subprocess.DEVNULL,
            stdout=output, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{log.read_text(errors='replace')}\npeers.py: failed ({process.returncode}): {' '.join(command)}")
    cpu = usage.ru_utime + usage.ru_stime
    if tool.reports_times:
        times = json.loads(log.read_text().strip().split("\n")[-1])
        wall, cpu = times["wall_s"], times["cpu_s"]
    return wall, cpu, usage.ru_maxrss


def run_backup(tool, paths, sources_are_cold, results):
    tool.directory.mkdir()
    (tool.directory / "cache").mkdir()
    measure(tool, tool.create(), tool.directory)
    if sources_are_cold:
        for path in paths:
            forget(path)
    else:
        read(paths)
    os.sync()
    runs = [measure(tool, command, tool.directory) for command in tool.backups(paths)]
    walls, cpus, memories = zip(*runs)
    results["backup"].append((sum(walls), sum(cpus), max(memories)))
    results["stored"].append((disk_bytes(tool.repository),))
    files = sorted(files_below(paths[-1:]))
    if files and tool.print_file(0, files[0]):
        results["again"].append(measure(tool, tool.backup(len(paths), paths[-1]), tool.directory))
        os.sync()
        forget(tool.repository)
        results["file"].append(measure(tool, tool.print_file(len(paths), files[len(files) // 2]), tool.directory))


def run_restore(tool, paths, is_cold, results):
    """Restores the last path and returns the first difference."""
    os.sync()
    if is_cold:
        forget(tool.directory)
    target = tool.directory / "restored"
    target.mkdir()
    results["restore"].append(measure(tool, tool.restore(len(paths) - 1, target), target))
    last = paths[-1]
    found = difference(last, target.joinpath(*last.parts[1:]))
    shutil.rmtree(target)
    return found


def paths_of(source, by_versions):
    """The paths that become one snapshot each."""
    if not by_versions or not source.is_dir():
        return [source]
    files = [path for path in source.iterdir() if path.is_file() and not path.is_symlink()]
    return sorted(files, key=lambda path: os.fsencode(path.name)) or sys.exit(f"peers.py: {source} holds no files")


def row(source, tool, paths, results, is_same):
    """One line of the table."""
    medians = {phase: [median(column) for column in zip(*rounds)] for phase, rounds in results.items()}
    (wall, cpu, memory), (stored,), back = medians["backup"], medians["stored"], medians["restore"]
    again, file = (f"{medians[phase][0]:.2f}" if phase in medians else "-" for phase in ("again", "file"))
    total, last = bytes_of(paths), bytes_of(paths[-1:])
    numbers = [f"{total / 1e6:.1f}", len(paths), f"{wall:.2f}", f"{cpu:.2f}", f"{memory / 1024:.0f}",
        f"{stored / 1e6:.1f}", f"{total / stored:.2f}", again, file, f"{back[0]:.2f}", f"{back[1]:.2f}",
        f"{back[2] / 1024:.0f}", f"{last / 1e6 / max(back[0], 0.005):.0f}"]
    return line("/".join(source.parts[-2:])[-24:], tool.name, numbers + ["yes" if is_same else "NO"])


def line(name, tool, cells):
    return f"{name:<24} {tool:<10}" + "".join(f" {cell:>9}" for cell in cells)


def bounds(source):
    """Lines with the bytes and times of what packs all files as one and reads all of it for any file."""
    directory, name = shlex.quote(str(source.parent)), shlex.quote(source.name)
    tar = f"tar --sort=name -cf - -C {directory} {name}"
    # The program, how it packs into `packed`, and how it unpacks that; the directory is one of its own.
    packers = [
        ("zstd", "zstd-19", f"{tar} | zstd -19 --long=31 -qfo packed", "zstd -dqc --long=31 packed > /dev/null"),
        ("lrzip", "lrzip-z", f"{tar} > tar && lrzip -q -z -o packed tar && rm tar",
            "lrzip -q -d -o - packed > /dev/null"),
        ("zpaq", "zpaq-3",
            f"cd {directory} && zpaq a $OLDPWD/packed.zpaq {name} -m3 && cd - && mv packed.zpaq packed",
            "mv packed packed.zpaq && mkdir all && cd all && zpaq x ../packed.zpaq && cd .. && mv packed.zpaq packed"),
    ]
    if source.is_dir():
        git = f"git --git-dir=packed --work-tree={directory}/{name} -c user.name=x -c user.email=x"
        packers.append(("git", "git-250", f"git init -q --bare packed && {git} add -Af . && {git} commit -qm all && "
            "git --git-dir=packed repack -qadf --depth=50 --window=250 && git --git-dir=packed prune",
            "git --git-dir=packed archive HEAD > /dev/null"))
    for program, shown, *commands in packers:
        if not shutil.which(program):
            print(f"peers.py: {program} is missing, skipped", file=sys.stderr)
            continue
        times = []
        with tempfile.TemporaryDirectory() as work:
            for command in commands:
                start = time.perf_counter()
                script = ["bash", "-c", f"set -o pipefail; {command}"]
                subprocess.run(script, check=True, cwd=work, stdout=subprocess.DEVNULL)
                times.append(f"{time.perf_counter() - start:.2f}")
            packed = Path(work, "packed")
            stored, total = bytes_of([packed]), bytes_of([source])
        sizes = [f"{stored / 1e6:.1f}", f"{total / stored:.2f}"]
        cells = [f"{total / 1e6:.1f}", 1, times[0], "-", "-", *sizes, "-", times[1], times[1], "-", "-", "-", "-"]
        yield line("/".join(source.parts[-2:])[-24:], shown, cells)


def compare(source, tools, arguments):
    """Lines of the table for a set, and whether everything was restored unchanged."""
    paths = paths_of(source, arguments.versions)
    tools = [tool for tool in tools if tool.takes(paths)]
    results, differing = {tool: defaultdict(list) for tool in tools}, set()
    for number in range(arguments.rounds):
        first = number % len(tools)
        order = tools[first:] + tools[:first]
        for tool in order:
            run_backup(tool, paths, arguments.cold, results[tool])
        for tool in order:
            if found := run_restore(tool, paths, not arguments.warm, results[tool]):
                print(f"peers.py: {tool.name} restored with a difference: {found}", file=sys.stderr)
                differing.add(tool)
        for tool in order:
            shutil.rmtree(tool.directory)
    rows = [row(source, tool, paths, results[tool], tool not in differing) for tool in tools]
    return rows + (list(bounds(source)) if arguments.bounds else []), not differing


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--versions", action="store_true", help="make each file of the directory a snapshot")
    parser.add_argument("--warm", action="store_true", help="restore with the repository in the page cache")
    parser.add_argument("--strongest", action="store_true", help="give each tool its strongest compression")
    parser.add_argument("--cold", action="store_true", help="back up sources that are not in the page cache")
    parser.add_argument("--bounds", action="store_true", help="measure packers that read all for one file, too")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", type=Path, default=Path("peers-work"), metavar="DIR",
        help="working directory; must not exist")
    parser.add_argument("sets", nargs="+", metavar="SET", type=Path)
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error("--rounds must be at least 1")
    for path in arguments.sets:
        if not path.exists():
            parser.error(f"no {path}")
    if arguments.work.exists():
        parser.error(f"{arguments.work} exists")
    return arguments


def main():
    arguments = parse()
    work = arguments.work.resolve()
    tools, missing = [], []
    kinds = (Fhrd, FhrdEncrypted, Restic, Borg, BorgEncrypted, Rustic, Bupstash, Zipnn)
    if arguments.strongest:
        kinds = (FhrdMax, FhrdEncryptedMax, ResticMax, BorgMax, BorgEncryptedMax, RusticMax, BupstashMax)
    for tool in [kind(work) for kind in kinds]:
        version = tool.version()
        (tools if version else missing).append(tool)
        print(f"{tool.name}: {version or 'missing, skipped'}", flush=True)
    if not tools:
        sys.exit("peers.py: no tool found")
    work.mkdir(parents=True)
    lines, is_all_same = [], True
    for source in map(Path.resolve, arguments.sets):
        rows, is_same = compare(source, tools, arguments)
        lines += rows
        is_all_same &= is_same
    shutil.rmtree(work)
    state = "warm" if arguments.warm else "cold"
    sources = "dropped from the page cache" if arguments.cold else "in the page cache"
    print(f"medians of {arguments.rounds} rounds; sources {sources}; restore of the last snapshot, page cache {state}")
    print(line("set", "tool", TITLES + ["identical"]), *lines, sep="\n")
    if missing:
        print("missing:", ", ".join(tool.name for tool in missing))
    return 0 if is_all_same else 1


if __name__ == "__main__":
    sys.exit(main())
