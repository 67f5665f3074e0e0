// How can a virtual machine with another kernel run tests of this repository?
// The guest sees this machine's whole file system, so that Bun, the npm packages, ip and nft are available, but through a
// read-only mount; its own writes stay in its memory. Without hardware virtualization it is emulated.

import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { runOk, TEST_PATH } from '../helpers/command.ts';
import { type Need, requires } from '../helpers/skip.ts';
import { type MachineParts, machineParts } from './packages.ts';
import type { FileReport, Plan } from './plan.ts';

const DEADLINE_MS = 3 * 60 * 60_000;
const MEMORY = '2G';
const INIT = path.resolve(import.meta.dir, 'init.sh');
const INSIDE = path.resolve(import.meta.dir, 'inside.ts');
const FIRST_MODULES = ['virtio_pci', 'virtiofs', 'overlay'];

/** Needs root of an x86-64 machine, and Debian's packages. */
export function requiresMachine(): Need {
  if (process.arch !== 'x64') return 'needs an x86-64 machine';
  if (process.getuid?.() !== 0) return 'needs root to share the file system';
  if (machineParts() === undefined) return "needs Debian 12's packages of qemu and a kernel";
  return requires('unshare', 'mount');
}

/**
 * Boots, runs the plan and powers off.
 * @param onReport called as soon as a file has run
 * @throws Error with the last lines of the guest's kernel log if it did not complete the plan
 */
export async function runInMachine(plan: Plan, onReport: (report: FileReport) => void): Promise<void> {
  const parts = machineParts();
  if (parts === undefined) throw new Error('Cannot boot the virtual machine: its packages are not unpacked');
  const work = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-vm-'));
  try {
    const initrd = await packInitrd(parts, plan, work);
    const share = await serveFiles(parts, plan.root, work);
    try {
      const done = await emulate(parts, { initrd, socket: share.socket, work }, onReport);
      if (done < plan.runs.length) {
        const console = fs.readFileSync(`${work}/console`, 'utf8').split('\n').slice(-30).join('\n');
        throw new Error(`Cannot run all files in the virtual machine: it ended after ${done}: ${console}`);
      }
    } finally {
      await share.end();
    }
  } finally {
    fs.rmSync(work, { recursive: true, force: true });
  }
}

/** Packs what the guest needs until it sees the machine's files: busybox, a few modules, the plan. */
async function packInitrd(parts: MachineParts, plan: Plan, work: string): Promise<string> {
  const root = `${work}/initrd`;
  const modules = `${root}/lib/modules/${parts.release}`;
  for (const dir of ['bin', 'proc', 'dev', 'lower', 'written', 'machine'])
    fs.mkdirSync(`${root}/${dir}`, { recursive: true });
  const dependencies = fs.readFileSync(`${parts.modules}/modules.dep`, 'utf8').split('\n');
  for (const name of FIRST_MODULES) {
    const line = dependencies.find(one => one.split(':')[0]?.endsWith(`/${name}.ko`)) ?? '';
    for (const file of line.split(/:? /).filter(one => one !== '')) {
      const module = file.replace(/:$/, '');
      fs.cpSync(`${parts.modules}/${module}`, `${modules}/${module}`);
    }
  }
  fs.cpSync(`${parts.modules}/modules.dep`, `${modules}/modules.dep`);
  fs.cpSync(parts.busybox, `${root}/bin/busybox`);
  fs.cpSync(INIT, `${root}/init`);
  fs.chmodSync(`${root}/init`, 0o755);
  fs.writeFileSync(`${root}/plan.json`, JSON.stringify(plan));
  const names = fs.readdirSync(root, { recursive: true, encoding: 'utf8' }).sort();
  const archive = `${work}/initrd.cpio`;
  const cpio = [parts.busybox, 'cpio', '-o', '-H', 'newc', '-F', archive];
  await runOk(cpio, { cwd: root, stdin: `${names.join('\n')}\n` });
  return archive;
}

interface Share {
  readonly socket: string;
  end(): Promise<void>;
}

