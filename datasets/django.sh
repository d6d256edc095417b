#!/bin/bash
# Nine consecutive Django source archives as uncompressed tar files (560 MB): many small changes between versions.
#
#   datasets/django.sh CORPUS      writes CORPUS/code/Django-*.tar
#
# Needs bash, gzip and Python 3 with venv and pip. `FHRD_CORPUS=CORPUS fhrd bench configs/bench/code.toml` uses it.

set -euo pipefail

corpus=${1:?usage: django.sh CORPUS}
mkdir -p "$corpus/code" "$corpus/.download"
python3 -m venv "$corpus/.download/venv"
"$corpus/.download/venv/bin/pip" install -q setuptools==80.9.0 wheel==0.45.1
for version in 5.1.15 5.2 5.2.1 5.2.2 5.2.3 5.2.4 5.2.5 5.2.6 5.2.7; do
  target="$corpus/code/Django-$version.tar"
  [ -s "$target" ] && continue
  (cd "$corpus/.download" && venv/bin/pip download -q --no-deps --no-binary :all: --no-build-isolation "Django==$version") || true
  archive=$(find "$corpus/.download" -maxdepth 1 -iname "django-$version.tar.gz" | head -n 1)
  gzip -dc "${archive:?Django $version could not be downloaded}" > "$target"
done
rm -r "$corpus/.download"
