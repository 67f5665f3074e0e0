// How does the daemon serve calls of this executable as a plugin, from its own client or over gRPC?
import { findCniArgs, renderCniArgs } from '../cni/cni-args.ts';
import { CniError, ErrorCode } from '../cni/errors.ts';
import { isObject, type JsonObject, memberOf, parseObject } from '../cni/json.ts';
import { convertResult } from '../cni/result.ts';
import type { RequestWatcher, Watch } from '../observe/watcher.ts';
import type { CniBackend, CniRequest } from './grpc/cni-service.ts';
import type { RunAnswer, RunRequest } from './protocol.ts';

/** A call, as a plugin process would get it. */
export interface PluginCall {
  readonly env: RunRequest['env'];
  readonly stdin: string;
}

/** Makes the call and reports the plugins that it ran. */
export type MakeCall<C extends PluginCall = PluginCall> = (
  call: C,
  signal: AbortSignal,
  watch: Watch,
) => Promise<RunAnswer>;

/** Makes the call and reports the outcome to the watcher. */
export type WatchedCall<C extends PluginCall = PluginCall> = (
  call: C,
  signal: AbortSignal,
  queueMs: number,
) => Promise<RunAnswer>;

/** Reports every call and its plugins to a watcher. */
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
        ...{ netns: CNI_NETNS, args: findCniArgs(env.CNI_ARGS ?? ''), warm: true, queueMs },
      },
      env,
    );
    const reply = await make({ ...call, env: request.env }, signal, request.watch);
    const said = objectIn(reply.stdout);
    request.end(reply.exitCode === 0 ? { result: said } : { error: errorOf(said) });
    return reply;
  };
}

/** Directory of plugins if the client does not set `CNI_PATH`. */
const DEFAULT_PATH = '/opt/cni/bin';

/** coil's plugin reads results of this version, whatever the version of its own conflist. */
const ANSWER_VERSION = '1.0.0';

/**
 * Serves coil's calls with the delegate runner. The configuration either lists its networks under `delegates`, as the runner's
 * own does, or is itself a conflist with `plugins`.
 * @param admit waits for a turn among all requests of the daemon, and rejects if the queue is full
 * @param env environment that calls inherit
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
  // coil's plugin forwards only the arguments that it knows, which do not include the runtime's IgnoreUnknown.
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

/** Turns a conflist into the only delegate of a runner of the same name. */
function toRunnerConfig(text: string): string {
  const config = parseObject(text, 'stdin_data');
  if (!Array.isArray(config.plugins)) return text;
  const { cniVersion, name, runtimeConfig } = config;
  return JSON.stringify({ cniVersion, name, type: 'catena', runtimeConfig, delegates: [config] });
}

/** Name of the network in a request; empty if there is none. */
export function networkIn(stdin: string): string {
  const name = memberOf(objectIn(stdin) ?? {}, 'name');
  return typeof name === 'string' ? name : '';
}

/** The JSON object in a text; undefined if the text is anything else. */
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
