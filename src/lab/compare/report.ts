// What does a comparison find: differences by plugin, what one set did to what the other made, may the one replace the other, and how is it rendered?

import type { Conflist } from '../../chain/config/conflist.ts';
import type { AnswerOf } from '../../cli/answers/kinds.ts';
import { memberOf, objectsIn } from '../../cni/json.ts';
import { holdsAddress } from '../diff.ts';
import { count, renderTime } from '../words.ts';
import { type Difference, diffRecords } from './differ.ts';
import { SCENES, type Scene, type SceneRecord, type Sight } from './scene.ts';

/** A scene as both twins played it, with names normalised to common ones. */
export interface PlayedScene {
  readonly name: string;
  readonly first: SceneRecord;
  readonly second: SceneRecord;
}

export type CompareReport = AnswerOf<'Comparison'>;
/** What is known about one plugin, or with index -1 about whole steps. */
type PluginReport = CompareReport['plugins'][number];
/** A difference, with the other scenes in which it also appeared. */
export type ReportedDifference = PluginReport['differences'][number];
/** How one set of executables handled the other set's attachment. */
export type Crossing = CompareReport['crossings'][number];

/**
 * Judges all scenes.
 * @param ignored intended differences, matched against their lines
 */
export function reportOn(
  list: Conflist,
  scenes: readonly PlayedScene[],
  ignored: readonly RegExp[],
): CompareReport {
  const found = scenes.flatMap(({ name, first, second }) => diffRecords(name, first, second));
  const counted = once(found).filter(one => !ignored.some(pattern => pattern.test(lineOf(one))));
  // In crossings, both sides run ADD with the same executables.
  const ordinary = scenes.filter(({ name }) => !isCrossing(name));
  const names = [...list.plugins.map(({ type }) => type), 'the chain as a whole'];
  const reports = names.map((name, at): PluginReport => {
    const index = at < list.plugins.length ? at : -1;
    return {
      index,
      type: name,
      differences: counted.filter(one => (one.index ?? -1) === index),
      times: index < 0 ? {} : timesOf(index, ordinary),
    };
  });
  const failing = list.plugins.flatMap(({ type }, index) => {
    const message = findFailure(index, scenes);
    return message === undefined ? [] : [{ index, type, message }];
  });
  return {
    network: list.name,
    same: counted.length === 0 && failing.length === 0,
    failing,
    scenes: scenes.map(({ name }) => name),
    plugins: reports,
    crossings: reportCrossings(list, scenes),
  };
}

/** The message of a plugin's ADD if it fails every time on both sides. */
function findFailure(index: number, scenes: readonly PlayedScene[]): string | undefined {
  const answers = scenes
    .flatMap(({ first, second }) => [...first.moments, ...second.moments])
    .filter(moment => moment.index === index && moment.verb === 'ADD')
    .map(({ answer }) => answer);
  if (answers.length === 0 || answers.some(({ failed }) => !failed)) return undefined;
  return answers[0]?.message ?? 'no message';
}

/** A difference on one line, for matching. */
function lineOf(one: Difference): string {
  return `${one.verb}: ${subjectOf(one)}: ${one.first ?? 'nothing'} | ${one.second ?? 'nothing'}`;
}

/** A plugin does the same in most scenes, so a difference is reported only where it first appeared. */
function once(differences: readonly Difference[]): ReportedDifference[] {
  const byLine = new Map<string, ReportedDifference>();
  for (const one of differences) {
    const key = `${one.index} ${lineOf(one)}`;
    const known = byLine.get(key);
    if (known === undefined) byLine.set(key, { ...one, alsoIn: [] });
    else if (one.scene !== known.scene && !known.alsoIn.includes(one.scene))
      byLine.set(key, { ...known, alsoIn: [...known.alsoIn, one.scene] });
  }
  // The failed answer of a step repeats its plugin's.
  const ofPlugins = [...byLine.values()].filter(({ index }) => index !== undefined);
  return [...byLine.values()].filter(one => {
    if (one.index !== undefined || one.where !== 'answer') return true;
    return !ofPlugins.some(({ scene, step, where }) => {
      return scene === one.scene && step === one.step && where === 'answer';
    });
  });
}

function timesOf(index: number, scenes: readonly PlayedScene[]): PluginReport['times'] {
  const timesIn = (side: 'first' | 'second', verb: string) =>
    scenes
      .flatMap(scene => scene[side].moments)
      .filter(one => one.index === index && one.verb === verb && !one.answer.failed)
      .map(({ durationMs }) => durationMs);
  const verbs = new Set(scenes.flatMap(({ first }) => first.moments.map(({ verb }) => verb)));
  return Object.fromEntries(
    [...verbs].flatMap(verb => {
      const [first, second] = [median(timesIn('first', verb)), median(timesIn('second', verb))];
      return first === undefined || second === undefined ? [] : [[verb, { first, second }]];
    }),
  );
}

