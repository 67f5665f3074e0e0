// Are the examples of README.md and of src/observe/README.md true: the conflist, the output of commands, the library?

import { describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import path from 'node:path';
import { PLUGIN_NAMES, RUNNER_NAME } from '../../plugins/registry.ts';
import { CATENA } from '../helpers/catena.ts';
import { writeChain } from '../helpers/chain.ts';
import { startDaemon } from '../helpers/daemon.ts';
import { directories, withHost } from '../helpers/netns.ts';
import { firstBlock } from '../helpers/page.ts';
import { describeRoot } from '../helpers/skip.ts';
import { ROOT } from '../helpers/source-tree.ts';
import { drawTerminal, linesOf } from '../helpers/terminal-picture.ts';

describe('README.md', () => {
  test('shows the conflist that npm start tries', () => {
    const conflist = fs.readFileSync(path.join(ROOT, 'conflists/bridge-full.conflist'), 'utf8');
    expect(firstBlock('README.md', 'json')).toBe(conflist);
  });

  test('has at most 250 lines', () => {
    const lines = fs.readFileSync(path.join(ROOT, 'README.md'), 'utf8').trimEnd().split('\n');
    expect(lines.length).toBeLessThanOrEqual(250);
  });

  test.each(['README.md', 'plugins/README.md'])('%s has a row for every plugin', page => {
    const text = fs.readFileSync(path.join(ROOT, page), 'utf8');
    // A row may be about several plugins.
    const link = /\[([\w-]+)\]\([\w/-]*\/README\.md\)/g;
    const cells = Array.from(text.matchAll(/^\| (\[[^|]+) \|/gm), ([, cell = '']) => cell);
    const rows = cells.flatMap(cell => Array.from(cell.matchAll(link), ([, name]) => name));
    const runner = page === 'README.md' ? [RUNNER_NAME] : [];
    expect(rows.sort()).toEqual([...PLUGIN_NAMES, ...runner].sort());
  });
});

/** Words of a line, without times, numbers that traffic decides, and names of devices. */
function wordsOf(line: string): string[] {
  return line
    .replace(/\d+(\.\d+)? (ms|s)\b/g, 'time')
    .replace(/: \d+(\.\d+)? Mbit/g, ': rate')
    .replace(/(veth|bwp)[\da-f]+/g, '$1')
    .split(/\s+/)
    .filter(Boolean);
}

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

/** Written with CATENA_WRITE_DOCS=1. */
const PICTURE = path.join(ROOT, 'src/lab/try.svg');
/** Of what one row or one list has, so many lines are shown. */
const MOST_LINES = 5;

/** Long lists end with dots. */
function shortened(output: string): string[] {
  let isDeep = false;
  let run = 0;
  return output
    .trimEnd()
    .split('\n')
    .flatMap(line => {
      const [indent = ''] = /^ */.exec(Bun.stripANSI(line)) ?? [];
      const wasDeep = isDeep;
      isDeep = indent.length > 2;
      const continues = isDeep ? true : !wasDeep && indent.length === 2;
      run = continues ? run + 1 : 0;
      if (run > MOST_LINES) return [];
      return run === MOST_LINES ? [`${indent}…`] : [line];
    });
}

describeRoot('README.md', () => {
  test('shows what npm start prints', async () => {
    await withHost(async lab => {
      const args = ['try', 'conflists/bridge-full.conflist', '--color', 'always'];
      const { stdout } = await lab.run(lab.host, ['env', 'COLUMNS=104', CATENA, ...args], { cwd: ROOT });
      if (process.env.CATENA_WRITE_DOCS)
        fs.writeFileSync(PICTURE, drawTerminal('What npm start prints', shortened(stdout)));
      const printed = Bun.stripANSI(stdout)
        .split('\n')
        .map(line => wordsOf(line).join(' '));
      // Lines may be left out, where the picture has dots.
      const shown = linesOf(fs.readFileSync(PICTURE, 'utf8')).map(line =>
        wordsOf(line.replace(/[…\s]+$/, '')).join(' '),
      );
      let at = 0;
      const strange = shown.filter(line => {
        const found = printed.findIndex((one, index) => index >= at && one.startsWith(line));
        if (found >= 0) at = found;
        return found < 0;
      });
      expect(strange).toEqual([]);
    });
  });

  test('src/observe/README.md draws a trace as the command does', async () => {
    await withHost(async lab => {
      const list = JSON.parse(firstBlock('README.md', 'json'));
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
      const { items } = (await (await daemon.fetch('/v1/traces')).json()) as { items: [{ id: string }] };
      const [{ id }] = items;
      const env = directories(lab.tmp);
      const { stdout } = await lab.run(lab.host, [CATENA, 'log', id.slice(0, 10)], { env });
      expect(shapeOf(stdout)).toEqual(shapeOf(firstBlock('src/observe/README.md', 'text')));
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
      const file = path.join(ROOT, 'dist', `readme-${crypto.randomUUID()}.ts`);
      fs.writeFileSync(file, firstBlock('README.md', 'ts'));
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
