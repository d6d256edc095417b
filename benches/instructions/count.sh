#!/usr/bin/env bash
# Instructions that each kernel of src/kernel/counted.rs takes for a byte or symbol on 64-bit ARM: with the portable
# loops and with those for NEON. They are executed by qemu-user and counted by a plugin. They are no times: an
# instruction may take several.
#
#   benches/instructions/count.sh [PATTERN]
#
# It needs Debian's packages qemu-user, gcc, gcc-aarch64-linux-gnu and libc6-dev-arm64-cross, and the standard library of
# Rust for aarch64-unknown-linux-gnu. BINARY=PATH names a test binary that is built already.
set -euo pipefail
cd "$(dirname "$0")/../.."
pattern=${1:-.}
target=aarch64-unknown-linux-gnu
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

gcc -shared -fPIC -O2 -o "$scratch/plugin.so" benches/instructions/plugin.c
if [ -z "${BINARY:-}" ]; then
  export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
  BINARY=$(cargo test --locked --release --package fhrd --lib --no-run --target $target --message-format json \
    | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -1)
fi

# Runs one work FEATURES NAME RUNS; prints the instructions of the whole process.
executed() {
  FHRD_CPU_FEATURES=$1 FHRD_TEST_KERNEL=$2 FHRD_TEST_KERNEL_RUNS=$3 \
    qemu-aarch64 -L /usr/aarch64-linux-gnu -plugin "$scratch/plugin.so" \
    "$BINARY" --exact kernel::counted::work --ignored --test-threads 1 2>&1 | sed -n 's/^instructions //p'
}

names() {
  qemu-aarch64 -L /usr/aarch64-linux-gnu "$BINARY" --exact kernel::counted::work --ignored --nocapture \
    | sed -n 's/^.*work: //p' | grep -E "$pattern"
}

echo "| kernel | portable | NEON | share |"
echo "|---|---|---|---|"
# Two runs more, less what a process takes anyway.
names | while read -r name; do
  portable=$(($(executed portable "$name" 3) - $(executed portable "$name" 1)))
  neon=$(($(executed neon "$name" 3) - $(executed neon "$name" 1)))
  awk -v name="$name" -v a="$portable" -v b="$neon" -v of=$((2 * 65536)) \
    'BEGIN { printf "| %s | %.2f | %.2f | %.2f |\n", name, a / of, b / of, b / a }'
done
