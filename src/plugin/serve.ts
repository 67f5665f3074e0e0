// How does one request become one reply?

import { statSync } from 'node:fs';
import { forget, underNote } from '../attachments/generation.ts';
import { runDir } from '../cni/directories.ts';
import {
  CHANGE_VARIABLE,
  type ChangeMode,
  type CniEnv,
  type Command,
  HANDOVER_VARIABLE,
  type HandoverMode,
  modeOf,
  parseEnv,
  parseNetworkName,
  REPAIR_VARIABLE,
  UPKEEP_VARIABLE,
} from '../cni/env.ts';
import {
  attempt,
  CniError,
  decodingFailure,
  describeError,
  ErrorCode,
  type ErrorReply,
  invalidConfig,
  toCniError,
} from '../cni/errors.ts';
import { type ChangeReply, FORMER, type HandoverReply, type Reply } from '../cni/invocation.ts';
import { decode, decodeFor, isObject, type JsonObject, memberOf, parseObject } from '../cni/json.ts';
import {
  atLeast,
  CURRENT_VERSION,
  incompatible,
  prevResultOf,
  type Result,
  renderResult,
  SINCE,
  SPEC_VERSIONS,
  type SpecVersion,
} from '../cni/result.ts';
import { createLog, type Log } from '../log.ts';
import { LiveCall, validAttachmentsIn } from './call.ts';
import type * as Collection from './collection.ts';
import type { PluginDefinition } from './define.ts';
import type { PluginLookup, ServedCall, ServedReply } from './invocation.ts';

/**
 * Serves one invocation of a plugin: the same function in the executable, the daemon's workers and tests. It never
 * throws: every failure becomes the error object of the specification.
 */
export async function serve(
  definition: PluginDefinition,
  invocation: ServedCall,
  siblings: PluginLookup = () => undefined,
): Promise<ServedReply> {
  const log = createLog(undefined, { plugin: definition.name });
  let version: string | undefined;
  try {
    const env = parseEnv(invocation.env);
    if (env.command === 'VERSION')
      return { exitCode: 0, stdout: versionText(definition, versionAsked(invocation)), log };
    const requestText = invocation.readStdin();
    const asSent = parseObject(requestText, 'network configuration on standard input');
    const named = memberOf(asSent, 'cniVersion');
    version = typeof named === 'string' ? named : undefined;
    const network = parseNetworkName(memberOf(asSent, 'name'));
    const handover = modeOf(invocation.env, HANDOVER_VARIABLE);
    const change = modeOf(invocation.env, CHANGE_VARIABLE);
    // Lists of versions without CHECK are handed over, changed and kept as well.
    const isOtherVerb = Boolean(handover || change || invocation.env[UPKEEP_VARIABLE]);
    const known = agreeOnVersion(definition, asSent, isOtherVerb ? 'DEL' : env.command);
    const request = env.command === 'DEL' ? withoutBrokenResult(asSent, known, log) : asSent;
    const collection = env.command === 'GC' ? await import('./collection.ts') : undefined;
    const { snapshot, kept } = whatIsKept(collection, definition, invocation, { request, network });
    const call = new LiveCall({
      env,
      environment: invocation.env,
      network,
      version: known,
      conf: confFor(definition, env.command, { request, network, log }),
      request,
      requestText,
      prevResult: atPath(prevResultOf(request, known), env),
      log,
      plugin: definition.name,
      workplace: invocation.worker,
      callSibling: (name, own) =>
        siblings(name)?.then(sibling =>
          serve(sibling, { ...own, worker: invocation.worker, outer: { snapshot } }, siblings),
        ),
      kept,
    });
    try {
      const done = (stdout: string) => ({ exitCode: 0, stdout, log });
      if (handover) return done(JSON.stringify(await handOver(definition, call, handover)));
      call.guardNetns(definition.netns);
      if (change) return done(JSON.stringify(await changeInPlace(definition, call, change)));
      return done(await runVerb(definition, call, invocation, collection));
    } finally {
      call.close();
    }
  } catch (thrown) {
    const error = toCniError(thrown);
    logFailure(log, thrown);
    // Failures noticed by a runner have code 0, which in a plugin's reply would mean "no error".
    const reply: ErrorReply = { ...error.toReply(version), code: error.code || ErrorCode.internal };
    return { exitCode: 1, stdout: JSON.stringify(reply, null, 4), log };
  }
}

