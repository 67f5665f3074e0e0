// How is a failure told in words that a person can act on?
import { type CniError, ErrorCode, toCniError } from '../cni/errors.ts';

/** Lines of a plugin's standard error that are shown. */
const STDERR_LINES = 12;

/** What to do about an error that is the same whoever reports it. */
const HINTS: Readonly<Record<number, string>> = {
  [ErrorCode.incompatibleVersion]:
    'set "cniVersion" of the list to one that every link supports: catena version <network>',
  [ErrorCode.tryAgainLater]: 'this may pass: try again later',
  [ErrorCode.unavailable]: 'no container can be attached to this network until the link is ready',
  [ErrorCode.unavailableLimited]: 'running containers may have lost connectivity too',
};

/**
 * Several lines for standard error: what failed, which link of which network and how its process ended, the end of
 * what it said on standard error, and what to do about it where that is known.
 */
export function renderFailure(thrown: unknown): string {
  const error = toCniError(thrown);
  const lines = [`catena: ${error.message}`, ...detailsOf(error), ...linkOf(error)];
  const hint = HINTS[error.code] ?? hintFor(error);
  if (hint !== undefined) lines.push(`  hint: ${hint}`);
  return `${lines.join('\n')}\n`;
}

function detailsOf(error: CniError): string[] {
  const code = error.code === ErrorCode.unknown ? [] : [`  code: ${error.code}`];
  return error.details === undefined ? code : [`  details: ${error.details}`, ...code];
}

function linkOf({ link }: CniError): string[] {
  if (link === undefined) return [];
  const ending = link.signal === undefined ? `exit status ${link.exitCode}` : `ended by ${link.signal}`;
  const ran = link.exitCode !== undefined || link.signal !== undefined;
  const time = link.durationMs === undefined ? '' : ` after ${Math.round(link.durationMs)} ms`;
  const where = `  link: ${link.link}, number ${link.index + 1} of network "${link.network}", ${link.verb}`;
  const stderr = (link.stderr ?? '').trimEnd().split('\n').slice(-STDERR_LINES).filter(Boolean);
  return [
    ran ? `${where}, ${ending}${time}` : where,
    ...(link.executable === undefined ? [] : [`  executable: ${link.executable}`]),
    ...(stderr.length ? ['  it said:', ...stderr.map(line => `    ${line}`)] : []),
  ];
}

function hintFor({ message }: CniError): string | undefined {
  if (message.startsWith('Cannot find plugin'))
    return 'set CNI_PATH or --bin-dir to the directories of the plugins';
  if (message.startsWith('Cannot find network'))
    return 'set NETCONFPATH or --conf-dir, or name a file with --file';
  if (/\b(EPERM|EACCES|Operation not permitted|Permission denied)\b/.test(message)) return 'run as root';
  return undefined;
}
