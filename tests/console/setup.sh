# What the scripts of this folder share: a built binary (HIGHWATER_BIN, default target/release/highwater), Debian's chromium, and
# playwright-core and axe-core below $HIGHWATER_CLIENTS (default: target/clients). Sourced, never run.
. "$(dirname "${BASH_SOURCE[0]}")/../clients/lib.sh"

bin=${HIGHWATER_BIN:-$root/target/release/highwater}
[ -x "$bin" ] || die "no $bin: cargo build --release, or set HIGHWATER_BIN"
bin=$(cd "$(dirname "$bin")" && pwd)/$(basename "$bin")
need chromium chromium
need node nodejs
need npm npm

modules=$cache/console
mkdir -p "$modules"
if ! cmp -s "$root/tests/console/package-lock.json" "$modules/package-lock.json"; then
  cp "$root/tests/console/package.json" "$root/tests/console/package-lock.json" "$modules/"
  (cd "$modules" && npm ci --silent --no-audit --no-fund --ignore-scripts)
fi

export HIGHWATER_BIN=$bin CONSOLE_SHOTS=${CONSOLE_SHOTS:-$root/target/console} NODE_PATH=$modules/node_modules
mkdir -p "$CONSOLE_SHOTS"
