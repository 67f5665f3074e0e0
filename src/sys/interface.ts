// Is there an interface of that name in a namespace?
import { closeSync } from 'node:fs';
import { checked, libc, ptr } from './libc.ts';
import { inNetns, type Netns } from './netns.ts';

/** sys/socket.h */
const AF_INET = 2;
const SOCK_DGRAM = 2;
const SOCK_CLOEXEC = 0o2000000;
/** linux/sockios.h */
const SIOCGIFINDEX = 0x8933n;
/** linux/if.h: struct ifreq, a name of 16 bytes and a union of 24. */
const IFREQ_BYTES = 40;

/**
 * Which of the names an interface of the namespace has, also as an alternative name; undefined when they are all free.
 * A netlink socket would tell as well, with ten times the code to load.
 * Same as: `ip link show <name>` for each of them
 */
export function findTakenName(netns: Netns, ifnames: readonly string[]): string | undefined {
  const fd = inNetns(netns, () =>
    checked(libc().socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), () => 'open a socket'),
  );
  try {
    return ifnames.find(ifname => {
      const request = new Uint8Array(IFREQ_BYTES);
      new TextEncoder().encodeInto(ifname, request.subarray(0, IFNAME_BYTES - 1));
      return libc().ioctl(fd, SIOCGIFINDEX, BigInt(ptr(request))) === 0;
    });
  } finally {
    closeSync(fd);
  }
}

/** linux/if.h: IFNAMSIZ */
const IFNAME_BYTES = 16;
