// Which specification versions do the links of a list speak?
import { CniError, ErrorCode } from '../cni/errors.ts';
import type { JsonObject } from '../cni/json.ts';
import { CURRENT_VERSION, incompatible } from '../cni/version.ts';
import type { Conflist } from './conflist.ts';
import { joinErrors } from './link-errors.ts';
import { openLinks } from './links.ts';
import type { Attachment, Runtime } from './runtime.ts';

/** A link and the versions it answered with. */
export interface PluginVersions {
  readonly type: string;
  readonly supportedVersions: readonly string[];
}

/** Plugins of the first generation demand these even of VERSION. */
const DUMMY: Attachment = { containerId: '', netns: 'dummy', ifname: 'dummy' };

/**
 * Asks every link for VERSION (SPEC "VERSION").
 * @throws CniError of the first that does not answer
 */
export async function listPluginVersions(list: Conflist, runtime: Runtime): Promise<PluginVersions[]> {
  const links = openLinks(list, 'VERSION', runtime, [...list.plugins.keys()], DUMMY);
  const versions: PluginVersions[] = [];
  try {
    for (const [index, { type }] of list.plugins.entries()) {
      const reply = await links.call(index, { cniVersion: CURRENT_VERSION }).catch(pretendOldest);
      versions.push({ type, supportedVersions: versionsIn(reply, type) });
    }
  } finally {
    links.close();
  }
  return versions;
}

/**
 * Checks that every link is there and speaks the list's version.
 * @returns the capabilities that the links declare, each once
 * @throws CniError joining what is wrong
 */
export async function validateNetwork(list: Conflist, runtime: Runtime): Promise<string[]> {
  const errors: unknown[] = [];
  for (const entry of list.plugins) {
    try {
      const [versions] = await listPluginVersions({ ...list, plugins: [entry] }, runtime);
      const supported = versions?.supportedVersions ?? [];
      if (!supported.includes(list.version)) throw incompatible(list.version, supported);
    } catch (error) {
      errors.push(error);
    }
  }
  if (errors.length) throw joinErrors(`Cannot use network "${list.name}"`, errors);
  const wanted = list.plugins.flatMap(({ capabilities }) =>
    Object.keys(capabilities).filter(name => capabilities[name]),
  );
  return [...new Set(wanted)];
}

/** The specification of 0.1.0 had no VERSION; plugins of that time say so in exactly these words. */
function pretendOldest(error: unknown): JsonObject {
  if (error instanceof CniError && error.message === 'unknown CNI_COMMAND: VERSION') {
    return { cniVersion: '0.1.0', supportedVersions: ['0.1.0'] };
  }
  throw error;
}

function versionsIn(reply: JsonObject | undefined, type: string): string[] {
  const { cniVersion, supportedVersions } = reply ?? {};
  if (typeof cniVersion === 'string' && cniVersion !== '') {
    if (Array.isArray(supportedVersions) && supportedVersions.length) return supportedVersions.map(String);
    if (cniVersion === '0.2.0') return ['0.1.0', '0.2.0'];
  }
  throw new CniError(
    ErrorCode.decodingFailure,
    `Cannot read versions of plugin "${type}": found ${JSON.stringify(reply ?? null)}`,
  );
}
