// How are the name, ports, rates, age and moments of an attachment written?

import { shortId } from '../cni/attachment.ts';
import { count, renderRate } from '../lab/words.ts';
import type { NodeAttachment, NodePort, NodeRates } from './model.ts';

type Titled = Pick<NodeAttachment, 'containerId' | 'podNamespace' | 'podName' | 'containerName'>;

/** What people call an attachment: its pod, its container's name, or the beginning of its id. */
export function titleOf({ podNamespace, podName, containerName, containerId }: Titled): string {
  if (podName !== undefined) return [podNamespace, podName].filter(Boolean).join('/');
  return containerName ?? shortId(containerId);
}

/** `8080->80`; with the host's address and the protocol unless it is TCP. */
export function renderPort({ hostIP, hostPort, containerPort, protocol }: NodePort): string {
  const host = hostIP === undefined ? '' : `${hostIP.includes(':') ? `[${hostIP}]` : hostIP}:`;
  return `${host}${hostPort}->${containerPort}${protocol === 'tcp' ? '' : `/${protocol}`}`;
}

/** `in 10 Mbit, out 5 Mbit`, seen from the container. */
export function renderRates({ ingressBits, egressBits }: NodeRates): string {
  const inward = ingressBits === undefined ? [] : [`in ${renderRate(ingressBits)}`];
  const outward = egressBits === undefined ? [] : [`out ${renderRate(egressBits)}`];
  return [...inward, ...outward].join(', ');
}

/** The time since then in one unit: `12 s`, `5 min`, `3 h`, `12 days`. */
export function renderAge(then: string, now = Date.now()): string {
  const ms = Math.max(0, now - Date.parse(then));
  if (ms < MINUTE) return `${Math.floor(ms / SECOND)} s`;
  if (ms < HOUR) return `${Math.floor(ms / MINUTE)} min`;
  if (ms < 2 * DAY) return `${Math.floor(ms / HOUR)} h`;
  return count(Math.floor(ms / DAY), 'day');
}

/** The moment as `2026-11-27 08:00:00 UTC`, for a page that is read elsewhere. */
export function renderMoment(time: string): string {
  return time.replace('T', ' ').replace(/(\.\d+)?Z$/, ' UTC');
}

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** The first of the names, and how many more there are: `web, two and 3 more`. */
export function some(names: readonly string[], most: number): string {
  const shown = names.slice(0, most).join(', ');
  return names.length > most ? `${shown} and ${names.length - most} more` : shown;
}

/** Whether a packet that arrives has only left this node, beyond which nothing is known. */
export function leavesNode(hops: readonly { readonly evidence: string }[]): boolean {
  return hops.some(({ evidence }) => evidence.startsWith('leaves through'));
}

const ELEMENT = /\{[^{}]*\} of "\w+" is missing/.source;
const [ELEMENTS, ANY_ELEMENTS] = ['+', '*'].map(
  often => new RegExp(`${ELEMENT}(?:(?:, | and )${ELEMENT})${often}(?: and (\\d+) more)?`, 'g'),
) as [RegExp, RegExp];

/** What CHECK says, with several elements of sets counted: their names tell a person nothing. */
export function withoutElements(problem: string): string {
  return problem.replace(ELEMENTS, (all, more = '0') => {
    return `${all.split('" is missing').length - 1 + Number(more)} elements are missing`;
  });
}

/** The same of all attachments that have lost elements of the same sets, which are named instead. */
export function withoutKeys(problem: string): string {
  return problem.replace(ANY_ELEMENTS, all => {
    const sets = new Set([...all.matchAll(/\} of ("\w+") is missing/g)].map(([, set]) => set));
    return `elements of ${[...sets].join(', ')} are missing`;
  });
}

/** Whether the host's device is the lower one of a macvlan, ipvlan or VLAN, which others may share: not the other end of a pair. */
export function isBelow({ device, hostDevice }: NodeAttachment): boolean {
  return hostDevice !== undefined && /^(macvlan|macvtap|ipvlan|vlan)$/.test(device?.kind ?? '');
}

/**
 * Leaves out a runtime's loopback, and the attachment to a delegate runner if those that it made are among them: they have its
 * interfaces.
 */
export function withoutStandIns(attachments: readonly NodeAttachment[]): NodeAttachment[] {
  const runners = new Set(
    attachments.flatMap(({ through, containerId }) =>
      through === undefined ? [] : keyOf(through, containerId),
    ),
  );
  return attachments.filter(({ ifname, network, containerId, through }) => {
    return ifname !== 'lo' && (through !== undefined || !runners.has(keyOf(network, containerId)));
  });
}

function keyOf(network: string, containerId: string): string {
  return `${network}\n${containerId}`;
}
