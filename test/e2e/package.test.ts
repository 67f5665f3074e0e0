// Does the packed package work in a project of its own: types, and both entries, under Node and under Bun?
import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { type Finished, run, runOk } from '../helpers/command.ts';
import { directories } from '../helpers/netns.ts';
import { FIXTURE_PLUGINS } from '../helpers/noop-chain.ts';
import { installPacked, packLibrary, pathOf } from '../helpers/package.ts';
import { ROOT } from '../helpers/source-tree.ts';

let project: string;
let tarball: string;
beforeAll(async () => {
  project = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-package-'));
  const devDependencies = { '@types/node': '*', typescript: '*' };
  write(
    'package.json',
    JSON.stringify({ type: 'module', dependencies: { 'catena-cni': '*' }, devDependencies }),
  );
  tarball = await packLibrary(project);
  await installPacked(project, tarball);
});
afterAll(() => fs.rmSync(project, { recursive: true }));

function write(name: string, text: string): void {
  fs.writeFileSync(path.join(project, name), text);
}

const inProject = (...argv: string[]): Promise<Finished> =>
  run(argv, { cwd: project, env: { PATH: pathOf(project) }, timeoutMs: 60_000 });

const USE_LIBRARY = `
import { addNetwork, convertResult, deleteNetwork, parseNetwork, SPEC_VERSIONS } from 'catena-cni';
import bridge from 'catena-cni/schemas/bridge.json' with { type: 'json' };
import { writeFileSync } from 'node:fs';

const dir = process.argv[2];
const report = { ReportResult: { cniVersion: '1.1.0', ips: [{ address: '10.1.0.2/24' }] } };
writeFileSync(dir + '/debug.json', JSON.stringify(report));
const plugins = [{ type: 'noop', debugFile: dir + '/debug.json' }];
const list = parseNetwork(JSON.stringify({ cniVersion: '1.1.0', name: 'n', plugins }));
const runtime = { pluginDirs: ['${FIXTURE_PLUGINS}'], cacheDir: dir + '/cache' };
const attachment = { containerId: 'c', netns: '/run/netns/none', ifname: 'eth0' };
const result = await addNetwork(list, attachment, runtime);
await deleteNetwork(list, attachment, runtime);
console.log(JSON.stringify([SPEC_VERSIONS.length, convertResult(result, '0.4.0').ips, bridge.title]));
`;

