// How does the daemon serve calls of this executable as a plugin, from its own client or over gRPC?
import { parseCniArgs, renderCniArgs } from '../cni/cni-args.ts';
import { CniError, ErrorCode } from '../cni/errors.ts';
import { isObject, type JsonObject, memberOf, parseObject } from '../cni/json.ts';
import { convertResult } from '../cni/result.ts';
import type { RequestWatcher, Watch } from '../observe/watcher.ts';
import type { CniBackend, CniRequest } from './grpc/cni-service.ts';
import type { RunReply, RunRequest } from './protocol.ts';

/** A call as a process would get it. */
export interface PluginCall {
  readonly env: RunRequest['env'];
  readonly stdin: string;
}

/** Makes the call and tells of its links. */
export type MakeCall<C extends PluginCall = PluginCall> = (
  call: C,
  signal: AbortSignal,
  watch: Watch,
) => Promise<RunReply>;

/** Makes the call; what came of it goes to the watcher. */
export type WatchedCall<C extends PluginCall = PluginCall> = (
  call: C,
  signal: AbortSignal,
  queueMs: number,
) => Promise<RunReply>;

/** Has a watcher told of every call and its links. */
export function watchedCalls<C extends PluginCall>(
  watcher: RequestWatcher,
  make: MakeCall<C>,
): WatchedCall<C> {
  return async (call, signal, queueMs) => {
    const { env, stdin } = call;
    const { CNI_COMMAND = '', CNI_CONTAINERID = '', CNI_IFNAME = '', CNI_NETNS = '' } = env;
    const request = watcher.begin(
      {
        ...{ verb: CNI_COMMAND, network: networkIn(stdin), containerId: CNI_CONTAINERID, ifname: CNI_IFNAME },
        ...{ netns: CNI_NETNS, args: argsIn(env.CNI_ARGS), warm: true, queueMs },
      },
      env,
    );
    const reply = await make({ ...call, env: request.env }, signal, request.watch);
    const said = objectIn(reply.stdout);
    request.end(reply.exitCode === 0 ? { result: said } : { error: errorOf(said) });
    return reply;
  };
}

/** Where executables are when a client does not say. */
const DEFAULT_PATH = '/opt/cni/bin';

/** coil's plugin reads results of this version whatever the version of its own list. */
const ANSWER_VERSION = '1.0.0';

/**
 * Serves coil's calls by the delegate runner: the configuration names its networks under `delegates` as the runner's own
 * does, or is itself a list with `plugins`.
 * @param admit waits for a turn among all requests of the daemon, and refuses when too many wait
 * @param env what calls inherit
 */
export function cniBackendOf(
  call: WatchedCall,
  admit: <T>(work: (queueMs: number) => Promise<T>) => Promise<T>,
  env: RunRequest['env'],
): CniBackend {
  const make = (verb: string, { signal, ...request }: CniRequest): Promise<JsonObject | undefined> =>
    admit(async queueMs => {
      const stdin = toRunnerConfig(request.config);
      const { exitCode, stdout } = await call({ env: toEnv(verb, request, env), stdin }, signal, queueMs);
      const said = objectIn(stdout);
      if (exitCode !== 0) throw errorOf(said);
      return said;
    });
  return {
    add: async request => convertResult((await make('ADD', request)) ?? {}, ANSWER_VERSION),
    check: async request => void (await make('CHECK', request)),
    del: async request => void (await make('DEL', request)),
  };
}

function toEnv(
  verb: string,
  { containerId, netns, ifname, args, path }: Omit<CniRequest, 'signal'>,
  env: RunRequest['env'],
): RunRequest['env'] {
  // coil's plugin passes on the arguments that it knows; what a runtime lets pass by, it does not.
  const all = args.some(([name]) => name === 'IgnoreUnknown')
    ? args
    : [...args, ['IgnoreUnknown', '1'] as const];
  return {
    ...env,
    CNI_COMMAND: verb,
    CNI_CONTAINERID: containerId,
    CNI_NETNS: netns,
    CNI_IFNAME: ifname,
    CNI_ARGS: renderCniArgs(all),
    CNI_PATH: path || env.CNI_PATH || DEFAULT_PATH,
  };
}

/** A list becomes the one delegate of a runner of its name. */
function toRunnerConfig(text: string): string {
  const config = parseObject(text, 'stdin_data');
  if (!Array.isArray(config.plugins)) return text;
  const { cniVersion, name, runtimeConfig } = config;
  return JSON.stringify({ cniVersion, name, type: 'catena', runtimeConfig, delegates: [config] });
}

/** Name of the network in a request; empty when it says none. */
export function networkIn(stdin: string): string {
  const name = memberOf(objectIn(stdin) ?? {}, 'name');
  return typeof name === 'string' ? name : '';
}

function argsIn(text: string | undefined): ReturnType<typeof parseCniArgs> {
  try {
    return parseCniArgs(text ?? '');
  } catch {
    return [];
  }
}

/** The JSON object that a text holds; undefined when it holds none. */
export function objectIn(text: string): JsonObject | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/** The error that a failed call has printed. */
export function errorOf(said: JsonObject | undefined): CniError {
  const { code, msg, details } = said ?? {};
  return new CniError(
    typeof code === 'number' ? code : ErrorCode.internal,
    typeof msg === 'string' ? msg : 'Cannot tell what went wrong: the call left no error',
    typeof details === 'string' ? { details } : {},
  );
}
