// What becomes of a caller whose plugin cannot even be killed?
import { expect, test } from 'bun:test';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { useLabs } from '../helpers/netns.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot, requires } from '../helpers/skip.ts';

const needsFuse = existsSync('/dev/fuse') ? undefined : 'needs /dev/fuse';

describeRoot(
  'a plugin that waits in the kernel',
  () => {
    const makeLab = useLabs();

    test.each(['another one', 'one of ours'])(
      'keeps no caller beyond its deadline and the time to kill it: %s',
      async whose => {
        const lab = await makeLab();
        const { path } = await lab.container();
        const dir = `${lab.tmp}/silent`;
        mkdirSync(dir);
        writeFileSync(`${lab.tmp}/stuck`, `#!/bin/sh\nexec cat ${dir}/file\n`, { mode: 0o755 });
        const ipam = { type: 'host-local', subnet: '10.0.0.0/24', dataDir: `${dir}/leases` };
        const plugin = whose === 'one of ours' ? { type: 'host-local', ipam } : { type: 'stuck' };
        const list = { cniVersion: '1.1.0', name: 'waiting', plugins: [plugin] };
        writeFileSync(`${lab.tmp}/waiting.conflist`, JSON.stringify(list));
        const env = {
          CATENA_RUN_DIR: `${lab.tmp}/run`,
          CATENA_STATE_DIR: `${lab.tmp}/state`,
          CATENA_CNI_CACHE_DIR: `${lab.tmp}/cache`,
          CNI_PATH: `${BIN_DIR}:${lab.tmp}`,
          PATH: process.env.PATH,
        };
        const fixture = join(import.meta.dir, '../fixtures/silent-mount.ts');
        const beside = ['unshare', '--mount', process.execPath, fixture, dir];
        const add = ['add', 'waiting', path, '--timeout=1', `--file=${lab.tmp}/waiting.conflist`];
        const argv = [...beside, `${BIN_DIR}/catena`, ...add];
        const { stderr } = await lab.run(lab.host, argv, { env, timeoutMs: 20_000 });
        expect(stderr).toContain('did not finish within 1 s');
        // Of the DEL that undoes it.
        expect(stderr.match(/did not finish/g)).toHaveLength(2);
      },
    );
  },
  requires('mount', 'unshare'),
  needsFuse,
);
