// How do the records of both twins get common names, although each twin has its own names and times?
import { normalise } from './normalise.ts';
import type { SceneRecord } from './record.ts';

/** Stored times may lie ahead, such as the end of a lease, or some time back. */
const SLACK_MS = 48 * 3_600_000;
const ISO_TIME = /\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:?\d\d)?/g;
/** Seconds since 1970, or the same in milli-, micro- or nanoseconds. */
const NUMBER_TIME = /\b\d{10}(\d{3}|\d{6}|\d{9})?\b/g;

/**
 * A record in which interfaces, hardware addresses, namespaces and times have names common to both twins.
 * @param given text whose hardware addresses are not random: the configuration
 */
export function withCommonNames(record: SceneRecord, given: string): SceneRecord {
  const inodes = Object.entries(record.namespaces).map(([name, inode]) => [inode, `{${name}}`] as const);
  const files = (sight: SceneRecord['before']) => ({ ...sight, files: timeless(sight.files, record) });
  const steady = {
    ...record,
    before: files(record.before),
    moments: record.moments.map(moment => ({ ...moment, sight: files(moment.sight) })),
  };
  return normalise(steady, given, new Map(inodes), findHolder);
}

/** Files in which the times of the scene are replaced by `{time}`. */
function timeless(
  files: Readonly<Record<string, string>>,
  { began, ended }: SceneRecord,
): Record<string, string> {
  const isNow = (ms: number) => ms >= began - SLACK_MS && ms <= ended + SLACK_MS;
  const replace = (text: string) =>
    text
      .replace(ISO_TIME, time => (isNow(Date.parse(time)) ? '{time}' : time))
      .replace(NUMBER_TIME, digits => (isNow(Number(`${digits.slice(0, 10)}000`)) ? '{time}' : digits));
  return Object.fromEntries(Object.entries(files).map(([path, text]) => [path, replace(text)]));
}

/** Devices are observed under the kind `link` of a namespace. */
function findHolder(
  value: Record<string, unknown>,
  path: readonly string[],
): readonly [string, string] | undefined {
  if (path.at(-2) !== 'link' || typeof value.mac !== 'string') return undefined;
  return [value.mac, `${path.at(-3)}/${path.at(-1)}`];
}
