// Of which Debian packages is the virtual machine made?

import fs from 'node:fs';
import path from 'node:path';
import { run } from '../helpers/command.ts';
import { libraryDirs, unpackedAt, unpackPackages } from '../helpers/unpack.ts';

const PACKAGES = [
  'linux-image-cloud-amd64',
  'qemu-system-x86',
  'qemu-system-common',
  'qemu-system-data',
  'seabios',
  'busybox-static',
];

const UNPACKED = unpackedAt('catena-vm');

/** Downloads and unpacks the packages unless an earlier run did; returns a line for the reader if it failed. */
export async function unpackMachine(): Promise<string | undefined> {
  const failure = await unpackPackages(UNPACKED, PACKAGES);
  const parts = machineParts();
  if (parts === undefined || fs.existsSync(`${parts.modules}/modules.dep`)) return failure;
  const { exitCode, stderr } = await run([parts.busybox, 'depmod', '-b', UNPACKED, parts.release]);
  return exitCode === 0 ? failure : `Cannot list the modules of kernel "${parts.release}": ${stderr}`;
}

/** Full paths of what the virtual machine needs. */
export interface MachineParts {
  readonly kernel: string;
  /** As `uname -r` prints it. */
  readonly release: string;
  /** Directory of the kernel's modules. */
  readonly modules: string;
  readonly emulator: string;
  /** Directories of the emulator's firmware. */
  readonly firmware: readonly string[];
  /** Serves a directory to the guest. */
  readonly fileServer: string;
  readonly busybox: string;
  /** For the emulator and the file server. */
  readonly env: Readonly<Record<string, string>>;
}

/** What an earlier {@link unpackMachine} installed, if it is complete. */
export function machineParts(): MachineParts | undefined {
  const at = (file: string): string => path.join(UNPACKED, file);
  const boot = at('boot');
  const image = fs.existsSync(boot)
    ? fs.readdirSync(boot).find(name => name.startsWith('vmlinuz-'))
    : undefined;
  if (image === undefined) return undefined;
  const release = image.slice('vmlinuz-'.length);
  const parts = {
    kernel: path.join(boot, image),
    release,
    modules: at(`lib/modules/${release}`),
    emulator: at('usr/bin/qemu-system-x86_64'),
    firmware: [at('usr/share/qemu'), at('usr/share/seabios')],
    fileServer: at('usr/lib/qemu/virtiofsd'),
    busybox: at('bin/busybox'),
    env: { LD_LIBRARY_PATH: libraryDirs(UNPACKED).join(':') },
  };
  const files = [parts.modules, parts.emulator, parts.fileServer, parts.busybox];
  return files.every(file => fs.existsSync(file)) ? parts : undefined;
}
