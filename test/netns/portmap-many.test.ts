// Do thousands of mappings take a time that grows with their number?

import { expect, test } from 'bun:test';
import { deadline } from '../helpers/deadline.ts';
import { useLabs } from '../helpers/netns.ts';
import { answers, podsOnBridge, resultOf } from '../helpers/pods.ts';
import { describeRoot, requires } from '../helpers/skip.ts';
import { LATEST_SPEC_VERSION } from '../helpers/spec-versions.ts';
import { startServer } from '../helpers/traffic.ts';

const MANY = 8000;
const FIRST = 20_000;
/** Each verb, on a machine of two cores with other work; the programs of iptables take most of it where they are used. */
const VERB_MS = { nftables: deadline(25_000), iptables: deadline(40_000) } as const;

describeRoot(
  'portmap with many ports',
  () => {
    const createLab = useLabs();

    test.each(['nftables', 'iptables'] as const)(
      `ADD, CHECK, a second ADD and DEL manage ${MANY} mappings with %s`,
      async backend => {
        const { lab, pod, outside } = await podsOnBridge(createLab);
        const call = (command: 'ADD' | 'CHECK' | 'DEL') =>
          lab.plugin('portmap', {
            command,
            conf: confOf(backend),
            container: pod,
            prevResult: resultOf(pod),
            timeoutMs: VERB_MS[backend],
          });
        for (const verb of ['ADD', 'CHECK', 'ADD', 'CHECK'] as const) {
          expect(await call(verb)).toMatchObject({ exitCode: 0 });
        }
        for (const port of [FIRST, FIRST + MANY - 1]) {
          await startServer(lab, pod, { protocol: 'tcp', port });
          expect(await answers(lab, outside, 'tcp', outside.hostAddress.v4, port)).toBe(true);
        }
        expect(await call('DEL')).toMatchObject({ exitCode: 0 });
        const rows = await lab.nft(lab.host, 'list', 'ruleset');
        expect(rows.filter(({ map, set }) => (map ?? set)?.elem)).toEqual([]);
        expect(JSON.stringify(rows)).not.toContain('CNI-DN-');
      },
      6 * VERB_MS.iptables,
    );
  },
  requires('nft', 'iptables'),
);

function confOf(backend: string): object {
  const portMappings = Array.from({ length: MANY }, (_, i) => {
    return { hostPort: FIRST + i, containerPort: FIRST + i, protocol: 'tcp' };
  });
  const runtimeConfig = { portMappings };
  return { cniVersion: LATEST_SPEC_VERSION, name: 'podnet', type: 'portmap', backend, runtimeConfig };
}
