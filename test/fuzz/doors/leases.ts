// Is a lease directory handled in which any file may contain anything, since others write to it as well?
import fs from 'node:fs';
import path from 'node:path';
import fc from 'fast-check';
import { withStore } from '../../../src/ipam/lease-store.ts';
import { inspectLease } from '../../../src/ipam/lease-use.ts';
import { parseIp, renderIp } from '../../../src/net/ip.ts';
import { door } from '../door.ts';
import { ground } from '../ground.ts';
import { damagedText } from '../mutate.ts';

const OWNER = { containerId: 'c9', ifname: 'eth0' };
const [FROM, TO] = [parseIp('10.9.0.2'), parseIp('10.9.0.9')];

const names = fc.constantFrom(
  '10.9.0.2',
  '10.9.0.3',
  '10.9.0.4',
  'last_reserved_ip.0',
  '.catena-owners',
  '.catena-lease',
  'x',
  'lock',
  'fd00::1',
  'dead',
);
const contents = damagedText([
  'c1\r\neth0',
  'c1',
  '10.9.0.3',
  '',
  'c9\r\neth0\r\nx',
  'catena-owners 6 b 1 2 1\n10.9.0.2\tc1\teth0\n',
]);

/** Files of other programs, and damaged files of ours. */
export const leases = door({
  name: 'lease directory',
  weight: 1.2,
  arbitrary: fc.record({ files: fc.dictionary(names, contents, { maxKeys: 6 }), reclaim: fc.boolean() }),
  run({ files, reclaim }) {
    const dir = ground().dir('leases/podnet');
    for (const [name, text] of Object.entries(files)) fs.writeFileSync(path.join(dir, name), text);
    const held = ['10.9.0.2', '10.9.0.3', '10.9.0.4'].filter(name => (files[name] ?? '').trim() !== '');
    withStore(dir, { reclaim }, store => {
      store.findLastReserved(0);
      const free = store.findFree(FROM, TO);
      if (free !== undefined && held.includes(renderIp(free)))
        throw new Error(`it hands out ${renderIp(free)}, which has a lease`);
      if (free !== undefined) store.reserve([{ ip: free, setIndex: 0 }], OWNER);
      const mine = store.findLeasesOf(OWNER);
      if (free !== undefined && !mine.includes(renderIp(free)))
        throw new Error(`it does not find its lease of ${renderIp(free)}`);
      store.release(mine);
    });
    for (const name of held) inspectLease(dir, name, { findRecord: () => undefined, holders: undefined });
    fs.rmSync(dir, { recursive: true, force: true });
  },
});
