// Which rules of the protocol do our plugins keep? Prints the table; conformance-reference.test.ts prints the reference's.
import { afterAll, expect, test } from 'bun:test';
import { symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { PLUGIN_NAMES, RUNNER_NAME } from '../../plugins/registry.ts';
import {
  endExamination,
  examine,
  expectConforming,
  ipam,
  ipam4,
  SAMPLES,
  tmp,
} from '../helpers/conformance.ts';
import { deadline } from '../helpers/deadline.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import {
  describeRoot,
  type Need,
  requires,
  requiresLinkKind,
  requiresUpperKind,
  requiresVlanDevices,
  requiresVrf,
  testNeeding,
} from '../helpers/skip.ts';

/** What the kernel must have for a plugin. */
const NEEDS: Readonly<Record<string, Need>> = {
  dhcp: requires('dnsmasq'),
  dummy: requiresLinkKind('dummy'),
  ipvlan: requiresUpperKind('ipvlan'),
  macvlan: requiresUpperKind('macvlan'),
  vlan: requiresVlanDevices(),
  vrf: requiresVrf(),
  whereabouts: 'needs the API of a cluster, which the examination does not start',
};

describeRoot('catena conformance of every plugin', () => {
  afterAll(endExamination);

  test('a sample exists for every plugin', () => {
    const without = PLUGIN_NAMES.filter(name => SAMPLES[name]?.conf === undefined);
    expect(without.filter(name => NEEDS[name] === undefined)).toEqual([]);
  });

  for (const name of PLUGIN_NAMES) {
    testNeeding(`${name} keeps every mandatory rule`, () => expectConforming(name), NEEDS[name]);
  }

  test(
    'the delegate runner in place of multus keeps every mandatory rule',
    async () => {
      const multus = join(tmp, 'multus');
      symlinkSync(join(BIN_DIR, RUNNER_NAME), multus);
      const bridge = (net: number, more: object) => ({
        plugins: [
          { type: 'bridge', bridge: `br${net}`, ipam: { ...ipam4, subnet: `10.${net}.0.0/24` }, ...more },
        ],
      });
      const delegates = [bridge(88, { isDefaultGateway: true, ipMasq: true, ipam }), bridge(89, {})];
      const sample = { conf: { delegates }, args: ['--bin-dir', BIN_DIR], timeoutMs: 170_000 };
      const { rules, ok } = await examine(multus, sample);
      expect(rules.filter(({ level, outcome }) => level === 'must' && outcome === 'broken')).toEqual([]);
      expect(ok).toBe(true);
      expect(rules.find(({ id }) => id === 'add/works')?.outcome).toBe('kept');
    },
    deadline(180_000),
  );
});
