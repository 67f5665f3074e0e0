// Does nothing of the host's access end while another process may open it?
import { expect, test } from 'bun:test';
import { closeHostAccess } from '../../../../plugins/macvlan/host-access.ts';

test('an end without the lock is refused, before anything is read', () => {
  const env = { containerId: 'c1', ifname: 'eth0' };
  // A path below a file: no lock can be there, though not for want of room.
  const call = { env, network: 'podnet', environment: { CATENA_RUN_DIR: '/dev/null/run' } };
  expect(() => closeHostAccess(call as never)).toThrow(expect.objectContaining({ code: 5 }) as never);
});
