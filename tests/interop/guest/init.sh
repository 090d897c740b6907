#!/bin/dash
# The guest's first process: brings up rxe0 on eth0, then runs what the host leaves in /share.
#
# The kernel command line gives uroce_ip (a.b.c.d/len) and uroce_mtu. /share is a folder of the
# host. The host puts NAME.cmd there; the guest runs it by sh, many at once, and leaves its output
# in NAME.out, its process group in NAME.pid and its status in NAME.rc. A file named stop powers the
# guest off. (dash, not busybox's shell: that one prefers its own ip and ss to those in the path.)
/bin/busybox --install -s /bin 2> /dev/null
export PATH=/bin HOME=/
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm
mount -t tmpfs tmp /dev/shm
mount -t tmpfs tmp /tmp
mount -t tmpfs run /run
ulimit -l unlimited
echo 1 > /proc/sys/kernel/printk
for module in virtio_pci virtio_net 9pnet_virtio 9p crc32_generic ib_uverbs rdma_rxe; do
  modprobe $module || echo "modprobe $module failed"
done
mount -t 9p -o trans=virtio,version=9p2000.L,msize=131072 share /share
ip link set lo up
ip link set eth0 mtu "$uroce_mtu" up
ip addr add "$uroce_ip" dev eth0
rdma link add rxe0 type rxe netdev eth0
while [ -n "$(ip -6 addr show dev eth0 tentative)" ]; do # a tentative address cannot be a GID
  sleep 0.1
done

cd /share
{ uname -r; cat /proc/uptime; rdma link show rxe0/1; } > ready.tmp
mv ready.tmp ready
while [ ! -e stop ]; do
  for command in *.cmd; do
    [ -e "$command" ] || continue
    name=${command%.cmd}
    mv "$command" "$name.sh"
    {
      setsid sh -c 'echo $$ > "$1.pid"; exec sh "$1.sh"' sh "$name" > "$name.out" 2>&1
      echo $? > "$name.status"
      mv "$name.status" "$name.rc"
    } &
  done
  sleep 0.05
done
poweroff -f
