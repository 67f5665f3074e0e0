// May the one set of executables replace the other?
import { count } from '../lab/words.ts';
import { isCrossing } from './crossings.ts';
import type { CompareReport, PluginReport, ReportedDifference } from './report.ts';

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
  // Each has rules that the other lacks: they filter by other means. A rule that only one has would be missing, or left.
  const isOtherMeans =
    rules.some(({ second }) => second === undefined) && rules.some(({ first }) => first === undefined);
  const matter = ordinary.filter(one => !isByDesign(one) && !(isOtherMeans && rules.includes(one)));
  return { matter, byDesign: ordinary.length - matter.length };
}

/** How many differences of a comparison a container or an operator notices. */
export function countMatter({ links }: Pick<CompareReport, 'links'>): number {
  return links.reduce((sum, one) => sum + sortOut(one).matter.length, 0);
}

function isByDesign({ where, what, first = '', second = '' }: ReportedDifference): boolean {
  if (where === 'result' && EMPTY_IN_RESULT.test(what)) return isEmptyEither(first, second);
  if (where === 'files') return OWN_FILE.test(what);
  if (where !== 'answer') return MANNER.test(what);
  const areFailures = [first, second].every(text => text.startsWith('it fails'));
  return areFailures || first === 'not called' || second === 'not called';
}

/** An object or list without content, as a difference shows it; absence is no text. */
function isEmptyEither(first: string, second: string): boolean {
  return [first, second].every(text => ['', 'exists'].includes(text));
}

/** The answer to "may B replace A?", in one line. */
export function renderVerdict(report: CompareReport): string {
  const { crossings, failing } = report;
  const [broken] = failing;
  if (broken) return `MAY B REPLACE A? unknown: ADD of ${broken.link} fails with both sets`;
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
