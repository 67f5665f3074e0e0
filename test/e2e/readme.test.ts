// Is what the README says true: its example, its conflist, its tables and its links?

import { describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import path from 'node:path';
import { PLUGIN_NAMES, RUNNER_NAME } from '../../plugins/names.ts';
import { COMMANDS, GLOBAL_OPTIONS } from '../../src/cli/commands.ts';
import { CATENA } from '../helpers/catena.ts';
import { writeChain } from '../helpers/chain.ts';
import { startDaemon } from '../helpers/daemon.ts';
import { directories, withHost } from '../helpers/netns.ts';
import { describeRoot } from '../helpers/skip.ts';
import { ROOT } from '../helpers/source-tree.ts';

const README = fs.readFileSync(path.join(ROOT, 'README.md'), 'utf8');

/** The first block of code in a language. */
function block(language: string): string {
  const found = new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\`$`, 'ms').exec(README)?.[1];
  if (found === undefined) throw new Error(`Cannot find a block of ${language} in the README`);
  return found;
}

describe('README.md', () => {
  test('explains the conflist that npm start tries', () => {
    expect(block('json')).toBe(fs.readFileSync(path.join(ROOT, 'conflists/bridge-full.conflist'), 'utf8'));
  });

  test('links to files that exist', () => {
    const targets = [...README.matchAll(/\]\((?!https?:)([^)#]+)/g)].map(([, target = '']) => target);
    expect(targets.filter(target => !fs.existsSync(path.join(ROOT, target)))).toEqual([]);
  });

  test('has a row for every command, option and plugin', () => {
    const rows = README.split('\n').filter(line => line.startsWith('| '));
    const commands = COMMANDS.map(({ name, usage }) => `| \`${`catena ${name} ${usage}`.trim()}\` |`);
    const options = COMMANDS.flatMap(command => Object.keys({ ...command.options, ...GLOBAL_OPTIONS }));
    const starts = [
      ...commands,
      ...[...new Set(options)].map(name => `| \`--${name}`),
      ...[...PLUGIN_NAMES, RUNNER_NAME].map(name => `| [${name}](plugins/${name}/README.md) |`),
    ];
    expect(starts.filter(start => !rows.some(row => row.startsWith(start)))).toEqual([]);
  });
});

/** A drawing without what differs from one run to the next: times, the length of bars, names of devices and namespaces. */
function shapeOf(drawing: string): string[] {
  return drawing
    .trimEnd()
    .split('\n')
    .map(line =>
      line
        .replace(/^\w{12} /, 'id ')
        .replace(/\d{4}-\d\d-\d\dT[\d:.]+Z/, 'then')
        .replace(/\d+\.\d+ m?s\b/g, 'time')
        .replace(/\d+ transactions?/, 'transactions')
        .replace(/(veth|bwp)[\da-f]+/, '$1')
        .replace(/(container|namespace) [^ ,]+/, '$1')
        .replace(/ {2,}|█+/g, ' ')
        .replace(/ +/g, ' ')
        .trim(),
    )
    .filter(line => !line.startsWith('waited'));
}

describeRoot('README.md', () => {
  test('draws a trace as the command does', async () => {
    await withHost(async lab => {
      const list = JSON.parse(block('json'));
      list.plugins[0].ipam.dataDir = `${lab.tmp}/leases`;
      list.plugins[3].dataDir = `${lab.tmp}/tuning`;
      const chain = writeChain(lab, list);
      const container = await lab.container();
      const cap = {
        portMappings: [{ hostPort: 8080, containerPort: 80, protocol: 'tcp' }],
        bandwidth: { ingressRate: 20e6, ingressBurst: 2e6, egressRate: 10e6, egressBurst: 1e6 },
      };
      const args = ['--args', 'K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web;IgnoreUnknown=1'];
      const daemon = await startDaemon(lab);
      await chain.add(container, { cap, args });
      const [{ id }] = (await (await daemon.fetch('/v1/traces')).json()) as [{ id: string }];
      const env = directories(lab.tmp);
      const { stdout } = await lab.run(lab.host, [CATENA, 'trace', id.slice(0, 10)], { env });
      expect(shapeOf(stdout)).toEqual(shapeOf(block('text')));
      expect((await chain.run('del', container)).exitCode).toBe(0);
    });
  });

  test('has an example of the library that runs', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      const before = await lab.dump(lab.host, {
        ignoreTables: ['inet catena_masquerade', 'inet catena_portmap'],
      });
      // Inside the repository, where the package finds itself.
      const file = path.join(ROOT, 'dist', `readme-${process.pid}.ts`);
      fs.writeFileSync(file, block('ts'));
      // The example uses the directories of a real host: it gets its own ones.
      const ground = [
        `mkdir ${lab.tmp}/netns`,
        `mount --rbind /run/netns ${lab.tmp}/netns`,
        'mount -t tmpfs none /run',
        'mount -t tmpfs none /var/lib',
        'exec "$@"',
      ].join(' && ');
      const netns = path.join(lab.tmp, 'netns', container.name);
      const argv = ['unshare', '--mount', 'sh', '-c', ground, 'sh', process.execPath, file, netns];
      try {
        const { exitCode, stdout, stderr } = await lab.run(lab.host, argv, { cwd: ROOT });
        expect({ exitCode, stderr }).toMatchObject({ exitCode: 0 });
        const addresses = JSON.parse(stdout).map(({ address }: { address: string }) => address);
        expect(addresses).toEqual(['10.22.0.2/16', 'fd00:22::2/64']);
        const verbs = stderr
          .split('\n')
          .filter(Boolean)
          .map(line => line.split(':')[0]);
        expect(verbs).toEqual([
          ...['bridge', 'portmap', 'bandwidth', 'tuning'].map(link => `ADD ${link}`),
          ...['bridge', 'portmap', 'bandwidth', 'tuning'].map(link => `CHECK ${link}`),
          ...['tuning', 'bandwidth', 'portmap', 'bridge'].map(link => `DEL ${link}`),
        ]);
      } finally {
        fs.rmSync(file);
      }
      const after = await lab.dump(lab.host, {
        ignoreTables: ['inet catena_masquerade', 'inet catena_portmap'],
      });
      expect(after).toEqual(before);
    });
  });
});
