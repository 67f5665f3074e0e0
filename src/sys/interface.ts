// Does a namespace have an interface of that name?
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
 * Which of the names is taken by an interface of the namespace, including alternative names; undefined when all are free.
 * A netlink socket would also tell, but loads ten times as much code.
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
