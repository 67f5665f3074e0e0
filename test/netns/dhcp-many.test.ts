// Is a single lease lost, of as many as a node has, when the daemon is killed?
import { expect, test } from 'bun:test';
import { startDaemon } from '../helpers/daemon.ts';
import { deadline } from '../helpers/deadline.ts';
import { add, addressesOf, confOf, inGroups, recordsIn, serve } from '../helpers/dhcp-lab.ts';
import { type Container, withHost } from '../helpers/netns.ts';
import { describeRoot, requires } from '../helpers/skip.ts';
import { until } from '../helpers/until.ts';

const LEASES = 200;
/** A round of renewals must fit into it, on a machine that other tests use, too. */
const T1_S = 10;
describeRoot(
  'dhcp on a full node',
  () => {
    test(
      `${LEASES} leases are obtained, kept and renewed over a killed daemon, and returned`,
      async () => {
        await withHost(async lab => {
          const server = await serve(lab, {
            range: ['10.77.0.10', '10.77.0.250'],
            args: [`--dhcp-option=option:T1,${T1_S}`, '--dhcp-option=option:T2,100'],
          });
          const daemon = await startDaemon(lab);
          const containers: Container[] = [];
          for (let i = 0; i < LEASES; i++) containers.push(await lab.container());
          const conf = confOf({ timeout: 60, detectConflicts: false });
          const results = await inGroups(containers, one => add(lab, one, conf));
          const addresses = results.map(({ ips }) => ips[0]?.address ?? '');
          expect(new Set(addresses).size).toBe(LEASES);

          const acknowledgedSince = async (start: number) => {
            const isDone = () => {
              const log = server.log().slice(start);
              return addresses.every(one => log.includes(`DHCPACK(br0) ${one.split('/')[0]} `));
            };
            await until(isDone, { withinMs: 90_000, everyMs: 250 });
          };
          process.kill(daemon.pid, 'SIGKILL');
          await daemon.exited;
          const killed = server.log().length;
          await startDaemon(lab);
          await acknowledgedSince(killed);
          const confirmed = server.log().length;
          await acknowledgedSince(confirmed);
          // Before that, two containers may have been offered one address.
          expect(server.log().slice(killed)).not.toContain('DHCPNAK');
          expect(server.leases()).toHaveLength(LEASES);
          expect(recordsIn(lab)).toHaveLength(LEASES);
          expect(await Promise.all(containers.map(one => addressesOf(lab, one)))).toEqual(
            addresses.map(one => [one]),
          );

          const gone = await inGroups(containers, container =>
            lab.plugin('bridge', { command: 'DEL', conf, container }),
          );
          expect(gone.map(({ exitCode }) => exitCode)).toEqual(gone.map(() => 0));
          await until(() => server.leases().length === 0);
          expect(recordsIn(lab)).toEqual([]);
        });
      },
      deadline(240_000),
    );

    test(
      `${LEASES} clients at once have an address each, and return it`,
      async () => {
        await withHost(async lab => {
          const server = await serve(lab, { range: ['10.77.0.10', '10.77.0.250'] });
          await startDaemon(lab);
          const containers: Container[] = [];
          for (let i = 0; i < LEASES; i++) containers.push(await lab.container());
          const conf = confOf({ timeout: 100, detectConflicts: false });
          const results = await Promise.all(containers.map(one => add(lab, one, conf)));
          expect(new Set(results.map(({ ips }) => ips[0]?.address)).size).toBe(LEASES);
          // The server answers a client before it writes its file.
          await until(() => server.leases().length === LEASES);
          const gone = await Promise.all(
            containers.map(container => lab.plugin('bridge', { command: 'DEL', conf, container })),
          );
          expect(gone.map(({ exitCode }) => exitCode)).toEqual(gone.map(() => 0));
          await until(() => server.leases().length === 0);
          expect(recordsIn(lab)).toEqual([]);
        });
      },
      deadline(240_000),
    );
  },
  requires('dnsmasq'),
);
