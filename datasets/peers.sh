#!/usr/bin/env bash
# fhrd beside restic and rustic on the same files: whole processes, rounds in turn, one table of medians.
#
#   datasets/peers.sh [--versions] [--warm] [--rounds N] [--work FOLDER] SET...
#
# SET is a folder or a file. Each round makes, with every tool, a new repository, backs the set up and restores the last
# snapshot; the tools take turns at being first. With --versions each regular file of the folder becomes a snapshot of
# its own, in name order: the backup's figures are then the sum over all (the largest for memory), and the last file is
# restored.
#
# The set is read once before each backup, so sources are in the page cache. Before a restore all files of the tool's
# repository and cache are written out and dropped from the page cache (posix_fadvise DONTNEED; no root needed; names
# and inodes stay cached), unless --warm is given. What was restored is compared with the source; a difference is said
# and ends the script with code 1. `MB stored` is what `du` counts in the repository, `CPU s` user and system time,
# `RSS MB` the largest resident memory, `MB/s` the content restored per second.
#
# Tools: FHRD (target/release/fhrd), RESTIC (restic), RUSTIC (rustic); those that are not there are left out and named.
# Needs GNU time and Python 3. Works in --work (peers-work), which must not exist, and removes it.

set -euo pipefail

versions=no cold=yes rounds=3 work=peers-work sets=()
usage() { sed -n '2,/^$/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
while [ $# -gt 0 ]; do
    case $1 in
        --versions) versions=yes ;;
        --warm) cold=no ;;
        --rounds) rounds=${2:?}; shift ;;
        --work) work=${2:?}; shift ;;
        -*) usage ;;
        *) sets+=("$(realpath "$1")") ;;
    esac
    shift
done
[ "${#sets[@]}" -gt 0 ] || usage
work=$(realpath -m "$work")
[ ! -e "$work" ] || { echo "peers.sh: $work exists" >&2; exit 2; }
[ -x /usr/bin/time ] || { echo "peers.sh: no /usr/bin/time" >&2; exit 2; }
for set in "${sets[@]}"; do [ -e "$set" ] || { echo "peers.sh: no $set" >&2; exit 2; }; done

export RESTIC_PASSWORD=x RUSTIC_PASSWORD=x
unset FHRD_REPO
fhrd=${FHRD:-target/release/fhrd} restic=${RESTIC:-restic} rustic=${RUSTIC:-rustic}
tools=()
for tool in fhrd restic rustic; do
    if command -v "${!tool}" > /dev/null; then
        tools+=("$tool")
        declare "$tool=$(realpath "$(command -v "${!tool}")")"
        version=$([ "$tool" = restic ] && "${!tool}" version || "${!tool}" --version)
        echo "$tool: ${version%%$'\n'*}"
    else
        echo "$tool: not there (${!tool}), left out"
    fi
done
[ "${#tools[@]}" -gt 0 ] || exit 2
mkdir -p "$work"
samples=$work/samples
: > "$samples"

# Each tool's commands, at the repository "$here/repository" with its cache in "$here/cache".
create() {
    case $1 in
        fhrd) "$fhrd" init -q --repo "$here/repository" ;;
        restic) "$restic" -q --cache-dir "$here/cache" -r "$here/repository" init ;;
        rustic) "$rustic" --log-level error --no-progress -r "$here/repository" --no-cache init ;;
    esac
}
backup_command() {
    case $1 in
        fhrd) command=("$fhrd" backup -q --repo "$here/repository" "$2") ;;
        restic) command=("$restic" -q --cache-dir "$here/cache" -r "$here/repository" backup "$2") ;;
        rustic) command=("$rustic" --log-level error --no-progress -r "$here/repository" --no-cache backup "$2") ;;
    esac
}
restore_command() {
    case $1 in
        fhrd) command=("$fhrd" restore -q --repo "$here/repository" latest --target "$2") ;;
        restic) command=("$restic" -q --cache-dir "$here/cache" -r "$here/repository" restore latest --target "$2") ;;
        rustic) command=("$rustic" --log-level error --no-progress -r "$here/repository" --no-cache restore latest "$2") ;;
    esac
}

# Runs the command and appends its set, tool, round, phase, wall s, CPU s and KB to the samples.
measure() {
    if ! XDG_CACHE_HOME="$here/cache" /usr/bin/time -q -o "$work/time" -f '%e %U %S %M' "${command[@]}" \
        > "$work/output" 2>&1; then
        cat "$work/output" >&2
        echo "peers.sh: $2 of $1 failed; see $work" >&2
        exit 1
    fi
    read -r wall user system memory < "$work/time"
    printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$set" "$1" "$round" "$2" "$wall" "$user" "$system" "$memory" >> "$samples"
}

# Writes out the files below a folder and drops them from the page cache.
forget() {
    python3 - "$1" << 'PYTHON'
import os, sys
for place, _, names in os.walk(sys.argv[1]):
    for name in names:
        file = os.open(os.path.join(place, name), os.O_RDONLY | os.O_NOFOLLOW)
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)
PYTHON
}

