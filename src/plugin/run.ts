// How does a process serve one plugin call?
import fs from 'node:fs';
import { ASKED_VARIABLE } from '../cni/env.ts';
import { attempt, CniError, ErrorCode, toCniError } from '../cni/errors.ts';
import { startedAt } from '../files/process-stat.ts';
import type { PluginDefinition } from './define.ts';
import type { PluginLookup } from './invocation.ts';
import { serve, supportedVersions } from './serve.ts';
import { readStdin, writeAll } from './stdio.ts';

/**
 * Serves the invocation this process was started for and exits. Without `CNI_COMMAND` it prints what it is.
 * @param siblings other plugins of this executable, for delegation without a process
 * @param again an ADD of this invocation may already have run, to an unknown point: it is undone first, as
 *   a runtime does that gets no reply (SPEC "DEL")
 * @param release gives the version of the executable, which it prints when called by hand
 * @param onReply told of the request, as it was read, and of the reply, which the caller has by then
 */
export async function runPlugin(
  definition: PluginDefinition,
  siblings?: PluginLookup,
  {
    again = false,
    release,
    onReply,
  }: {
    again?: boolean;
    release?: () => Promise<string>;
    onReply?: (request: string, reply: string) => void;
  } = {},
): Promise<never> {
  if (!process.env.CNI_COMMAND) {
    writeAll(2, aboutText(definition, await release?.()));
    process.exit(0);
  }
  // Standard output has the reply, and nothing else.
  const { error } = console;
  Object.assign(console, { log: error, info: error, debug: error });
  // An unhandled rejection must not prevent a reply to the caller.
  process.on('uncaughtException', thrown => endWith(toCniError(thrown), thrown));
  process.on('unhandledRejection', thrown => endWith(toCniError(thrown), thrown));
  const { env } = process;
  if (again && env.CNI_COMMAND === 'ADD')
    await serve(definition, { env: { ...env, CNI_COMMAND: 'DEL' }, readStdin: readRequest }, siblings);
  const asked = env.CNI_COMMAND === 'GC' ? { [ASKED_VARIABLE]: String(startedAt()) } : {};
  let request = '';
  const readOnce = (): string => {
    request = readRequest();
    return request;
  };
  const reply = await serve(definition, { env: { ...env, ...asked }, readStdin: readOnce }, siblings);
  const problem = attemptToWrite(reply.stdout);
  if (problem) reply.log.error(`Cannot write the reply to standard output: ${problem}`);
  await reply.log.flush();
  onReply?.(request, reply.stdout);
  process.exit(problem ? 1 : reply.exitCode);
}

/** @returns why it could not: the caller has ended, or what it reads into is full */
function attemptToWrite(reply: string): string | undefined {
  try {
    writeAll(1, reply);
    return undefined;
  } catch (cause) {
    return (cause as Error).message;
  }
}

function readRequest(): string {
  try {
    // By hand, VERSION does not wait for a request. A terminal is a character device; to load node:tty costs a fifth of a cold start.
    const isByHand = process.env.CNI_COMMAND === 'VERSION' && fs.fstatSync(0).isCharacterDevice();
    return isByHand ? '' : readStdin();
  } catch (cause) {
    throw new CniError(ErrorCode.ioFailure, (cause as Error).message, { cause });
  }
}

function endWith(error: CniError, thrown: unknown): never {
  attempt(() => writeAll(1, JSON.stringify(error.toReply(), null, 4)));
  attempt(() => writeAll(2, `${thrown instanceof Error ? thrown.stack : String(thrown)}\n`));
  process.exit(1);
}

/** What a plugin prints when called by hand, in the reference's format, which programs parse. */
export function aboutText(definition: PluginDefinition, release?: string): string {
  const versions = supportedVersions(definition);
  const version = release === undefined ? 'version unknown' : `v${release}`;
  return `CNI ${definition.name} plugin ${version}\nCNI protocol versions supported: ${versions.join(', ')}\n`;
}
