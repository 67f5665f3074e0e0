// How does one request become one reply?
import { parseCniArgs } from '../cni/cni-args.ts';
import { type Command, parseEnv, parseNetworkName, REPAIR_VARIABLE } from '../cni/env.ts';
import { CniError, describeError, ErrorCode, type ErrorReply, toCniError } from '../cni/errors.ts';
import { decode, type JsonObject, memberOf, parseObject } from '../cni/json.ts';
import { prevResultOf, type Result, renderResult } from '../cni/result.ts';
import {
  atLeast,
  CURRENT_VERSION,
  incompatible,
  SINCE,
  SPEC_VERSIONS,
  type SpecVersion,
} from '../cni/version.ts';
import { createLog } from '../log.ts';
import { LiveCall } from './call.ts';
import type { PluginDefinition } from './define.ts';
import type { Invocation, Reply, Siblings } from './invocation.ts';

/**
 * Serves one invocation of a link: the same function behind the executable, the daemon's workers and tests. It never
 * throws: whatever goes wrong becomes the error object of the specification.
 */
export async function serve(
  definition: PluginDefinition,
  invocation: Invocation,
  siblings: Siblings = () => undefined,
): Promise<Reply> {
  const log = createLog(undefined, { link: definition.name });
  let version: string | undefined;
  try {
    const env = parseEnv(invocation.env);
    if (env.command === 'VERSION')
      return { exitCode: 0, stdout: `${JSON.stringify(versionReply(definition))}\n`, log };
    const requestText = invocation.readRequest();
    const request = parseObject(requestText, 'network configuration on standard input');
    const named = memberOf(request, 'cniVersion');
    version = typeof named === 'string' ? named : undefined;
    const network = parseNetworkName(memberOf(request, 'name'));
    const known = agreeOnVersion(definition, request, env.command);
    const call = new LiveCall({
      env,
      environment: invocation.env,
      args: parseCniArgs(env.args),
      network,
      version: known,
      conf: decode(
        definition.config,
        request,
        `configuration of "${definition.name}" in network "${network}"`,
      ),
      request,
      requestText,
      prevResult: prevResultOf(request, known),
      log,
      link: definition.name,
      workplace: invocation.workplace,
      callSibling: (name, own) =>
        siblings(name)?.then(sibling =>
          serve(sibling, { ...own, workplace: invocation.workplace }, siblings),
        ),
    });
    try {
      call.guardNetns(definition.netns);
      return { exitCode: 0, stdout: await runVerb(definition, call, invocation), log };
    } finally {
      call.close();
    }
  } catch (thrown) {
    const error = toCniError(thrown);
    log[isBug(thrown) ? 'error' : 'debug'](stackOf(thrown));
    return { exitCode: 1, stdout: JSON.stringify(replyOf(error, version), null, 4), log };
  }
}

/** What a runner notices has code 0; in a link's reply that would read as "no error". */
function replyOf(error: CniError, version: string | undefined): ErrorReply {
  return { ...error.toReply(version), code: error.code || ErrorCode.internal };
}

/** Versions a link supports, oldest first. */
export function supportedVersions(definition: PluginDefinition): SpecVersion[] {
  const since = definition.since ?? '0.1.0';
  return SPEC_VERSIONS.filter(version => atLeast(version, since));
}

function versionReply(definition: PluginDefinition): JsonObject {
  return { cniVersion: CURRENT_VERSION, supportedVersions: supportedVersions(definition) };
}

async function runVerb(
  definition: PluginDefinition,
  call: LiveCall,
  { env }: Pick<Invocation, 'env'>,
): Promise<string> {
  switch (call.env.command) {
    case 'ADD':
      return JSON.stringify(await add(definition, call), null, 4);
    case 'CHECK':
      if (env[REPAIR_VARIABLE] === '1') await definition.repair?.(call);
      await definition.check(call);
      return '';
    case 'DEL':
      await definition.del(call);
      return '';
    case 'GC':
      await definition.gc(call);
      return '';
    default:
      await definition.status(call);
      return '';
  }
}

/** ADD leaves everything or nothing: also a result that the version cannot express takes its steps back. */
async function add(definition: PluginDefinition, call: LiveCall): Promise<JsonObject> {
  let result: Result;
  try {
    result = await definition.add(call);
    return renderResult(result, call.version);
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

/** The configuration's version, if the link supports it and it allows the command (SPEC "Versions", reference 8.4). */
function agreeOnVersion(definition: PluginDefinition, request: JsonObject, command: Command): SpecVersion {
  const supported = supportedVersions(definition);
  const cniVersion = memberOf(request, 'cniVersion') ?? '';
  if (typeof cniVersion !== 'string') {
    throw new CniError(
      ErrorCode.decodingFailure,
      `Cannot read "cniVersion": expected a string, found ${JSON.stringify(cniVersion)}`,
    );
  }
  const version = supported.find(known => known === (cniVersion || '0.1.0'));
  if (version === undefined) throw incompatible(cniVersion || '0.1.0', supported);
  const since = { CHECK: SINCE.check, GC: SINCE.gc, STATUS: SINCE.status }[command as string];
  if (since === undefined || atLeast(version, since)) return version;
  throw new CniError(ErrorCode.incompatibleVersion, `config version does not allow ${command}`, {
    details: `config is "${version}", ${command} exists since "${since}"`,
  });
}

/** What no line of a link throws on purpose: where it happened is all there is to go by. */
function isBug(thrown: unknown): boolean {
  return !(thrown instanceof Error) || BUGS.some(kind => thrown instanceof kind);
}

const BUGS = [TypeError, RangeError, ReferenceError, SyntaxError];

function stackOf(thrown: unknown): string {
  return thrown instanceof Error ? (thrown.stack ?? thrown.message) : String(thrown);
}
