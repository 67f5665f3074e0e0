// Do datagrams arrive at a unix socket, and what is the error without a receiver?

import { describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { openUnixDatagram } from '../../../src/sys/service-manager.ts';
import { receiveDatagrams } from '../../helpers/unix-receiver.ts';

describe('openUnixDatagram()', () => {
  test('sends to the current receiver at the path', () => {
    const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-dgram-'));
    const socket = openUnixDatagram(path.join(dir, 'log'));
    const bytes = new TextEncoder().encode('a line');
    try {
      expect(() => socket.send(bytes)).toThrow(/Cannot send to ".*log": .*ENOENT/);
      const receiver = receiveDatagrams(path.join(dir, 'log'));
      socket.send(bytes);
      expect(receiver.take()).toEqual(['a line']);
      receiver.close();
      expect(() => socket.send(bytes)).toThrow(/ECONNREFUSED|111/);
    } finally {
      socket.close();
      fs.rmSync(dir, { recursive: true, force: true });
    }
  });

  test('refuses a path that a socket cannot have', () => {
    expect(() => openUnixDatagram(`/tmp/${'x'.repeat(108)}`)).toThrow('must be shorter than 108 bytes');
  });
});
