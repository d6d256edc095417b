#!/usr/bin/env python3
"""Makes a series of versions as tar files v01.tar, v02.tar, ... Each adds a day of work to the previous one.

    datasets/versions.py SOURCE OUTPUT [--versions 20] [--files 0.03] [--lines 0.01] [--seed 1] [--bytes-max MB]
    datasets/versions.py --git REPOSITORY OUTPUT [--versions 20] [--step 25] [--until HEAD]

SOURCE is a directory or a tar file (also compressed). Each day edits the fraction --files of the files, and in each of
them the fraction --lines of the lines, at least one. Lines are reworded, inserted and deleted. In files that are not text, ranges
of 16 bytes are overwritten. A day also adds, deletes and renames a few files: of each kind a fortieth of the number
edited, at least one. Words and lines come from the files themselves, so new data compresses like the old.

With --git the versions are real: every --step-th commit before --until along first parents, oldest first.

A tar file depends only on names, modes and content: entries are sorted, owner and times fixed. The same arguments give
the same bytes. Prints what changed. Needs Python 3.9 or newer, nothing else (and git for --git).
"""

import argparse
import io
import os
import random
import stat
import subprocess
import sys
import tarfile

TIME = 1_600_000_000
REGULAR, LINK = "file", "link"


def read_directory(directory, bytes_max):
    """Files and links below a directory: {path: (kind, mode, content)}, in path order up to bytes_max of content."""
    tree, total = {}, 0
    for parent, directories, names in os.walk(directory):
        directories.sort()
        for name in sorted(names + [name for name in directories if os.path.islink(os.path.join(parent, name))]):
            path = os.path.join(parent, name)
            mode = os.lstat(path).st_mode
            inner = os.path.relpath(path, directory)
            if stat.S_ISLNK(mode):
                tree[inner] = (LINK, 0o777, os.readlink(path).encode(errors="surrogateescape"))
            elif stat.S_ISREG(mode):
                total += os.path.getsize(path)
                if total > bytes_max:
                    return tree
                with open(path, "rb") as file:
                    tree[inner] = (REGULAR, mode & 0o777, file.read())
    return tree


def read_tar(archive, bytes_max):
    """The same from an open tar file."""
    tree, total = {}, 0
    for member in archive:
        if member.issym():
            tree[member.name] = (LINK, 0o777, member.linkname.encode(errors="surrogateescape"))
        elif member.isreg():
            total += member.size
            if total > bytes_max:
                return tree
            tree[member.name] = (REGULAR, member.mode & 0o777, archive.extractfile(member).read())
    return tree


def write_tar(tree, path):
    """Writes a tree with its directories, sorted, owner and times fixed."""
    directories = {path[: at] for path in tree for at, letter in enumerate(path) if letter == "/" and at}
    with tarfile.open(path + ".part", "w", format=tarfile.GNU_FORMAT, encoding="utf-8") as archive:
        for name in sorted(directories | set(tree)):
            member = tarfile.TarInfo(name)
            member.mtime, member.uname, member.gname = TIME, "root", "root"
            content = None
            if name in tree:
                kind, member.mode, content = tree[name]
                if kind == LINK:
                    member.type, member.linkname = tarfile.SYMTYPE, content.decode(errors="surrogateescape")
                    content = None
                else:
                    member.size = len(content)
            else:
                member.type, member.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(member, io.BytesIO(content) if content is not None else None)
    os.replace(path + ".part", path)


def is_text(content):
    return b"\0" not in content[:8192]


def reword(line, words, dice):
    """The line with one of its words replaced, or with one more."""
    body = line.rstrip(b"\r\n")
    end = line[len(body):]
    indent = body[: len(body) - len(body.lstrip())]
    parts = body.split()
    if not parts:
        return indent + dice.choice(words) + end
    parts[dice.randrange(len(parts))] = dice.choice(words)
    return indent + b" ".join(parts) + end


def edit_text(content, fraction, words, dice):
    """Content with a fraction of its lines changed, and how many those are."""
    lines = content.splitlines(keepends=True) or [b"\n"]
    count = max(1, round(len(lines) * fraction))
    for _ in range(count):
        at = dice.randrange(len(lines)) if lines else 0
        what = dice.random()
        if not lines or what < 0.2:
            indent = lines[at][: len(lines[at]) - len(lines[at].lstrip(b" \t"))] if lines else b""
            new = b" ".join(dice.choice(words) for _ in range(dice.randint(3, 10)))
            lines.insert(at, indent + new + b"\n")
        elif what < 0.35:
            del lines[at]
        else:
            lines[at] = reword(lines[at], words, dice)
    return b"".join(lines), count


def edit_binary(content, fraction, dice):
    """Content with ranges of 16 bytes overwritten, and how many."""
    content, count = bytearray(content), max(1, round(len(content) * fraction / 16))
    for _ in range(count):
        at = dice.randrange(max(1, len(content) - 16))
        content[at : at + 16] = dice.randbytes(min(16, len(content) - at))
    return bytes(content), count


def new_file(tree, names, words, dice):
    """Content of a new file: parts of old files between new lines."""
    lines = []
    for _ in range(dice.randint(1, 4)):
        old = tree[dice.choice(names)][2].splitlines(keepends=True)
        start = dice.randrange(max(1, len(old)))
        lines += old[start : start + dice.randint(5, 40)]
        for _ in range(dice.randint(5, 40)):
            lines.append(b" ".join(dice.choice(words) for _ in range(dice.randint(2, 12))) + b"\n")
    return b"".join(lines)


