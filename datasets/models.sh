#!/usr/bin/env bash
# Stored size and time of model families: datasets/models.sh CORPUS [FHRD]
# Backs up sets of the models in CORPUS/models, each into a repository of its own, then restores and compares each.
# Prints megabytes of content and of the repository, and wall and CPU seconds of backup and restore.
set -euo pipefail
models=$(realpath "${1:?usage: datasets/models.sh CORPUS [FHRD]}")/models
fhrd=$(realpath "${2:-target/release/fhrd}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export XDG_CACHE_HOME="$work/cache" XDG_DATA_HOME="$work/data"
megabytes() { du -scL --apparent-size -B1000 "$@" | tail -n 1 | awk '{ printf "%.1f", $1 / 1000 }'; }
run() { # TIMES COMMAND…: writes wall and CPU seconds to TIMES
  local times=$1
  shift
  TIMEFORMAT='%R %U %S'
  { time "$@" >"$work/out" 2>"$work/errors"; } 2>"$times" || { cat "$work/errors" >&2; exit 1; }
}
seconds() { awk '{ printf "%.2f / %.2f", $1, $2 + $3 }' "$1"; }
printf '%-34s %9s %9s  %-14s %-14s\n' set content stored 'backup s/CPU' 'restore s/CPU'
measure() { # NAME DIRECTORY…
  local name=$1 paths=()
  shift
  for directory in "$@"; do
    [ -d "$models/$directory" ] || { echo "$name: no $models/$directory" >&2; return; }
    paths+=("$models/$directory")
  done
  rm -rf "$work/repository" "$work/restored"
  "$fhrd" -q --repo "$work/repository" init >/dev/null
  run "$work/backup" "$fhrd" -q --repo "$work/repository" backup "${paths[@]}"
  run "$work/restore" "$fhrd" -q --repo "$work/repository" restore latest --target "$work/restored"
  for path in "${paths[@]}"; do diff -r "$path" "$work/restored/${path#/}"; done
  printf '%-34s %9s %9s  %-14s %-14s\n' "$name" "$(megabytes "${paths[@]}")" "$(megabytes "$work/repository")" \
    "$(seconds "$work/backup")" "$(seconds "$work/restore")"
}
run_a=(minilm-runA-step0010-bf16 minilm-runA-step0020-bf16 minilm-runA-step0030-bf16 minilm-runA-step0040-bf16
  minilm-runA-step0050-bf16)
measure 'BF16 base, B, C, P, run A 10-50' minilm-base-bf16 minilm-ft-B-bf16 minilm-ft-C-bf16 minilm-ft-P-bf16 "${run_a[@]}"
measure 'FP32 base, A2, C' minilm-base-fp32 minilm-ft-A2-fp32 minilm-ft-C-fp32
measure 'FP32 base' minilm-base-fp32
measure 'FP32 base and its casts' minilm-base-fp32 minilm-base-bf16 minilm-base-fp16
measure 'GGUF' minilm-gguf
measure 'torch zip and npz' minilm-torchzip minilm-npz
measure 'synthetic base, two fine-tunes' synthllama-250m-base synthllama-250m-ft1 synthllama-250m-ft2
