#!/bin/bash
# Builds a guest that has the kernel's rdma_rxe: usage build_image.sh FOLDER
#
# Leaves FOLDER/vmlinux and FOLDER/initrd.img, made of Debian's own packages: the stock kernel and
# the tools of rdma-core and perftest. They are downloaded by apt into FOLDER/debs (110 MB) and
# unpacked there; nothing is installed. Does nothing if the image is of this script already; two
# calls at once take turns. The cloud kernel will not do: it has no rdma_rxe.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
out=$(mkdir -p "$1" && readlink -f "$1")

packages=(busybox-static dash kmod iproute2 ibverbs-utils ibverbs-providers perftest)
programs=(dash kmod ip rdma tc ss ibv_devinfo ib_write_bw ib_read_bw ib_send_bw ib_write_lat
  ib_read_lat ib_send_lat ib_atomic_bw ib_atomic_lat)
modules=(virtio_pci virtio_net 9p 9pnet_virtio sch_netem crc32_generic ib_uverbs rdma_rxe)

exec 9> "$out/lock"
flock 9
stamp=$(cat "$0" "$here/init.sh" | sha256sum)
if [ -f "$out/stamp" ] && [ "$stamp" = "$(cat "$out/stamp")" ]; then
  exit 0
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
kernel_tree=$work/kernel tools=$work/tools root=$work/root
libraries=$tools/lib/x86_64-linux-gnu:$tools/usr/lib/x86_64-linux-gnu
loader=$tools/lib64/ld-linux-x86-64.so.2

# The kernel package that linux-image-amd64 stands for; nothing if there are no package lists.
kernel_package() {
  apt-cache "${lists[@]}" depends linux-image-amd64 2> /dev/null |
    sed -n 's/.*Depends: \(linux-image-.*\)/\1/p' || true
}

# apt sees no installed package, so that it downloads all that the tools need.
lists=()
download() {
  mkdir -p "$out/debs/partial" "$work/dpkg"
  : > "$work/dpkg/status"
  local apt_options=(-qq -y -o "Dir::Cache::archives=$out/debs" -o APT::Sandbox::User=root
    -o APT::Install-Recommends=false) kernel
  kernel=$(kernel_package)
  if [ -z "$kernel" ]; then # no package lists on this machine: fetch some, for here only
    mkdir -p "$out/lists/partial"
    lists=(-o "Dir::State::lists=$out/lists")
    apt-get "${apt_options[@]}" "${lists[@]}" update
    kernel=$(kernel_package)
  fi
  apt_options+=("${lists[@]}")
  apt-get "${apt_options[@]}" -o "Dir::State::status=$work/dpkg/status" --download-only \
    install "${packages[@]}" > /dev/null
  compgen -G "$out/debs/${kernel}_*.deb" > /dev/null ||
    (cd "$out/debs" && apt-get "${apt_options[@]}" download "$kernel")
  mkdir -p "$kernel_tree" "$tools"
  local deb
  for deb in "$out"/debs/*.deb; do
    case $deb in
      */linux-image-*) ;;
      *) dpkg -x "$deb" "$tools" ;;
    esac
  done
  dpkg -x "$out/debs/${kernel}"_*.deb "$kernel_tree"
  version=$(ls "$kernel_tree/lib/modules")
}

# The uncompressed ELF of the kernel: an emulated CPU takes long to unpack the compressed one.
extract_kernel() {
  python3 - "$kernel_tree/boot/vmlinuz-$version" "$out/vmlinux" << 'PYTHON'
import lzma
import pathlib
import sys

image = pathlib.Path(sys.argv[1]).read_bytes()
at = image.find(b"\xfd7zXZ\0")
while at >= 0:
    try:
        kernel = lzma.LZMADecompressor(format=lzma.FORMAT_XZ).decompress(image[at:])
        if kernel[:4] == b"\x7fELF":
            pathlib.Path(sys.argv[2]).write_bytes(kernel)
            sys.exit(0)
    except lzma.LZMAError:
        pass
    at = image.find(b"\xfd7zXZ\0", at + 1)
sys.exit("no kernel inside " + sys.argv[1])
PYTHON
}

copy_libraries_of() {
  "$loader" --library-path "$libraries" --list "$1" | awk '$3 ~ /^\// {print $3}' |
    while read -r library; do
      cp -nL "$library" "$root/lib/x86_64-linux-gnu/"
    done
}

copy_programs() {
  mkdir -p "$root"/{bin,dev,etc,lib64,proc,run,share,sys,tmp} "$root/lib/x86_64-linux-gnu" \
    "$root/usr/lib/x86_64-linux-gnu/libibverbs" "$root/etc/libibverbs.d"
  cp -L "$loader" "$root/lib64/"
  cp "$tools/bin/busybox" "$root/bin/"
  local program folder
  for program in "${programs[@]}"; do
    for folder in bin sbin usr/bin usr/sbin; do
      [ -e "$tools/$folder/$program" ] || continue
      cp -L "$tools/$folder/$program" "$root/bin/"
      copy_libraries_of "$tools/$folder/$program"
      break
    done
    [ -e "$root/bin/$program" ] || { echo "no $program in the packages" >&2; exit 1; }
  done
  # Loaded by name, not linked: what pthread_exit and libibverbs need.
  cp -L "$tools/lib/x86_64-linux-gnu/libgcc_s.so.1" "$root/lib/x86_64-linux-gnu/"
  cp -L "$tools"/usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav*.so \
    "$root/usr/lib/x86_64-linux-gnu/libibverbs/"
  cp "$tools/etc/libibverbs.d/rxe.driver" "$root/etc/libibverbs.d/"
  ln -s dash "$root/bin/sh"
  ln -s bin "$root/sbin" # the kernel loads modules by /sbin/modprobe
  ln -s kmod "$root/bin/modprobe"
  echo 'root:x:0:0:root:/:/bin/sh' > "$root/etc/passwd"
  echo '127.0.0.1 localhost' > "$root/etc/hosts"
  cp "$here/init.sh" "$root/init"
  chmod 755 "$root" "$root/init"
}

kmod_as() { # NAME ARGUMENT...: one binary serves under many names
  (exec -a "$1" "$loader" --library-path "$libraries" --argv0 "$1" "$tools/bin/kmod" "${@:2}")
}

copy_modules() {
  kmod_as depmod -b "$kernel_tree" "$version"
  local module file
  for module in "${modules[@]}"; do
    kmod_as modprobe -d "$kernel_tree" -S "$version" --show-depends "$module"
  done | awk '$1 == "insmod" {print $2}' | sort -u | while read -r file; do
    file=${file#"$kernel_tree"}
    install -D -m 644 "$kernel_tree/$file" "$root/$file"
  done
  cp "$kernel_tree/lib/modules/$version"/modules.{order,builtin,builtin.modinfo} \
    "$root/lib/modules/$version/"
  kmod_as depmod -b "$root" "$version"
}

download
extract_kernel
copy_programs
copy_modules
(cd "$root" && find . -mindepth 1 | sort | cpio -o -H newc --quiet -R 0:0) > "$out/initrd.img"
echo "$stamp" > "$out/stamp"
echo "guest image: Linux $version"
