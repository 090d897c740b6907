#!/bin/bash
# Builds everything and runs every test. Usage: ./check.sh [--quick]
#   --quick   leaves out the sanitizer builds
# The last line counts: "N passed, N failed, N skipped". Fails if a test failed, or if the programs
# of the e2e suite could not run.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")"
exec < /dev/null

say() { printf '\n== %s\n' "$*"; }
stop() {
  echo "check.sh stopped: $*" >&2
  exit 1
}

quick=no
case "${1:-}" in
  '') ;;
  --quick) quick=yes ;;
  *) stop "unknown argument '$1' (allowed: --quick)" ;;
esac

# build FOLDER SUITES [MESON OPTION]...: configures once, then compiles what changed; all of it, or if
# SUITES (words) are named only what their tests need.
build() {
  local folder=$1 suites=$2 log=$1/check-build.log targets=()
  shift 2
  say "build $folder"
  mkdir -p "$folder"
  if [ ! -f "$folder/build.ninja" ]; then
    meson setup "$folder" "$@" > "$log" 2>&1 || { tail -n 30 "$log"; stop "meson setup $folder"; }
  elif ! meson configure "$folder" "$@" > "$log" 2>&1; then
    tail -n 30 "$log"
    stop "meson configure $folder"
  fi
  # shellcheck disable=SC2086
  [ -z "$suites" ] || mapfile -t targets < <(python3 tests/targets_of_suites.py "$folder" $suites)
  if ! ninja -C "$folder" "${targets[@]}" > "$log" 2>&1; then
    grep -E -A 12 'FAILED|error' "$log" | head -n 60 || true
    stop "ninja -C $folder"
  fi
  tail -n 1 "$log"
}

logs=()
# run_tests FOLDER NAME [MESON ARGUMENT]...: failures are counted at the end, not fatal here. What
# fails is tried once more: a loaded machine can starve programs that spin.
run_tests() {
  local folder=$1 name=$2 failed
  shift 2
  say "tests: $name"
  rm -f "$folder/meson-logs/$name.json" "$folder/meson-logs/$name-again.json"
  meson test -C "$folder" --no-rebuild --print-errorlogs --logbase "$name" "$@" || true
  [ -f "$folder/meson-logs/$name.json" ] || stop "meson test left no $name.json"
  logs+=("$folder/meson-logs/$name.json")
  mapfile -t failed < <(python3 tests/count_results.py --failed "$folder/meson-logs/$name.json")
  if [ ${#failed[@]} -ne 0 ]; then
    say "a second try of ${#failed[@]} tests"
    meson test -C "$folder" --no-rebuild --print-errorlogs --logbase "$name-again" \
      --timeout-multiplier 4 "${failed[@]}" || true
  fi
}

say "packages"
./tools/install-packages.sh build run test

build build '' -Dtests=true
run_tests build testlog --timeout-multiplier 4

if [ "$quick" = no ]; then
  build build-asan 'unit sim golden fuzz sanitized' -Dtests=true -Db_sanitize=address,undefined -Db_lundef=false
  run_tests build-asan asan --suite unit --suite sim --suite golden --suite fuzz --suite sanitized \
    --timeout-multiplier 4
  build build-tsan threads -Dtests=true -Db_sanitize=thread -Db_lundef=false
  run_tests build-tsan tsan --suite threads --timeout-multiplier 4
fi

say "summary"
exec python3 tests/count_results.py "${logs[@]}"
