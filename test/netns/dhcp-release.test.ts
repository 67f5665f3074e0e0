// Does every server hear that its leases are over?
//
// A release is not acknowledged, and its interface is deleted right after it. Where a container has set the interface down, it must
// come up first, and a port at its other end drops packets for some time after that.
import { expect, setDefaultTimeout } from 'bun:test';
import { startDaemon } from '../helpers/daemon.ts';
import { deadline } from '../helpers/deadline.ts';
import { add, confOf, inGroups, recordsIn, serve } from '../helpers/dhcp-lab.ts';
import { requiresServer } from '../helpers/dhcp-packages.ts';
import { serveKea } from '../helpers/kea.ts';
import { type Container, type Lab, withHost } from '../helpers/netns.ts';
import { IS_SAMPLE } from '../helpers/sample.ts';
import { describeRoot, type Need, requires, testNeeding } from '../helpers/skip.ts';
import { until } from '../helpers/until.ts';

setDefaultTimeout(deadline(240_000));

const LEASES = IS_SAMPLE ? 40 : 200;
const POOL = ['10.77.0.10', '10.77.0.250'] as const;

interface Server {
  leases(): string[];
}

const SERVERS: readonly { name: string; need: Need; start: (lab: Lab) => Promise<Server> }[] = [
  { name: 'dnsmasq', need: requires('dnsmasq'), start: lab => serve(lab, { range: POOL }) },
  {
    name: 'kea',
    need: requiresServer('kea-dhcp4'),
    start: async lab => (await serveKea(lab, 4, { pool: POOL.join('-') })).server,
  },
];

describeRoot('DEL of dhcp', () => {
  for (const { name, need, start } of SERVERS) {
    testNeeding(
      `${LEASES} DELs leave ${name} no lease, also those of interfaces that were set down`,
      async () => {
        await withHost(async lab => {
          const server = await start(lab);
          await startDaemon(lab);
          const containers: Container[] = [];
          for (let i = 0; i < LEASES; i++) containers.push(await lab.container());
          const conf = confOf({ timeout: 60, detectConflicts: false });
          await inGroups(containers, one => add(lab, one, conf));
          await until(() => server.leases().length === LEASES);
          const asleep = containers.filter((_, i) => i % 2);
          for (const one of asleep) await lab.ip(one, 'link', 'set', 'eth0', 'down');
          const gone = await inGroups(containers, container =>
            lab.plugin('bridge', { command: 'DEL', conf, container }),
          );
          expect(gone.map(({ exitCode }) => exitCode)).toEqual(gone.map(() => 0));
          expect(recordsIn(lab)).toEqual([]);
          await until(() => server.leases().length === 0);
        });
      },
      need,
    );
  }
});
