#!/bin/bash
# Installs the packages of packages.txt that are missing: as root by apt-get, else it names them.
# Usage: tools/install-packages.sh GROUP...   (groups: build run test)
set -euo pipefail

list=$(dirname "$(readlink -f "$0")")/../packages.txt
wanted=()
for group in "$@"; do
  mapfile -t -O ${#wanted[@]} wanted < <(awk -v group="$group" '$1 == group { print $2 }' "$list")
done

if ! command -v apt-get > /dev/null; then
  echo "No apt-get here: this is made for Debian 12. Needed: ${wanted[*]}" >&2
  exit 1
fi
installed=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "${wanted[@]}" 2> /dev/null |
  awk '$2 == "installed" { print $1 }' || true)
mapfile -t missing < <(printf '%s\n' "${wanted[@]}" | grep -vxF -e "$installed" || true)
if [ ${#missing[@]} -eq 0 ]; then
  exit 0
fi

if [ "$(id -u)" -ne 0 ]; then
  echo "Packages are missing. As root:" >&2
  echo "  apt-get install -y --no-install-recommends ${missing[*]}" >&2
  exit 1
fi
echo "Installing: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt=(apt-get -q -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { "${apt[@]}" update && "${apt[@]}" install -y --no-install-recommends "${missing[@]}"; } \
  > "$log" 2>&1 < /dev/null; then
  tail -n 15 "$log" >&2
  echo "apt-get failed; its last lines are above." >&2
  exit 1
fi
