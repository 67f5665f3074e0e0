// How does the daemon serve coil's gRPC calls with the delegate runner?
import { renderCniArgs } from '../../cni/cni-args.ts';
import { type JsonObject, parseObject } from '../../cni/json.ts';
import { convertResult } from '../../cni/result.ts';
import { errorOf, networkIn, objectIn, type WatchedCall } from '../plugin-calls.ts';
import type { RunRequest } from '../protocol.ts';
import type { CniBackend, CniRequest } from './cni-service.ts';

/** Directory of plugins if the client does not set `CNI_PATH`. */
const DEFAULT_PATH = '/opt/cni/bin';

/** coil's plugin reads results of this version, whatever the version of its own conflist. */
const ANSWER_VERSION = '1.0.0';

/**
 * Serves coil's calls with the delegate runner. The configuration either lists its networks under `delegates`, as the runner's
 * own does, or is itself a conflist with `plugins`.
 * @param admit waits for a turn among all requests of the daemon, and rejects if that does not come
 * @param env environment that calls inherit
 */
export function cniBackendOf(
  call: WatchedCall,
  admit: <T>(group: string, work: (queueMs: number) => Promise<T>) => Promise<T>,
  env: RunRequest['env'],
): CniBackend {
  const make = (verb: string, { signal, ...request }: CniRequest): Promise<JsonObject | undefined> =>
    admit(networkIn(request.config), async queueMs => {
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
