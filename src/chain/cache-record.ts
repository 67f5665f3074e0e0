// What does the record of one ADD look like on disk? (libcni's format)
import type { CniArgs } from '../cni/cni-args.ts';
import { CniError, ErrorCode } from '../cni/errors.ts';
import { isObject, type JsonObject, memberOf } from '../cni/json.ts';

/** What names an attachment: one ADD on one network for one interface of one container. */
export interface AttachmentId {
  readonly network: string;
  readonly containerId: string;
  readonly ifname: string;
}

/** One ADD on record. */
export interface CachedAttachment extends AttachmentId {
  /** Empty when the file does not say. */
  readonly netns: string;
  readonly args: CniArgs;
  readonly capabilityArgs: JsonObject;
  /** The list as it was at ADD; undefined in files of libcni 0.7, which hold the bare result. */
  readonly source: string | undefined;
  /** Result of the last link, in the version it names; undefined when the file holds none. */
  readonly result: JsonObject | undefined;
}

/** Kind of the current layout; a file of another kind is a bare result of libcni 0.7. */
const KIND = 'cniCacheV1';

/** The bytes that libcni would write: its order of fields, empty ones left out. */
export function renderAttachment(attachment: CachedAttachment): string {
  const { netns, args, capabilityArgs, source, result } = attachment;
  return renderLikeGo({
    kind: KIND,
    containerId: attachment.containerId,
    config: Buffer.from(source ?? '').toString('base64'),
    ifName: attachment.ifname,
    networkName: attachment.network,
    ...(netns === '' ? {} : { netns }),
    ...(args.length ? { cniArgs: args } : {}),
    ...(Object.keys(capabilityArgs).length ? { capabilityArgs: sortKeys(capabilityArgs) } : {}),
    ...(result === undefined ? {} : { result: sortKeys(result) }),
  });
}

/**
 * The attachment that a file records.
 * @param file its path, for the error
 * @param id what the file's name says, which is all that the layout of libcni 0.7 has; undefined when it has several
 *   readings
 * @throws CniError 6 when it is damaged or of another kind
 */
export function parseRecord(text: string, file: string, id: AttachmentId | undefined): CachedAttachment {
  const object = parseJson(text);
  if (!isObject(object)) throw damagedRecord(file, 'it is not a JSON object');
  if (object.kind === KIND) {
    const attachment = attachmentOf(object);
    if (attachment === undefined) throw damagedRecord(file, 'it does not name an attachment');
    return attachment;
  }
  if (object.kind !== undefined) {
    throw damagedRecord(file, `it is of kind ${JSON.stringify(object.kind)}, not "${KIND}"`);
  }
  if (id?.network && id.containerId && id.ifname) return legacyAttachment(id, object);
  throw damagedRecord(file, 'its name does not tell which attachment it is of');
}

function damagedRecord(file: string, problem: string): CniError {
  return new CniError(ErrorCode.decodingFailure, `Cannot read cached result "${file}": ${problem}`);
}

function attachmentOf(object: JsonObject): CachedAttachment | undefined {
  const field = (key: string) => memberOf(object, key);
  const [network, containerId, ifname] = [field('networkName'), field('containerId'), field('ifName')];
  if (!isName(network) || !isName(containerId) || !isName(ifname)) return undefined;
  const [netns, args, capabilityArgs] = [field('netns'), field('cniArgs'), field('capabilityArgs')];
  const [config, result] = [field('config'), field('result')];
  return {
    network,
    containerId,
    ifname,
    netns: typeof netns === 'string' ? netns : '',
    args: Array.isArray(args) ? args.filter(isPair) : [],
    capabilityArgs: isObject(capabilityArgs) ? capabilityArgs : {},
    source: isName(config) ? Buffer.from(config, 'base64').toString() : undefined,
    result: isObject(result) ? result : undefined,
  };
}

function legacyAttachment(id: AttachmentId, result: JsonObject): CachedAttachment {
  return { ...id, netns: '', args: [], capabilityArgs: {}, source: undefined, result };
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function isName(value: unknown): value is string {
  return typeof value === 'string' && value !== '';
}

function isPair(value: unknown): value is [string, string] {
  return Array.isArray(value) && value.length === 2 && value.every(part => typeof part === 'string');
}

/** encoding/json writes these five characters escaped. */
function renderLikeGo(value: JsonObject): string {
  return JSON.stringify(value).replace(
    /[<>&\u2028\u2029]/g,
    char => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

/** encoding/json writes the keys of a map in order of their bytes. */
function sortKeys(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sortKeys);
  if (!isObject(value)) return value;
  const sorted = Object.entries(value).sort(([a], [b]) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
  return Object.fromEntries(sorted.map(([key, member]) => [key, sortKeys(member)]));
}