/** A runner calls DEL with what ADD was called with, and refused, whatever was mended since. */
function confFor(
  { name, config }: PluginDefinition,
  command: string,
  { request, network, log }: { readonly request: JsonObject; readonly network: string; readonly log: Log },
) {
  const what = `configuration of "${name}" in network "${network}"`;
  const { conf, problems } = decodeFor(command, config, request, what);
  if (problems.length) log.warn(`DEL continues with what is valid in the ${what}: ${problems.join('; ')}`);
  return conf;
}

/** The snapshot of the node that GC goes by, also in plugins that this one calls, and the attachments that it keeps of those listed. */
function whatIsKept(
  collection: typeof Collection | undefined,
  { name }: PluginDefinition,
  { env: environment, outer }: ServedCall,
  { request, network }: { readonly request: JsonObject; readonly network: string },
) {
  const snapshot = outer?.snapshot ?? collection?.snapshotOf({ environment, request, network }, name);
  const listed = collection && validAttachmentsIn(request);
  if (collection === undefined || snapshot === undefined || listed === undefined)
    return { snapshot, kept: undefined };
  const place = { network, runDir: runDir(environment), snapshot };
  return { snapshot, kept: collection.keptAttachments(listed, place) };
}

/** The same for a process that serves many calls, with the log as standard error. */
export async function replyTo(...call: Parameters<typeof serve>): Promise<Reply> {
  const { log, ...reply } = await serve(...call);
  let stderr = '';
  await log.flush(text => {
    stderr += text;
  });
  return { ...reply, stderr };
}

export function supportedVersions(definition: PluginDefinition): SpecVersion[] {
  const since = definition.since ?? '0.1.0';
  return SPEC_VERSIONS.filter(version => atLeast(version, since));
}

/** The reply to VERSION, as it is printed. @param asked what the request says: it comes back if it is supported */
export function versionText(definition: PluginDefinition, asked?: unknown): string {
  const versions = supportedVersions(definition);
  const cniVersion = versions.find(version => version === asked) ?? CURRENT_VERSION;
  return `${JSON.stringify({ cniVersion, supportedVersions: versions })}\n`;
}

/** A request that is missing or damaged fails no VERSION. */
function versionAsked({ readStdin }: ServedCall): unknown {
  return attempt(() => memberOf(parseObject(readStdin(), 'request'), 'cniVersion'));
}

/** CHECK may come with another path of the namespace than ADD: `/var/run/netns/a`, `/proc/<pid>/ns/net`. */
function atPath(result: Result | undefined, { command, netns }: CniEnv): Result | undefined {
  const isElsewhere = ({ sandbox = '' }: { readonly sandbox?: string }) =>
    sandbox !== '' && sandbox !== netns;
  if (command !== 'CHECK' || !result?.interfaces?.some(isElsewhere)) return result;
  const own = fileIdOf(netns);
  const interfaces = result.interfaces.map(one => {
    return own && isElsewhere(one) && fileIdOf(one.sandbox ?? '') === own ? { ...one, sandbox: netns } : one;
  });
  return { ...result, interfaces };
}

function fileIdOf(path: string): string | undefined {
  const found = attempt(() => statSync(path));
  return found && `${found.dev} ${found.ino}`;
}

/** An unreadable result must not prevent the deletion of a container: DEL has to work without one anyway. */
function withoutBrokenResult(request: JsonObject, version: SpecVersion, log: Log): JsonObject {
  try {
    prevResultOf(request, version);
    return request;
  } catch (cause) {
    log.warn(`DEL continues without "prevResult": ${describeError(cause)}`);
    return { ...request, prevResult: null };
  }
}

