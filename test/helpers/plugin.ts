// How does a test call a plugin the way a runtime does?

import fs from 'node:fs';
import path from 'node:path';
import { type CallOptions, environmentOf, requestOf, toReply } from '../../src/lab/call.ts';
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
  const { binDir = BIN_DIR, cniPath = binDir, timeoutMs = 30_000 } = call;
  const options = { ...call, pluginDirs: [cniPath] } as CallOptions;
  const finished = await start([path.join(binDir, name)], {
    env: { PATH: TEST_PATH, ...environmentOf(call.command, options) },
    stdin: requestOf(options),
    timeoutMs,
  });
  const { durationMs: _, ...reply } = toReply({ ...finished, durationMs: 0 });
  return reply;
}

/** Copies executables, with the program that ours need beside them. */
export function copyPlugins(names: readonly string[], to: string, from = BIN_DIR): void {
  const core = from === BIN_DIR ? ['catena-core'] : [];
  for (const name of [...names, ...core])
    fs.copyFileSync(path.join(from, name), path.join(to, name), fs.constants.COPYFILE_FICLONE);
}
