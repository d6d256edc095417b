#!/usr/bin/env bash
# Builds what a release consists of: for each target a static program in an archive and a Debian package, and a Python
# wheel for its processor; the sources of the Python package; an image for containers; the list of components; checksums.
# Two builds of one commit give the same bytes, in whatever directories.
#
#   dist/build.sh OUT [TARGET...]
#
# OUT is a directory that does not exist. By default both targets are built. It needs Rust with rustup, a C compiler, git
# and Python 3 with venv. The other tools come from the registries, into FHRD_DIST_TOOLS or target/dist-tools: zig, which
# compiles C for any target, and the tools of cargo below. Variables:
#
#   FHRD_DIST_TOOLS   the directory of these tools
#   FHRD_DIST_NATIVE  a program of this version that runs here and writes the manual. Without it, that is one of the targets
#                     if there is one for this processor, else a program that is built for that alone
#   FHRD_DIST_WHEELS  `no` leaves out the Python wheels and the sources of the Python package
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -ge 1 ] || { echo "usage: dist/build.sh OUT [TARGET...]" >&2; exit 2; }
[ ! -e "$1" ] || { echo "$1 exists" >&2; exit 1; }
case "$PWD$HOME" in *[[:space:]]*) echo "compilers get their flags separated by spaces, so no path may have one" >&2; exit 1 ;; esac
mkdir -p "$1"
out=$(cd "$1" && pwd)
shift
[ $# -gt 0 ] || set -- x86_64-unknown-linux-musl aarch64-unknown-linux-musl

wheels=${FHRD_DIST_WHEELS:-yes}

python_packages=(cargo-zigbuild==0.24.1 ziglang==0.17.1 maturin==1.16.0)
cargo_tools=(cargo-auditable@0.7.7 cargo-deb@3.8.0 cargo-cyclonedx@0.5.9)

step() { echo "+ $(date +%T) $*"; }

# The tools. Each runs for a second, so they are compiled without optimisation.
tools=${FHRD_DIST_TOOLS:-$PWD/target/dist-tools}
mkdir -p "$tools"
if [ ! -x "$tools/python/bin/maturin" ]; then
  step "install ${python_packages[*]}"
  python3 -m venv "$tools/python"
  "$tools/python/bin/pip" install --quiet --disable-pip-version-check "${python_packages[@]}"
fi
for tool in "${cargo_tools[@]}"; do
  if ! grep -qsF "\"${tool%@*} ${tool#*@} " "$tools/.crates.toml"; then
    step "install $tool"
    CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_OPT_LEVEL=0 cargo install --quiet --locked --root "$tools" "$tool"
  fi
done
export PATH="$tools/bin:$tools/python/bin:$PATH"

# What must not depend on where and when it is built.
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
FHRD_COMMIT=$(git describe --always --dirty --abbrev=12 --exclude '*')
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export FHRD_COMMIT SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC ZERO_AR_DATE=1
cargo_home=${CARGO_HOME:-$HOME/.cargo}
remap="--remap-path-prefix=$PWD=/fhrd --remap-path-prefix=$cargo_home=/cargo --remap-path-prefix=$HOME=/home"
c_remap="-ffile-prefix-map=$PWD=/fhrd -ffile-prefix-map=$cargo_home=/cargo"

# archive NAME FILE...: a tar archive of entries of the current directory.
archive() {
  local name=$1
  shift
  tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode='u+w,go-w,a+rX' -cf - "$@" |
    gzip -n -9 > "$name"
}

toolchain=$(rustup show active-toolchain | cut -d' ' -f1)
# with_flags COMMAND...: builds for any target.
with_flags() {
  RUSTFLAGS="$remap" CFLAGS="$c_remap" CXXFLAGS="$c_remap" CARGO_PROFILE_RELEASE_STRIP=symbols "$@"
}

for target in "$@"; do
  step "build fhrd $version ($FHRD_COMMIT) for $target"
  rustup target add --toolchain "$toolchain" "$target" > /dev/null 2>&1
  with_flags cargo auditable zigbuild --quiet --release --locked --target "$target" -p fhrd
done

# What a reader of the documents in an archive or a package follows a link to.
documents=(README.md CHANGELOG.md SECURITY.md CONTRIBUTING.md RELEASING.md ARCHITECTURE.md)

if [ "$wheels" != no ]; then
  maturin sdist --manifest-path python/Cargo.toml --out "$out"
fi

# The licences of all that the programs and the modules contain. The module carries them, too, and the sources do not.
step "licences"
notices=$PWD/target/NOTICES
zig_library=$("$tools/python/bin/python" -c 'import os, ziglang; print(os.path.dirname(ziglang.__file__))')/lib
python3 dist/notices.py "$notices" "$@" -- \
  "Rust's standard library: MIT OR Apache-2.0=$(rustc --print sysroot)/share/doc/rust/COPYRIGHT-library.html" \
  "musl, the C library of static programs: MIT=$zig_library/libc/musl/COPYRIGHT"
trap 'rm -f python/fhrd/NOTICES' EXIT
cp "$notices" python/fhrd/NOTICES

# A Python is a program of the C library, so its modules are, too: of one that all systems since 2014 have. maturin refuses
# a wheel that needs more of the system than the name of its platform says.
for target in "$@"; do
  [ "$wheels" != no ] || break
  wheel_target=${target/-musl/-gnu}
  step "wheel for $wheel_target"
  rustup target add --toolchain "$toolchain" "$wheel_target" > /dev/null 2>&1
  with_flags maturin build --quiet --release --locked --zig --compatibility manylinux2014 --auditwheel check \
    --target "$wheel_target" --manifest-path python/Cargo.toml --out "$out"
done

# A program that runs here writes the pages of the manual and the completions, which are the same for all targets.
step "manual and completions"
native=${FHRD_DIST_NATIVE:-}
own=$(uname -m)-unknown-linux-musl
case " $* " in *" $own "*) native=${native:-$PWD/target/$own/release/fhrd} ;; esac
if [ -z "$native" ]; then
  # Nobody gets this program, so it is not optimised.
  CARGO_PROFILE_RELEASE_OPT_LEVEL=0 cargo build --quiet --release --locked --target-dir target/dist-native -p fhrd
  native=$PWD/target/dist-native/release/fhrd
