// For which systems is there a release, and where does the Bun executable of each come from?
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import lock from '../../package-lock.json' with { type: 'json' };

const ROOT = path.resolve(import.meta.dir, '../..');

export interface Target {
  /** As it appears in the archive's name. */
  readonly name: string;
  /** The npm package that contains Bun for it. */
  readonly runtime: string;
  readonly arch: 'x64' | 'arm64';
  /** linux/elf-em.h, EM_X86_64 and EM_AARCH64. */
  readonly machine: number;
  /** Its dynamic loader, which implies the C library. */
  readonly loader: string;
}

/** A processor, its name in Bun's packages, its number in executables, and the loaders of the two C libraries. */
const PROCESSORS = [
  ['arm64', 'aarch64', 183, '/lib/ld-linux-aarch64.so.1', '/lib/ld-musl-aarch64.so.1'],
  ['x64', 'x64', 62, '/lib64/ld-linux-x86-64.so.2', '/lib/ld-musl-x86_64.so.1'],
] as const;

/** Every system, in the order of the archives. */
export const TARGETS: readonly Target[] = PROCESSORS.flatMap(([arch, inBun, machine, gnu, musl]) => [
  { name: `linux-${arch}`, runtime: `@oven/bun-linux-${inBun}`, arch, machine, loader: gnu },
  { name: `linux-${arch}-musl`, runtime: `@oven/bun-linux-${inBun}-musl`, arch, machine, loader: musl },
]);

/**
 * The Bun executable for a system: from the package that npm installed, or else from the one that `npm pack` fetches, with the
 * version and checksum in the lockfile.
 * @param cacheDir keeps what was fetched
 */
export function findRuntime({ runtime }: Target, cacheDir: string): string {
  const installed = path.join(ROOT, 'node_modules', runtime, 'bin/bun');
  if (fs.existsSync(installed)) return installed;
  const { version, integrity } = lockedAt(runtime);
  const kept = path.join(cacheDir, `${path.basename(runtime)}-${version}`);
  const executable = path.join(kept, 'package/bin/bun');
  if (fs.existsSync(executable)) return executable;
  fs.mkdirSync(cacheDir, { recursive: true });
  const unfinished = fs.mkdtempSync(`${kept}-`);
  try {
    run(['npm', 'pack', '--silent', '--pack-destination', unfinished, `${runtime}@${version}`]);
    const [tarball = ''] = fs.readdirSync(unfinished);
    const file = path.join(unfinished, tarball);
    const digest = `sha512-${createHash('sha512').update(fs.readFileSync(file)).digest('base64')}`;
    if (digest !== integrity) {
      throw new Error(`Cannot use "${runtime}" ${version}: its checksum is ${digest}, not ${integrity}`);
    }
    run(['tar', '-xzf', file, '-C', unfinished]);
    fs.rmSync(file);
    fs.renameSync(unfinished, kept);
  } finally {
    fs.rmSync(unfinished, { recursive: true, force: true });
  }
  return executable;
}

function lockedAt(name: string): { version: string; integrity: string } {
  const packages: Record<string, { version?: string; integrity?: string }> = lock.packages;
  const { version, integrity } = packages[`node_modules/${name}`] ?? {};
  if (version && integrity) return { version, integrity };
  throw new Error(`Cannot fetch "${name}": it is not in package-lock.json`);
}

function run(argv: readonly string[]): void {
  const { exitCode, stderr } = Bun.spawnSync([...argv], { cwd: ROOT, timeout: 600_000 });
  if (exitCode !== 0) throw new Error(`Cannot run ${argv.join(' ')}: ${stderr.toString().trim()}`);
}