function median(values: readonly number[]): number | undefined {
  return values.toSorted((a, b) => a - b)[values.length >> 1];
}

/** True when in this scene one set of executables finishes what the other began. */
export function isCrossing(name: string): boolean {
  return SCENES.some(scene => scene.name === name && scene.crossing);
}

/** The outcomes of the scenes in which both sets of executables handle one attachment. */
export function reportCrossings(list: Conflist, played: readonly PlayedScene[]): Crossing[] {
  return played.flatMap(({ name, first, second }) => {
    const scene = SCENES.find(one => one.name === name);
    if (!scene?.crossing) return [];
    const { maker, verb } = scene.crossing;
    const by = maker === 'A' ? 'B' : 'A';
    const record = by === 'A' ? first : second;
    return [{ scene: name, maker, verb, by, ...judge(scene, record, list) }];
  });
}

function judge(
  { steps, crossing }: Scene,
  { before, moments }: SceneRecord,
  list: Conflist,
): Pick<Crossing, 'handedOver' | 'untried' | 'fails' | 'left'> {
  const handedOver = steps.some(({ verb }) => verb === 'hand over');
  const isLast = ({ step }: (typeof moments)[number]) => step === crossing?.verb;
  const failure = moments.find(moment => !isLast(moment) && moment.answer.failed)?.answer;
  if (failure) return { handedOver, untried: failure.message ?? 'no message', fails: [], left: [] };
  const failed = moments.filter(moment => isLast(moment) && moment.answer.failed);
  const ofPlugins = failed.filter(({ index }) => index !== undefined);
  const fails = (ofPlugins.length ? ofPlugins : failed).map(({ index = -1, answer }) => {
    return `${list.plugins[index]?.type ?? 'the chain'}: ${answer.message ?? 'no message'}`;
  });
  const after = moments.at(-1)?.sight;
  const left = after && crossing?.verb === 'DEL' ? listLeft(before, after, addressesOf(moments)) : [];
  return { handedOver, fails, left };
}

/** The id that `play.ts` gives its container. */
const CONTAINER_ID = 'catena-compare-one';
/** The reference's chains named after a container; their rules need not mention it. */
const OWN_CHAIN = /\bCNI-(DN-|SN-)?[0-9a-f]{21,24}\b/;
/** Files of the network: the pointer to the last address, and our index of leases, which no other host-local reads. */
const OF_THE_NETWORK = /\/(\.catena-|last_reserved_ip\.)[^/]*$/;
/** Kinds of objects that appear and disappear with a device. */
const FOLLOWING = ['sysctl', 'address', 'traffic control'];

/** Objects that did not exist before and belong to the container rather than to its network. */
function listLeft(before: Sight, after: Sight, addresses: readonly string[]): string[] {
  const isOwn = (text: string) =>
    text.includes(CONTAINER_ID) || OWN_CHAIN.test(text) || addresses.some(one => holdsAddress(text, one));
  const things = Object.entries(after.places).flatMap(([place, kinds]) =>
    Object.entries(kinds).flatMap(([kind, objects]) =>
      Object.entries(objects).flatMap(([name, state]) => {
        if (FOLLOWING.includes(kind) || before.places[place]?.[kind]?.[name] !== undefined) return [];
        const isDevice = kind === 'link' && state.kind !== 'bridge';
        const words = `${place}: ${kind} ${name}`;
        return isDevice || isOwn(`${name} ${JSON.stringify(state)}`) ? [words] : [];
      }),
    ),
  );
  const files = Object.entries(after.files).filter(([path, text]) => {
    return before.files[path] === undefined && !OF_THE_NETWORK.test(path) && isOwn(`${path} ${text}`);
  });
  return [...things, ...files.map(([path]) => `file ${path}`)];
}

function addressesOf(moments: SceneRecord['moments']): string[] {
  const results = moments.flatMap(({ verb, answer }) => (verb === 'ADD' ? (answer.result ?? []) : []));
  return objectsIn(results.at(-1), 'ips').flatMap(ip => {
    const address = memberOf(ip, 'address');
    return typeof address === 'string' ? [address.split('/')[0] ?? ''] : [];
  });
}

/** Bookkeeping of one set that the other neither needs nor minds: indexes and locks. */
const OWN_FILE = /\/(\.[^/]+|[^/]*lock)$/;
/** Notes on devices, and how an address is announced. */
const MANNER =
  /^link .*, (alias|txqlen)$|^address .*, flags$|^sysctl net\/ipv6\/conf\/.*\/(keep_addr_on_down|ndisc_notify)$/;
