// How are the archives of a release built?
//
//   npm run package                      every system
//   npm run package -- linux-x64         only those named
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import manifest from '../../package.json' with { type: 'json' };
import { CORE_NAME } from '../../src/cni/directories.ts';
import { type ArchiveEntry, packArchive } from '../../src/files/archive.ts';
import { PLUGIN_NAMES, RUNNER_NAME } from '../registry.ts';
import { buildPackage, compile } from './build.ts';
import { compileFront } from './front.ts';
import { inspectRelease } from './inspect-release.ts';
import { findRuntime, TARGETS, type Target } from './targets.ts';

const ROOT = path.resolve(import.meta.dir, '../..');
const TEXTS = ['LICENSE', 'README.md'];

/** 2000-01-01: a time that tools accept without complaint, unless SOURCE_DATE_EPOCH specifies another. */
const TIME = Number(process.env.SOURCE_DATE_EPOCH ?? 946_684_800);

/** An archive that was written. */
interface Release {
  readonly file: string;
  readonly bytes: number;
  /** The output of the executable, or why it was not run. */
  readonly seen: string;
}

/**
 * Compiles, packs, unpacks and inspects the release for one system.
 * @param outDir gets the archive once it has passed the inspection
 * @param cacheDir keeps the Bun executables of other systems
 */
export async function releaseFor(target: Target, outDir: string, cacheDir: string): Promise<Release> {
  const name = `catena-${manifest.version}-${target.name}`;
  const work = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-release-'));
  try {
    // The file name is embedded in the executable, so it is always this one.
    const core = path.join(work, 'catena');
    const library = await buildPackage(path.join(work, 'library'));
    const compiled = await compileFront(path.join(work, 'front'), path.join(work, 'tables'), target.arch);
    const front = 'problem' in compiled ? undefined : path.join(work, 'front');
    const runtime = findRuntime(target, cacheDir);
    await compile(path.join(ROOT, 'plugins/main.ts'), core, { library, front, runtime });
    const packed = packArchive(
      entriesOf(name, fs.readFileSync(core), front === undefined ? undefined : fs.readFileSync(front)),
      TIME,
    );
    const archive = path.join(work, `${name}.tar.gz`);
    fs.writeFileSync(archive, packed);
    const { exitCode, stderr } = Bun.spawnSync(['tar', '-xzf', archive, '-C', work], { timeout: 60_000 });
    if (exitCode !== 0) throw new Error(`Cannot unpack "${archive}": ${stderr.toString().trim()}`);
    const { run } = inspectRelease(path.join(work, name), target, manifest.version, front !== undefined);
    fs.mkdirSync(outDir, { recursive: true });
    const file = path.join(outDir, `${name}.tar.gz`);
    fs.copyFileSync(archive, `${file}.new`);
    fs.renameSync(`${file}.new`, file);
    const ran = 'version' in run ? `ran: ${run.version}` : `not run: ${run.skipped}`;
    const seen = 'problem' in compiled ? `${ran}; no native front: ${compiled.problem}` : ran;
    return { file, bytes: packed.length, seen };
  } finally {
    fs.rmSync(work, { recursive: true, force: true });
  }
}

/** The checksums of every archive in a directory, in the format of `sha256sum --check`. */
export function renderSums(dir: string): string {
  const archives = fs.readdirSync(dir).filter(file => file.endsWith('.tar.gz'));
  const digestOf = (file: string) =>
    createHash('sha256')
      .update(fs.readFileSync(path.join(dir, file)))
      .digest('hex');
  return archives
    .sort()
    .map(file => `${digestOf(file)}  ${file}\n`)
    .join('');
}

/** @param front under every name of ours; without it, the Bun program is */
function entriesOf(name: string, core: Uint8Array, front: Uint8Array | undefined): ArchiveEntry[] {
  const text = (file: string): ArchiveEntry => {
    return { name: `${name}/${file}`, mode: 0o644, content: fs.readFileSync(path.join(ROOT, file)) };
  };
  const conflists = fs.readdirSync(path.join(ROOT, 'conflists')).map(file => `conflists/${file}`);
  const program = `${name}/bin/${CORE_NAME}`;
  const first = `${name}/bin/${RUNNER_NAME}`;
  return [
    { name: program, mode: 0o755, content: core },
    { name: first, mode: 0o755, content: front ?? { sameAs: program } },
    ...[...PLUGIN_NAMES].sort().map(link => {
      return { name: `${name}/bin/${link}`, mode: 0o755, content: { sameAs: first } };
    }),
    ...[...TEXTS, ...conflists].sort().map(text),
  ];
}

if (import.meta.main) {
  const wanted = process.argv.slice(2);
  const unknown = wanted.find(one => !TARGETS.some(({ name }) => name === one));
  if (unknown !== undefined) {
    process.stderr.write(
      `Cannot package "${unknown}": there are ${TARGETS.map(({ name }) => name).join(', ')}\n`,
    );
    process.exit(2);
  }
  const outDir = path.join(ROOT, 'dist/release');
  // Checksums of archives of an older version must not be included.
  if (wanted.length === 0) fs.rmSync(outDir, { recursive: true, force: true });
  try {
    for (const target of TARGETS.filter(({ name }) => wanted.length === 0 || wanted.includes(name))) {
      const release = await releaseFor(target, outDir, path.join(ROOT, 'dist/.runtimes'));
      const size = `${(release.bytes / 1e6).toFixed(1)} MB`;
      process.stdout.write(`${path.relative(ROOT, release.file)}  ${size}  ${release.seen}\n`);
    }
    fs.writeFileSync(path.join(outDir, 'SHA256SUMS'), renderSums(outDir));
    process.stdout.write('dist/release/SHA256SUMS\n');
  } catch (error) {
    process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
    process.exit(1);
  }
}
