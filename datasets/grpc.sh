#!/bin/bash
# Four consecutive source archives of gRPC as uncompressed tar files (326 MB): a large project in C and C++.
#
#   datasets/grpc.sh CORPUS      writes CORPUS/archives/grpcio-*.tar
#
# Needs bash, gzip and Python 3 with venv and pip. PyPI keeps every version.

set -euo pipefail

corpus=${1:?usage: grpc.sh CORPUS}
mkdir -p "$corpus/archives" "$corpus/.download"
python3 -m venv "$corpus/.download/venv"
"$corpus/.download/venv/bin/pip" install -q setuptools==80.9.0 wheel==0.45.1
for version in 1.72.1 1.73.0 1.73.1 1.74.0; do
  target="$corpus/archives/grpcio-$version.tar"
  [ -s "$target" ] && continue
  # pip ends with an error if it cannot build the package; the archive is what counts.
  (cd "$corpus/.download" && venv/bin/pip download -q --no-deps --no-binary :all: --no-build-isolation "grpcio==$version") || true
  archive=$(find "$corpus/.download" -maxdepth 1 -name "grpcio-$version.tar.gz")
  gzip -dc "${archive:?gRPC $version could not be downloaded}" > "$target"
done
rm -r "$corpus/.download"
