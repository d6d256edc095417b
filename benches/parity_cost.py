#!/usr/bin/env python3
"""What parity costs a first backup: bytes, and CPU time in paired rounds.

benches/parity_cost.py FHRD [MIB [ROUNDS]]: backs up MIB (192) of files below /usr/lib and /usr/share, and as much noise, into a new
repository without and with 3 % of parity, in turns, ROUNDS (9) times. Prints bytes of containers and of their parity, and CPU
seconds of the program with all its threads: medians, and the median of the ratios of each round.
"""

import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def make_noise(directory, mib):
    chance = random.Random(1)
    for number in range(mib // 16):
        with open(f"{directory}/{number}", "wb") as file:
            file.write(chance.randbytes(16 << 20))


def copy_files(directory, mib):
    left = mib << 20
    for top in ["/usr/lib", "/usr/share"]:
        for where, _, names in sorted(os.walk(top)):
            for name in sorted(names):
                path = os.path.join(where, name)
                if left <= 0 or os.path.islink(path) or not os.path.isfile(path):
                    continue
                target = directory + path
                os.makedirs(os.path.dirname(target), exist_ok=True)
                shutil.copyfile(path, target)
                left -= os.path.getsize(path)


def bytes_of(repository, kind):
    walked = os.walk(f"{repository}/{kind}")
    return sum(os.path.getsize(os.path.join(where, name)) for where, _, names in walked for name in names)


def back_up(fhrd, home, source, parity):
    repository = f"{home}/repository"
    shutil.rmtree(repository, ignore_errors=True)
    shutil.rmtree(f"{home}/cache", ignore_errors=True)
    environment = {**os.environ, "HOME": home, "XDG_CACHE_HOME": f"{home}/cache", "FHRD_REPO": repository}
    run = lambda *words: subprocess.run([fhrd, "--quiet", *words], check=True, env=environment)
    run("init", *(["--parity", "3%"] if parity else []))
    before = cpu_seconds()
    run("backup", source)
    return cpu_seconds() - before, bytes_of(repository, "containers"), bytes_of(repository, "parity")


def main():
    fhrd, mib, rounds = sys.argv[1], int((sys.argv[2:] + ["192"])[0]), int((sys.argv[3:] + ["9"])[0])
    print("| source | containers, MB | parity, MB | share | CPU s without | CPU s with | ratio |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as home:
        for name, make in [("files of /usr", copy_files), ("noise", make_noise)]:
            source = f"{home}/source"
            os.makedirs(source)
            make(source, mib)
            times, ratios = {False: [], True: []}, []
            for number in range(rounds):
                one = {parity: back_up(fhrd, home, source, parity) for parity in [number % 2 == 0, number % 2 == 1]}
                [times[parity].append(one[parity][0]) for parity in one]
                ratios.append(one[True][0] / one[False][0])
            _, stored, parity = one[True]
            without, with_ = [statistics.median(times[parity]) for parity in [False, True]]
            row = [name, f"{stored / 1e6:.1f}", f"{parity / 1e6:.2f}", f"{100 * parity / stored:.2f} %"]
            row += [f"{without:.2f}", f"{with_:.2f}", f"{statistics.median(ratios):.3f}"]
            print(f"| {' | '.join(row)} |", flush=True)
            shutil.rmtree(source)


main()