fi
pages=target/dist-pages
rm -rf "$pages"
mkdir -p "$pages/man" "$pages/completions"
"$native" man "$pages/man" --quiet
for shell in bash zsh fish; do "$native" completions "$shell" > "$pages/completions/fhrd.$shell"; done

for target in "$@"; do
  step "package for $target"
  name=fhrd-$version-$target
  rm -rf "target/dist-root"
  mkdir -p "target/dist-root/$name"
  cp -r "target/$target/release/fhrd" LICENSE "$notices" "${documents[@]}" "$pages/man" "$pages/completions" \
    "target/dist-root/$name/"
  # Documents link to each other, to their pictures and to these files.
  mkdir -p "target/dist-root/$name/docs" "target/dist-root/$name/tests/independent"
  cp docs/*.md docs/*.svg "target/dist-root/$name/docs/"
  mkdir "target/dist-root/$name/configs"
  cp configs/*.toml "target/dist-root/$name/configs/"
  cp -r docs/systemd "target/dist-root/$name/docs/"
  cp tests/independent/fhrd_restore.py "target/dist-root/$name/tests/independent/"
  (cd target/dist-root && archive "$out/$name.tar.gz" "$name")
  cargo deb --quiet --no-build --no-strip --locked --target "$target" -p fhrd --output "$out/"
  echo "$(stat -c %s "target/$target/release/fhrd") bytes: the program for $target"
done

# Servers of releases write the ~ of a Debian version in another way, and then checksums name files that are not there.
for package in "$out"/*~*.deb; do
  [ ! -e "$package" ] || mv "$package" "$(dirname "$package")/$(basename "$package" | tr '~' '-')"
done

step "image for containers"
python3 dist/image.py "$out/fhrd-$version.oci.tar" "$SOURCE_DATE_EPOCH" "$version" LICENSE "$notices" \
  $(for target in "$@"; do echo "$target=target/$target/release/fhrd"; done)

step "components"
cargo cyclonedx --quiet --format json --spec-version 1.5 --override-filename fhrd-components
python3 dist/components.py fhrd-components.json "$out/fhrd-$version.cdx.json"
find . -name fhrd-components.json -not -path './target/*' -delete

(cd "$out" && stat -c '%s bytes: %n' -- * && sha256sum -- * > SHA256SUMS && cat SHA256SUMS)