describe('catena-cni', () => {
  test('becomes one file by a bundler, which runs where nothing is installed', async () => {
    write(
      'list.mjs',
      `import { loadFile } from 'catena-cni'; console.log(loadFile(process.argv[2]).version);`,
    );
    const elsewhere = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-bundle-'));
    const file = path.join(elsewhere, 'list.conflist');
    const plugins = [{ type: 'noop' }];
    fs.writeFileSync(
      file,
      JSON.stringify({ cniVersion: '1.0.0', cniVersions: ['0.4.0', '1.1.0'], name: 'n', plugins }),
    );
    const bundle = path.join(elsewhere, 'bundle.mjs');
    await runOk([process.execPath, 'build', 'list.mjs', '--target=node', `--outfile=${bundle}`], {
      cwd: project,
    });
    const { stdout, stderr } = await run(['node', bundle, file], { cwd: elsewhere, timeoutMs: 60_000 });
    expect([stdout, stderr]).toEqual(['1.1.0\n', '']);
    fs.rmSync(elsewhere, { recursive: true });
  });

  test.each(['node', 'bun'])('runs a chain under %s', async runtime => {
    write('library.mjs', USE_LIBRARY);
    const { exitCode, stdout, stderr } = await inProject(runtime, 'library.mjs', project);
    expect([exitCode, stderr.replace(/^.*Warning.*\n|^\(Use `node.*\n/gm, '')]).toEqual([0, '']);
    expect(JSON.parse(stdout)).toEqual([
      7,
      [{ version: '4', address: '10.1.0.2/24' }],
      'Configuration of the main plugin bridge',
    ]);
  });

  test('brings none of the packages that only the daemon, a cluster or firewalld needs', async () => {
    const { peerDependencies } = JSON.parse(fs.readFileSync(path.join(ROOT, 'package.json'), 'utf8'));
    const heavy = [
      ...['@grpc/grpc-js', '@kubernetes/client-node', 'dbus-native', 'preact', 'prom-client', 'protobufjs'],
    ];
    expect(Object.keys(peerDependencies)).toEqual(heavy);
    const installed = (name: string) => fs.existsSync(path.join(project, 'node_modules', name));
    expect(heavy.filter(installed)).toEqual([]);
    expect(['execa', 'fs-extra', 'semver', 'winston', 'zod'].filter(name => !installed(name))).toEqual([]);
    const main = path.join(project, 'node_modules/catena-cni/plugins/main.ts');
    const { exitCode, stderr } = await inProject('bun', main, 'daemon', '--run-dir', `${project}/run`);
    expect(exitCode).toBe(1);
    expect(stderr).toEndWith(
      '  hint: npm install prom-client, or use the executable of a release, which contains it\n',
    );
  });

  test('runs the runner of examples/', async () => {
    fs.copyFileSync(path.join(ROOT, 'examples/runner.ts'), path.join(project, 'runner.ts'));
    const ips = [{ address: '10.1.0.2/24', gateway: '10.1.0.1' }];
    write('report.json', JSON.stringify({ ReportResult: { cniVersion: '1.1.0', ips } }));
    const plugins = [{ type: 'noop', debugFile: path.join(project, 'report.json') }];
    write('net.conflist', JSON.stringify({ cniVersion: '1.1.0', name: 'net', plugins }));
    const env = { ...directories(project), PATH: pathOf(project), CNI_PATH: FIXTURE_PLUGINS };
    const argv = ['bun', 'runner.ts', 'net.conflist', '/run/netns/none'];
    const { exitCode, stdout } = await run(argv, { cwd: project, env, timeoutMs: 60_000 });
    expect({ exitCode, stdout }).toEqual({ exitCode: 0, stdout: '10.1.0.2/24 via 10.1.0.1\n' });
  });

  test('its command runs on Bun', async () => {
    const { version } = JSON.parse(fs.readFileSync(path.join(ROOT, 'package.json'), 'utf8'));
    const main = path.join(project, 'node_modules/catena-cni/plugins/main.ts');
    expect((await inProject('bun', main, '--version')).stdout).toBe(`catena ${version}\n`);
    const { stdout } = await inProject('bun', main, 'validate', '--schema', 'bridge');
    expect(stdout).toBe(fs.readFileSync(path.join(ROOT, 'dist/schemas/bridge.json'), 'utf8'));
    expect((await inProject('bun', main, 'init', 'motd', '--plugin')).exitCode).toBe(0);
  });

  test('its command says in one line what to do without Bun, and runs where PATH has one', async () => {
    const { bin, version } = JSON.parse(fs.readFileSync(path.join(ROOT, 'package.json'), 'utf8'));
    const command = path.join(project, 'node_modules/catena-cni', bin.catena);
    const node = Bun.which('node') ?? '';
    fs.mkdirSync(path.join(project, 'only-node'));
    fs.symlinkSync(node, path.join(project, 'only-node/node'));
    const call = (PATH: string) => run([node, command, '--version'], { cwd: project, env: { PATH } });
    const without = await call(path.join(project, 'only-node'));
    expect(without).toEqual({
      exitCode: 1,
      stdout: '',
      stderr: expect.stringMatching(
        /^catena: Cannot run: the npm package needs Bun, .* "npm install bun"[^\n]*\n$/,
      ),
    });
    expect(await call(pathOf(project))).toEqual({ exitCode: 0, stdout: `catena ${version}\n`, stderr: '' });
    const wrong = await run([node, command, 'no-such-command'], { env: { PATH: pathOf(project) } });
    expect([wrong.exitCode, wrong.stderr]).toEqual([2, expect.stringContaining('no such command')]);
  });

  test('contains what its package.json names, and no executables', async () => {
    const files = (await runOk(['tar', '-tzf', tarball])).stdout
      .split('\n')
      .map(file => file.replace('package/', ''));
    const { exports, bin } = JSON.parse(fs.readFileSync(path.join(ROOT, 'package.json'), 'utf8'));
    const named = [exports, bin].flatMap(function walk(value: unknown): string[] {
      return typeof value === 'string'
        ? [value.replace('./', '')]
        : Object.values(value as object).flatMap(walk);
    });
    expect(named.filter(file => !file.includes('*') && !files.includes(file))).toEqual([]);
    expect(files).toContain('dist/schemas/conflist.json');
    expect(files).toContain('conflists/bridge-full.conflist');
    expect(files.filter(file => /^(dist\/bin|test|node_modules)\//.test(file))).toEqual([]);
  });
});

describe('catena-cni/plugin', () => {
  test('makes a plugin under Bun, and is not offered to Node', async () => {
    write(
      'plugin.ts',
      `import { definePlugin, nothingToDo, PluginConfig, runPlugin } from 'catena-cni/plugin';
       const none = nothingToDo('an example');
       await runPlugin(definePlugin({
         name: 'example', config: PluginConfig, netns: 'unused',
         add: () => ({}), check: none, del: none, gc: none, status: none,
       }));`,
    );
    const reply = await run([path.join(ROOT, 'node_modules/.bin/bun'), 'plugin.ts'], {
      cwd: project,
      env: { CNI_COMMAND: 'VERSION' },
    });
    expect(JSON.parse(reply.stdout)).toMatchObject({ cniVersion: '1.1.0' });
    write('plugin.mjs', `import 'catena-cni/plugin';`);
    const { exitCode, stderr } = await inProject('node', 'plugin.mjs');
    expect(exitCode).toBe(1);
    expect(stderr).toContain('ERR_PACKAGE_PATH_NOT_EXPORTED');
  });
});

const CONSUMER = `
import { addNetwork, type Attachment, CniError, loadFile, parseResult, type Runtime } from 'catena-cni';
import { type Call, definePlugin, nothingToDo, PluginConfig } from 'catena-cni/plugin';
import { withHost } from 'catena-cni/testing';
import * as z from 'zod/mini';

const runtime: Runtime = { pluginDirs: ['/opt/cni/bin'] };
const attachment: Attachment = { containerId: 'c', netns: '/run/netns/x', ifname: 'eth0' };
export async function attach(file: string): Promise<string[]> {
  try {
    const result = await addNetwork(loadFile(file), attachment, runtime);
    const first: string | undefined = result.ips?.[0]?.address;
    const gateways = [result.routes?.[0]?.gw, result.interfaces?.[0]?.mac, result.dns?.nameservers?.[0]];
    if (result.cniVersion === '0.2.0') return [result.ip4?.ip ?? '', result.ip6?.gateway ?? ''];
    if (result.cniVersion === '0.4.0') return (result.ips ?? []).map(({ version, address }) => version + address);
    const current: number | undefined = parseResult(result).interfaces?.[0]?.mtu;
    // @ts-expect-error: a misspelt member of an address
    result.ips?.[0]?.adress;
    const any = (parseResult(result).ips ?? []).map(({ address }) => address);
    return [first ?? '', String(current), ...any, ...gateways.map(String)];
  } catch (error) {
    if (error instanceof CniError) return [error.message, String(error.plugin?.durationMs)];
    throw error;
  }
}

const Conf = z.extend(PluginConfig, { greeting: z._default(z.string(), 'hello') });
function greet({ conf }: Call<z.output<typeof Conf>>): void {
  const greeting: string = conf.greeting;
  // @ts-expect-error: it is no number
  const wrong: number = conf.greeting;
  console.log(greeting, wrong);
}
export const plugin = definePlugin({
  name: 'motd',
  config: Conf,
  netns: 'required',
  add(call) {
    greet(call);
    return call.prevResult ?? {};
  },
  check: greet,
  del: nothingToDo('nothing was made'),
  gc: nothingToDo('nothing was made'),
  status: nothingToDo('always able'),
});

// @ts-expect-error: every verb must be there
definePlugin({ name: 'half', config: Conf, netns: 'required', add: () => ({}) });

export const tried = withHost(host => host.call(plugin, 'ADD', { conf: {} }));
`;

describe('types', () => {
  test.each([
    ['bundler', 'ESNext'],
    ['nodenext', 'NodeNext'],
  ])('are right for a strict consumer with moduleResolution %s', async (moduleResolution, module) => {
    write('consumer.ts', CONSUMER);
    const compilerOptions = {
      module,
      moduleResolution,
      target: 'ES2023',
      lib: ['ES2023'],
      types: ['node'],
      noEmit: true,
      strict: true,
      exactOptionalPropertyTypes: true,
      noUncheckedIndexedAccess: true,
      skipLibCheck: false,
    };
    write('tsconfig.json', JSON.stringify({ compilerOptions, files: ['consumer.ts'] }));
    expect(await inProject('tsc')).toEqual({ exitCode: 0, stdout: '', stderr: '' });
  });
});
