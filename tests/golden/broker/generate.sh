#!/bin/sh
# Makes the golden directories anew: a real broker on loopback, filled by Golden.java, stopped in order
# (clean.tar.xz) and killed (killed.tar.xz). Needs Java 17, Maven, tar with xz; about two minutes.
#     sh tests/golden/broker/generate.sh [WORK_DIRECTORY]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=${1:-$(mktemp -d)}
mkdir -p "$work"
port=${PORT:-19092}
controller=${CONTROLLER:-19093}
jars="$work/jars"
data="$work/data"

[ -d "$jars" ] || mvn -q -B -f "$here/pom.xml" dependency:copy-dependencies -DoutputDirectory="$jars"
rm -rf "$data" "$work/classes" && mkdir "$work/classes"
javac -cp "$jars/*" -d "$work/classes" "$here/Golden.java"
sed -e "s|@DIR@|$data|; s|@PORT@|$port|; s|@CONTROLLER@|$controller|g" "$here/server.properties" > "$work/server.properties"

broker=
start() {
    java -Xmx512m -cp "$jars/*" kafka.Kafka "$work/server.properties" >> "$work/broker.log" 2>&1 &
    broker=$!
    java -cp "$jars/*:$work/classes" Golden "127.0.0.1:$port" expect /dev/null  # answers when the broker does
}
golden() { java -cp "$jars/*:$work/classes" Golden "127.0.0.1:$port" "$@"; }
stop() { kill "-$1" "$broker"; wait "$broker" || true; }
keep() {
    mv "$work/data.copy" "$work/broker"
    tar --create --sparse --owner=0 --group=0 --numeric-owner --mtime=@1700000000 --sort=name -C "$work" broker \
        | xz -9e > "$here/$1.tar.xz"
    rm -rf "$work/broker"
}
trap '[ -z "$broker" ] || kill -9 "$broker" 2> /dev/null || true' EXIT

java -cp "$jars/*" kafka.tools.StorageTool format -t 5L6g3nShT-eMCtK--X86sw -c "$work/server.properties"
start
golden first
stop TERM
start
golden second "$data"
golden expect "$here/clean.json"
stop TERM
cp -a --sparse=always "$data" "$work/data.copy"
keep clean
start
golden third
golden expect "$here/killed.json"
stop KILL
cp -a --sparse=always "$data" "$work/data.copy"
keep killed
broker=
ls -l "$here"
