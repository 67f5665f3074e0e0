// How does a test get this package as its users do: packed, and installed into a project of its own?
import fs from 'node:fs';
import path from 'node:path';
import { runOk, TEST_PATH } from './command.ts';
import { ROOT } from './source-tree.ts';

interface Manifest {
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly peerDependencies?: Readonly<Record<string, string>>;
  readonly peerDependenciesMeta?: Readonly<Record<string, { readonly optional?: boolean }>>;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
}

/** Packs the build output, and returns the path of the tarball. */
export async function packLibrary(dir: string): Promise<string> {
  const argv = ['npm', 'pack', '--ignore-scripts', '--json', '--pack-destination', dir];
  const { stdout } = await runOk(argv, {
    cwd: ROOT,
    env: { ...process.env, PATH: TEST_PATH },
    timeoutMs: 60_000,
  });
  const [{ filename }] = JSON.parse(stdout);
  return path.join(dir, filename);
}

/**
 * Installs the package into a project's `node_modules` as `npm install <tarball>` does, together with the dependencies that its
 * package.json and the project's own declare, and nothing else. These come from our own `node_modules`, so no test needs the
 * network.
 */
export async function installPacked(project: string, tarball: string): Promise<void> {
  const home = path.join(project, 'node_modules/catena-cni');
  fs.mkdirSync(home, { recursive: true });
  await runOk(['tar', '-xzf', tarball, '-C', home, '--strip-components=1']);
  const own = readManifest(project);
  const wanted = [
    ...namesOf(readManifest(home)),
    ...namesOf(own),
    ...Object.keys(own.devDependencies ?? {}),
  ].filter(name => name !== 'catena-cni');
  for (const name of closureOf(wanted)) link(project, name);
  // What `npm install` does with the executables of packages.
  fs.mkdirSync(path.join(project, 'node_modules/.bin'), { recursive: true });
  for (const name of fs.readdirSync(path.join(ROOT, 'node_modules/.bin'))) {
    if (!['bun', 'tsc'].includes(name)) continue;
    fs.symlinkSync(path.join(ROOT, 'node_modules/.bin', name), path.join(project, 'node_modules/.bin', name));
  }
}

/** `PATH` with a project's own executables first. */
export function pathOf(project: string): string {
  return `${project}/node_modules/.bin:${TEST_PATH}`;
}

function closureOf(names: readonly string[]): Set<string> {
  const all = new Set<string>();
  const queue = [...names];
  for (let name = queue.pop(); name !== undefined; name = queue.pop()) {
    const home = path.join(ROOT, 'node_modules', name);
    // A missing optional one is for another platform.
    if (all.has(name) || !fs.existsSync(home)) continue;
    all.add(name);
    queue.push(...namesOf(readManifest(home)));
  }
  return all;
}

function link(project: string, name: string): void {
  const target = path.join(project, 'node_modules', name);
  fs.mkdirSync(path.dirname(target), { recursive: true });
  fs.symlinkSync(path.join(ROOT, 'node_modules', name), target);
}

/** What npm installs with a package: peers unless they are optional, and every optional dependency that it finds. */
function namesOf(manifest: Manifest): string[] {
  const { dependencies, peerDependencies = {}, peerDependenciesMeta = {}, optionalDependencies } = manifest;
  const peers = Object.keys(peerDependencies).filter(name => !peerDependenciesMeta[name]?.optional);
  return [...Object.keys({ ...dependencies, ...optionalDependencies }), ...peers];
}

function readManifest(dir: string): Manifest & { devDependencies?: Record<string, string> } {
  return JSON.parse(fs.readFileSync(path.join(dir, 'package.json'), 'utf8'));
}
