#!/usr/bin/env bash
# Checks what dist/build.sh has built: checksums, and that each program, from its archive, its Debian package, its image
# and its Python wheel, backs up and restores without anything else of this machine.
#
#   dist/check.sh OUT
#
# Programs of other processors run under qemu-user. A wheel for 64-bit ARM is tried with a Python of Debian for that
# processor, which is taken from Debian's packages, or with the one that FHRD_DIST_PYTHON names: a command such as
# `qemu-aarch64-static -L ROOT ROOT/usr/bin/python3`. With FHRD_DIST_SDIST=1 the sources of the Python package are built
# without a network, which takes as long as any build. What cannot be checked here is said.
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: dist/check.sh OUT" >&2; exit 2; }
out=$(cd "$1" && pwd)
root=$(cd "$(dirname "$0")/.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

step() { echo "+ $(date +%T) $*"; }
skip() { echo "NOT CHECKED: $*"; }
fail() { echo "FAILED: $*" >&2; exit 1; }

command -v readelf >/dev/null || fail "readelf of binutils is missing"
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$root/Cargo.toml" | head -n 1)
commit=$(git -C "$root" describe --always --dirty --abbrev=12 --exclude '*')

# round_trip PROGRAM PROCESSOR: with an empty environment.
round_trip() {
  local program=$1 processor=$2 runner=()
  if [ "$processor" != "$(uname -m)" ]; then
    command -v "qemu-$processor-static" >/dev/null || { skip "$program: there is no qemu-$processor-static"; return 0; }
    runner=("$(command -v "qemu-$processor-static")")
  fi
  if readelf -l "$program" | grep -q INTERP; then fail "$program is not static"; fi
  restores "${runner[@]}" "$program"
}

# restores COMMAND...: the command says from which commit it is built, and gives back what it has stored.
restores() {
  local home words
  home=$(mktemp -d -p "$scratch")
  [ "$(env -i HOME="$home" "$@" --version | head -n 1)" = "fhrd $version (commit $commit)" ] || fail "$* --version"
  gives_back "$home" "$@"
}

# gives_back HOME COMMAND...
gives_back() {
  local home=$1 words
  shift
  mkdir "$home/source"
  cp -r "$root/docs" "$root/src" "$home/source/"
  for words in "backup source --quiet" "restore latest --target back --quiet" "check --read-data --quiet"; do
    (cd "$home" && env -i HOME="$home" "$@" $words) || fail "$* $words"
  done
  diff -r "$home/source" "$home/back/source" || fail "$* restored something else"
}

# As README.md tells new users to install it, but for what changes the system.
readme_lines() {
  local home line
  home=$(mktemp -d -p "$scratch")
  mkdir -p "$home/.local/bin"
  # The lines are those for x86-64, and the text says what they are elsewhere.
  line=$(sed "s/x86_64/$(uname -m)/" "$root/README.md" | grep "^tar -xzf fhrd-$version-") || fail "README.md unpacks no archive"
  (cd "$out" && HOME=$home bash -ec "$line")
  restores "$home/.local/bin/fhrd"
  compgen -G "$out/*.whl" > /dev/null || return 0
  line=$(sed "s/x86_64/$(uname -m)/; s/ *#.*//" "$root/README.md" | grep "^pip install ./fhrd-") || fail "README.md installs no wheel"
  python3 -m venv "$home/environment"
  if ! "$home/environment/bin/pip" install --quiet --disable-pip-version-check numpy; then
    skip "the wheel as README.md installs it: NumPy cannot be had"
    return 0
  fi
  (cd "$out" && PATH="$home/environment/bin:$PATH" bash -ec "$line --quiet --disable-pip-version-check")
  restores "$home/environment/bin/fhrd"
}

# Sets FHRD_DIST_PYTHON to a Python of 64-bit ARM under an emulator, from Debian's packages in a directory of their own.
python_of_arm() {
  local at="$scratch/arm" apt package
  local tree="$at/tree"
  command -v apt-get >/dev/null && command -v qemu-aarch64-static >/dev/null || return 0
  mkdir -p "$at/state/lists/partial" "$at/cache/archives/partial" "$tree"
  : > "$at/status"
  apt=(apt-get -qq -y -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=root
    -o "Dir::State=$at/state" -o "Dir::State::status=$at/status" -o "Dir::Cache=$at/cache" -o Debug::NoLocking=1)
  "${apt[@]}" update && "${apt[@]}" install --download-only --no-install-recommends python3 || return 0
  for package in "$at"/cache/archives/*.deb; do dpkg-deb -x "$package" "$tree"; done
  FHRD_DIST_PYTHON="$(command -v qemu-aarch64-static) -L $tree $tree/usr/bin/python3"
}

# links DIRECTORY: what its documents refer to is there, but for what only the sources have.
links() {
  python3 - "$1" <<'PYTHON'
import pathlib, re, sys
root, dead, seen = pathlib.Path(sys.argv[1]), [], 0
for page in [*root.glob("*.md"), *root.glob("docs/*.md")]:
    for link in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
        if "://" in link or {"bench", "benches", "datasets"} & set(pathlib.PurePath(link).parts):
            continue
        seen += 1
        if not (page.parent / link).exists():
            dead.append(f"{page.relative_to(root)}: {link}")
assert seen > 100 and not dead, dead or "no links"
print(seen, "links")
PYTHON
}

step "checksums"
(cd "$out" && sha256sum --quiet -c SHA256SUMS)

for archive in "$out"/fhrd-*-unknown-linux-*.tar.gz; do
  step "$(basename "$archive")"
  name=$(basename "$archive" .tar.gz)
  tar -xzf "$archive" -C "$scratch"
  for file in NOTICES man/fhrd.1 man/fhrd-backup.1 completions/fhrd.bash completions/fhrd.zsh; do
    [ -s "$scratch/$name/$file" ] || fail "$name has no $file"
  done
  links "$scratch/$name"
  processor=${name%%-unknown-linux*}
  round_trip "$scratch/$name/fhrd" "${processor##*-}"
done

for wheel in "$out"/*.whl; do
  [ -e "$wheel" ] || { skip "wheels: there are none"; break; }
  step "$(basename "$wheel")"
  directory=$(mktemp -d -p "$scratch")
  python3 -m zipfile -e "$wheel" "$directory/content"
  for file in fhrd/_engine.abi3.so fhrd/py.typed fhrd/NOTICES fhrd-*.dist-info/licenses/LICENSE fhrd-*.dist-info/entry_points.txt; do
    compgen -G "$directory/content/$file" > /dev/null || fail "$wheel has no $file"
  done
  case $wheel in
    *"_$(uname -m).whl")
      # Without NumPy, which the command does not need.
      python3 -m venv "$directory/environment"
      "$directory/environment/bin/pip" install --quiet --disable-pip-version-check --no-index --no-deps "$wheel"
      restores "$directory/environment/bin/fhrd"
      # As `uvx fhrd` runs it, but from files. The script that uv makes calls tools of the system.
      if "$directory/environment/bin/pip" install --quiet --disable-pip-version-check uv==0.13.9 \
        && "$directory/environment/bin/pip" download --quiet --disable-pip-version-check --dest "$directory/needed" numpy; then
        restores env PATH=/usr/bin:/bin "UV_CACHE_DIR=$directory/uv" "$directory/environment/bin/uv" tool run --quiet \
          --offline --no-index --find-links "$directory/needed" --python "$directory/environment/bin/python" --from "$wheel" fhrd
      else
        skip "uvx: uv or NumPy cannot be installed"
      fi
      ;;
    *)
      [ -n "${FHRD_DIST_PYTHON:-}" ] || python_of_arm
      if [ -n "${FHRD_DIST_PYTHON:-}" ]; then
        restores env PYTHONPATH="$directory/content" $FHRD_DIST_PYTHON -m fhrd
      else
        skip "$(basename "$wheel"): FHRD_DIST_PYTHON names no Python for its processor"
      fi
      ;;
  esac
done

for sources in "$out"/fhrd-*.tar.gz; do
  case $sources in *-unknown-linux-*) continue ;; esac
  step "$(basename "$sources")"
  if [ "${FHRD_DIST_SDIST:-}" != 1 ]; then
    skip "$(basename "$sources"): FHRD_DIST_SDIST=1 builds it"
    continue
  fi
  directory=$(mktemp -d -p "$scratch")
  # The crates come first; then no network is needed.
  cargo fetch --quiet --locked --manifest-path "$root/Cargo.toml"
  python3 -m venv "$directory/environment"
  "$directory/environment/bin/pip" install --quiet --disable-pip-version-check maturin==1.16.0
  CARGO_NET_OFFLINE=true PATH="$directory/environment/bin:$PATH" "$directory/environment/bin/pip" install --quiet --disable-pip-version-check --no-index --no-deps \
    --no-build-isolation "$sources"
  gives_back "$(mktemp -d -p "$scratch")" "$directory/environment/bin/fhrd"
done

for package in "$out"/*.deb; do
  step "$(basename "$package")"
  command -v dpkg-deb >/dev/null || { skip "Debian packages: there is no dpkg-deb"; break; }
  directory=$(mktemp -d -p "$scratch")
  # Installed, as into a system of its own.
  mkdir -p "$directory/var/lib/dpkg/info" "$directory/var/lib/dpkg/updates"
  : > "$directory/var/lib/dpkg/status"
  PATH="$PATH:/usr/sbin:/sbin" dpkg --root="$directory" --force-not-root --force-architecture --log="$scratch/dpkg" --install "$package" > "$scratch/installed" \
    || { cat "$scratch/installed"; fail "$package cannot be installed"; }
  [ -s "$directory/usr/share/man/man1/fhrd.1.gz" ] || fail "$package has no manual"
  for file in copyright NOTICES; do
    [ -s "$directory/usr/share/doc/fhrd/$file" ] || fail "$package has no $file"
  done
  # A release candidate sorts before its release.
  expected="${version/-/\~}-1"
  found=$(dpkg-deb -f "$package" Version)
  [ "$found" = "$expected" ] || fail "$package has the version $found, not $expected"
  case $(basename "$package") in *~*) fail "$package: servers of releases change a ~ in names" ;; esac
  links "$directory/usr/share/doc/fhrd"
  case $(dpkg-deb -f "$package" Architecture) in
    amd64) round_trip "$directory/usr/bin/fhrd" x86_64 ;;
    arm64) round_trip "$directory/usr/bin/fhrd" aarch64 ;;
    *) fail "$package is for no known architecture" ;;
  esac
done

for image in "$out"/*.oci.tar; do
  step "$(basename "$image")"
  command -v skopeo >/dev/null || { skip "the image: there is no skopeo"; break; }
  for pair in amd64:x86_64 arm64:aarch64; do
    case $(ls "$out") in *"${pair#*:}-unknown-linux-musl.tar.gz"*) ;; *) continue ;; esac
    directory=$(mktemp -d -p "$scratch")
    skopeo --override-os linux --override-arch "${pair%:*}" copy --quiet "oci-archive:$image" "dir:$directory/image"
    skopeo inspect --config "dir:$directory/image" | grep -q "\"architecture\": \"${pair%:*}\"" || fail "$image: architecture"
    mkdir "$directory/system"
    layer=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["layers"][0]["digest"].split(":")[1])' \
      "$directory/image/manifest.json")
    tar -xzf "$directory/image/$layer" -C "$directory/system"
    for file in LICENSE NOTICES; do
      [ -s "$directory/system/usr/share/doc/fhrd/$file" ] || fail "$image has no $file"
    done
    round_trip "$directory/system/usr/bin/fhrd" "${pair#*:}"
    # The image alone is a whole system.
    if [ "${pair#*:}" = "$(uname -m)" ] && [ "$(id -u)" = 0 ]; then
      mkdir -p "$directory/system/srv/data"
      cp "$root/README.md" "$directory/system/srv/data/"
      chroot=$(command -v chroot)
      (cd / && env -i HOME=/srv "$chroot" "$directory/system" /usr/bin/fhrd backup /srv/data --quiet) || fail "$image alone"
      env -i HOME=/srv "$chroot" "$directory/system" /usr/bin/fhrd dump latest:/srv/data/README.md | cmp - "$root/README.md"
    fi
  done
done

step "the lines of README.md"
readme_lines

step "components"
python3 - "$out" "$root/Cargo.lock" <<'PYTHON'
import json, pathlib, re, sys
out, lock = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]).read_text()
[document] = [json.loads(path.read_text()) for path in out.glob("*.cdx.json")]
named = {(component["name"], component["version"]) for component in document["components"]}
locked = set(re.findall(r'name = "(.*)"\nversion = "(.*)"', lock))
assert named and named <= locked, named - locked
assert {"redb", "zstd", "blake3"} <= {name for name, _ in named}
print(len(named), "components")
PYTHON
echo "all that could be checked is right"