const RULE = /^(nftables|iptables)\b/;
/** Members of a result for which an empty object or list says the same as their absence. The reference writes `"dns": {}`. */
const EMPTY_IN_RESULT = /^(dns|routes)$/;

/** The differences of a plugin that a container or an operator notices, and how many are only another way to do the same. */
export function sortOut({ differences }: Pick<PluginReport, 'differences'>): {
  readonly matter: readonly ReportedDifference[];
  readonly byDesign: number;
} {
  // What one set finds of the other is told by the crossings.
  const ordinary = differences.filter(({ scene }) => !isCrossing(scene));
  const rules = ordinary.filter(({ verb, what }) => verb === 'ADD' && RULE.test(what));
  const tablesOf = (side: 'first' | 'second') =>
    new Set(rules.flatMap(one => (one[side] === undefined ? [] : tableOf(one))));
  const [first, second] = [tablesOf('first'), tablesOf('second')];
  const without = (tables: Set<string>, others: Set<string>) =>
    new Set([...tables].filter(one => !others.has(one)));
  const own = [without(first, second), without(second, first)];
  // Each has rules in tables that the other lacks: they filter by other means. Where only one has, or in a table of both, a rule is missing,
  // left, or another one.
  const isOtherMeans = (one: ReportedDifference) =>
    rules.includes(one) && own.every(({ size }) => size > 0) && own.some(tables => tables.has(tableOf(one)));
  const matter = ordinary.filter(one => !isByDesign(one) && !isOtherMeans(one));
  return { matter, byDesign: ordinary.length - matter.length };
}

/** The table of a rule, a chain, a set or an element: `ip nat`, `inet catena_portmap`. */
function tableOf({ what }: Difference): string {
  return /^iptables (.+?): |.*\btable (\S+ \S+?)(, \w+)?$/.exec(what)?.slice(1, 3).join('') ?? what;
}

/** How many differences of a comparison a container or an operator notices. */
export function countMatter({ plugins }: Pick<CompareReport, 'plugins'>): number {
  return plugins.reduce((sum, one) => sum + sortOut(one).matter.length, 0);
}

function isByDesign({ where, what, first = '', second = '' }: ReportedDifference): boolean {
  // An object or list without content is shown so; absence is no text.
  if (where === 'result' && EMPTY_IN_RESULT.test(what))
    return [first, second].every(text => ['', 'exists'].includes(text));
  if (where === 'files') return OWN_FILE.test(what);
  if (where !== 'answer') return MANNER.test(what);
  const areFailures = [first, second].every(text => text.startsWith('it fails'));
  return areFailures || first === 'not called' || second === 'not called';
}

/** The answer to "may B replace A?", in one line. */
export function renderVerdict(report: CompareReport): string {
  const { crossings, failing } = report;
  const [broken] = failing;
  if (broken) return `MAY B REPLACE A? unknown: ADD of ${broken.type} fails with both sets`;
  const matter = countMatter(report);
  const standing = crossings.filter(({ maker }) => maker === 'A');
  const isBad = ({ untried, fails, left }: (typeof crossings)[number]) =>
    untried !== undefined || fails.length > 0 || left.length > 0;
  const undeletable = standing.some(one => one.verb === 'DEL' && isBad(one));
  const unchecked = standing.some(one => one.verb === 'CHECK' && isBad(one));
  const noWayBack = crossings.some(one => one.maker === 'B' && one.verb === 'DEL' && isBad(one));
  const conditions = [
    ...(matter ? [`${count(matter, 'difference')} must be intended`] : []),
    ...(undeletable ? ['containers of A must be handed over (catena handover) or deleted first'] : []),
    ...(!undeletable && unchecked ? ['CHECK of what A made fails'] : []),
    ...(noWayBack ? ['A could not delete what B makes'] : []),
  ];
  const isTried = standing.some(({ verb }) => verb === 'DEL');
  if (!conditions.length)
    return `MAY B REPLACE A? ${isTried ? 'yes' : 'no difference was found, but DEL of what A made was not tried'}`;
  return `MAY B REPLACE A? not as it is: ${conditions.join('; ')}`;
}

const WIDEST = 100;
/** Maximum number of objects left behind that one crossing lists. */
const MOST_LEFT = 5;
/** Maximum number of differences that a summary shows, over all plugins. */
const MOST = 6;

