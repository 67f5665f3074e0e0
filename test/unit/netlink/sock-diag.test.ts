import { expect, test } from 'bun:test';
import { renderIp } from '../../../src/net/ip.ts';
import { listListeners } from '../../../src/netlink/sock-diag.ts';
import { bindSocket, closeSocket, openSocket } from '../../../src/sys/inet-socket.ts';
import { checked, cString, libc, ptr, SOL_SOCKET } from '../../../src/sys/libc.ts';

test.each(['127.0.0.1', '::ffff:127.0.0.1'])(
  'a socket that listens on %s is found by that address',
  hostname => {
    const listener = Bun.listen({ hostname, port: 0, socket: { data() {} } });
    try {
      const found = listListeners(6)?.find(({ port }) => port === listener.port);
      expect(found && renderIp(found.address)).toBe('127.0.0.1');
    } finally {
      listener.stop(true);
    }
  },
);

/** asm-generic/socket.h */
const SO_BINDTODEVICE = 25;

test('a socket that takes packets from one device alone is listed with that device', () => {
  const socket = openSocket('udp', 4);
  try {
    const name = cString('lo');
    checked(
      libc().setsockopt(socket.fd, SOL_SOCKET, SO_BINDTODEVICE, ptr(name), name.length),
      () => 'bind to lo',
    );
    const { port } = bindSocket(socket, 'udp', 0);
    expect(listListeners(17)?.find(one => one.port === port)?.device).toBe(1);
  } finally {
    closeSocket(socket);
  }
});
