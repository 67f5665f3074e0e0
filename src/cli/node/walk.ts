// How are the hops of a packet shown, and which commands mend them?
import { keyOf } from '../../cni/attachment.ts';
import { isObject } from '../../cni/json.ts';
import { type Colour, oneLine, painter, type Style } from '../../lab/words.ts';
import { cidrContains, findCidr, findIp, parseIp, renderIp } from '../../net/ip.ts';
import { readRecords } from '../../node/facts.ts';
import type { NodeAttachment } from '../../node/model.ts';
import type { Advice, Hop } from '../../node/packet/site.ts';
import { titleOf } from '../../node/words.ts';
import type { WatchedAttachment } from '../../watch/attachments.ts';
import { commandsFor, mendFor, repairCommand } from '../../watch/examine.ts';
import type { CommandCall } from '../command.ts';
import { runtimeOf } from '../target.ts';
import { wrap } from '../terminal/lines.ts';

export function adviceFor(call: CommandCall): Advice {
  let known: readonly WatchedAttachment[] | undefined;
  const find = ({ network, containerId, ifname }: NodeAttachment) => {
    known ??= readRecords(runtimeOf(call)).standing;
    return known.find(({ key }) => key === keyOf({ network, containerId, ifname }));
  };
  const remake = (attachment: NodeAttachment): string => {
    const one = find(attachment);
    return one ? commandsFor(one) : `recreate container "${titleOf(attachment)}"`;
  };
  return {
    repair: repairCommand,
    remake,
    reaches(attachment, address) {
      const { ips, routes = [] } = find(attachment)?.result ?? {};
      const ways = [...listOf(ips, 'address'), ...listOf(routes, 'dst')].map(one => findCidr(one));
      return (
        !Array.isArray(ips) || ways.some(one => one === undefined || cidrContains(one, parseIp(address)))
      );
    },
    hasGateway(attachment, address) {
      const { ips, routes } = find(attachment)?.result ?? {};
      const gateways = [...listOf(ips, 'gateway'), ...listOf(routes, 'gw')].flatMap(one => findIp(one) ?? []);
      return !Array.isArray(ips) || gateways.some(ip => renderIp(ip) === address);
    },
    restore(attachment, present) {
      const one = find(attachment);
      return one ? mendFor(one, present) : repairCommand(attachment);
    },
  };
}

function listOf(value: unknown, key: string): string[] {
  return (Array.isArray(value) ? value : []).map(one => (isObject(one) ? String(one[key]) : ''));
}

const MARKS: Readonly<Record<Hop['state'], readonly [mark: string, colour: Colour]>> = {
  passes: ['✓', 'green'],
  stops: ['✗', 'red'],
  unknown: ['?', 'yellow'],
};

/** Where the evidence of a hop begins. */
const INDENT = ' '.repeat(15);

export interface WalkStyle extends Style {
  readonly width: number | undefined;
}

/**
 * A line for each hop, with the command that mends it. Evidence is wrapped at the terminal's width, commands never: they are there
 * to be copied.
 */
export function renderHops(hops: readonly Hop[], { width, ...style }: WalkStyle): string[] {
  const paint = painter(style);
  return hops.flatMap(({ name, at, state, evidence, mend }) => {
    const [mark, colour] = MARKS[state];
    const [first = '', ...more] = wrap(
      oneLine(`${name.padEnd(11)}  ${at}: ${evidence}`),
      (width ?? Infinity) - 2,
      '',
      INDENT,
    );
    return [
      `${paint(colour, mark)} ${state === 'stops' ? paint('bold', first) : first}`,
      ...more,
      ...(mend === undefined ? [] : [`  mend: ${oneLine(mend)}`]),
    ];
  });
}
