// How do two records of one scene differ, and which plugin caused each difference?
import type { AnswerOf } from '../answers/kinds.ts';
import { defined } from '../cni/defined.ts';
import { type Answer, type Moment, type SceneRecord, type Sight, toText } from './scene.ts';

/** One difference; a side without the object has no text. */
export type Difference = Omit<AnswerOf<'Comparison'>['links'][number]['differences'][number], 'alsoIn'>;

/** Differences in the order in which they appeared; a persistent one is reported once. */
export function diffRecords(scene: string, first: SceneRecord, second: SceneRecord): Difference[] {
  const differences: Difference[] = [];
  let known = keysOf(findInSights(first.before, second.before));
  for (const [one, other] of align(first.moments, second.moments)) {
    const moment = one ?? other;
    if (moment === undefined) continue;
    const { step, verb, index } = moment;
    const at = { scene, step, verb, ...defined({ index }) };
    if (!one || !other) {
      const [ran, not] = [describeAnswer(moment.answer), 'not called'];
      differences.push({
        ...at,
        where: 'answer',
        what: '',
        first: one ? ran : not,
        second: other ? ran : not,
      });
      continue;
    }
    differences.push(...diffAnswers(one.answer, other.answer).map(found => ({ ...at, ...found })));
    // One side rolled back and the other continued, so everything after this differs. DEL continues after a failure.
    if (one.answer.failed !== other.answer.failed && verb !== 'DEL') break;
    const findings = withoutFollowers(findInSights(one.sight, other.sight));
    const fresh = findings.filter(finding => !known.has(keyOf(finding)));
    differences.push(...fresh.map(finding => ({ ...at, ...describeFinding(finding) })));
    known = keysOf(findings);
  }
  return differences;
}

/** Pairs the corresponding moments of both sides; undefined where one side has none. */
function align(
  first: readonly Moment[],
  second: readonly Moment[],
): (readonly [Moment | undefined, Moment | undefined])[] {
  const others = new Map(named(second));
  const pairs = named(first).map(([key, one]) => {
    const other = others.get(key);
    others.delete(key);
    return [one, other] as const;
  });
  return [...pairs, ...[...others.values()].map(other => [undefined, other] as const)];
}

function named(moments: readonly Moment[]): (readonly [string, Moment])[] {
  const seen = new Map<string, number>();
  return moments.map(moment => {
    const key = JSON.stringify([moment.step, moment.verb, moment.index]);
    const count = (seen.get(key) ?? 0) + 1;
    seen.set(key, count);
    return [`${key} ${count}`, moment];
  });
}

type DifferenceFacts = Pick<Difference, 'where' | 'what' | 'first' | 'second'>;

function diffAnswers(first: Answer, second: Answer): DifferenceFacts[] {
  if (first.failed !== second.failed || first.code !== second.code) {
    const [one, other] = [describeAnswer(first), describeAnswer(second)];
    return [{ where: 'answer', what: '', first: one, second: other }];
  }
  return findDifferences(first.result ?? {}, second.result ?? {}).map(({ names, ...sides }) => {
    return { where: 'result', what: names.join('.'), ...renderSides(sides) };
  });
}

function describeAnswer({ failed, code, message }: Answer): string {
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

function keysOf(findings: readonly Finding[]): Set<string> {
  return new Set(findings.map(keyOf));
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
  return {
    ...(first !== undefined && { first: renderSide(first) }),
    ...(second !== undefined && { second: renderSide(second) }),
  };
}

/** Renders an object's properties on one line; for an object without properties, says only that it exists. */
function renderSide(value: unknown): string {
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
