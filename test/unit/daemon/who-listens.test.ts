// Which daemon may listen on a socket, while another one ends?
import { expect, test } from 'bun:test';
import fs from 'node:fs';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { SeatTaken, takeSeat, whoListens } from '../../../src/daemon/who-listens.ts';

/** A process that still accepts connections, and ends them without an answer. */
async function listenAndReset(socket: string): Promise<net.Server> {
  const server = net.createServer(connection => connection.once('data', () => connection.destroy()));
  await new Promise<void>(resolve => server.listen(socket, resolve));
  return server;
}

async function inDirectory(body: (socket: string) => Promise<void>): Promise<void> {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-seat-'));
  try {
    await body(path.join(dir, 'catena.sock'));
  } finally {
    fs.rmSync(dir, { recursive: true });
  }
}

test('takeSeat() waits for a daemon that was killed to release its socket', () =>
  inDirectory(async socket => {
    const server = await listenAndReset(socket);
    expect(await whoListens(socket)).toBe('ending');
    setTimeout(() => server.close(), 300);
    const seat = await takeSeat(socket, false);
    expect(seat.holds()).toBe(true);
    seat.release();
  }));

test('takeSeat() gives up when the daemon does not end', () =>
  inDirectory(async socket => {
    const server = await listenAndReset(socket);
    await expect(takeSeat(socket, false)).rejects.toThrow(SeatTaken);
    server.close();
  }));
