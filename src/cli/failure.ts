// How is a failure reported so that a user can act on it?

import { NetworkNotFound } from '../chain/config/load.ts';
import { type CalledPlugin, CniError, ErrorCode, toCniError } from '../cni/errors.ts';
import { isObject } from '../cni/json.ts';
import { CURRENT_VERSION } from '../cni/result.ts';
import { COLOUR, oneLine } from '../lab/words.ts';
import { titleOfId } from '../node/names.ts';

/** How many lines of a plugin's standard error are shown. */
const STDERR_LINES = 12;

/** Advice for errors that mean the same whichever plugin reports them. */
const HINTS: Readonly<Record<number, string>> = {
  [ErrorCode.incompatibleVersion]:
    'set "cniVersion" of the list to a version that every plugin supports: catena networks --versions <network>',
  [ErrorCode.tryAgainLater]: 'this may be temporary: try again later',
  [ErrorCode.unavailable]: 'no container can be attached to this network until the plugin is ready',
  [ErrorCode.unavailableLimited]: 'running containers may have lost connectivity too',
};

/**
 * Several lines for standard error: the message; which plugin of which network failed and how its process ended; the end of its
 * standard error; and advice, if there is any.
 */
export function renderFailure(thrown: unknown): string {
  const error = toCniError(thrown);
  const said = [`catena: ${oneLine(error.message)}`, ...detailsOf(error)].map(callByName);
  const lines = [...said, ...describePlugin(error)];
  const hint = HINTS[error.code] ?? hintForPackage(thrown) ?? hintFor(error);
  if (hint !== undefined) lines.push(`  hint: ${hint}`);
  return `${lines.join('\n')}\n`;
}

/** Names instead of the ids of containers, for people: programs get what the message says. */
export function callByName(text: string): string {
  return text.replace(/(?<=\bcontainer "?)([\da-f]{32,}|cnitool-[\da-f]{20})\b/gi, id => titleOfId(id));
}

/**
 * What `--json` prints on standard error: `cniVersion`, `code`, `msg` and `details` as in the specification. Under `catena`, for
 * which the specification has no place, is every plugin that failed, and how its process ended; in the order of
 * the failures: the chain's own failure, then those of undoing it.
 */
export function toFailureJson(thrown: unknown) {
  const error = toCniError(thrown);
  const failures = Array.from(findPluginErrors(thrown, error), ([plugin, { code, message: msg }]) => ({
    ...plugin,
    code,
    msg,
  }));
  return { ...error.toReply(CURRENT_VERSION), ...(failures.length ? { catena: { failures } } : {}) };
}

/** For JSON output: an error is the object of the specification. */
export function withReply<T extends { readonly error?: CniError }>({ error, ...one }: T) {
  return { ...one, ...(error ? { error: error.toReply() } : {}) };
}

/** The plugin errors behind an error, one per failure of a plugin: errors that only rephrase another one are left out. */
function findPluginErrors(...thrown: readonly unknown[]): ReadonlyMap<CalledPlugin, CniError> {
  const found = new Map<CalledPlugin, CniError>();
  const visit = (one: unknown): void => {
    if (one instanceof CniError && one.plugin && !found.has(one.plugin)) found.set(one.plugin, one);
    if (one instanceof AggregateError) one.errors.forEach(visit);
    if (one instanceof Error) visit(one.cause);
  };
  thrown.forEach(visit);
  return found;
}

function detailsOf(error: CniError): string[] {
  const code = error.code === ErrorCode.unknown ? [] : [`  code: ${error.code}`];
  return error.details === undefined ? code : [`  details: ${oneLine(error.details)}`, ...code];
}

function describePlugin({ plugin }: CniError): string[] {
  if (plugin === undefined) return [];
  const ending = plugin.signal === undefined ? `exit status ${plugin.exitCode}` : `ended by ${plugin.signal}`;
  const ran = plugin.exitCode !== undefined || plugin.signal !== undefined;
  const time = plugin.durationMs === undefined ? '' : ` after ${Math.round(plugin.durationMs)} ms`;
  const where = `  plugin: ${plugin.type}, number ${plugin.index + 1} of network "${plugin.network}", ${plugin.verb}`;
  const stderr = (plugin.stderr ?? '').trimEnd().split('\n').slice(-STDERR_LINES).filter(Boolean);
  return [
    ran ? `${where}, ${ending}${time}` : where,
    ...(plugin.executable === undefined ? [] : [`  executable: ${plugin.executable}`]),
    ...(stderr.length ? ['  its standard error:', ...stderr.map(line => `    ${line}`)] : []),
  ];
}

/** The npm package leaves large packages that only some commands need to its users. */
function hintForPackage(thrown: unknown): string | undefined {
  if (!isObject(thrown) || thrown.code !== 'ERR_MODULE_NOT_FOUND') return undefined;
  const { specifier } = thrown;
  return typeof specifier === 'string'
    ? `npm install ${specifier}, or use the executable of a release, which contains it`
    : undefined;
}

function hintFor(error: CniError): string | undefined {
  const { message } = error;
  // It may come from the process of a plugin that delegates.
  if (message.startsWith('Cannot find plugin'))
    return 'set CNI_PATH or --bin-dir to the directories of the plugins';
  if (error instanceof NetworkNotFound) return 'set NETCONFPATH or --conf-dir, or name a file with --file';
  // The message already contains the advice.
  if (message.includes('run as root')) return undefined;
  if (/^Cannot start plugin .*EACCES/.test(message) && error.plugin?.executable !== undefined)
    return message.includes('noexec') ? undefined : `chmod +x ${error.plugin.executable}`;
  if (/\b(EPERM|EACCES|Operation not permitted|Permission denied)\b/.test(message)) return 'run as root';
  return undefined;
}

/**
 * Control characters, with which the message of a plugin or an annotation could move the cursor or conceal what follows, and
 * characters that change the direction of writing.
 */
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is looked for
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g;

/** The text with such characters escaped as in JSON (`\u001b`), so that JSON keeps its meaning, and with our own colours. */
export function showable(text: string): string {
  return text
    .replace(UNSEEN, char => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`)
    .replaceAll(COLOUR, '\u001b[');
}
