// Can cnitool and catena finish each other's attachments?

import { expect, test } from 'bun:test';
import fs from 'node:fs';
import { untilBeforeGc } from '../helpers/before-gc.ts';
import { addByHand, configure, deleteByHand, idOf, PORTS, recordOf } from '../helpers/cnitool.ts';
import { type Container, directories, type Lab, type Row, withHost } from '../helpers/netns.ts';
import { BIN_DIR, REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot, requiresReference } from '../helpers/skip.ts';

// Installed once per host, and empty without attachments.
const SKELETON = { ignoreTables: ['inet catena_masquerade', 'inet catena_portmap'] };

const BINS: readonly (readonly [string, string])[] = [
  ['our plugins', BIN_DIR],
  ['the reference plugins', REFERENCE_BIN_DIR],
];
const VERSIONS = ['0.4.0', '1.0.0'];

function catena(lab: Lab, verb: string, container: Container | undefined, binDir: string, env: Row = {}) {
  const target = container ? [container.path] : [];
  return lab.run(
    lab.host,
    [`${BIN_DIR}/catena`, verb, 'podnet', ...target, ...(verb === 'gc' ? ['--all'] : [])],
    {
      env: { ...directories(lab.tmp), NETCONFPATH: `${lab.tmp}/net.d`, CNI_PATH: binDir, ...env },
      timeoutMs: 50_000,
    },
  );
}
const DONE = { exitCode: 0, stdout: '', stderr: '' };
const records = (lab: Lab) => fs.readdirSync(`${lab.tmp}/cni/results`);

describeRoot(
  'attachments of cnitool and catena',
  () => {
    const cases = BINS.flatMap(([name, binDir]) => VERSIONS.map(version => [version, name, binDir] as const));

    test.each(cases)(
      '[%s] added by cnitool with %s are checked and deleted by catena',
      async (cniVersion, name, binDir) => {
        await withHost(async lab => {
          const container = await lab.container();
          const before = await lab.dump(lab.host, SKELETON);
          const network = configure(lab, cniVersion);
          // CHECK of Debian's portmap (1.1.1) fails on every mapping of a single family.
          const capabilityArgs = name === 'our plugins' ? PORTS : {};
          await addByHand(lab, network, container, { binDir, capabilityArgs });

          expect(await catena(lab, 'check', container, binDir)).toEqual(DONE);
          await lab.sysctl(container, 'net/core/somaxconn', 5);
          const objection = await catena(lab, 'check', container, binDir);
          expect(objection.exitCode).toBe(1);
          expect(objection.stderr).toContain(
            'plugin: tuning, number 3 of network "podnet", CHECK, exit status 1',
          );
          // Nothing but the record says which configuration and which ports there were.
          fs.rmSync(network.file);
          expect(await catena(lab, 'del', container, binDir)).toEqual(DONE);
          expect(records(lab)).toEqual([]);
          if (name === 'our plugins') expect(await lab.dump(lab.host, SKELETON)).toEqual(before);
          expect((await lab.ip(container, 'link')).map(({ ifname }) => ifname)).toEqual(['lo']);
          expect(leasesIn(lab)).toEqual([]);
        });
      },
    );

    test.each(cases)('[%s] added by catena with %s are deleted by cnitool', async (cniVersion, _, binDir) => {
      await withHost(async lab => {
        const container = await lab.container();
        const network = configure(lab, cniVersion);
        const env = { CAP_ARGS: JSON.stringify(PORTS), CNI_ARGS: 'IgnoreUnknown=1' };
        const added = await catena(lab, 'add', container, binDir, env);
        expect(added).toMatchObject({ exitCode: 0, stderr: '' });

        const file = `${network.cache}${idOf(container)}-eth0`;
        // What libcni would write, byte for byte, and then our member.
        const record = fs.readFileSync(file, 'utf8').replace(/,"catena":\{"v":1,.*\}\}$/, '}');
        expect(record).toBe(
          recordOf(network, container, { capabilityArgs: PORTS }, JSON.parse(added.stdout)),
        );
        expect(fs.statSync(file).mode & 0o777).toBe(0o600);
        await deleteByHand(lab, network, container, binDir);
        expect((await lab.ip(container, 'link')).map(({ ifname }) => ifname)).toEqual(['lo']);
        expect(leasesIn(lab)).toEqual([]);
        // Once more, since a runtime may: it finds neither record nor interface.
        expect(await catena(lab, 'del', container, binDir)).toEqual(DONE);
      });
    });

    test('added by cnitool are collected by catena', async () => {
      await withHost(async lab => {
        const [one, two] = [await lab.container(), await lab.container()];
        const network = configure(lab, '1.0.0');
        for (const container of [one, two])
          await addByHand(lab, network, container, { binDir: BIN_DIR, capabilityArgs: {} });
        expect(records(lab)).toHaveLength(2);
        await untilBeforeGc();
        expect(await catena(lab, 'gc', undefined, BIN_DIR)).toEqual(DONE);
        expect(records(lab)).toEqual([]);
        expect(leasesIn(lab)).toEqual([]);
      });
    });

    test('recorded by libcni 0.7 are checked and deleted by catena', async () => {
      await withHost(async lab => {
        const container = await lab.container();
        const network = configure(lab, '0.4.0');
        const result = await addByHand(lab, network, container, { binDir: BIN_DIR, capabilityArgs: {} });
        const file = `${network.cache}${idOf(container)}-eth0`;
        fs.writeFileSync(file, JSON.stringify(result));
        expect(await catena(lab, 'check', container, BIN_DIR)).toEqual(DONE);
        expect(await catena(lab, 'del', container, BIN_DIR)).toEqual(DONE);
        expect(records(lab)).toEqual([]);
        expect(leasesIn(lab)).toEqual([]);
      });
    });

    test('with a truncated record of cnitool are deleted, and the record is reported', async () => {
      await withHost(async lab => {
        const container = await lab.container();
        const network = configure(lab, '1.0.0');
        await addByHand(lab, network, container, { binDir: BIN_DIR, capabilityArgs: {} });
        const file = `${network.cache}${idOf(container)}-eth0`;
        fs.truncateSync(file, 100);
        const checked = await catena(lab, 'check', container, BIN_DIR);
        expect(checked).toMatchObject({
          exitCode: 1,
          stderr: expect.stringContaining(`Cannot read cached result "${file}"`),
        });
        const deleted = await catena(lab, 'del', container, BIN_DIR);
        expect(deleted).toEqual({
          ...DONE,
          stderr: `catena: warning: Cannot read cached result "${file}": it is not a JSON object\n`,
        });
        expect(records(lab)).toEqual([]);
        expect((await lab.ip(container, 'link')).map(({ ifname }) => ifname)).toEqual(['lo']);
      });
    });
  },
  requiresReference('bridge', 'host-local', 'portmap', 'tuning'),
);

/** Names of the leases that are held. */
function leasesIn(lab: Lab): string[] {
  return fs.readdirSync(`${lab.tmp}/leases/podnet`).filter(name => /^[0-9.]+$/.test(name));
}
