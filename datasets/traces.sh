#!/bin/sh
# Traces of the nine Django archives that datasets/django.sh builds, one each, for configs/bench/trace.toml.
#
#   datasets/traces.sh CORPUS      writes CORPUS/traces/Django-*.trace; FHRD=./target/release/fhrd selects another program
#
# Chunks are 8 KiB on average, like Destor's. `CHUNK_KIB=64 datasets/traces.sh CORPUS` makes larger ones.
set -eu
corpus=${1:?usage: datasets/traces.sh CORPUS}
average=${CHUNK_KIB:-8}
mkdir -p "$corpus/traces"
config=$(mktemp)
trap 'rm -f "$config"' EXIT
cat > "$config" <<TOML
[repository]
chunker = "fastcdc"
chunk_bytes_min = "$((average / 4)) KiB"
chunk_bytes_avg = "$average KiB"
chunk_bytes_max = "$((average * 8)) KiB"
TOML
for version in 5.1.15 5.2 5.2.1 5.2.2 5.2.3 5.2.4 5.2.5 5.2.6 5.2.7; do
  rm -f "$corpus/traces/Django-$version.trace"
  "${FHRD:-fhrd}" trace "$corpus/code/Django-$version.tar" --config "$config" --output "$corpus/traces/Django-$version.trace" --quiet
done
