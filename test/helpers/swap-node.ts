// What do tests of `catena swap` begin with: a node with a pod, and candidates for its links?
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { writeChain } from './chain.ts';
import { type Container, directories, type Lab } from './netns.ts';
import { BIN_DIR } from './plugin.ts';

export const DEADLINE_MS = 120_000;
export const NAMES = ['bridge', 'host-local', 'tuning'];

/** Directory of one test file, until {@link endSwaps}. */
export const tmp = fs.mkdtempSync(join(tmpdir(), 'cat-swap-'));
export const ours = join(tmp, 'ours');

/** Puts the executables there that a swap takes. */
export function beginSwaps(): void {
  fs.copyFileSync(`${BIN_DIR}/catena`, ours, fs.constants.COPYFILE_FICLONE);
  fs.copyFileSync(`${BIN_DIR}/catena-core`, join(tmp, 'catena-core'), fs.constants.COPYFILE_FICLONE);
}

export const endSwaps = (): void => fs.rmSync(tmp, { recursive: true, force: true });

/** A node with one pod, and the executables that its runtimes call: fronts and the Bun program, as installed. */
export async function node(lab: Lab) {
  const ipam = { type: 'host-local', subnet: '10.88.0.0/24', dataDir: `${lab.tmp}/leases` };
  const list = {
    cniVersion: '1.0.0',
    name: 'podnet',
    plugins: [
      { type: 'bridge', bridge: 'br0', isGateway: true, ipam },
      { type: 'tuning', sysctl: { 'net.core.somaxconn': '321' }, dataDir: `${lab.tmp}/tuning` },
    ],
  };
  const chain = writeChain(lab, list);
  const [confDir, binDir] = [`${lab.tmp}/net.d`, `${lab.tmp}/bin`];
  for (const dir of [confDir, binDir]) fs.mkdirSync(dir);
  fs.writeFileSync(`${confDir}/10-podnet.conflist`, JSON.stringify(list));
  const other = { ...list, name: 'othernet', plugins: [{ type: 'loopback' }, { type: 'tuning', mtu: 1400 }] };
  fs.writeFileSync(`${confDir}/20-othernet.conflist`, JSON.stringify(other));
  for (const name of NAMES) fs.linkSync(ours, `${binDir}/${name}`);
  fs.linkSync(join(tmp, 'catena-core'), `${binDir}/catena-core`);
  const live: Container = { ...(await lab.container()), id: 'live-1' };
  await chain.add(live, { binDir });
  const argvFor = (network: string, more: readonly string[]) => {
    return [`${BIN_DIR}/catena`, 'swap', network, '--bin-dir', binDir, '--conf-dir', confDir, ...more];
  };
  const argv = (...more: string[]) => argvFor('podnet', more);
  /** Of the network without pods and with less to examine. */
  const argvOfOther = (...more: string[]) => argvFor('othernet', more);
  // A swap removes what killed ones have left, so those of other tests need another place.
  const env = { ...directories(lab.tmp), PATH: process.env.PATH ?? '', TMPDIR: lab.tmp };
  const swap = (...more: string[]) => lab.run(lab.host, argv(...more), { env, timeoutMs: DEADLINE_MS });
  const swapOfOther = (...more: string[]) => {
    return lab.run(lab.host, argvOfOther(...more), { env, timeoutMs: DEADLINE_MS });
  };
  const check = async () => (await chain.run('check', live, { binDir })).stderr;
  const noted = async (what: string) => {
    const { stdout } = await lab.run(lab.host, [`${BIN_DIR}/catena`, 'log', '--json'], { env });
    const { items }: { items: readonly { readonly what: string }[] } = JSON.parse(stdout);
    return items.filter(one => one.what === what);
  };
  return {
    swap,
    /** Rows of the history. */
    noted,
    swapOfOther,
    check,
    argv,
    argvOfOther,
    env,
    live,
    binDir,
    confDir,
    list,
    chain,
    link: (name: string) => `${binDir}/${name}`,
  };
}

/** Our link behind a script, which does something else first. */
export function wrapped(lab: Lab, name: string, first: string): string {
  const file = `${lab.tmp}/${name}`;
  fs.writeFileSync(file, `#!/bin/sh\n${first}\nexec ${BIN_DIR}/tuning\n`, { mode: 0o755 });
  return file;
}

export const onLiveCheck = (what: string) =>
  `case "$CNI_COMMAND $CNI_CONTAINERID" in 'CHECK live'*) ${what};; esac`;
export const refusal = `echo '{"cniVersion":"1.0.0","code":100,"msg":"not mine"}'; exit 1`;
/** What a swap puts aside while it examines; `nsenter` and `env` become the command. */
export const copiesOf = (dir: string, pid: number) =>
  fs.readdirSync(dir).filter(name => name.startsWith(`catena-swap-${pid}-`));
export const isSame = (path: string, other: string) => fs.readFileSync(path).equals(fs.readFileSync(other));
