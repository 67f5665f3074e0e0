// Does an ADD of macvlan, ipvlan or vlan that fails half way leave everything as it was, wherever the kernel says no?
import { expect, test } from 'bun:test';
import { faultIn } from '../../src/lab/call.ts';
import { deadline } from '../helpers/deadline.ts';
import type { Dump } from '../helpers/dump.ts';
import { failInTurn } from '../helpers/fail-in-turn.ts';
import { type Container, type Lab, type Row, withHost } from '../helpers/netns.ts';
import { describeInOrder, requiresUpperKind, requiresVlanDevices } from '../helpers/skip.ts';

const DEADLINE_MS = deadline(240_000);

function confOf(lab: Lab, more: Row): Row {
  return {
    cniVersion: '1.0.0',
    name: 'podnet',
    master: 'outside0',
    ipam: {
      type: 'host-local',
      ranges: [[{ subnet: '10.88.0.0/24' }], [{ subnet: 'fd88::/64' }]],
      routes: [{ dst: '0.0.0.0/0' }, { dst: '::/0' }, { dst: '10.99.0.0/16', table: 77 }],
      dataDir: `${lab.tmp}/leases`,
    },
    ...more,
  };
}

async function stateOf(lab: Lab, container: Container): Promise<unknown> {
  const leases = await lab.run(lab.host, ['find', `${lab.tmp}/leases`, '-name', '[0-9f]*']);
  return {
    host: withoutLimits(await lab.dump(lab.host, { ignoreTables: ['inet catena_host_access'] })),
    container: await lab.dump(container),
    leases: leases.stdout,
  };
}

/** Limits of the queue come with the first device on top of it. */
function withoutLimits(dump: Dump): unknown {
  const kept = (key: string) => !key.startsWith('tso_max') && key !== 'promiscuity';
  return JSON.parse(JSON.stringify(dump, (key, value) => (kept(key) ? value : undefined)));
}

/** Fails each request of ADD. @returns the requests that failed, human-readable */
async function failEach(more: Row, prepare?: (lab: Lab) => Promise<unknown>): Promise<string> {
  const fail = (request: number) =>
    withHost(async lab => {
      await lab.outside();
      await prepare?.(lab);
      return failOnce(lab, confOf(lab, more), request);
    });
  return (await failInTurn(fail)).join('\n');
}

async function failOnce(lab: Lab, conf: Row, request: number): Promise<string | undefined> {
  const container = await lab.container();
  // The first time that it comes up the kernel gives it an address, which stays.
  for (const state of ['up', 'down']) await lab.ip(container, 'link', 'set', 'lo', state);
  // Otherwise most requests are questions whether detection has finished, as many as there is time for.
  await lab.sysctl(container, 'net/ipv6/conf/default/dad_transmits', 0);
  const before = await stateOf(lab, container);
  const env = { CATENA_FAULT: `kernel:${request}` };
  const reply = await lab.plugin(conf.type, { command: 'ADD', conf, container, env });
  const what = faultIn(reply.stderr)?.what;
  // Some are best effort, such as a sysctl that not every kernel has.
  if (reply.exitCode === 0) return what;
  expect(reply.error?.details ?? '').not.toContain('could not be undone');
  expect({ what, state: await stateOf(lab, container) }).toEqual({ what, state: before });
  return what;
}

const EXPECTED = ['create link', 'alias', 'add address fd88::2', 'up true', 'add route to 10.99.0.0/16'];

describeInOrder(
  'ADD of macvlan that fails at the nth request leaves nothing',
  () => {
    test(
      'on the interface of the default route, with access for the host',
      async () => {
        const failed = await failEach({
          type: 'macvlan',
          master: undefined,
          bcqueuelen: 2000,
          hostAccess: true,
          detectConflicts: false,
        });
        for (const words of EXPECTED) expect(failed).toContain(words);
        for (const words of ['create link "hmv', 'catena_host_access', 'add route to fd88::2/128']) {
          expect(failed).toContain(words);
        }
      },
      DEADLINE_MS,
    );
  },
  requiresUpperKind('macvlan'),
);

describeInOrder(
  'ADD of ipvlan that fails at the nth request leaves nothing',
  () => {
    test(
      'with a device of the name on the host',
      async () => {
        const failed = await failEach({ type: 'ipvlan' }, lab =>
          lab.ip(lab.host, 'link', 'add', 'eth0', 'type', 'veth', 'peer', 'eth1'),
        );
        for (const words of EXPECTED) expect(failed).toContain(words);
      },
      DEADLINE_MS,
    );
  },
  requiresUpperKind('ipvlan'),
);

describeInOrder(
  'ADD of vlan that fails at the nth request leaves nothing',
  () => {
    test(
      'with two tags',
      async () => {
        const failed = await failEach({ type: 'vlan', vlanId: [100, 7] });
        for (const words of [...EXPECTED, 'set name eth0-100']) expect(failed).toContain(words);
      },
      DEADLINE_MS,
    );
  },
  requiresVlanDevices(),
);