def word_pool(tree, dice):
    """Some thousand words of the texts."""
    texts = [path for path in sorted(tree) if tree[path][0] == REGULAR and is_text(tree[path][2])]
    words = set()
    for path in dice.sample(texts, min(200, len(texts))):
        words.update(word for word in tree[path][2][:20000].split() if len(word) < 30)
    return sorted(words) or [b"word"]


def one_day(tree, options, words, day, dice):
    """Changes the tree like a day of work; returns counts of the changes."""
    regular = sorted(path for path in tree if tree[path][0] == REGULAR and tree[path][2])
    texts = [path for path in regular if is_text(tree[path][2])]
    edited = dice.sample(regular, min(len(regular), max(1, round(len(regular) * options.files))))
    changed = 0
    for path in edited:
        kind, mode, content = tree[path]
        if is_text(content):
            content, count = edit_text(content, options.lines, words, dice)
        else:
            content, count = edit_binary(content, options.lines, dice)
        tree[path] = (kind, mode, content)
        changed += count
    few = max(1, len(edited) // 40)
    untouched = sorted(set(regular) - set(edited))
    moved = dice.sample(untouched, min(len(untouched), 2 * few))
    deleted, renamed = moved[:few], moved[few:]
    for path in deleted:
        del tree[path]
    for path in renamed:
        stem, extension = os.path.splitext(path)
        directory = os.path.dirname(dice.choice(regular)) if dice.random() < 0.5 else os.path.dirname(path)
        tree[os.path.join(directory, f"{os.path.basename(stem)}_{day}{extension}")] = tree.pop(path)
    sources = [path for path in texts if path in tree] or [path for path in regular if path in tree]
    added = 0
    for number in range(few if sources else 0):
        beside = dice.choice(sources)
        extension = os.path.splitext(beside)[1]
        path = os.path.join(os.path.dirname(beside), f"new_{day}_{number}{extension}")
        tree[path] = (REGULAR, 0o644, new_file(tree, sources, words, dice))
        added += len(tree[path][2])
    return [len(edited), changed, few if sources else 0, len(deleted), len(renamed), added]


def git(repository, *arguments):
    return subprocess.run(["git", "-C", repository, *arguments], check=True, stdout=subprocess.PIPE).stdout


def commits(options):
    """The commits of the series, oldest first."""
    span = str((options.versions - 1) * options.step + 1)
    listed = git(options.git, "rev-list", "--first-parent", "-n", span, options.until).decode().split()
    return listed[:: options.step][::-1]


def row(cells):
    print("  ".join(f"{cell:>12}" for cell in cells), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", nargs="?", help="directory or tar file")
    parser.add_argument("output", help="directory for the versions; must be empty or absent")
    parser.add_argument("--versions", type=int, default=20)
    parser.add_argument("--files", type=float, default=0.03, help="fraction of the files edited a day")
    parser.add_argument("--lines", type=float, default=0.01, help="fraction of an edited file's lines")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bytes-max", type=float, default=100, metavar="MB", help="most content to read from SOURCE")
    parser.add_argument("--git", metavar="REPOSITORY", help="take versions from this history")
    parser.add_argument("--step", type=int, default=25, help="commits from one version to the next")
    parser.add_argument("--until", default="HEAD", metavar="COMMIT", help="the last version")
    options = parser.parse_args()
    if (options.source is None) == (options.git is None):
        parser.error("give either SOURCE or --git")
    if options.versions < 1 or options.step < 1:
        parser.error("--versions and --step must be at least 1")
    os.makedirs(options.output, exist_ok=True)
    if os.listdir(options.output):
        parser.error(f"{options.output} is not empty")
    path_of = lambda number: os.path.join(options.output, f"v{number:0{max(2, len(str(options.versions)))}}.tar")

    if options.git:
        row(["version", "commit", "files", "bytes"])
        for number, commit in enumerate(commits(options), 1):
            with tarfile.open(fileobj=io.BytesIO(git(options.git, "archive", "--format=tar", commit))) as archive:
                tree = read_tar(archive, float("inf"))
            write_tar(tree, path_of(number))
            row([os.path.basename(path_of(number)), commit[:12], len(tree), os.path.getsize(path_of(number))])
        return

    dice = random.Random(options.seed)
    bytes_max = options.bytes_max * 1e6
    if os.path.isdir(options.source):
        tree = read_directory(options.source, bytes_max)
    else:
        with tarfile.open(options.source) as archive:
            tree = read_tar(archive, bytes_max)
    if not any(kind == REGULAR and content for kind, _, content in tree.values()):
        sys.exit(f"{options.source} holds no files with content")
    words = word_pool(tree, dice)
    row(["version", "edited", "changes", "added", "deleted", "renamed", "bytes added", "files", "bytes"])
    done = [0] * 6
    for number in range(1, options.versions + 1):
        if number > 1:
            done = one_day(tree, options, words, number, dice)
        write_tar(tree, path_of(number))
        row([os.path.basename(path_of(number)), *done, len(tree), os.path.getsize(path_of(number))])


if __name__ == "__main__":
    main()