/** Shares the root file system, and that of the repository, through read-only mounts that only the server sees. */
async function serveFiles(parts: MachineParts, repository: string, work: string): Promise<Share> {
  const [socket, root] = [`${work}/files`, `${work}/root`];
  fs.mkdirSync(root);
  const script = [
    'set -e',
    'mount --bind / "$1"',
    'mount -o remount,bind,ro "$1"',
    'mount --bind "$2" "$1$2"',
    'mount -o remount,bind,ro "$1$2"',
    'shift 2; exec "$@"',
  ].join('\n');
  const server = [
    ...[parts.fileServer, `--socket-path=${socket}`, '-o', `source=${root}`],
    ...['-o', 'sandbox=namespace', '-o', 'cache=always'],
  ];
  const child = Bun.spawn(
    ['unshare', '--mount', '--propagation', 'private', 'sh', '-c', script, 'sh', root, repository, ...server],
    {
      env: { PATH: TEST_PATH, ...parts.env },
      stdin: 'ignore',
      stdout: 'ignore',
      stderr: Bun.file(`${work}/files.log`),
    },
  );
  const deadline = Date.now() + 30_000;
  while (!fs.existsSync(socket)) {
    if (child.exitCode !== null || Date.now() > deadline) {
      child.kill('SIGKILL');
      throw new Error(`Cannot share the file system: ${fs.readFileSync(`${work}/files.log`, 'utf8')}`);
    }
    await Bun.sleep(20);
  }
  return {
    socket,
    async end() {
      child.kill('SIGTERM');
      await child.exited;
    },
  };
}

/** Runs the emulator to completion; returns the number of reports. */
async function emulate(
  parts: MachineParts,
  { initrd, socket, work }: { initrd: string; socket: string; work: string },
  onReport: (report: FileReport) => void,
): Promise<number> {
  const words = [
    'console=ttyS0',
    'quiet',
    'panic=-1',
    `MODULES=${parts.modules}`,
    `BUN=${process.execPath}`,
    `INSIDE=${INSIDE}`,
  ];
  const argv = [
    ...[parts.emulator, '-machine', 'q35', '-accel', accelerator(), '-cpu', 'max', '-smp', '2', '-m', MEMORY],
    ...['-nodefaults', '-no-reboot', '-display', 'none', ...parts.firmware.flatMap(dir => ['-L', dir])],
    ...['-object', `memory-backend-memfd,id=memory,size=${MEMORY},share=on`, '-numa', 'node,memdev=memory'],
    ...[
      '-chardev',
      `socket,id=files,path=${socket}`,
      '-device',
      'vhost-user-fs-pci,chardev=files,tag=machine',
    ],
    ...['-serial', `file:${work}/console`, '-serial', 'stdio'],
    ...['-kernel', parts.kernel, '-initrd', initrd, '-append', words.join(' ')],
  ];
  const child = Bun.spawn(argv, {
    env: { PATH: TEST_PATH, ...parts.env },
    stdin: 'ignore',
    stdout: 'pipe',
    stderr: Bun.file(`${work}/console.err`),
  });
  const timer = setTimeout(() => child.kill('SIGKILL'), DEADLINE_MS);
  let reports = 0;
  let rest = '';
  try {
    for await (const chunk of child.stdout.pipeThrough(new TextDecoderStream())) {
      const lines = `${rest}${chunk}`.split('\n');
      rest = lines.pop() ?? '';
      for (const line of lines.filter(one => one.startsWith('{'))) {
        reports++;
        onReport(JSON.parse(line));
      }
    }
    await child.exited;
    return reports;
  } finally {
    clearTimeout(timer);
    child.kill('SIGKILL');
  }
}

function accelerator(): string {
  const usable = /^flags\s*:.*\b(vmx|svm)\b/m.test(fs.readFileSync('/proc/cpuinfo', 'utf8'));
  return usable && fs.existsSync('/dev/kvm') ? 'kvm' : 'tcg,thread=multi';
}
