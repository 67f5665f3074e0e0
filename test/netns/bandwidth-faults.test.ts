// Do ADD and DEL of the bandwidth plugin leave nothing behind, wherever the kernel says no?
import { expect, test } from 'bun:test';
import { faultIn } from '../../src/lab/call.ts';
import { connect } from '../helpers/connected-pod.ts';
import { deadline } from '../helpers/deadline.ts';
import { failInTurn } from '../helpers/fail-in-turn.ts';
import { withHost } from '../helpers/netns.ts';
import { describeInOrder, requiresLinkKind } from '../helpers/skip.ts';

const DEADLINE_MS = deadline(120_000);
const BOTH = { ingressRate: 8_000_000, egressRate: 4_000_000 };
const SOME = { ...BOTH, unshapedSubnets: ['10.0.0.0/8', 'fd00::/8'] };

/** Fails the first request of a verb, the second, … until none is left. @returns descriptions of the requests that failed */
async function failEach(limits: object, verb: 'ADD' | 'DEL'): Promise<string[]> {
  return failInTurn(request =>
    withHost(async lab => {
      const pod = await connect(lab);
      const before = await lab.dump(lab.host);
      const conf = { cniVersion: '1.0.0', name: 'podnet', type: 'bandwidth', ...limits };
      const { container, prevResult } = pod;
      const call = (command: string, env = {}) =>
        lab.plugin('bandwidth', { command, conf, container, prevResult, env });
      if (verb === 'DEL') expect((await call('ADD')).exitCode).toBe(0);
      const reply = await call(verb, { CATENA_FAULT: `kernel:${request}` });
      const fault = faultIn(reply.stderr)?.what;
      if (fault === undefined) return undefined;
      expect(reply.error?.details ?? '').not.toContain('could not be undone');
      // A runtime repeats a DEL that failed; after an ADD that failed, nothing may be left even without one.
      if (verb === 'DEL') expect((await call('DEL')).exitCode).toBe(0);
      else if (isBestEffort(fault)) expect([reply.exitCode, (await call('DEL')).exitCode]).toEqual([0, 0]);
      else expect({ fault, exitCode: reply.exitCode }).toEqual({ fault, exitCode: 1 });
      expect({ fault, state: await lab.dump(lab.host) }).toEqual({ fault, state: before });
      return fault;
    }),
  );
}

/** Not every kernel has IPv6. */
function isBestEffort(fault: string): boolean {
  return fault.startsWith('set sysctl "net/ipv6/conf/') && fault.endsWith('/disable_ipv6"');
}

describeInOrder(
  'bandwidth, failing at the nth request',
  () => {
    test(
      'ADD undoes its changes, with a tree in each direction',
      async () => {
        const failed = await failEach(SOME, 'ADD');
        expect(failed.filter(what => what.startsWith('put a tree of classes'))).toHaveLength(2);
        expect(failed.filter(what => what.startsWith('add class'))).toHaveLength(4);
        expect(failed.filter(what => what.startsWith('classify packets of'))).toHaveLength(4);
      },
      DEADLINE_MS,
    );

    test(
      'DEL can be repeated',
      async () => {
        const failed = await failEach(SOME, 'DEL');
        expect(failed.filter(what => what.startsWith('delete '))).not.toEqual([]);
      },
      DEADLINE_MS,
    );
  },
  requiresLinkKind('ifb'),
);
