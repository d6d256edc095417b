#!/usr/bin/env bash
# Runs every measurement of configs/bench on a corpus, one after another, and continues after one that fails.
#
#   datasets/experiments.sh CORPUS OUT [NAME...]
#
#   CORPUS   directory with the data that datasets/manifests describe; generated data goes to target/bench
#   OUT      receives OUT/NAME with the report and OUT/NAME.log with the output, for each configs/bench/NAME.toml
#   NAME     run only these
#
# The program is target/release/fhrd, or the value of FHRD; fhrd-bench is beside it or on PATH. A measurement without its data is skipped, and the missing
# data is printed (`fhrd bench --dry-run`). Each measurement prints a line when it ends. The failed ones are printed
# again at the end, with their last line of output. Exits with code 1 if any failed, but not if one was skipped.

set -euo pipefail

usage='usage: experiments.sh CORPUS OUT [NAME...]'
corpus=$(realpath "${1:?$usage}")
out=$(realpath -m "${2:?$usage}")
shift 2
fhrd=$(realpath "${FHRD:-target/release/fhrd}")
[ -x "$fhrd" ] || { echo "experiments.sh: no program at $fhrd" >&2; exit 2; }
cd "$(dirname "$0")/.."
export FHRD_CORPUS=$corpus
mkdir -p "$out"

configs=()
for name in "$@"; do configs+=("configs/bench/$name.toml"); done
[ "${#configs[@]}" -gt 0 ] || configs=(configs/bench/*.toml)

failed=()
fail() { # NAME LOG
    failed+=("$1: $(tail -n 1 "$2")")
    echo "$1: failed, see $2"
}
for config in "${configs[@]}"; do
    name=$(basename "$config" .toml)
    log=$out/$name.log
    if ! "$fhrd" bench --dry-run "$config" > "$log" 2>&1; then
        fail "$name" "$log"
        continue
    fi
    missing=$(sed -n 's/^  missing: /  /p' "$log")
    if [ -n "$missing" ]; then
        printf '%s: skipped, this is missing:\n%s\n' "$name" "$missing"
        continue
    fi
    SECONDS=0
    if "$fhrd" bench "$config" --out "$out/$name" > "$log" 2>&1; then
        echo "$name: done in $SECONDS s, $out/$name/report.html"
    else
        fail "$name" "$log"
    fi
done
[ "${#failed[@]}" -eq 0 ] || { printf 'failed: %s\n' "${failed[@]}"; exit 1; }
