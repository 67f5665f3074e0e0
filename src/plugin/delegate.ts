// How does a plugin call another plugin, such as its IPAM plugin?

import { findPluginFile, type PluginFile, parsePluginDirs } from '../chain/config/find-plugin.ts';
import { isOwnExecutable } from '../chain/config/own-executable.ts';
import type { ExecOutcome } from '../chain/run/exec-plugin.ts';
import { startPlugin } from '../chain/run/lazy-exec-plugin.ts';
import { type CniEnv, type Command, parseHandoverReply } from '../cni/env.ts';
import { type CalledPlugin, CniError, ErrorCode } from '../cni/errors.ts';
import { type JsonObject, memberOf } from '../cni/json.ts';
import { failureOf, type Outcome, parseReply } from '../cni/reply.ts';
import { parseResult } from '../cni/result.ts';
import type { SpecVersion } from '../cni/version.ts';
import type { Delegate } from './define.ts';
import type { CallPlugin } from './invocation.ts';

/** Shorter than the runner's deadline for a plugin, so the calling plugin still has time to report what happened. */
const DELEGATE_DEADLINE_MS = 50_000;

/** The call of the plugin that delegates. */
export interface Delegator {
  readonly env: CniEnv;
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly request: JsonObject;
  readonly version: SpecVersion;
  readonly callSibling: CallPlugin;
}

/**
 * The plugin named `type` on `CNI_PATH`. If it is this same executable under another name, it is served in this
 * process; a foreign plugin is executed. This is decided per call by device and inode, so replacing the file in the
 * directory replaces the plugin at once.
 * @throws CniError when no such plugin is found
 */
export function findDelegate(type: string, delegator: Delegator): Delegate {
  const file = findPluginFile(type, parsePluginDirs(delegator.env.path));
  const call = async (command: Command) => {
    const { outcome, plugin } = await callDelegate(type, file, command, delegator);
    return command === 'ADD' ? parseReply(outcome.stdout, plugin) : undefined;
  };
  return {
    async add() {
      const reply = await call('ADD');
      if (reply === undefined) {
        throw new CniError(
          ErrorCode.decodingFailure,
          `Cannot use reply of plugin "${type}": it printed nothing`,
        );
      }
      return parseResult(reply, delegator.version, `result of plugin "${type}"`);
    },
    check: async () => void (await call('CHECK')),
    async handOver() {
      if (!isOwnExecutable(file.path, file.stat)) return [];
      const { outcome } = await callDelegate(type, file, 'CHECK', delegator);
      return parseHandoverReply(outcome.stdout ?? '') ?? [];
    },
    del: async () => void (await call('DEL')),
    gc: async () => void (await call('GC')),
    status: async () => void (await call('STATUS')),
  };
}

async function callDelegate(
  type: string,
  { path, stat }: PluginFile,
  command: Command,
  delegator: Delegator,
): Promise<{ readonly outcome: Outcome; readonly plugin: CalledPlugin }> {
  const { environment, request, callSibling } = delegator;
  const env = { ...environment, CNI_COMMAND: command };
  const stdin = JSON.stringify(request);
  const sibling = isOwnExecutable(path, stat)
    ? callSibling(type, { env, readStdin: () => stdin })
    : undefined;
  const outcome: Outcome & Pick<ExecOutcome, 'ended'> = sibling
    ? withEmptyStderr(await sibling)
    : await execute(path, env, stdin);
  const plugin: CalledPlugin = {
    network: String(memberOf(request, 'name')),
    type,
    index: 0,
    executable: path,
    verb: command,
    stderr: outcome.stderr,
  };
  const { ended } = outcome;
  if (ended !== undefined) {
    throw new CniError(ErrorCode.unknown, `Plugin "${type}" ${ENDED_FOR[ended]}`, {
      plugin: { ...plugin, ended },
    });
  }
  if (outcome.exitCode !== 0) throw failureOf(outcome, plugin);
  return { outcome, plugin };
}

function withEmptyStderr({ exitCode, stdout }: { exitCode: number; stdout: string }): Outcome {
  return { exitCode, stdout, stderr: '' };
}

/** Ends shortly after the deadline at the latest, whatever the plugin prints and even if a child holds its pipes open. */
async function execute(path: string, env: Delegator['environment'], stdin: string): Promise<ExecOutcome> {
  const outcome = await startPlugin({ path, env, deadlineMs: DELEGATE_DEADLINE_MS }).send(stdin);
  if (outcome.spawnError === undefined) return outcome;
  throw new CniError(ErrorCode.unknown, `Cannot start plugin "${path}": ${outcome.spawnError}`);
}

/** Why it was ended, since its output may not say so. */
const ENDED_FOR: Readonly<Record<NonNullable<ExecOutcome['ended']>, string>> = {
  deadline: `did not finish within ${DELEGATE_DEADLINE_MS / 1000} s: its process group was killed`,
  output: 'printed more than 16 MiB: it was killed',
  interrupt: 'was interrupted',
};
