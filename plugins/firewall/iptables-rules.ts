// Which iptables lines create the reference's chains, and which remove an attachment from them? Nothing is run here.
import { findIp, type Ip, renderIp } from '../../src/net/ip.ts';
import type { SavedTable } from '../../src/netlink/iptables/program.ts';
import type { Ingress } from './plan.ts';

/** The chain that accepts packets; FORWARD jumps to it. */
export const CNI_FORWARD = 'CNI-FORWARD';
const STAGE_1 = 'CNI-ISOLATION-STAGE-1';
const STAGE_2 = 'CNI-ISOLATION-STAGE-2';
/** Chains for pods that are not open. */
export const STAGES = [STAGE_1, STAGE_2] as const;
/** The comment of the rule that jumps to the operator's chain. */
export const ADMIN_WORDS = 'CNI firewall plugin admin overrides';

const comment = (words: string) => `-m comment --comment "${words}"`;
const RULES = 'CNI firewall plugin rules';
const FORWARD_JUMP = `FORWARD ${comment(RULES)} -j ${CNI_FORWARD}`;
const SHARED = comment(`${RULES} (ingressPolicy: same-bridge|isolated)`);

const POD_RULE = new RegExp(
  `^${CNI_FORWARD} (?:-s (\\S+)/(?:32|128)|-d (\\S+)/(?:32|128) -m conntrack --ctstate DNAT) -j ACCEPT$`,
);
const BRIDGE_RULE = new RegExp(`^(?:${STAGE_1} -i|${STAGE_2} -o) (\\S+) `);

/** Input of {@link ensureLines}. */
export interface WantedRules {
  readonly pods: readonly Ip[];
  readonly ingress?: Pick<Ingress, 'home' | 'policy'>;
  readonly adminChain: string;
  /** The rules are to be the reference's alone, which its DEL removes. */
  readonly asReference?: boolean;
}

/** The missing lines of an attachment, in order; empty when all exist. */
export function ensureLines(
  saved: SavedTable,
  { pods, ingress, adminChain, asReference = false }: WantedRules,
): string[] {
  const chains = [CNI_FORWARD, adminChain, ...(ingress ? [STAGE_1, STAGE_2] : [])];
  const has = (rule: string) => saved.rules.includes(rule);
  const admin = `${comment(ADMIN_WORDS)} -j ${adminChain}`;
  return [
    ...chains.filter(name => !saved.chains.includes(name)).map(name => `-N ${name}`),
    ...(has(`${CNI_FORWARD} ${admin}`) ? [] : [`-I ${CNI_FORWARD} 1 ${admin}`]),
    ...pods
      .flatMap(asReference ? referenceRules : podRules)
      .filter(rule => !has(rule))
      .map(rule => `-A ${rule}`),
    ...(asReference ? pods.map(publishedRule).filter(has) : []).map(rule => `-D ${rule}`),
    ...(has(FORWARD_JUMP) ? [] : [insertFirst(FORWARD_JUMP)]),
    ...(ingress ? ingressLines(saved, ingress) : []),
  ];
}

/** The lines that remove addresses, and interfaces that no longer have a pod behind them that is not open. */
export function releaseLines(saved: SavedTable, pods: readonly Ip[], bridges: readonly string[]): string[] {
  const own = new Set(pods.flatMap(podRules));
  const places = bridges.flatMap(name => [`${STAGE_1} -i ${name} `, `${STAGE_2} -o ${name} `]);
  return saved.rules
    .filter(rule => own.has(rule) || places.some(place => rule.startsWith(place)))
    .map(rule => `-D ${rule}`);
}

/** Which pods still exist, as far as the host can tell. */
export interface Inhabitants {
  hasPod(ip: Ip): boolean;
  /** Whether any pod is behind an interface of the host. */
  hasPods(ifname: string): boolean;
}

