// Does an archive contain what its name says, and do its executables run?
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { CORE_NAME } from '../../src/cni/directories.ts';
import { PLUGIN_NAMES, RUNNER_NAME } from '../registry.ts';
import type { Target } from './targets.ts';

/** Where Debian's packages for other architectures install their C library. */
const SYSROOTS = { arm64: '/usr/aarch64-linux-gnu', x64: '/usr/x86_64-linux-gnu' } as const;
const EMULATORS = { arm64: 'qemu-aarch64', x64: 'qemu-x86_64' } as const;
const PT_INTERP = 3;

/** The findings about a release. */
interface Inspection {
  /** Its output, or why it was not run. */
  readonly run: { readonly version: string } | { readonly skipped: string };
}

/**
 * Inspects an unpacked release: names, machine, loader, whether the Bun program recognises its front; and runs it if this machine
 * can.
 * @param hasFront whether it was built with a front
 * @throws Error on any mismatch
 */
export function inspectRelease(dir: string, target: Target, version: string, hasFront: boolean): Inspection {
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
