#!/bin/busybox sh
# How does the guest get from its kernel to a file system like the machine's?
#
# Runs twice: as the kernel's first process, in the memory file system that it was started with, and then, called
# with "up", on top of the machine's file system. The kernel's command line sets MODULES, BUN and INSIDE.

export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
b=/bin/busybox

if [ "$1" = up ]; then
  # Nothing asks the kernel for these by a name that it could load them by.
  for module in br_netfilter nf_conntrack sctp tun; do modprobe "$module"; done
  ip link set lo up
  "$BUN" "$INSIDE" /plan.json
  exec /busybox poweroff -f
fi

$b mount -t proc proc /proc
$b mount -t devtmpfs dev /dev
for module in virtio_pci virtiofs overlay; do $b modprobe $module; done
$b mount -t virtiofs -o ro machine /lower || exec $b poweroff -f
# What the guest writes stays in its memory.
$b mount -t tmpfs tmpfs /written
$b mkdir /written/upper /written/work
$b mount -t overlay -o lowerdir=/lower,upperdir=/written/upper,workdir=/written/work overlay /machine
$b mount -t proc proc /machine/proc
$b mount -t sysfs sysfs /machine/sys
$b mount --move /dev /machine/dev
$b mkdir -p /machine/dev/pts /machine/dev/shm /machine/usr/lib/modules
$b mount -t devpts devpts /machine/dev/pts
$b mount -t tmpfs tmpfs /machine/dev/shm
$b mount -t tmpfs tmpfs /machine/run
$b mkdir /machine/run/lock
$b ln -s "$MODULES" /machine/usr/lib/modules/
$b cp /bin/busybox /machine/busybox
$b cp /init /plan.json /machine/
# The kernel calls modprobe for what it lacks.
$b ln -sf /busybox /machine/usr/sbin/modprobe
exec $b switch_root /machine /busybox sh /init up