/** The lines that remove pods and interfaces that no longer exist. Rules that an operator wrote by hand do not match. */
export function leftoverLines(saved: SavedTable, { hasPod, hasPods }: Inhabitants): string[] {
  const pods = saved.rules.flatMap(rule => {
    const [, source, destination] = POD_RULE.exec(rule) ?? [];
    const ip = findIp(source ?? destination ?? '');
    if (ip === undefined || hasPod(ip)) return [];
    // An operator may accept an address as well. Ours may stay after the reference's DEL, which does not know it.
    return destination || referenceRules(ip).every(one => saved.rules.includes(one)) ? [ip] : [];
  });
  const bridges = saved.rules.flatMap(rule => {
    const name = BRIDGE_RULE.exec(rule)?.[1];
    return name !== undefined && !hasPods(name) ? [name] : [];
  });
  return pods.length + bridges.length === 0 ? [] : releaseLines(saved, pods, bridges);
}

/** The reference's rules, which accept what the pod sends, and the answers. */
function referenceRules(ip: Ip): string[] {
  return [
    `${CNI_FORWARD} -d ${addressOf(ip)} -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT`,
    `${CNI_FORWARD} -s ${addressOf(ip)} -j ACCEPT`,
  ];
}

/** Accepts connections to ports of the host that lead to the pod, whichever program publishes them. */
function publishedRule(ip: Ip): string {
  return `${CNI_FORWARD} -d ${addressOf(ip)} -m conntrack --ctstate DNAT -j ACCEPT`;
}

function podRules(ip: Ip): string[] {
  return [...referenceRules(ip), publishedRule(ip)];
}

function addressOf(ip: Ip): string {
  return `${renderIp(ip)}/${ip.family === 4 ? 32 : 128}`;
}

/** Releases of the reference differ in the comments of shared rules, so a rule is recognized by its match and target. */
function ingressLines(saved: SavedTable, { home, policy }: NonNullable<WantedRules['ingress']>): string[] {
  const find = (start: string, end: string) =>
    saved.rules.find(rule => rule.startsWith(`${start} `) && rule.endsWith(`-j ${end}`));
  const words = (own: string) => comment(`${RULES} (ingressPolicy: ${own})`);
  const unless = (found: string | undefined, line: string) => (found === undefined ? [line] : []);
  const within = `${STAGE_1} -i ${home} -o ${home}`;
  const beyond = `${STAGE_1} -i ${home} ! -o ${home}`;
  return [
    ...unless(find(`${STAGE_2} -o ${home}`, 'DROP'), `-I ${STAGE_2} 1 -o ${home} ${SHARED} -j DROP`),
    ...unless(findReturn(saved, STAGE_2), `-A ${STAGE_2} ${SHARED} -j RETURN`),
    ...unless(find(beyond, STAGE_2), insertFirst(`${beyond} ${words('same-bridge')} -j ${STAGE_2}`)),
    ...(policy === 'isolated'
      ? unless(find(within, 'DROP'), insertFirst(`${within} ${words('isolated')} -j DROP`))
      : []),
    ...unless(findReturn(saved, STAGE_1), `-A ${STAGE_1} ${SHARED} -j RETURN`),
    ...stageJumpLines(saved, find('FORWARD', STAGE_1)),
  ];
}

/** Packets must pass the rules that drop before those that accept. */
function stageJumpLines({ rules }: SavedTable, found: string | undefined): string[] {
  const accepting = rules.indexOf(FORWARD_JUMP);
  if (found !== undefined && accepting >= 0 && rules.indexOf(found) < accepting) return [];
  return [
    ...(found === undefined ? [] : [`-D ${found}`]),
    insertFirst(found ?? `FORWARD ${SHARED} -j ${STAGE_1}`),
  ];
}

function findReturn({ rules }: SavedTable, chain: string): string | undefined {
  return rules.find(rule => rule.startsWith(`${chain} -m comment `) && rule.endsWith('-j RETURN'));
}

function insertFirst(rule: string): string {
  const space = rule.indexOf(' ');
  return `-I ${rule.slice(0, space)} 1${rule.slice(space)}`;
}
