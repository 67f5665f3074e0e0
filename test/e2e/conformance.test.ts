// Does `catena conformance` find what our plugins keep and a bad one breaks? conformance-plugins.test.ts has every plugin.
import { afterAll, expect, test } from 'bun:test';
import { existsSync, writeFileSync } from 'node:fs';
import { constants } from 'node:os';
import { join } from 'node:path';
import { tryRead } from '../../src/files/read-file.ts';
import { childrenOf } from '../helpers/children.ts';
import { endExamination, examine, expectConforming, tmp } from '../helpers/conformance.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot } from '../helpers/skip.ts';
import { until } from '../helpers/until.ts';

describeRoot('catena conformance', () => {
  afterAll(endExamination);

  test.each(['bridge', 'host-local'])('%s keeps every mandatory rule', expectConforming);

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

  test('finds a DEL that takes what others have', async () => {
    const flusher = join(tmp, 'flusher');
    const verbs = {
      VERSION: `echo '{"cniVersion":"1.1.0","supportedVersions":["1.1.0"]}'`,
      ADD: `mkdir -p /run/own; touch /run/own/$CNI_CONTAINERID; echo '{"cniVersion":"1.1.0","ips":[{"address":"10.0.0.2/24"}]}'`,
      DEL: 'rm -rf /run/own',
    };
    const cases = Object.entries(verbs).map(([verb, commands]) => `${verb}) ${commands} ;;\n`);
    const script = `#!/bin/sh\ncat >/dev/null\ncase $CNI_COMMAND in\n${cases.join('')}esac\n`;
    writeFileSync(flusher, script, { mode: 0o755 });
    const { rules } = await examine(flusher, { conf: {} });
    expect(rules.find(({ id }) => id === 'del/leaves-others')).toMatchObject({
      outcome: 'broken',
      details: expect.stringMatching(/^files: - file \/run\/own\/id-cat-/),
    });
  });

  test.each(['SIGINT', 'SIGTERM'] as const)('%s ends the plugin that hangs as well', async signal => {
    const hanging = join(tmp, 'hanging');
    const version = '{"cniVersion":"1.1.0","supportedVersions":["1.1.0"]}';
    const script = `#!/bin/sh\n[ "$CNI_COMMAND" != VERSION ] || exec echo '${version}'\nexec sleep 300\n`;
    writeFileSync(hanging, script, { mode: 0o755 });
    const examining = Bun.spawn([join(BIN_DIR, 'catena'), 'conformance', hanging], {
      stdio: ['ignore', 'ignore', 'ignore'],
    });
    const plugins = () => childrenOf(examining.pid).flatMap(childrenOf);
    const findHanging = () => plugins().find(pid => tryRead(`/proc/${pid}/comm`) === 'sleep\n');
    await until(() => findHanging() !== undefined);
    const plugin = findHanging();
    examining.kill(signal);
    expect(await examining.exited).toBe(128 + constants.signals[signal]);
    await until(() => !existsSync(`/proc/${plugin}`));
  });

  test('takes the configuration from a list', async () => {
    const list = `${import.meta.dir}/../../conflists/bridge-full.conflist`;
    const { rules, ok } = await examine(join(BIN_DIR, 'tuning'), { args: ['--from', list] });
    expect(ok).toBe(true);
    expect(rules.find(({ id }) => id === 'chain/passes-result')?.outcome).toBe('kept');
  });
});
