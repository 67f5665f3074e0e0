// How is a tap device made?
//
// Routing netlink refuses to make one: a tap begins as an open file of /dev/net/tun, and stays when that file is closed only if it was
// told to persist. The device belongs to the namespace in which the file was opened.
import { closeSync, openSync } from 'node:fs';
import { Errno } from './errno.ts';
import { faultAt } from './fault.ts';
import { errno, libc, ptr, SystemError } from './libc.ts';

const TUN = '/dev/net/tun';

/** linux/if_tun.h: _IOW('T', 202 …, int), _IOR('T', 207, unsigned int) */
const TUNSETIFF = 0x400454can;
const TUNSETPERSIST = 0x400454cbn;
const TUNSETOWNER = 0x400454ccn;
const TUNSETGROUP = 0x400454cen;
const TUNGETFEATURES = 0x800454cfn;

/** linux/if_tun.h, flags of TUNSETIFF */
const IFF_TAP = 0x0002;
const IFF_MULTI_QUEUE = 0x0100;
const IFF_NO_PI = 0x1000;
const IFF_VNET_HDR = 0x4000;
/** Fail if there is a device of that name, instead of attaching to it. */
const IFF_TUN_EXCL = 0x8000;

/** linux/if.h: struct ifreq, a name of 16 bytes and a union of 24, here a short. */
const IFREQ_BYTES = 40;
const IFNAME_BYTES = 16;

export interface NewTap {
  readonly ifname: string;
  /** Several files may be attached to it, each a queue of its own. */
  readonly multiQueue: boolean;
  /** The user, and the group, that may attach to it without the right to administer the network; anyone unless given. */
  readonly owner?: number | undefined;
  readonly group?: number | undefined;
}

/**
 * Makes a tap in the thread's namespace, to be called within `inNetns`. It persists without an open file, and is down. The program that
 * attaches to it chooses the headers of its packets, so those given here are only what is shown until then.
 * @throws SystemError; then there is no tap
 * Same as: `ip tuntap add mode tap name <ifname> vnet_hdr [multi_queue] [user <owner>] [group <group>]`
 */
export function createTap({ ifname, multiQueue, owner, group }: NewTap): void {
  const fd = openTun();
  try {
    const request = new Uint8Array(IFREQ_BYTES);
    new TextEncoder().encodeInto(ifname, request.subarray(0, IFNAME_BYTES - 1));
    const flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR | IFF_TUN_EXCL | (multiQueue ? IFF_MULTI_QUEUE : 0);
    new DataView(request.buffer).setUint16(IFNAME_BYTES, flags, true);
    const tap = `tap "${ifname}"`;
    control(fd, `create ${tap}`, TUNSETIFF, BigInt(ptr(request)));
    if (owner !== undefined) control(fd, `set user ${owner} on ${tap}`, TUNSETOWNER, BigInt(owner));
    if (group !== undefined) control(fd, `set group ${group} on ${tap}`, TUNSETGROUP, BigInt(group));
    // Last: until then the tap is deleted with the file.
    control(fd, `keep ${tap}`, TUNSETPERSIST, 1n);
  } finally {
    closeSync(fd);
  }
}

/** @throws SystemError when this kernel, or this user, cannot make taps */
export function requireTaps(): void {
  const fd = openTun();
  try {
    control(fd, 'use tap devices', TUNGETFEATURES, BigInt(ptr(new Uint32Array(1))));
  } finally {
    closeSync(fd);
  }
}

function openTun(): number {
  const fault = faultAt(() => `open "${TUN}"`);
  if (fault !== undefined) throw new SystemError(`open "${TUN}"`, fault);
  try {
    return openSync(TUN, 'r+');
  } catch (cause) {
    throw new SystemError(`open "${TUN}"`, -((cause as { errno?: number }).errno ?? -Errno.EIO));
  }
}

function control(fd: number, action: string, request: bigint, argument: bigint): void {
  const fault = faultAt(() => action);
  if (fault !== undefined) throw new SystemError(action, fault);
  if (libc().ioctl(fd, request, argument) >= 0) return;
  throw new SystemError(action, errno());
}
