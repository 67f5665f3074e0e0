// Which specification versions do the links of a list speak, and is there one that all of them do?
import { CniError, ErrorCode, type LinkFailure } from '../cni/errors.ts';
import { type JsonObject, memberOf } from '../cni/json.ts';
import { parseReply } from '../cni/reply.ts';
import { CURRENT_VERSION, SPEC_VERSIONS, type SpecVersion } from '../cni/version.ts';
import type { Conflist } from './conflist.ts';
import { joinErrors, withDetails } from './link-errors.ts';
import { openLinks } from './links.ts';
import type { Attachment, Runtime } from './runtime.ts';

/** A link and the versions it answered with. */
export interface PluginVersions {
  readonly type: string;
  /** As the link lists them: they need not be versions that exist. */
  readonly supportedVersions: readonly string[];
}

/** A network whose links are all there and speak its version. */
export interface ValidNetwork {
  readonly plugins: readonly PluginVersions[];
  /** The highest version that every link and this library speak. */
  readonly highestCommon: SpecVersion;
  /** Capabilities that the links declare, each once. */
  readonly capabilities: readonly string[];
}

/** Plugins of the first generation demand these even of VERSION. */
const DUMMY: Attachment = { containerId: '', netns: 'dummy', ifname: 'dummy' };

/**
 * Asks one plugin for VERSION (SPEC "VERSION").
 * @throws CniError when it is not found or does not answer
 */
export async function pluginVersion(type: string, runtime: Runtime): Promise<PluginVersions> {
  const plugin = { type, capabilities: {}, conf: { type } };
  const [first] = await listPluginVersions({ ...NAMELESS, plugins: [plugin] }, runtime);
  return first as PluginVersions;
}

/**
 * Asks every link for VERSION.
 * @throws CniError of the first that does not answer
 */
export async function listPluginVersions(list: Conflist, runtime: Runtime): Promise<PluginVersions[]> {
  const answers = await askAll(list, runtime, true);
  return answers.filter(answer => 'supportedVersions' in answer);
}

/**
 * Checks that every link is there and speaks the list's version, all of them before it reports.
 * @throws CniError 1 with the versions of all links and the highest one they share; joined with what else is wrong
 */
export async function validateNetwork(list: Conflist, runtime: Runtime): Promise<ValidNetwork> {
  const answers = await askAll(list, runtime, false);
  const plugins = answers.filter(answer => 'supportedVersions' in answer);
  const errors: unknown[] = answers.flatMap(answer => ('error' in answer ? [answer.error] : []));
  const deaf = plugins.filter(({ supportedVersions }) => !supportedVersions.includes(list.version));
  if (deaf.length) errors.unshift(versionConflict(list, plugins, deaf));
  if (errors.length) throw joinErrors(`Cannot use network "${list.name}"`, errors);
  const wanted = list.plugins.flatMap(({ capabilities }) =>
    Object.keys(capabilities).filter(name => capabilities[name]),
  );
  const highestCommon = findHighestCommon(plugins) ?? list.version;
  return { plugins, highestCommon, capabilities: [...new Set(wanted)] };
}

/** The highest version of the specification that all of them list. */
export function findHighestCommon(plugins: readonly PluginVersions[]): SpecVersion | undefined {
  return SPEC_VERSIONS.findLast(version =>
    plugins.every(({ supportedVersions }) => supportedVersions.includes(version)),
  );
}

/**
 * The same error; when a link refused the version, with the versions of all links and the highest one they share in
 * its details. They are asked for that, which a failed ADD can afford.
 */
export async function explainConflict(error: unknown, list: Conflist, runtime: Runtime): Promise<unknown> {
  if (!(error instanceof CniError && error.code === ErrorCode.incompatibleVersion && error.link))
    return error;
  const { onLink: _, onFinish: __, ...silent } = runtime;
  const answers = await askAll(list, { ...silent, signal: undefined }, false);
  return withDetails(error, renderMatrix(answers.filter(answer => 'supportedVersions' in answer)));
}

type Answer = PluginVersions | { readonly type: string; readonly error: unknown };

const NAMELESS: Omit<Conflist, 'plugins'> = {
  name: '',
  version: CURRENT_VERSION,
  disableCheck: false,
  disableGC: false,
  source: '',
};

async function askAll(list: Conflist, runtime: Runtime, throwing: boolean): Promise<Answer[]> {
  const links = openLinks(list, 'VERSION', runtime, [...list.plugins.keys()], readVersions, DUMMY);
  const answers: Answer[] = [];
  try {
    for (const [index, { type }] of list.plugins.entries()) {
      try {
        const supportedVersions = await links
          .call(index, { cniVersion: CURRENT_VERSION })
          .catch(pretendOldest);
        answers.push({ type, supportedVersions });
      } catch (error) {
        if (throwing) throw error;
        answers.push({ type, error });
      }
    }
  } finally {
    links.close();
  }
  return answers;
}

/** The specification of 0.1.0 had no VERSION; plugins of that time say so in exactly these words. */
function pretendOldest(error: unknown): string[] {
  if (error instanceof CniError && error.message === 'unknown CNI_COMMAND: VERSION' && !error.details)
    return ['0.1.0'];
  throw error;
}

function readVersions(stdout: string, link: LinkFailure): string[] {
  const reply: JsonObject = parseReply(stdout, link) ?? {};
  const [cniVersion, supportedVersions] = [
    memberOf(reply, 'cniVersion'),
    memberOf(reply, 'supportedVersions'),
  ];
  if (typeof cniVersion === 'string' && cniVersion !== '') {
    if (Array.isArray(supportedVersions) && supportedVersions.length) return supportedVersions.map(String);
    if (cniVersion === '0.2.0') return ['0.1.0', '0.2.0'];
  }
  throw new CniError(
    ErrorCode.decodingFailure,
    `Cannot read versions of plugin "${link.link}": found ${JSON.stringify(reply)}`,
    { link },
  );
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

/** `bridge 0.3.0 0.4.0 1.0.0, tuning 0.4.0 1.0.0; the highest that all speak is 1.0.0`. */
function renderMatrix(plugins: readonly PluginVersions[]): string {
  const rows = plugins.map(({ type, supportedVersions }) => `${type} ${supportedVersions.join(' ')}`);
  const common = findHighestCommon(plugins);
  const verdict =
    common === undefined ? 'there is none that all speak' : `the highest that all speak is ${common}`;
  return `${rows.join(', ')}; ${verdict}`;
}
