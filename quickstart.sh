#!/bin/bash
# From a fresh clone on Debian 12 to perftest's tables: installs packages (as root), builds in
# build/, and shows ib_write_bw between two processes on the virtual fabric and, as root, between
# two network namespaces through DPDK. Run it again at any time: it takes seconds.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")"
exec < /dev/null

id=uroce-qs-$$
work=$(mktemp -d "/tmp/$id-XXXXXX")
started=()

say() { printf '\n== %s\n' "$*"; }
stop() {
  echo "quickstart.sh stopped: $*" >&2
  exit 1
}
clean_up() {
  local pid
  for pid in "${started[@]}"; do kill "$pid" 2> /dev/null || true; done
  for pid in "${started[@]}"; do wait "$pid" 2> /dev/null || true; done
  ip netns del "$id-a" 2> /dev/null || true
  ip netns del "$id-b" 2> /dev/null || true
  rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM HUP

build() {
  local log=$work/build.log
  if [ -x build/tools/uroce ] && [ ! -w build ]; then
    echo "build/ is not yours to write: using what is there."
    return
  fi
  if [ ! -f build/build.ninja ]; then
    meson setup build -Dtests=false > "$log" 2>&1 ||
      { tail -n 30 "$log" && stop "meson setup build"; }
  fi
  ninja -C build > "$log" 2>&1 || { grep -A 12 FAILED "$log" | head -n 60; stop "ninja -C build"; }
  echo "built in build/"
}

# free_port [COMMAND PREFIX]: a TCP port on which nobody listens, and few clients start from.
free_port() {
  local port used
  used=$("$@" cat /proc/net/tcp /proc/net/tcp6 2> /dev/null | awk '{ print $2 }')
  for ((port = 18600 + RANDOM % 4000; port < 23000; port++)); do
    grep -q ":$(printf %04X "$port")\$" <<< "$used" || break
  done
  echo "$port"
}

# wait_listening PORT PID [COMMAND PREFIX]: until the server accepts; perftest's client tries once.
wait_listening() {
  local port pid=$2 hex try
  hex=$(printf %04X "$1")
  shift 2
  for ((try = 0; try < 200; try++)); do
    if "$@" cat /proc/net/tcp /proc/net/tcp6 2> /dev/null |
      awk -v port=":$hex" '$4 == "0A" && $2 ~ port "$" { found = 1 } END { exit !found }'; then
      return
    fi
    kill -0 "$pid" 2> /dev/null || return 0 # it ended: its output says why
    sleep 0.1
  done
}

# show NAME SERVER_PREFIX CLIENT_PREFIX ADDRESS FLAG...: one ib_write_bw; prefixes are words.
show() {
  local name=$1 server_prefix=$2 client_prefix=$3 address=$4 port pid
  shift 4
  local command=("$PWD/build/tools/uroce" run "$@" -- ib_write_bw -d uroce0 -F -D 2 -s 65536)
  # shellcheck disable=SC2086
  port=$(free_port $server_prefix)
  echo "\$ uroce run $* -- ib_write_bw -d uroce0 -F -D 2 -s 65536              (server)"
  echo "\$ uroce run $* -- ib_write_bw -d uroce0 -F -D 2 -s 65536 $address   (client)"
  # shellcheck disable=SC2086
  $server_prefix "${command[@]}" -p "$port" > "$work/server.log" 2>&1 &
  pid=$!
  started+=("$pid")
  # shellcheck disable=SC2086
  wait_listening "$port" "$pid" $server_prefix
  # shellcheck disable=SC2086
  if ! timeout 60 $client_prefix "${command[@]}" -p "$port" "$address" \
    > "$work/client.log" 2>&1; then
    cat "$work/client.log"
    echo "--- the server said:"
    cat "$work/server.log"
    stop "$name: the client failed (its output is above)"
  fi
  cat "$work/client.log"
  wait "$pid" || { cat "$work/server.log"; stop "$name: the server failed"; }
}

make_namespaces() {
  local side
  for side in a b; do ip netns add "$id-$side"; done
  ip link add name veth0 mtu 4300 netns "$id-a" type veth peer name veth0 mtu 4300 netns "$id-b"
  ip -n "$id-a" address add 192.0.2.1/24 dev veth0
  ip -n "$id-b" address add 192.0.2.2/24 dev veth0
  for side in a b; do
    ip -n "$id-$side" link set lo up
    ip -n "$id-$side" link set veth0 up
  done
}

say "packages"
./tools/install-packages.sh build run
say "build"
build

say "1. two processes of one user on the virtual fabric (no root, no kernel module)"
show "the fabric" "" "" 127.0.0.1 --fabric "$id"
rm -rf "${XDG_RUNTIME_DIR:-/nonexistent}/uroce/$id" "/tmp/uroce-$(id -u)/$id"

second="shown"
say "2. two network namespaces joined by veth, through DPDK's AF_PACKET port"
if [ "$(id -u)" -ne 0 ]; then
  second="not shown: it needs root (raw sockets and network namespaces): sudo ./quickstart.sh"
elif ! make_namespaces > "$work/namespaces.log" 2>&1; then
  second="not shown: this system refuses network namespaces: $(tail -n 1 "$work/namespaces.log")"
else
  show "DPDK" "ip netns exec $id-a" "ip netns exec $id-b" 192.0.2.1 --netdev veth0
fi
[ "$second" = shown ] || echo "$second"

say "what this was"
cat << END
1. Fabric: ib_write_bw, as Debian ships it, wrote 64 KiB messages between two processes over
   RoCEv2 packets in shared memory.                                     shown
2. Interface: the same program and packets over veth, through DPDK.     $second

Try next:
  build/tools/uroce run -- ibv_devinfo
  build/tools/uroce run -- ib_send_lat -d uroce0                (then again with 127.0.0.1 added)
  build/tools/uroce run -- bash                                 (any ibverbs program in it)
  build/tools/uroce devices
  ./check.sh                                                    (all tests)
END
