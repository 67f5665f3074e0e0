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
import { findRuntime, TARGETS, type Target } from './targets.ts';

const ROOT = path.resolve(import.meta.dir, '../..');
const TEXTS = ['LICENSE', 'README.md'];

/** 2000-01-01: a time that tools accept without complaint, unless SOURCE_DATE_EPOCH specifies another. */
const TIME = Number(process.env.SOURCE_DATE_EPOCH ?? 946_684_800);

/**
 * Compiles, packs, unpacks and inspects the release for one system.
 * @param outDir gets the archive once it has passed the inspection
 * @param cacheDir keeps the Bun executables of other systems
 */
export async function releaseFor(target: Target, outDir: string, cacheDir: string) {
  const name = `catena-${manifest.version}-${target.name}`;
  const work = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-release-'));
  try {
    // The file name is embedded in the executable, so it is always this one.
    const core = path.join(work, 'catena');
    const library = await buildPackage(path.join(work, 'library'));
    const compiled = await compileFront(path.join(work, 'front'), path.join(work, 'tables'), target.arch);
    const front = 'problem' in compiled ? undefined : path.join(work, 'front');
    const runtime = findRuntime(target, cacheDir);
    await compile(core, { library, front, runtime });
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
  return archives
    .sort()
    .map(file => `${digestOf(path.join(dir, file))}  ${file}\n`)
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

/** Where Debian's packages for other architectures install their C library. */
const SYSROOTS = { arm64: '/usr/aarch64-linux-gnu', x64: '/usr/x86_64-linux-gnu' } as const;
const EMULATORS = { arm64: 'qemu-aarch64', x64: 'qemu-x86_64' } as const;
const PT_INTERP = 3;

/**
 * Inspects an unpacked release: names, machine, loader, whether the Bun program recognises its front; and runs it if this machine
 * can.
 * @param hasFront whether it was built with a front
 * @throws Error on any mismatch
 */
export function inspectRelease(dir: string, target: Target, version: string, hasFront: boolean) {
  const names = [RUNNER_NAME, ...PLUGIN_NAMES];
  const expected = [CORE_NAME, ...names].sort();
  const found = fs.readdirSync(path.join(dir, 'bin')).sort();
  if (found.join() !== expected.join()) throw wrong(target, `it has ${found.join(', ')}`);
  const [core, command] = [path.join(dir, 'bin', CORE_NAME), path.join(dir, 'bin', RUNNER_NAME)];
  const inodes = new Set(names.map(name => fs.statSync(path.join(dir, 'bin', name)).ino));
  if (inodes.size !== 1) throw wrong(target, 'its names are not one file');
  if (inodes.has(fs.statSync(core).ino) === hasFront)
    throw wrong(target, hasFront ? 'its names are not the front' : 'its names are not the Bun program');
  const loaders = [
    [core, target.loader],
    // The front needs no C library.
    [command, hasFront ? '' : target.loader],
  ] as const;
  for (const [file, expectedLoader] of loaders) {
    const { machine, loader } = readElf(file);
    if (machine !== target.machine || loader !== expectedLoader)
      throw wrong(target, `"${path.basename(file)}" is for machine ${machine} with loader "${loader}"`);
  }
  if (hasFront && !fs.readFileSync(core).includes(digestOf(command)))
    throw wrong(target, 'its Bun program does not know the digest of its front');
  const way = findWay(target);
  if ('skipped' in way) return { run: way };
  // An emulated front cannot execute another program.
  const told = call(way.argv, way.isEmulated ? core : command, ['--version'], {});
  if (told !== `catena ${version}\n`) throw wrong(target, `it says ${JSON.stringify(told)}`);
  const reply = call(way.argv, path.join(dir, 'bin/bridge'), [], { CNI_COMMAND: 'VERSION' });
  if (!reply.includes('"supportedVersions"')) throw wrong(target, `VERSION says ${JSON.stringify(reply)}`);
  return { run: { version: told.trim() } };
}

function digestOf(file: string): string {
  return createHash('sha256').update(fs.readFileSync(file)).digest('hex');
}

/** Machine and dynamic loader of an executable (elf.h: Elf64_Ehdr, Elf64_Phdr; little endian). */
function readElf(file: string): { machine: number; loader: string } {
  const fd = fs.openSync(file, 'r');
  try {
    const head = Buffer.alloc(4096);
    fs.readSync(fd, head, 0, head.length, 0);
    if (head.toString('latin1', 0, 4) !== '\x7fELF')
      throw new Error(`Cannot read "${file}": it is no ELF file`);
    const [at, size, count] = [
      Number(head.readBigUInt64LE(32)),
      head.readUInt16LE(54),
      head.readUInt16LE(56),
    ];
    for (let i = 0; i < count; i++) {
      const header = at + i * size;
      if (head.readUInt32LE(header) !== PT_INTERP) continue;
      const text = Buffer.alloc(Number(head.readBigUInt64LE(header + 32)));
      fs.readSync(fd, text, 0, text.length, Number(head.readBigUInt64LE(header + 8)));
      return { machine: head.readUInt16LE(18), loader: text.toString('latin1').replace(/\0.*/s, '') };
    }
    return { machine: head.readUInt16LE(18), loader: '' };
  } finally {
    fs.closeSync(fd);
  }
}

type Way =
  | { readonly argv: (file: string) => readonly string[]; readonly isEmulated: boolean }
  | { readonly skipped: string };

function findWay({ arch, loader }: Target): Way {
  const native = arch === process.arch;
  if (native && fs.existsSync(loader)) {
    // Bun for musl uses the system's C++ library.
    if (loader.includes('musl') && !hasCxxForMusl()) return { skipped: 'no libstdc++ for musl here' };
    return { argv: file => [file], isEmulated: false };
  }
  if (native) return { skipped: `no ${loader} here` };
  const emulator = Bun.which(`${EMULATORS[arch]}-static`) ?? Bun.which(EMULATORS[arch]);
  if (emulator === null) return { skipped: `no ${EMULATORS[arch]} here` };
  const root = SYSROOTS[arch];
  if (!fs.existsSync(path.join(root, loader)))
    return { skipped: `no ${root}${loader} for ${EMULATORS[arch]}` };
  return { argv: file => [emulator, '-L', root, '-0', file, file], isEmulated: true };
}

function hasCxxForMusl(): boolean {
  return ['/usr/lib', '/lib'].some(dir => fs.existsSync(`${dir}/libstdc++.so.6`));
}

function call(
  argv: (file: string) => readonly string[],
  file: string,
  args: readonly string[],
  env: Record<string, string>,
): string {
  const { exitCode, stdout, stderr } = Bun.spawnSync([...argv(file), ...args], { env, timeout: 60_000 });
  if (exitCode === 0) return stdout.toString();
  throw new Error(`Cannot run "${file}": exit code ${exitCode}: ${stderr.toString().trim()}`);
}

function wrong({ name }: Target, problem: string): Error {
  return new Error(`Cannot release for ${name}: ${problem}`);
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