/** The report as text: first plugins with differences, then those without, then the verdict. */
export function renderReport(report: CompareReport, first: string, second: string): string {
  const { scenes, plugins, failing, crossings } = report;
  return [
    ...headOf(report, `: ${scenes.join(', ')}`, first, second),
    ...plugins.flatMap(one => {
      const { index, differences } = one;
      if (index < 0 && !differences.length) return [];
      const words = differences.length ? count(differences.length, 'difference') : 'the same';
      return ['', titleOf(one, words), ...differences.flatMap(renderWhole)];
    }),
    '',
    ...crossings.flatMap(renderCrossing),
    ...(crossings.length ? [''] : []),
    ...failing.map(({ index, type, message }) => {
      return `NOT COMPARED: ADD of ${index} ${type} fails with both sets: ${shorten(message)}`;
    }),
    renderVerdict(report),
    '',
  ].join('\n');
}

/** What matters of each plugin, whether one set can continue for the other, and the verdict. */
export function renderSummary(report: CompareReport, first: string, second: string): string {
  const sorted = report.plugins.map(one => ({ one, ...sortOut(one) }));
  let room = MOST;
  const plugins = sorted.flatMap(({ one, matter, byDesign }) => {
    if (one.index < 0 && !matter.length && !byDesign) return [];
    const shown = matter.slice(0, room);
    room -= shown.length;
    const hidden = matter.length - shown.length;
    const words = [
      ...(matter.length ? [count(matter.length, 'difference')] : []),
      ...(byDesign ? [`${byDesign} by design`] : []),
    ];
    return [
      titleOf(one, words.join(', ') || 'the same'),
      ...shown.map(renderInOneLine),
      ...(hidden ? [`  ${hidden} more`] : []),
    ];
  });
  const isShort = sorted.every(({ matter, byDesign }) => !matter.length && !byDesign);
  return [
    ...headOf(report, '', first, second),
    ...plugins,
    ...report.crossings.map(crossing => {
      const [title = '', detail] = renderCrossing(crossing);
      return detail === undefined ? title : `${title} (${detail.trim().replace(/^(fails|left) +/, '')})`;
    }),
    ...(isShort ? [] : ['catena compare --all shows every difference']),
    renderVerdict(report),
    '',
  ].join('\n');
}

function headOf({ network, scenes }: CompareReport, named: string, first: string, second: string): string[] {
  return [`network ${network}: ${count(scenes.length, 'scene')}${named}`, `  A  ${first}`, `  B  ${second}`];
}

/** The plugin, how much differs, and the times of both sets by command. */
function titleOf({ index, type, times }: PluginReport, words: string): string {
  const verbs = Object.entries(times).map(
    ([verb, { first, second }]) => `${verb} ${renderTime(first)} / ${renderTime(second)}`,
  );
  const name = index < 0 ? type : `${index} ${type}`;
  return `${name}: ${words}${verbs.length ? `; ${verbs.join(', ')}` : ''}`;
}

/** What one set did to what the other made: a line, then one for each failure and each thing that it left. */
function renderCrossing({ maker, verb, by, handedOver, untried, fails, left }: Crossing): string[] {
  const title = `ADD by ${maker}, ${handedOver ? 'handed over, ' : ''}${verb} by ${by}`;
  if (untried !== undefined) return [`${title}: not tried: ${shorten(untried)}`];
  if (!fails.length && !left.length)
    return [`${title}: works${verb === 'DEL' ? ', leaves nothing behind' : ''}`];
  const shown = left.slice(0, MOST_LEFT).map(what => `    left   ${shorten(what)}`);
  const more = left.length > MOST_LEFT ? [`    left   ${left.length - MOST_LEFT} more`] : [];
  const words = [fails.length ? 'fails' : '', left.length ? `leaves ${count(left.length, 'thing')}` : ''];
  return [
    `${title}: ${words.filter(Boolean).join(', ')}`,
    ...fails.map(what => `    fails  ${shorten(what)}`),
    ...shown,
    ...more,
  ];
}

function renderWhole(one: ReportedDifference): string[] {
  const { step, first = 'nothing', second = 'nothing' } = one;
  return [
    `  ${step}: ${subjectOf(one)} (${scenesOf(one)})`,
    `    A  ${shorten(first)}`,
    `    B  ${shorten(second)}`,
  ];
}

function renderInOneLine(one: ReportedDifference): string {
  const { step, first = 'nothing', second = 'nothing' } = one;
  return `  ${shorten(`${step}: ${subjectOf(one)}: ${first} | ${second}`)} (${scenesOf(one)})`;
}

function subjectOf({ where, what }: Difference): string {
  return [where, what].filter(Boolean).join(': ');
}

function scenesOf({ scene, alsoIn }: ReportedDifference): string {
  return alsoIn.length ? `${scene} and ${count(alsoIn.length, 'more scene')}` : scene;
}

function shorten(text: string): string {
  const line = text.replace(/\s+/g, ' ').trim();
  return line.length > WIDEST ? `${line.slice(0, WIDEST)}…` : line;
}
