// How is a node drawn with characters?
import { type Colour, type Paint, painter, type Style } from '../../lab/words.ts';
import type { NodeAttachment, NodeModel } from '../model.ts';
import { renderPort, renderRates, titleOf } from '../words.ts';
import { type Condition, conditionOf, SIGNS } from './condition.ts';
import { type Group, groupsOf } from './layout.ts';

/**
 * A tree: the host, its bridges and other ways to containers, and the attachments on each.
 *
 *     node-1
 *     ├─ cni0 (bridge) 10.22.0.1/16
 *     │  ├─ uplink eth1
 *     │  └─ ✓ shop/web eth0 10.22.0.2/16, veth5a3c, 8080->80, in 10 Mbit
 *     └─ routed by the host
 */
export function drawText(
  { hostname, bridges, attachments }: NodeModel,
  style: Style = { colour: false },
): string {
  const paint = painter(style);
  const groups = groupsOf(bridges, attachments);
  const body = groups.flatMap((group, i) => {
    const [corner, indent] = i === groups.length - 1 ? ['└─', '   '] : ['├─', '│  '];
    return [`${corner} ${headOf(group)}`, ...branchesOf(group, paint).map(line => `${indent}${line}`)];
  });
  return [hostname, ...body].map(line => `${line.trimEnd()}\n`).join('');
}

function headOf({ title, kind, notes }: Group): string {
  return [title, kind === 'bridge' ? '(bridge)' : '', ...notes].filter(Boolean).join(' ');
}

function branchesOf({ uplinks, members }: Group, paint: Paint): string[] {
  const lines = [...uplinks.map(name => `uplink ${name}`), ...members.map(one => leafOf(one, paint))];
  return lines.map((line, i) => `${i === lines.length - 1 ? '└─' : '├─'} ${line}`);
}

const COLOURS: Readonly<Partial<Record<Condition, Colour>>> = {
  broken: 'red',
  unsettled: 'yellow',
  gone: 'yellow',
  unknown: 'yellow',
  sound: 'green',
};

function leafOf(one: NodeAttachment, paint: Paint): string {
  const facts = [
    one.hostDevice?.name ?? 'no host end',
    ...one.ports.map(renderPort),
    renderRates(one.rates),
    ...one.policies,
  ];
  const place = [titleOf(one), one.ifname, ...one.addresses].join(' ');
  const condition = conditionOf(one);
  const { sign } = SIGNS[condition];
  const colour = COLOURS[condition];
  return `${colour ? paint(colour, sign) : sign} ${place}, ${facts.filter(Boolean).join(', ')}`;
}
