// Does a plugin get the reply of its delegate, also from third-party executables?

import { afterAll, describe, expect, test } from 'bun:test';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseEnv } from '../../../src/cni/env.ts';
import { readRunningStat, signalGroup } from '../../../src/files/process-stat.ts';
import { findDelegate } from '../../../src/plugin/call.ts';
import { until } from '../../helpers/until.ts';

const dir = mkdtempSync(join(tmpdir(), 'cat-delegate-'));
afterAll(() => rmSync(dir, { recursive: true }));

const environment = {
  PATH: process.env.PATH,
  CNI_COMMAND: 'ADD',
  CNI_CONTAINERID: 'c1',
  CNI_NETNS: '/n',
  CNI_IFNAME: 'eth0',
  CNI_PATH: `/nonexistent:${dir}`,
};

function delegate(script: string) {
  writeFileSync(join(dir, 'ipam'), `#!/bin/sh\n${script}\n`, { mode: 0o755 });
  const request = { cniVersion: '1.0.0', name: 'net', type: 'main', ipam: { type: 'ipam' }, unknown: [1] };
  const callSibling = () => undefined;
  return findDelegate('ipam', {
    env: parseEnv(environment),
    environment,
    request,
    version: '1.0.0',
    callSibling,
  });
}

describe('findDelegate()', () => {
  test('passes the request unchanged and the verb in the environment', async () => {
    const out = join(dir, 'seen');
    await delegate(`cat > ${out}; echo "$CNI_COMMAND" >> ${out}`).del();
    const [request, command] = readFileSync(out, 'utf8').split('}DEL');
    expect(JSON.parse(`${request}}`)).toEqual({
      cniVersion: '1.0.0',
      name: 'net',
      type: 'main',
      ipam: { type: 'ipam' },
      unknown: [1],
    });
    expect(command).toBe('\n');
  });

  test('reads a result in any version', async () => {
    const printed = '{"cniVersion":"0.2.0","ip4":{"ip":"10.0.0.2/24","gateway":"10.0.0.1"}}';
    expect(await delegate(`echo '${printed}'`).add()).toMatchObject({
      ips: [{ address: '10.0.0.2/24', gateway: '10.0.0.1' }],
    });
  });

  test('passes an error of the delegate on with code, message and details', async () => {
    const failing = delegate(`echo '{"code":11,"msg":"full","details":"all of it"}'; exit 1`);
    await expect(failing.add()).rejects.toMatchObject({ code: 11, message: 'full', details: 'all of it' });
  });

  test('reports how a delegate died without a message', async () => {
    const dying = delegate('echo no such file >&2; exit 3');
    await expect(dying.add()).rejects.toMatchObject({
      code: 0,
      message: 'Plugin "ipam" failed with "no such file": exit status 3',
    });
  });

  test.each(['', "trap '' TERM; "])('a plugin that is ended ends its delegate first: %j', async prefix => {
    const pid = join(dir, 'pid');
    writeFileSync(
      join(dir, 'long'),
      `#!/bin/sh\n${prefix}echo $$ > ${pid}.new; mv ${pid}.new ${pid}; sleep 60; echo more >> ${pid}\n`,
      { mode: 0o755 },
    );
    rmSync(pid, { force: true });
    const fixture = join(import.meta.dir, '../../fixtures/delegating.ts');
    const plugin = Bun.spawn([process.execPath, fixture, 'long'], { env: environment });
    await until(() => existsSync(pid));
    plugin.kill('SIGTERM');
    await plugin.exited;
    const delegate = readRunningStat(Number(readFileSync(pid, 'utf8')));
    if (delegate) signalGroup(delegate.group, 'SIGKILL');
    expect(delegate).toBeUndefined();
  });

  test('refuses an ADD without output', async () => {
    await expect(delegate('exit 0').add()).rejects.toThrow('it printed nothing');
  });

  test('names the directories when the plugin does not exist', () => {
    expect(() => {
      const environment = { CNI_COMMAND: 'GC', CNI_PATH: '/nonexistent' };
      const given = { request: { name: 'net' }, version: '1.1.0', callSibling: () => undefined } as const;
      findDelegate('absent', { env: parseEnv(environment), environment, ...given });
    }).toThrow('Cannot find plugin "absent": no such file in "/nonexistent"');
  });
});
