// How do two records of one scene differ, once random names, numbers and times have common names, and which plugin caused each difference?
import type { AnswerOf } from '../../cli/answers/kinds.ts';
import { defined } from '../../cni/json.ts';
import { type Moment, type SceneRecord, type Sight, type StepReply, toText } from './scene.ts';

/** One difference; a side without the object has no text. */
export type Difference = Omit<AnswerOf<'Comparison'>['plugins'][number]['differences'][number], 'alsoIn'>;

/** Differences in the order in which they appeared; a persistent one is reported once. */
export function diffRecords(scene: string, first: SceneRecord, second: SceneRecord): Difference[] {
  const differences: Difference[] = [];
  let known = new Set(findInSights(first.before, second.before).map(keyOf));
  for (const [one, other] of align(first.moments, second.moments)) {
    const moment = one ?? other;
    if (moment === undefined) continue;
    const { step, verb, index } = moment;
    const at = { scene, step, verb, ...defined({ index }) };
    if (!one || !other) {
      const [first, second] = [one, other].map(side => (side ? describeReply(side.answer) : 'not called'));
      differences.push({ ...at, where: 'answer', what: '', ...defined({ first, second }) });
      continue;
    }
    differences.push(...diffReplies(one.answer, other.answer).map(found => ({ ...at, ...found })));
    // One side rolled back and the other continued, so everything after this differs. DEL continues after a failure.
    if (one.answer.failed !== other.answer.failed && verb !== 'DEL') break;
    const findings = withoutFollowers(findInSights(one.sight, other.sight));
    const fresh = findings.filter(finding => !known.has(keyOf(finding)));
    differences.push(...fresh.map(finding => ({ ...at, ...describeFinding(finding) })));
    known = new Set(findings.map(keyOf));
  }
  return differences;
}

/** Pairs the corresponding moments of both sides; undefined where one side has none. */
function align(
  first: readonly Moment[],
  second: readonly Moment[],
): (readonly [Moment | undefined, Moment | undefined])[] {
  const [ones, others] = [named(first), named(second)];
  return [...new Set([...ones.keys(), ...others.keys()])].map(key => [ones.get(key), others.get(key)]);
}

function named(moments: readonly Moment[]): Map<string, Moment> {
  const byName = new Map<string, Moment>();
  for (const moment of moments) {
    const key = JSON.stringify([moment.step, moment.verb, moment.index]);
    let count = 1;
    while (byName.has(`${key} ${count}`)) count++;
    byName.set(`${key} ${count}`, moment);
  }
  return byName;
}

type DifferenceFacts = Pick<Difference, 'where' | 'what' | 'first' | 'second'>;

function diffReplies(first: StepReply, second: StepReply): DifferenceFacts[] {
  if (first.failed !== second.failed || first.code !== second.code) {
    const [one, other] = [describeReply(first), describeReply(second)];
    return [{ where: 'answer', what: '', first: one, second: other }];
  }
  return findDifferences(first.result ?? {}, second.result ?? {}).map(({ names, ...sides }) => {
    return { where: 'result', what: names.join('.'), ...renderSides(sides) };
  });
}

function describeReply({ failed, code, message }: StepReply): string {
  return failed ? `it fails with code ${code}: ${message}` : 'it succeeds';
}

function findInSights(first: Sight, second: Sight): Finding[] {
  return [
    ...findDifferences(first.places, second.places),
    ...findDifferences(first.files, second.files, ['files']),
  ];
}

/** Drops what belongs to a differing device, table or chain: one difference, not two hundred. */
function withoutFollowers(findings: readonly Finding[]): Finding[] {
  const followers = findings.flatMap(({ names: [place, kind, name = ''], first, second }) => {
    if (first !== undefined && second !== undefined) return [];
    if (kind === 'link') return [{ place, kinds: OF_A_DEVICE, ending: deviceEnding(name) }];
    if (kind === 'nftables' && name.startsWith('table ')) {
      return [{ place, kinds: ['nftables'], ending: new RegExp(` (in|of) ${literal(name)}$`) }];
    }
    const [, table, chain] = /^(.+): chain (.+)$/.exec(kind === 'iptables' ? name : '') ?? [];
    if (table === undefined || chain === undefined) return [];
    return [{ place, kinds: ['iptables'], ending: new RegExp(`^${literal(`${table}: -A ${chain} `)}`) }];
  });
  return findings.filter(({ names: [place, kind = '', name = ''] }) => {
    return !followers.some(one => one.place === place && one.kinds.includes(kind) && one.ending.test(name));
  });
}

const OF_A_DEVICE = ['address', 'route', 'neighbour', 'traffic control', 'sysctl'];

/** `10.1.0.2/24 on eth0`, `default IPv4 on eth0 in table 100`, `ipv4/conf/eth0/forwarding`. */
function deviceEnding(name: string): RegExp {
  return new RegExp(`( on | of )${literal(name)}( in table .*| #.*)?$|/${literal(name)}/`);
}

function literal(text: string): string {
  return text.replace(/[^\w]/g, '\\$&');
}

function keyOf({ names, first, second }: Finding): string {
  return JSON.stringify([names, first, second]);
}

function describeFinding({ names, ...sides }: Finding): DifferenceFacts {
  const [where = '', kind = '', name, field] = names;
  if (where === 'files') return { where, what: kind, ...renderSides(sides) };
  const subject = kind === 'sysctl' ? `sysctl net/${name}` : `${kind} ${name}`;
  const what = field === undefined || field === 'value' ? subject : `${subject}, ${field}`;
  return { where, what, ...renderSides(sides) };
}

function renderSides({ first, second }: Omit<Finding, 'names'>): Pick<Difference, 'first' | 'second'> {
  return defined({ first: renderSide(first), second: renderSide(second) });
}

