// What does libcni's entry of an attachment look like, and what do we add to it?
//
// The entry is the truth about every settled attachment, whichever runtime made it. What only our runner knows is one more member, which
// libcni ignores. Another runtime that makes the attachment again writes the whole entry, so that the member is never another ADD's.
import type { AttachmentId } from '../cni/attachment.ts';
import type { CniArgs } from '../cni/cni-args.ts';
import { CniError, ErrorCode } from '../cni/errors.ts';
import { isObject, type JsonObject, memberOf, tryParse } from '../cni/json.ts';
import type { NetnsIdentity } from './netns-identity.ts';

/** A cached result, with the configuration and arguments of its ADD. */
export interface CachedAttachment extends AttachmentId {
  /** Empty when neither the file nor its result names it. */
  readonly netns: string;
  readonly args: CniArgs;
  readonly capabilityArgs: JsonObject;
  /** The list as it was at ADD; undefined in files of libcni 0.7, which hold the bare result. */
  readonly source: string | undefined;
  /** Result of the last plugin, in the version it names; undefined when the file holds none. */
  readonly result: JsonObject | undefined;
  /** What our runner adds; undefined if another runtime made the attachment and ours has not changed it. */
  readonly made?: Made | undefined;
}

/** What only our runner knows of an attachment. All but `change` is absent if another runtime made it. */
export interface Made extends Partial<MadeByUs> {
  /** The operation of the last `catena set`. */
  readonly change?: string;
}

/** Which ADD of ours made an attachment, and where. */
export interface MadeByUs extends NetnsIdentity {
  /** The operation, as runner.ts names it, and when it began. */
  readonly op: string;
  readonly time: string;
  readonly boot: string;
  /** The kernel's cookie of the network namespace that its runner worked in, unless the kernel did not report it. */
  readonly hostCookie?: string;
  /** The name of the program that ran the chain; may be empty. */
  readonly owner: string;
  /** The caller's request key: a second ADD with the same key returns the first one's result. */
  readonly request?: string;
  /** Directories in which plugins were looked up, and the executable found for each. */
  readonly pluginDirs: readonly string[];
  readonly executables: readonly string[];
  /** Which journal has it: that of the runner, of pods, or of their networks. */
  readonly scope: string;
}

/** Kind of the current layout; a file of another kind is a bare result of libcni 0.7. */
const KIND = 'cniCacheV1';

/** Our member, and its layout. */
const OURS = 'catena';
const LAYOUT = 1;

/** The bytes that libcni would write: its order of fields, empty ones left out; then our member. */
export function renderAttachment(attachment: CachedAttachment): string {
  const { netns, args, capabilityArgs, source, result, made } = attachment;
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
    ...(made === undefined ? {} : { [OURS]: { v: LAYOUT, ...made } }),
  });
}

/**
 * The attachment that a cached result describes.
 * @param file its path, for the error
 * @param id what the file's name says, which is all that the layout of libcni 0.7 has; undefined when the name is ambiguous
 * @throws CniError 6 when it is damaged or of another kind
 */
export function parseRecord(text: string, file: string, id: AttachmentId | undefined): CachedAttachment {
  const object = tryParse(text);
  if (!isObject(object)) throw damagedRecord(file, 'it is not a JSON object');
  if (object.kind === KIND) {
    const attachment = attachmentOf(object);
    if (attachment === undefined) throw damagedRecord(file, 'it does not name an attachment');
    return attachment;
  }
  if (object.kind !== undefined) {
    throw damagedRecord(file, `its kind is ${JSON.stringify(object.kind)}, not "${KIND}"`);
  }
  if (id?.network && id.containerId && id.ifname) return legacyAttachment(id, object);
  throw damagedRecord(file, 'its name does not identify an attachment');
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
  const made = madeOf(object[OURS]);
  return {
    network,
    containerId,
    ifname,
    netns: isName(netns) ? netns : findSandbox(result, ifname),
    args: Array.isArray(args) ? args.filter(isPair) : [],
    capabilityArgs: isObject(capabilityArgs) ? capabilityArgs : {},
    source: isName(config) ? Buffer.from(config, 'base64').toString() : undefined,
    result: isObject(result) ? result : undefined,
    ...(made === undefined ? {} : { made }),
  };
}

/** A member of another layout, or a damaged one, tells nothing: the attachment then counts as another runtime's. */
function madeOf(member: unknown): Made | undefined {
  if (!isObject(member) || member.v !== LAYOUT) return undefined;
  const { v: _, ...made } = member;
  const { change, op } = made;
  if (change !== undefined && typeof change !== 'string') return undefined;
  if (op === undefined) return change === undefined ? undefined : { change };
  const texts = ['op', 'time', 'boot', 'owner', 'scope'].map(key => made[key]);
  const more = ['netnsIdentity', 'netnsCookie', 'hostCookie', 'request'].map(key => made[key] ?? '');
  if (![...texts, ...more].every(one => typeof one === 'string')) return undefined;
  if (![made.pluginDirs, made.executables].every(isTexts)) return undefined;
  return made as Made;
}

function isTexts(value: unknown): boolean {
  return Array.isArray(value) && value.every(one => typeof one === 'string');
}

function legacyAttachment(id: AttachmentId, result: JsonObject): CachedAttachment {
  const netns = findSandbox(result, id.ifname);
  return { ...id, netns, args: [], capabilityArgs: {}, source: undefined, result };
}

/**
 * The namespace in which the result has the interface. The libcni of Podman 4.3 and containerd 1.6 does not store the path
 * itself.
 */
function findSandbox(result: unknown, ifname: string): string {
  const interfaces = isObject(result) ? memberOf(result, 'interfaces') : undefined;
  if (!Array.isArray(interfaces)) return '';
  for (const one of interfaces) {
    if (!isObject(one) || memberOf(one, 'name') !== ifname) continue;
    const sandbox = memberOf(one, 'sandbox');
    if (isName(sandbox)) return sandbox;
  }
  return '';
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
