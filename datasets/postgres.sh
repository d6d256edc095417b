#!/bin/bash
# Three states of one directory of PostgreSQL, 20,000 transactions of pgbench apart: database pages, about 1 GB.
#
#   datasets/postgres.sh CORPUS      writes CORPUS/postgres/v0 to v2
#
# Needs bash and PostgreSQL with pgbench (Debian: postgresql, postgresql-contrib). As root, the server runs as `postgres`.
# The rows are random, so each run gives other bytes of the same kind.

set -euo pipefail

corpus=${1:?usage: postgres.sh CORPUS}
programs=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -n 1)
programs=${programs:-$(dirname "$(command -v initdb)")}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$corpus/postgres"

# server WORD...: a program of PostgreSQL, as a user that it accepts.
server() {
  if [ "$(id -u)" = 0 ]; then
    (cd "$work" && setpriv --reuid postgres --regid postgres --clear-groups "$programs/$1" "${@:2}")
  else
    (cd "$work" && "$programs/$1" "${@:2}")
  fi > "$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
}

[ "$(id -u)" != 0 ] || chown postgres: "$work"
server initdb -D data --auth trust --encoding UTF8 --locale C.UTF-8
cat >> "$work/data/postgresql.conf" <<CONF
listen_addresses = ''
unix_socket_directories = '$work'
max_wal_size = 64MB
min_wal_size = 32MB
CONF
for state in v0 v1 v2; do
  server pg_ctl -D data -w start -l server.log
  if [ "$state" = v0 ]; then
    server createdb -h "$work" bench
    server pgbench -h "$work" --quiet --initialize --scale 15 bench
  else
    server pgbench -h "$work" --client 4 --jobs 1 --transactions 5000 bench
  fi
  server pg_ctl -D data -w -m fast stop
  rm -rf "$corpus/postgres/$state"
  cp -a "$work/data" "$corpus/postgres/$state"
done