/** Renders an object's properties on one line; for an object without properties, says only that it exists. */
function renderSide(value: unknown): string | undefined {
  if (value === undefined) return undefined;
  if (value === null || typeof value !== 'object' || Array.isArray(value)) return toText(value);
  const entries = Object.entries(value);
  if (!entries.length) return 'exists';
  if (entries.length === 1 && entries[0]?.[0] === 'value') return String(entries[0][1]);
  return entries.map(([key, member]) => `${key} ${toText(member)}`).join(', ');
}

/** One difference; a side without the value has `undefined`. */
interface Finding {
  /** Path to the value: `['host', 'link', 'br0', 'mtu']`. */
  readonly names: readonly string[];
  readonly first: unknown;
  readonly second: unknown;
}

/** Compares two values recursively; a value that only one side has is one finding, whatever its size. */
export function findDifferences(first: unknown, second: unknown, names: readonly string[] = []): Finding[] {
  if (!isContainer(first) || !isContainer(second) || Array.isArray(first) !== Array.isArray(second)) {
    return Object.is(first, second) ? [] : [{ names, first, second }];
  }
  const keys = [...new Set([...Object.keys(first), ...Object.keys(second)])];
  return keys.flatMap(key => findDifferences(first[key], second[key], [...names, key]));
}

function isContainer(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null;
}

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
  const files = (sight: Sight) => ({ ...sight, files: timeless(sight.files, record) });
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

const MAC = /\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b/g;
const VETH = /\bveth[0-9a-f]{8}\b/g;
const LINK_LOCAL = /\bfe80::[0-9a-f:]+/g;

// Hardware addresses that belong to no interface.
const FIXED = ['00:00:00:00:00:00', 'ff:ff:ff:ff:ff:ff', '01:80:c2:00:00:00'];

/** For a value of an observation that describes an interface, returns its hardware address and its name. */
type FindHolder = (
  value: Record<string, unknown>,
  path: readonly string[],
) => readonly [mac: string, holder: string] | undefined;

/**
 * Renames random interface names to `veth#1` and random hardware addresses to `mac of <interface>`. Link-local addresses
 * derived from them, and the twin's own paths, are renamed as well.
 *
 * @param given text whose hardware addresses are not random: the configuration itself
 * @param paths the twin's namespaces and directories → their common names
 * @param findHolder finds devices in the observation; interfaces of results are recognised anyway
 */
export function normalise<T>(
  observed: T,
  given: string,
  paths: ReadonlyMap<string, string>,
  findHolder: FindHolder,
): T {
  let text = JSON.stringify(observed);
  for (const [own, common] of paths) text = text.replaceAll(own, common);
  const veths = [...new Set(text.match(VETH))];
  text = text.replace(VETH, name => `veth#${veths.indexOf(name) + 1}`);
  const fixed: ReadonlySet<string> = new Set([...FIXED, ...(given.toLowerCase().match(MAC) ?? [])]);
  const macs = nameMacs(JSON.parse(text), fixed, findHolder);
  text = text
    .replace(LINK_LOCAL, address => {
      const mac = macOfLinkLocal(address);
      return mac === undefined ? address : `fe80::(${macs.get(mac) ?? 'an earlier address'})`;
    })
    .replace(MAC, mac => macs.get(mac) ?? (fixed.has(mac) ? mac : 'an earlier hardware address'));
  // In nf_tables expressions, among other bytes.
  for (const [mac, name] of macs) text = text.replaceAll(mac.replaceAll(':', ''), `(${name})`);
  return JSON.parse(text);
}

/** A bridge may adopt a port's address, so ports come first: the first holder of an address names it. */
function nameMacs(
  observed: unknown,
  fixed: ReadonlySet<string>,
  findHolder: FindHolder,
): Map<string, string> {
  const holders = collectHolders(observed, [], findHolder);
  const [ports = [], others = []] = [true, false].map(isPort =>
    holders.filter(([, holder]) => /eth/.test(holder) === isPort),
  );
  const names = new Map<string, string>();
  for (const [mac, holder] of [...ports, ...others]) {
    if (fixed.has(mac) || names.has(mac)) continue;
    let name = `mac of ${holder}`;
    while ([...names.values()].includes(name)) name += "'";
    names.set(mac, name);
  }
  return names;
}

/** Collects `{name, mac, sandbox}` of results, and observed devices. */
function collectHolders(
  value: unknown,
  path: readonly string[],
  findHolder: FindHolder,
): (readonly [mac: string, holder: string])[] {
  if (!isContainer(value)) return [];
  const { name, mac, sandbox } = value;
  const isInterface = typeof mac === 'string' && typeof name === 'string';
  const own = isInterface ? ([mac, `${sandbox || 'host'}/${name}`] as const) : findHolder(value, path);
  const inside = Object.entries(value).flatMap(([key, child]) =>
    collectHolders(child, [...path, key], findHolder),
  );
  return [...(own ? [own] : []), ...inside];
}

function macOfLinkLocal(address: string): string | undefined {
  const words = address.slice('fe80::'.length).split(':');
  // A leading word of zeros is omitted, and so are leading zeros of a word.
  if (words.length > 4) return undefined;
  const hex = words
    .map(word => word.padStart(4, '0'))
    .join('')
    .padStart(16, '0');
  if (hex.slice(6, 10) !== 'fffe') return undefined;
  const bytes = [hex.slice(0, 6), hex.slice(10)].join('').match(/../g) ?? [];
  const first = (Number.parseInt(bytes[0] ?? '', 16) ^ 2).toString(16).padStart(2, '0');
  return [first, ...bytes.slice(1)].join(':');
}
