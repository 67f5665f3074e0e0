// Does every example work as documented, with our plugins and with others, as root and as an ordinary user?

import { describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import path from 'node:path';
import { AS_ORDINARY_USER, CATENA, catena, requiresOrdinaryUser } from '../helpers/catena.ts';
import { withHost } from '../helpers/netns.ts';
import { BIN_DIR, REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { IS_SAMPLE } from '../helpers/sample.ts';
import {
  describeNeeding,
  describeRoot,
  type Need,
  requiresLinkKind,
  requiresReference,
  requiresUpperKind,
  requiresVrf,
  testNeeding,
} from '../helpers/skip.ts';
import { ROOT } from '../helpers/source-tree.ts';

const DIR = path.join(ROOT, 'conflists');
const ALL = fs.readdirSync(DIR).sort();
/** Those that need a server, which a laboratory does not have (test/netns/dhcp.test.ts). */
const NEEDS_SERVER = ['lan-dhcp.conflist'];
const FILES = ALL.filter(file => !NEEDS_SERVER.includes(file));
const fileOf = (name: string) => path.join(DIR, `${name}.conflist`);

describe('conflists/', () => {
  test('contains the documented examples, each named after its network', () => {
    const promised = ['bridge-full', 'dual-stack', 'isolated-l2', 'limited-bandwidth', 'port-mapping-only'];
    expect(FILES).toEqual(
      expect.arrayContaining([...promised, 'tuned-sysctl'].map(name => `${name}.conflist`)),
    );
    for (const file of ALL) {
      const { name } = JSON.parse(fs.readFileSync(path.join(DIR, file), 'utf8'));
      expect(`${name}.conflist`).toBe(file);
    }
  });
});

/** What an example needs of the kernel. */
const NEEDS: Readonly<Record<string, Need>> = {
  'dummy-address.conflist': requiresLinkKind('dummy'),
  'ipvlan.conflist': requiresUpperKind('ipvlan'),
  'macvlan.conflist': requiresUpperKind('macvlan'),
  'vlan.conflist': requiresUpperKind('vlan', 'id', '7'),
  'vrf-network.conflist': requiresVrf(),
};

/** What it must have besides for an ordinary user. */
const USER_NEEDS: Readonly<Record<string, Need>> = {
  ...NEEDS,
  'tap-device.conflist': 'needs user 107, and its own user namespace has only one',
};

describeRoot('catena try, as root', () => {
  for (const file of FILES) {
    const title = `${file} works as documented and leaves the host unchanged`;
    testNeeding(title, async () => tryAsRoot(file), NEEDS[file]);
  }
});

async function tryAsRoot(file: string): Promise<void> {
  await withHost(async lab => {
    const before = await lab.dump(lab.host);
    const { exitCode, stdout, stderr } = await catena(lab, ['try', path.join(DIR, file)]);
    expect({ exitCode, stderr, stdout }).toMatchObject({ exitCode: 0, stderr: '' });
    expect(stdout).toContain('left behind: nothing\n');
    expect(stdout).toMatch(/^all checks passed, in /m);
    expect(await lab.dump(lab.host)).toEqual(before);
  });
}

describeNeeding(
  'catena try, as an ordinary user',
  () => {
    for (const file of FILES.filter((_, i) => !IS_SAMPLE || i % 3 === 0)) {
      const body = async () => {
        await withHost(async lab => {
          const argv = [...AS_ORDINARY_USER, CATENA, 'try', path.join(DIR, file)];
          const { exitCode, stdout, stderr } = await lab.run(lab.host, argv, { timeoutMs: 50_000 });
          expect({ exitCode, stderr, stdout }).toMatchObject({ exitCode: 0, stderr: '' });
          expect(stdout).toContain('in a user namespace');
        });
      };
      testNeeding(`${file} works as documented`, body, USER_NEEDS[file]);
    }
  },
  requiresOrdinaryUser(),
);

describeRoot(
  'catena try, with plugins of the reference',
  () => {
    // Its CHECK fails for two families of mapped ports, for bridges without addresses and for values with tabs.
    test.each(['dual-stack', 'limited-bandwidth', 'loopback'])(
      '%s works with plugins of the reference only',
      async name => {
        await withHost(async lab => {
          const { exitCode, stdout } = await catena(lab, [
            'try',
            '--bin-dir',
            REFERENCE_BIN_DIR,
            fileOf(name),
          ]);
          expect({ exitCode, stdout }).toMatchObject({ exitCode: 0 });
        });
      },
    );

    test.each(['bridge', 'host-local', 'portmap', 'bandwidth', 'tuning'])(
      'bridge-full runs with %s replaced by the reference',
      async foreign => {
        await withHost(async lab => {
          const dir = path.join(lab.tmp, 'bin');
          fs.mkdirSync(dir);
          fs.symlinkSync(path.join(REFERENCE_BIN_DIR, foreign), path.join(dir, foreign));
          const args = ['try', '--keep-going', '--json', '--bin-dir', dir, '--bin-dir', BIN_DIR];
          const { stdout } = await catena(lab, [...args, fileOf('bridge-full')]);
          const { probes, left, verbs } = JSON.parse(stdout);
          expect(probes.filter((probe: { outcome: string }) => probe.outcome !== 'ok')).toEqual([]);
          expect(left).toEqual([]);
          const failed = verbs.filter((verb: { failure?: object }) => verb.failure);
          expect(failed.map(({ verb }: { verb: string }) => verb)).toEqual(
            foreign === 'portmap' ? ['CHECK'] : [],
          );
        });
      },
    );
  },
  requiresReference('bridge', 'host-local', 'portmap', 'bandwidth', 'tuning', 'loopback'),
);
