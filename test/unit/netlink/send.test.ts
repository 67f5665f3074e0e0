// Does a message reach the kernel that is larger than the socket's buffer?
import { expect, test } from 'bun:test';
import { closeSync } from 'node:fs';
import { encodeMessages, NLM_F_ACK, NLM_F_REQUEST } from '../../../src/netlink/codec/message.ts';
import { openNetlink } from '../../../src/netlink/open.ts';
import { sendWhole } from '../../../src/netlink/send.ts';
import { NETLINK_ROUTE } from '../../../src/netlink/socket.ts';

/** linux/netlink.h: a message that nothing is done for. */
const NLMSG_NOOP = 1;

test('sendWhole() sends what fits the buffer, and more if the process may enlarge it, or reports the limit', () => {
  const fd = openNetlink(NETLINK_ROUTE);
  const messageOf = (bytes: number) =>
    encodeMessages([
      { type: NLMSG_NOOP, flags: NLM_F_REQUEST | NLM_F_ACK, seq: 1, body: new Uint8Array(bytes) },
    ]);
  try {
    sendWhole(fd, messageOf(100));
    const send = () => sendWhole(fd, messageOf(8 << 20));
    if (process.getuid?.() === 0) expect(send).not.toThrow();
    else expect(send).toThrow('net.core.wmem_max');
  } finally {
    closeSync(fd);
  }
});
