// Which rules of the protocol do our plugins keep? Prints the table; conformance-reference.test.ts prints the reference's.
import { afterAll, expect, test } from 'bun:test';
import { symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { PLUGIN_NAMES, RUNNER_NAME } from '../../plugins/registry.ts';
import { endExamination, examine, ipam, ipam4, reportOn, SAMPLES, tmp } from '../helpers/conformance.ts';
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

describeRoot('catena conformance', () => {
  afterAll(endExamination);

  test('a sample exists for every plugin', () => {
    const without = PLUGIN_NAMES.filter(name => SAMPLES[name]?.conf === undefined);
    expect(without.filter(name => NEEDS[name] === undefined)).toEqual([]);
  });

  for (const name of PLUGIN_NAMES) {
    testNeeding(`${name} keeps every mandatory rule`, async () => examineOwn(name), NEEDS[name]);
  }

  async function examineOwn(name: string): Promise<void> {
    const report = await reportOn(join(BIN_DIR, name));
    expect(report.rules.filter(({ level, outcome }) => level === 'must' && outcome === 'broken')).toEqual([]);
    expect(report.ok).toBe(true);
    expect(report.rules.find(({ id }) => id === 'add/works')?.outcome).toBe('kept');
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

  test('reports the violations of a bad plugin', async () => {
    const bad = join(tmp, 'bad');
    writeFileSync(bad, '#!/bin/sh\ncat >/dev/null\nsleep 300 >/dev/null 2>&1 &\necho hello\n', {
      mode: 0o755,
    });
    const { rules, ok } = await examine(bad, { conf: {} });
    expect(ok).toBe(false);
    const broken = rules.filter(({ outcome }) => outcome === 'broken').map(({ id }) => id);
    const expected = [
      ...['version/answers', 'env/unknown-command', 'env/missing-add', 'request/not-json', 'add/works'],
      ...['reply/only-protocol', 'process/leaves-none'],
    ];
    expect(expected.filter(id => !broken.includes(id))).toEqual([]);
  });

  test('takes the configuration from a list', async () => {
    const list = `${import.meta.dir}/../../conflists/bridge-full.conflist`;
    const { rules } = await examine(join(BIN_DIR, 'tuning'), { args: ['--from', list] });
    expect(rules.find(({ id }) => id === 'chain/passes-result')?.outcome).toBe('kept');
  });
});