async function runVerb(
  definition: PluginDefinition,
  call: LiveCall,
  { env, outer }: Pick<ServedCall, 'env' | 'outer'>,
  collection: typeof Collection | undefined,
): Promise<string> {
  const { network, request, log } = call;
  const { containerId, ifname } = call.env;
  // A call that is part of another plugin's call is noted by that one.
  const noted = outer
    ? undefined
    : { attachment: { network, containerId, ifname }, environment: env, request, log };
  switch (call.env.command) {
    case 'ADD': {
      const run = () => add(definition, call);
      return JSON.stringify(await (noted ? underNote(noted, run) : run()), null, 4);
    }
    case 'CHECK':
      if (env[UPKEEP_VARIABLE]) {
        await definition.upkeep?.(call, env[UPKEEP_VARIABLE] === 'restart');
        return '';
      }
      if (env[REPAIR_VARIABLE] === '1') await definition.repair?.(call);
      definition.validate?.(call.conf);
      await definition.check(call);
      return '';
    case 'DEL':
      if (noted) forget(noted);
      await definition.del(call);
      return '';
    case 'GC':
      await definition.gc(call);
      if (call.kept && !outer) {
        const { kept } = call;
        // Work that waits for devices, such as the IPAM plugin's GC, still goes by the notes.
        await call.removeDevices([], () => collection?.sweepNotes({ environment: env, log, network }, kept));
      }
      return '';
    default:
      definition.validate?.(call.conf);
      await definition.status(call);
      return '';
  }
}

async function handOver(
  definition: PluginDefinition,
  call: LiveCall,
  mode: HandoverMode,
): Promise<HandoverReply> {
  return { handedOver: (await definition.handOver?.(call, mode)) ?? [] };
}

async function changeInPlace(
  definition: PluginDefinition,
  call: LiveCall,
  mode: ChangeMode,
): Promise<ChangeReply> {
  if (definition.change === undefined) {
    throw invalidConfig(
      `Cannot change a running attachment: no option of "${definition.name}" can be changed in place; run DEL and ADD`,
    );
  }
  const before = call.request[FORMER];
  const former = isObject(before) ? decode(definition.config, before, 'former configuration') : undefined;
  const changed = renderResult(await definition.change(call, mode, former), call.version);
  return { changed, options: definition.changeable ?? [] };
}

/** ADD leaves everything or nothing: a result that the version cannot express also undoes its steps. */
async function add(definition: PluginDefinition, call: LiveCall): Promise<JsonObject> {
  try {
    definition.validate?.(call.conf);
    const result: unknown = await definition.add(call);
    if (isObject(result)) return renderResult(result, call.version);
    throw new TypeError(
      `Cannot use what add() of plugin "${definition.name}" returned: expected a result, found ${JSON.stringify(result)}`,
    );
  } catch (thrown) {
    const problems = await call.undo();
    if (problems.length === 0) throw thrown;
    const error = toCniError(thrown);
    const leftovers = `could not be undone: ${problems.map(describeError).join('; ')}`;
    throw new CniError(error.code, error.message, {
      details: [error.details, leftovers].filter(Boolean).join('; '),
      cause: thrown,
    });
  }
}

/** The configuration's version, if the plugin supports it and it allows the command (SPEC "Versions", reference 8.4). */
function agreeOnVersion(definition: PluginDefinition, request: JsonObject, command: Command): SpecVersion {
  const supported = supportedVersions(definition);
  const cniVersion = memberOf(request, 'cniVersion') ?? '';
  if (typeof cniVersion !== 'string') {
    throw decodingFailure(`Cannot read "cniVersion": expected a string, found ${JSON.stringify(cniVersion)}`);
  }
  const version = supported.find(known => known === (cniVersion || '0.1.0'));
  if (version === undefined) throw incompatible(cniVersion || '0.1.0', supported);
  const since = { CHECK: SINCE.check, GC: SINCE.gc, STATUS: SINCE.status }[command as string];
  if (since === undefined || atLeast(version, since)) return version;
  throw new CniError(ErrorCode.incompatibleVersion, `config version does not allow ${command}`, {
    details: `config is "${version}", ${command} exists since "${since}"`,
  });
}

/** Errors that plugins never throw deliberately: only the stack tells where they come from. */
const BUGS = [TypeError, RangeError, ReferenceError, SyntaxError];

function logFailure(log: Log, thrown: unknown): void {
  const isBug = !(thrown instanceof Error) || BUGS.some(kind => thrown instanceof kind);
  log[isBug ? 'error' : 'debug'](thrown instanceof Error ? (thrown.stack ?? thrown.message) : String(thrown));
}
