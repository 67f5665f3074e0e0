// What does a door that cannot be opened leave behind?
import { expect, test } from 'bun:test';
import { listen } from '../../../src/daemon/door.ts';

test('a door that cannot be opened leaves the umask as it was', () => {
  const before = process.umask(0o022);
  try {
    const handlers = {
      serve: async () => new Response(),
      answer: () => async () => ({ reply: { declined: 'ending' } }),
    };
    const open = () =>
      listen('/proc/none/catena.sock', 1_000, { ...handlers, ping: () => ({}), refuse() {} } as never);
    expect(open).toThrow();
    expect(process.umask()).toBe(0o022);
  } finally {
    process.umask(before);
  }
});
