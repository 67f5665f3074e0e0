// Does `catena networks` say which file wins, and why?
import { afterAll, beforeAll, expect, test } from 'bun:test';
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { run } from '../helpers/command.ts';
import { FIXTURE_PLUGINS } from '../helpers/noop-chain.ts';
import { BIN_DIR } from '../helpers/plugin.ts';

const dir = fs.mkdtempSync(join(tmpdir(), 'cat-networks-'));
afterAll(() => fs.rmSync(dir, { recursive: true }));

beforeAll(() => {
  const list = (name: string, type: string) =>
    JSON.stringify({ cniVersion: '1.0.0', name, plugins: [{ type }] });
  fs.writeFileSync(join(dir, '05-gone.conflist'), list('gone', 'absent'));
  fs.writeFileSync(join(dir, '10-podnet.conflist'), list('podnet', 'noop'));
});

const networks = (...args: string[]) =>
  run([
    `${BIN_DIR}/catena`,
    'networks',
    '--conf-dir',
    dir,
    '--bin-dir',
    FIXTURE_PLUGINS,
    '--etc',
    dir,
    ...args,
  ]);

test('catena networks distinguishes the runtimes', async () => {
  const { exitCode, stdout, stderr } = await networks('--json');
  expect([exitCode, stderr]).toEqual([0, '']);
  const { files, runtimes } = JSON.parse(stdout);
  expect(files.map(({ network }: { network: string }) => network)).toEqual(['gone', 'podnet']);
  const taken = runtimes.map((one: { runtime: string; files: string[] }) => [one.runtime, one.files]);
  expect(taken).toEqual([
    ['containerd', ['05-gone.conflist']],
    ['CRI-O', ['10-podnet.conflist']],
    ['podman', ['10-podnet.conflist']],
  ]);
});

test('catena networks --why gives a reason for each file and runtime', async () => {
  const { stdout } = await networks('--why');
  expect(stdout).toMatch(/^ {2}05-gone.conflist .*network gone, CNI 1.0.0: absent; not usable: .*"absent"/m);
  expect(stdout).toMatch(/^ {4}containerd {2}used {6}it is the first by name, but pods will fail/m);
  expect(stdout).toMatch(/^ {4}CRI-O {7}used {6}it is the first usable file by name$/m);
  expect(stdout).toMatch(/^containerd {2}05-gone.conflist: "05-gone.conflist" is used, but pods will fail/m);
});

test('catena networks refuses an invalid number', async () => {
  const { exitCode, stderr } = await networks('--max-conf-num', 'all');
  expect([exitCode, stderr]).toEqual([2, expect.stringContaining('--max-conf-num "all"')]);
});

test('catena networks reads the configuration of the runtimes', async () => {
  fs.mkdirSync(join(dir, 'containerd'));
  fs.mkdirSync(join(dir, 'crio/crio.conf.d'), { recursive: true });
  const toml = `version = 2\n[plugins."io.containerd.grpc.v1.cri".cni]\nconf_dir = "${dir}/"\nmax_conf_num = 2\n`;
  fs.writeFileSync(join(dir, 'containerd/config.toml'), toml);
  fs.writeFileSync(join(dir, 'crio/crio.conf.d/10.conf'), '[crio.network]\nnetwork_dir = "/elsewhere"\n');
  const { runtimes, notes } = JSON.parse((await networks('--json')).stdout);
  expect(runtimes[0].files).toHaveLength(2);
  expect(notes).toEqual([expect.stringContaining('CRI-O reads "/elsewhere" instead of')]);
});
