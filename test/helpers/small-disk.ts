// How does a test get a disk that is full, or cannot be written to, without touching the machine's disk?
import fs from 'node:fs';
import path from 'node:path';
import { type Finished, type RunOptions, runOk } from './command.ts';
import { type Container, directories, type Lab, type Row } from './netns.ts';
import { BIN_DIR } from './plugin.ts';

/** A small in-memory file system that is only visible to programs run through it. */
export interface SmallDisk {
  /** Its path, for programs that can see it. */
  readonly dir: string;
  /** The path of one of its files for everything else. */
  outside(file: string): string;
  /** Runs a program in the fake host that can see it. */
  run(argv: readonly string[], options?: RunOptions): Promise<Finished>;
  /** Runs a verb of the command, with all its state on the disk. */
  catena(verb: string, container?: Container, ...args: string[]): Promise<Finished>;
  /** Leaves this many pages of 4 KiB free for all files. */
  fill(freePages: number): void;
  /** Leaves room for this many files and directories. */
  limitFiles(free: number): Promise<void>;
  /** Undoes both limits. */
  free(): Promise<void>;
  remount(how: 'ro' | 'rw'): Promise<void>;
}

const SIZE_BYTES = 2 ** 20;
const MANY_FILES = 4096;
/** The file that fills the disk. */
const BALLAST = 'ballast';

/** Mounts it; it is removed with the lab. The conflist is written outside of it, where there is always space. */
export async function mountSmallDisk(lab: Lab, list: (disk: string) => Row): Promise<SmallDisk> {
  const dir = path.join(lab.tmp, 'disk');
  fs.mkdirSync(dir);
  const conflist = path.join(lab.tmp, 'small-disk.conflist');
  fs.writeFileSync(conflist, JSON.stringify(list(dir)));
  const holder = lab.start(lab.host, ['unshare', '--mount', '--propagation', 'slave', 'sleep', 'infinity']);
  const inside = (argv: readonly string[]) => [
    'nsenter',
    `--mount=/proc/${holder.pid}/ns/mnt`,
    '--',
    ...argv,
  ];
  const outside = (file: string) => `/proc/${holder.pid}/root${path.join(dir, file)}`;
  const mount = (...args: string[]) => runOk(inside(['mount', ...args]));
  await untilUnshared(holder.pid);
  const options = `size=${SIZE_BYTES},nr_inodes=${MANY_FILES}`;
  await mount('-t', 'tmpfs', '-o', options, 'tmpfs', dir);
  const run: SmallDisk['run'] = (argv, more) => lab.run(lab.host, inside(argv), more);
  return {
    dir,
    outside,
    run,
    catena(verb, container, ...args) {
      const target = container ? [container.path, '--container-id', container.id] : [];
      const network = ['repair', 'ls', 'doctor'].includes(verb)
        ? []
        : [list(dir).name, ...target, '--file', conflist];
      const bins = ['ls', 'doctor'].includes(verb) ? ['--conf-dir', lab.tmp] : ['--bin-dir', BIN_DIR];
      const argv = [`${BIN_DIR}/catena`, verb, ...network, ...bins, ...args];
      return run(argv, { env: directories(dir), timeoutMs: 60_000 });
    },
    fill(freePages) {
      fs.rmSync(outside(BALLAST), { force: true });
      const { bsize, bfree } = fs.statfsSync(outside(''));
      fs.writeFileSync(outside(BALLAST), Buffer.alloc((bfree - freePages) * bsize));
    },
    async limitFiles(free) {
      const { files, ffree } = fs.statfsSync(outside(''));
      await mount('-o', `remount,nr_inodes=${files - ffree + free}`, dir);
    },
    async free() {
      fs.rmSync(outside(BALLAST), { force: true });
      await mount('-o', `remount,nr_inodes=${MANY_FILES}`, dir);
    },
    async remount(how) {
      await mount('-o', `remount,${how}`, dir);
    },
  };
}

async function untilUnshared(pid: number): Promise<void> {
  const own = fs.readlinkSync('/proc/self/ns/mnt');
  for (let attempt = 0; attempt < 500; attempt++) {
    if (fs.readlinkSync(`/proc/${pid}/ns/mnt`) !== own) return;
    await Bun.sleep(10);
  }
  throw new Error('Cannot make a mount namespace: it did not come');
}
