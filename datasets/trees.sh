#!/bin/bash
# The first, third, fifth and seventh source archive of Django unpacked: 27,000 small files, mostly equal or near versions.
#
#   datasets/trees.sh CORPUS      writes CORPUS/trees/Django-* from CORPUS/code (datasets/django.sh)
#
# Needs bash and tar.

set -euo pipefail

corpus=${1:?usage: trees.sh CORPUS}
mkdir -p "$corpus/trees"
for version in 5.1.15 5.2.1 5.2.3 5.2.5; do
  archive="$corpus/code/Django-$version.tar"
  [ -s "$archive" ] || { echo "$archive is missing: datasets/django.sh writes it" >&2; exit 1; }
  tar -xf "$archive" -C "$corpus/trees" --no-same-owner
done
