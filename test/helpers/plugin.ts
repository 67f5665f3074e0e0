// How does a test call a plugin the way a runtime does?

import fs from 'node:fs';
import path from 'node:path';
import { type Finished, type RunOptions, TEST_PATH } from './command.ts';

/** Where our executables are after a build. */
export const BIN_DIR = path.resolve(import.meta.dir, '../../dist/bin');

/** Where Debian's containernetworking-plugins puts the reference executables. */
export const REFERENCE_BIN_DIR = '/usr/lib/cni';

/** One call of a plugin. */
export interface PluginCall {
  readonly command: 'ADD' | 'CHECK' | 'DEL' | 'GC' | 'STATUS' | 'VERSION' | (string & {});
  /** The configuration; a string is sent to stdin unchanged. */
  readonly conf: object | string;
  readonly container?: { readonly id: string; readonly path: string };
  /** Default `eth0`, unless there is no container. */
  readonly ifname?: string;
  readonly args?: string;
  /** Added to the configuration as `prevResult`. */
  readonly prevResult?: unknown;
  /** Applied last; `undefined` removes a variable. */
  readonly env?: Readonly<Record<string, string | undefined>>;
  /** Default {@link BIN_DIR}. */
  readonly binDir?: string;
  /** `CNI_PATH`; default the bin dir. */
  readonly cniPath?: string;
  readonly timeoutMs?: number;
}

/** The plugin's reply: `result` on success and `error` on failure, if stdout was JSON. */
export interface PluginReply {
  readonly exitCode: number;
  // biome-ignore lint/suspicious/noExplicitAny: tests compare it as it came, whatever its version
  readonly result?: any;
  readonly error?: { cniVersion?: string; code: number; msg: string; details?: string };
  readonly stdout: string;
  readonly stderr: string;
}

/**
 * Runs a plugin; see `lab.plugin`.
 * @param start runs a program inside the fake host
 */
export async function runPlugin(
  start: (argv: readonly string[], options: RunOptions) => Promise<Finished>,
  name: string,
  call: PluginCall,
): Promise<PluginReply> {
  const binDir = call.binDir ?? BIN_DIR;
  const { exitCode, stdout, stderr } = await start([path.join(binDir, name)], {
    env: environment(call, binDir),
    stdin: request(call),
    timeoutMs: call.timeoutMs ?? 30_000,
  });
  const reply = parse(stdout);
  if (reply === undefined) return { exitCode, stdout, stderr };
  return exitCode === 0
    ? { exitCode, result: reply, stdout, stderr }
    : { exitCode, error: reply as NonNullable<PluginReply['error']>, stdout, stderr };
}

/** Copies executables, with the program that ours need beside them. */
export function copyPlugins(names: readonly string[], to: string, from = BIN_DIR): void {
  const core = from === BIN_DIR ? ['catena-core'] : [];
  for (const name of [...names, ...core])
    fs.copyFileSync(path.join(from, name), path.join(to, name), fs.constants.COPYFILE_FICLONE);
}

function environment(call: PluginCall, binDir: string): Record<string, string> {
  const all = {
    PATH: TEST_PATH,
    CNI_COMMAND: call.command,
    CNI_CONTAINERID: call.container?.id,
    CNI_NETNS: call.container?.path,
    CNI_IFNAME: call.ifname ?? (call.container && 'eth0'),
    CNI_ARGS: call.args,
    CNI_PATH: call.cniPath ?? binDir,
    ...call.env,
  };
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined)) as Record<
    string,
    string
  >;
}

function request(call: PluginCall): string {
  if (typeof call.conf === 'string') return call.conf;
  return JSON.stringify(
    call.prevResult === undefined ? call.conf : { ...call.conf, prevResult: call.prevResult },
  );
}

function parse(stdout: string): unknown {
  try {
    return JSON.parse(stdout);
  } catch {
    return undefined;
  }
}
