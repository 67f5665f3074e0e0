// Which network, which container and which directories does a command line mean?
import { createHash } from 'node:crypto';
import { resolve } from 'node:path';
import type { Conflist } from '../chain/conflist.ts';
import { parsePluginDirs } from '../chain/find-plugin.ts';
import { loadFile, loadNetwork } from '../chain/load.ts';
import type { Attachment, Runtime } from '../chain/runtime.ts';
import { type CniArgs, parseCniArgs } from '../cni/cni-args.ts';
import { CniError, ErrorCode } from '../cni/errors.ts';
import { type JsonObject, parseObject } from '../cni/json.ts';
import { type CommandCall, UsageError } from './command.ts';

const DEFAULT_CONF_DIR = '/etc/cni/net.d';
const DEFAULT_BIN_DIR = '/opt/cni/bin';

/** The network named first on the command line, from `--file` or from the configuration directory. */
export function loadTarget(call: CommandCall): Conflist {
  const [name = ''] = call.positionals;
  const file = call.text('file');
  const dir = call.text('conf-dir') || call.env.NETCONFPATH || DEFAULT_CONF_DIR;
  if (file === undefined) return loadNetwork(dir, name);
  const list = loadFile(file);
  if (list.name === name) return list;
  throw new CniError(
    ErrorCode.invalidConfig,
    `Cannot find network "${name}" in "${file}": its name is "${list.name}"`,
  );
}

/** Where plugins are and how they run; what a link says on standard error is passed on when it succeeds. */
export function runtimeOf(call: CommandCall): Runtime {
  const dirs = call.texts('bin-dir');
  const cacheDir = call.text('cni-cache-dir');
  const timeout = call.text('timeout');
  return {
    pluginDirs: dirs.length ? dirs : parsePluginDirs(call.env.CNI_PATH || DEFAULT_BIN_DIR),
    env: call.env,
    signal: call.signal,
    ...(cacheDir === undefined ? {} : { cacheDir }),
    ...(timeout === undefined ? {} : { deadlineMs: parseSeconds(timeout) * 1000 }),
    onLink({ stderr, error }) {
      if (error === undefined && stderr !== '') call.err(stderr.endsWith('\n') ? stderr : `${stderr}\n`);
    },
  };
}

/** The container's side: the second argument, and the options with their variables as cnitool reads them. */
export function attachmentOf(call: CommandCall): Attachment {
  const path = call.positionals[1] ?? '';
  const netns = path === '' ? '' : resolve(path);
  const containerId = call.text('container-id') || (netns === '' ? '' : deriveContainerId(netns));
  if (containerId === '') {
    throw new UsageError('Cannot name the container: without a namespace, --container-id is needed');
  }
  return {
    containerId,
    netns,
    ifname: call.text('ifname') || call.env.CNI_IFNAME || 'eth0',
    args: parseArgs(call.text('args') ?? call.env.CNI_ARGS ?? ''),
    capabilityArgs: parseCapabilities(call.text('cap') || call.env.CAP_ARGS || ''),
  };
}

/** cnitool's way to a container id: the same namespace always gives the same one. */
export function deriveContainerId(netns: string): string {
  const digest = createHash('sha512').update(netns).digest();
  return `cnitool-${digest.subarray(0, 10).toString('hex')}`;
}

function parseArgs(text: string): CniArgs {
  const args = parseCniArgs(text);
  const half = args.find(([key, value]) => key === '' || value === '');
  if (half === undefined) return args;
  throw new CniError(
    ErrorCode.invalidEnvironment,
    `Cannot read CNI_ARGS: invalid pair ${JSON.stringify(half.join('='))}, expected KEY=VALUE`,
  );
}

function parseCapabilities(text: string): JsonObject {
  return text === '' ? {} : parseObject(text, 'capability arguments (CAP_ARGS or --cap)');
}

function parseSeconds(text: string): number {
  const seconds = Number(text);
  if (text.trim() !== '' && seconds > 0 && Number.isFinite(seconds)) return seconds;
  throw new UsageError(`Cannot use --timeout "${text}": expected a number of seconds above zero`);
}