round_of() {
    local tool path
    for tool in "${order[@]}"; do
        here=$work/$tool
        mkdir -p "$here"
        XDG_CACHE_HOME="$here/cache" create "$tool" > "$work/output" 2>&1 || { cat "$work/output" >&2; exit 1; }
        find "${paths[@]}" -type f -print0 | xargs -0 -r cat > /dev/null
        sync
        for path in "${paths[@]}"; do
            backup_command "$tool" "$path"
            measure "$tool" backup
        done
        stored=$(du -s -B1 "$here/repository" | cut -f1)
        printf '%s\t%s\t%s\tstored\t%s\n' "$set" "$tool" "$round" "$stored" >> "$samples"
    done
    for tool in "${order[@]}"; do
        here=$work/$tool
        sync
        if [ "$cold" = yes ]; then forget "$here"; fi
        restore_command "$tool" "$work/restored"
        measure "$tool" restore
        if ! diff -r --no-dereference "$last" "$work/restored$last" > "$work/differences" 2>&1; then
            echo "peers.sh: $tool restored $last with differences: $(head -n 1 "$work/differences")" >&2
            printf '%s\t%s\t%s\tdiffers\n' "$set" "$tool" "$round" >> "$samples"
        fi
        rm -rf "$work/restored"
    done
    for tool in "${order[@]}"; do rm -rf "${work:?}/$tool"; done
}

for set in "${sets[@]}"; do
    paths=("$set")
    if [ "$versions" = yes ] && [ -d "$set" ]; then
        mapfile -d '' -t paths < <(find "$set" -mindepth 1 -maxdepth 1 -type f -print0 | LC_ALL=C sort -z)
        [ "${#paths[@]}" -gt 0 ] || { echo "peers.sh: $set holds no files" >&2; exit 2; }
    fi
    last=${paths[-1]}
    size() { find "$@" -type f -printf '%s\n' | awk '{ sum += $1 } END { printf "%d", sum }'; }
    printf '%s\tall\t0\tsizes\t%s\t%s\t%s\n' "$set" "$(size "${paths[@]}")" "$(size "$last")" "${#paths[@]}" >> "$samples"
    for ((round = 1; round <= rounds; round++)); do
        first=$(((round - 1) % ${#tools[@]}))
        order=("${tools[@]:first}" "${tools[@]:0:first}")
        round_of
    done
done

status=0
python3 - "$samples" "$cold" "$rounds" << 'PYTHON' || status=$?
import os, sys
from collections import defaultdict
from statistics import median

sizes, figures, differs = {}, defaultdict(lambda: defaultdict(dict)), set()
order = []
for line in open(sys.argv[1]):
    name, tool, turn, phase, *values = line.rstrip("\n").split("\t")
    if phase == "sizes":
        sizes[name] = [int(value) for value in values]
        continue
    if (name, tool) not in order:
        order.append((name, tool))
    rounds = figures[name, tool][phase]
    if phase == "differs":
        differs.add((name, tool))
    elif phase == "stored":
        rounds[turn] = [int(values[0])]
    else:
        wall, user, system, memory = map(float, values)
        so_far = rounds.get(turn, [0, 0, 0])
        rounds[turn] = [so_far[0] + wall, so_far[1] + user + system, max(so_far[2], memory)]
restore = "cold" if sys.argv[2] == "yes" else "warm"
print(f"medians of {sys.argv[3]} rounds; restore of the last snapshot, page cache {restore}")
titles = ["MB", "snapshots", "backup s", "CPU s", "RSS MB", "MB stored", "ratio", "restore s", "CPU s", "RSS MB", "MB/s"]
line = lambda name, tool, cells: print(f"{name:<24} {tool:<8}" + "".join(f" {cell:>9}" for cell in cells))
line("set", "tool", titles + ["identical"])
for name, tool in sorted(order, key=lambda key: (list(sizes).index(key[0]), key[1])):
    middle = lambda phase: [median(column) for column in zip(*figures[name, tool][phase].values())]
    (wall, cpu, memory), (stored,) = middle("backup"), middle("stored")
    total, last, count = sizes[name]
    back = middle("restore")
    label = "/".join(name.split("/")[-2:])[-24:]
    line(label, tool, [f"{total / 1e6:.1f}", count, f"{wall:.2f}", f"{cpu:.2f}", f"{memory / 1024:.0f}",
        f"{stored / 1e6:.1f}", f"{total / stored:.2f}", f"{back[0]:.2f}", f"{back[1]:.2f}", f"{back[2] / 1024:.0f}",
        f"{last / 1e6 / max(back[0], 0.005):.0f}", "NO" if (name, tool) in differs else "yes"])
sys.exit(bool(differs))
PYTHON
rm -rf "$work"
exit "$status"
