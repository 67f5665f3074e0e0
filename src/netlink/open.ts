// How is a netlink socket opened?
import { checked, libc, ptr } from '../sys/libc.ts';

/** sys/socket.h */
const AF_NETLINK = 16;
const SOCK_RAW_CLOEXEC = 3 | 0o2000000;
const SOL_SOCKET = 1;
const SO_SNDBUF = 7;
const SO_RCVBUF = 8;
const SO_RCVTIMEO = 20;

/** linux/netlink.h */
const SOL_NETLINK = 270;
const NETLINK_ADD_MEMBERSHIP = 1;
const NETLINK_CAP_ACK = 10;
const NETLINK_EXT_ACK = 11;
const NETLINK_GET_STRICT_CHK = 12;

const BUFFER_BYTES = 1 << 20;
/** Maximum wait for an answer: deleting devices waits for grace periods; nothing else takes long. */
const ANSWER_DEADLINE_S = 30;
/** struct sockaddr_nl: the kernel chooses everything except the family. */
const ADDRESS = new Uint16Array([AF_NETLINK, 0, 0, 0, 0, 0]);

/**
 * Opens a socket in the thread's namespace, with strict checks, the kernel's error messages, and a timeout for answers.
 * @returns its descriptor
 */
export function openNetlink(protocol: number): number {
  const fd = checked(libc().socket(AF_NETLINK, SOCK_RAW_CLOEXEC, protocol), () => 'open a netlink socket');
  checked(libc().bind(fd, ptr(ADDRESS), ADDRESS.byteLength), () => 'bind a netlink socket');
  setOption(fd, SOL_SOCKET, SO_RCVBUF, BUFFER_BYTES);
  setOption(fd, SOL_SOCKET, SO_SNDBUF, BUFFER_BYTES);
  for (const option of [NETLINK_EXT_ACK, NETLINK_CAP_ACK, NETLINK_GET_STRICT_CHK])
    setOption(fd, SOL_NETLINK, option, 1);
  setReceiveTimeout(fd, ANSWER_DEADLINE_S);
  return fd;
}

/** Sets how long a read waits for a message. */
export function setReceiveTimeout(fd: number, seconds: number): void {
  /** struct timeval */
  const time = new BigInt64Array([BigInt(seconds), 0n]);
  libc().setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, ptr(time), time.byteLength);
}

/**
 * Has the kernel send notifications of a group to a socket.
 * @param group RTNLGRP_* of linux/rtnetlink.h, NFNLGRP_* of linux/netfilter/nfnetlink.h
 * @throws SystemError
 */
export function joinGroup(fd: number, group: number): void {
  value32[0] = group;
  const joined = libc().setsockopt(fd, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, ptr(value32), 4);
  checked(joined, () => 'subscribe to changes of the kernel');
}

const value32 = new Int32Array(1);

function setOption(fd: number, level: number, option: number, value: number): void {
  value32[0] = value;
  // Continue without an option that an old kernel lacks: the only loss is terser errors.
  libc().setsockopt(fd, level, option, ptr(value32), 4);
}
