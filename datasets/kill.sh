#!/bin/bash
# Kills backups of a real directory at random moments and proves that nothing is lost.
#
#   datasets/kill.sh SOURCE [KILLS [WORK [SECONDS [SEED]]]]
#
#   SOURCE   directory to back up; it is only read
#   KILLS    rounds (50)
#   WORK     directory for all output; it must not exist, and is removed at the end (./kill-work)
#   SECONDS  kill between 0 and this many seconds after the start (default, or 0: the duration of one backup)
#   SEED     seed of the random moments (1)
#
# The program is target/release/fhrd, or the value of FHRD. Needs bash, coreutils, find, diff and python3.
#
# Containers have 1 MiB, so that a killed backup leaves some. A base repository with one snapshot (every fourth entry
# of SOURCE) is made once. Each round copies it and
#   1. starts a backup of all of SOURCE and kills it (SIGKILL) at a random moment;
#   2. runs the backup again: it must succeed and adopt the containers of the killed one;
#   3. checks that no temporary file is left;
#   4. restores every snapshot and compares content, types, modes, times and link targets with SOURCE.
# Each round prints one line: the moment, whether the backup was still running, temporary files left by the kill,
# containers adopted, bytes stored by the second run, snapshots compared. At the first difference the script exits with
# code 1 and keeps WORK.

set -euo pipefail

source=$(realpath "${1:?usage: kill.sh SOURCE [KILLS [WORK [SECONDS [SEED]]]]}")
kills=${2:-50}
work=$(realpath -m "${3:-kill-work}")
seconds=${4:-0}
seed=${5:-1}
fhrd=$(realpath "${FHRD:-target/release/fhrd}")

[ -x "$fhrd" ] || { echo "kill.sh: no program at $fhrd" >&2; exit 2; }
[ ! -e "$work" ] || { echo "kill.sh: $work exists" >&2; exit 2; }
mkdir -p "$work"
export XDG_CACHE_HOME="$work/cache" XDG_DATA_HOME="$work/data"
unset FHRD_REPO
export FHRD_CONFIG="$work/config.toml"
printf '[container]\nbytes_target = "1 MiB"\n' > "$FHRD_CONFIG"

fail() {
    echo "kill.sh: round ${round:-0}: $*; see $work" >&2
    exit 1
}

field() {
    python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"
}

# Types, modes, times, sizes, link targets and names below the current directory.
describe() {
    find . -mindepth 1 \( -type d -printf '%y %m %T@ %P\n' -o -type l -printf '%y %T@ %l %P\n' \
        -o -printf '%y %m %T@ %s %P\n' \) | LC_ALL=C sort
}

# Compares the restored entries whose names are on standard input (NUL after each) with the source.
compare() {
    local name
    while IFS= read -r -d '' name; do
        diff -r --no-dereference "$source/$name" "$work/restored$source/$name" > "$work/differences" \
            || fail "content of $name differs"
    done
}

snapshots() {
    "$fhrd" snapshots --json --repo "$work/repository" > "$work/snapshots.json"
    python3 - "$work/snapshots.json" << 'PYTHON'
import json, sys
document = json.load(open(sys.argv[1]))
listed = document if isinstance(document, list) else document["snapshots"]
for snapshot in listed:
    print(snapshot["id"], ",".join(snapshot["tags"]))
PYTHON
}

mapfile -d '' -t all < <(cd "$source" && find . -mindepth 1 -maxdepth 1 -printf '%P\0' | LC_ALL=C sort -z)
[ "${#all[@]}" -gt 0 ] || { echo "kill.sh: $source is empty" >&2; exit 2; }
part=()
for number in "${!all[@]}"; do
    [ $((number % 4)) -ne 0 ] || part+=("${all[$number]}")
done
(cd "$source" && describe) > "$work/source.txt"

"$fhrd" init --quiet --repo "$work/base"
(cd "$source" && "$fhrd" backup --quiet --repo "$work/base" --tag part "${part[@]/#/$source/}")
if [ "$seconds" = 0 ]; then
    cp -a "$work/base" "$work/repository"
    started=$(date +%s%N)
    "$fhrd" backup --quiet --repo "$work/repository" "$source"
    seconds=$(python3 -c 'import sys; print((int(sys.argv[2]) - int(sys.argv[1])) / 1e9)' "$started" "$(date +%s%N)")
    echo "one backup takes $seconds s"
fi
started=$(date +%s%N)
killed=0 left=0 adopted_all=0 compared=0 rounds_adopting=0
mapfile -t moments < <(python3 -c '
import random, sys
random.seed(int(sys.argv[1]))
print(*(f"{random.uniform(0, float(sys.argv[3])):.4f}" for _ in range(int(sys.argv[2]))), sep="\n")' \
    "$seed" "$kills" "$seconds")

for ((round = 1; round <= kills; round++)); do
    rm -rf "$work/repository" "$work/cache"
    cp -a "$work/base" "$work/repository"
    "$fhrd" backup --quiet --repo "$work/repository" --tag killed "$source" 2> "$work/killed.log" &
    process=$!
    sleep "${moments[$((round - 1))]}"
    kill -KILL "$process" 2> "$work/kill.log" || true
    running=no
    if ! wait "$process" 2> "$work/wait.log"; then running=yes; killed=$((killed + 1)); fi
    temporaries=0
    [ ! -d "$work/repository/tmp" ] || temporaries=$(find "$work/repository/tmp" -type f | wc -l)
    left=$((left + temporaries))

    "$fhrd" backup --quiet --json --repo "$work/repository" --tag whole "$source" > "$work/report.json" \
        || fail "the backup after the kill failed"
    adopted=$(field containers_adopted < "$work/report.json")
    stored=$(field bytes_stored < "$work/report.json")
    adopted_all=$((adopted_all + adopted))
    [ "$adopted" -eq 0 ] || rounds_adopting=$((rounds_adopting + 1))
    [ -z "$(find "$work/repository/tmp" -type f 2> "$work/find.log")" ] || fail "temporaries are left"

    here=0
    while read -r id tag; do
        "$fhrd" restore --quiet --repo "$work/repository" --target "$work/restored" "$id" \
            || fail "snapshot $id does not restore"
        if [ "$tag" = part ]; then
            printf '%s\0' "${part[@]}" | compare
            [ "$(cd "$work/restored$source" && find . -mindepth 1 -maxdepth 1 | wc -l)" -eq "${#part[@]}" ] \
                || fail "snapshot $id holds other entries"
        else
            printf '%s\0' "${all[@]}" | compare
            (cd "$work/restored$source" && describe) | diff "$work/source.txt" - > "$work/differences" \
                || fail "metadata in snapshot $id differ"
        fi
        rm -rf "$work/restored"
        here=$((here + 1))
    done < <(snapshots)
    [ "$here" -ge 2 ] || fail "only $here snapshots are listed"
    compared=$((compared + here))
    echo "round $round: at ${moments[$((round - 1))]} s, running $running, temporaries $temporaries," \
        "adopted $adopted, stored $stored, snapshots $here"
done

elapsed=$((($(date +%s%N) - started) / 1000000000))
echo "$kills rounds in $elapsed s: $killed killed while running, $left temporaries left by them and cleaned," \
    "$adopted_all containers adopted in $rounds_adopting rounds, $compared snapshots restored and compared, no difference"
rm -rf "$work"
