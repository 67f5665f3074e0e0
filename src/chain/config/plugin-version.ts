// Which specification versions do the plugins of a list speak, and which one do they share?

import { type CalledPlugin, CniError, decodingFailure, ErrorCode } from '../../cni/errors.ts';
import { parseReply } from '../../cni/invocation.ts';
import { type JsonObject, memberOf } from '../../cni/json.ts';
import { CURRENT_VERSION, SPEC_VERSIONS, type SpecVersion } from '../../cni/result.ts';
import { callPlugins, joinErrors, withDetails } from '../run/call-plugins.ts';
import type { Attachment, ChainRuntime } from '../run/runtime.ts';
import { type Conflist, declaredCapabilities, type PluginEntry } from './conflist.ts';

export interface PluginVersions {
  readonly type: string;
  /** As the plugin lists them; they may include versions that do not exist. */
  readonly supportedVersions: readonly string[];
}

/** A network whose plugins are all installed and speak its version. */
export interface ValidNetwork {
  readonly plugins: readonly PluginVersions[];
  /** The highest version that every plugin and this library speak. */
  readonly highestCommon: SpecVersion;
  /** Capabilities that the plugins declare, each once. */
  readonly capabilities: readonly string[];
}

/** Plugins of the first generation require these even for VERSION. */
const DUMMY: Attachment = { containerId: '', netns: 'dummy', ifname: 'dummy' };

/**
 * Calls VERSION of one plugin (SPEC "VERSION").
 * @throws CniError when it is not found or does not answer
 */
export async function pluginVersion(type: string, runtime: ChainRuntime): Promise<PluginVersions> {
  const plugin = { type, capabilities: {}, conf: { type } };
  const nameless = { name: '', version: CURRENT_VERSION, disableCheck: false, disableGC: false, source: '' };
  const [first] = await listPluginVersions({ ...nameless, plugins: [plugin] }, runtime);
  return first as PluginVersions;
}

/**
 * Calls VERSION of every plugin.
 * @throws CniError of the first that does not answer
 */
export async function listPluginVersions(list: Conflist, runtime: ChainRuntime): Promise<PluginVersions[]> {
  const answers = await askAll(list, runtime, true);
  return answers.filter(answer => 'supportedVersions' in answer);
}

/**
 * Checks that every plugin is installed and speaks the list's version. Reports after all were checked.
 * @throws CniError 1 with the versions of all plugins and the highest one they share; joined with the other errors
 */
export async function validateNetwork(list: Conflist, runtime: ChainRuntime): Promise<ValidNetwork> {
  const answers = await askAll(list, runtime, false);
  const plugins = answers.filter(answer => 'supportedVersions' in answer);
  const errors: unknown[] = answers.flatMap(answer => ('error' in answer ? [answer.error] : []));
  const deaf = plugins.filter(({ supportedVersions }) => !supportedVersions.includes(list.version));
  if (deaf.length) errors.unshift(versionConflict(list, plugins, deaf));
  if (errors.length) throw joinErrors(`Cannot use network "${list.name}"`, errors);
  const highestCommon = findHighestCommon(plugins) ?? list.version;
  return { plugins, highestCommon, capabilities: declaredCapabilities(list) };
}

/** The highest version of the specification that all of them list. */
export function findHighestCommon(plugins: readonly PluginVersions[]): SpecVersion | undefined {
  return SPEC_VERSIONS.findLast(version =>
    plugins.every(({ supportedVersions }) => supportedVersions.includes(version)),
  );
}

/**
 * The same error. If a plugin refused the version, its details also list the versions of all plugins and the highest one they
 * share. That calls VERSION of every plugin, which a failed ADD can afford.
 */
export async function explainConflict(
  error: unknown,
  list: Conflist,
  runtime: ChainRuntime,
): Promise<unknown> {
  if (!(error instanceof CniError && error.code === ErrorCode.incompatibleVersion && error.plugin))
    return error;
  const { onPlugin: _, onFinish: __, ...silent } = runtime;
  const answers = await askAll(list, { ...silent, signal: undefined }, false);
  return withDetails(error, renderMatrix(answers.filter(answer => 'supportedVersions' in answer)));
}

type AskedPlugin = PluginVersions | { readonly type: string; readonly error: unknown };

async function askAll(list: Conflist, runtime: ChainRuntime, throwing: boolean): Promise<AskedPlugin[]> {
  const requestFor = () => ({ cniVersion: CURRENT_VERSION });
  const call = { list, verb: 'VERSION', attachment: DUMMY, requestFor, read: readVersions } as const;
  const answers: AskedPlugin[] = [];
  for await (const reply of callPlugins(call, runtime)) {
    const { type } = list.plugins[reply.index] as PluginEntry;
    try {
      const supportedVersions = 'error' in reply ? pretendOldest(reply.error) : reply.value;
      answers.push({ type, supportedVersions });
    } catch (error) {
      if (throwing) throw error;
      answers.push({ type, error });
    }
  }
  return answers;
}

/** The specification of 0.1.0 had no VERSION; plugins of that time answer with exactly this message. */
function pretendOldest(error: unknown): string[] {
  if (error instanceof CniError && error.message === 'unknown CNI_COMMAND: VERSION' && !error.details)
    return ['0.1.0'];
  throw error;
}

function readVersions(stdout: string, plugin: CalledPlugin): string[] {
  const reply: JsonObject = parseReply(stdout, plugin) ?? {};
  const [cniVersion, supportedVersions] = ['cniVersion', 'supportedVersions'].map(key =>
    memberOf(reply, key),
  );
  if (typeof cniVersion === 'string' && cniVersion !== '') {
    if (Array.isArray(supportedVersions) && supportedVersions.length) return supportedVersions.map(String);
    if (cniVersion === '0.2.0') return ['0.1.0', '0.2.0'];
  }
  throw decodingFailure(`Cannot read versions of plugin "${plugin.type}": found ${JSON.stringify(reply)}`, {
    plugin,
  });
}

function versionConflict(
  list: Conflist,
  plugins: readonly PluginVersions[],
  deaf: readonly PluginVersions[],
): CniError {
  const names = [...new Set(deaf.map(({ type }) => JSON.stringify(type)))].join(', ');
  return new CniError(
    ErrorCode.incompatibleVersion,
    `Cannot use network "${list.name}" with CNI version "${list.version}": it is not supported by ${names}`,
    { details: renderMatrix(plugins) },
  );
}

/** `bridge 0.3.0 0.4.0 1.0.0, tuning 0.4.0 1.0.0; the highest version that all plugins support is 1.0.0`. */
function renderMatrix(plugins: readonly PluginVersions[]): string {
  const rows = plugins.map(({ type, supportedVersions }) => `${type} ${supportedVersions.join(' ')}`);
  const common = findHighestCommon(plugins);
  const verdict =
    common === undefined
      ? 'no version is supported by all plugins'
      : `the highest version that all plugins support is ${common}`;
  return `${rows.join(', ')}; ${verdict}`;
}
