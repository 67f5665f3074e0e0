// Which boxes and lines does the graph of a node have, whichever language it is written in?
import type { NodeModel } from '../node/model.ts';
import { renderPort, titleOf } from '../node/words.ts';
import { type Condition, conditionOf, SIGNS } from './condition.ts';
import { groupsOf } from './groups.ts';

/** A box with lines of text. */
export interface Box {
  /** Letters and digits; unique in the graph. */
  readonly id: string;
  readonly lines: readonly string[];
  readonly kind: 'host' | 'bridge' | 'device' | 'outside' | 'attachment';
  /** Of an attachment. */
  readonly condition?: Condition;
}

/** A line between two boxes. */
export interface Edge {
  readonly from: string;
  readonly to: string;
  /** The device, and ports that lead along it. */
  readonly label: string;
}

/** The host first, then each group with its attachments. */
export function graphOf({ hostname, bridges, attachments }: NodeModel): {
  readonly boxes: readonly Box[];
  readonly edges: readonly Edge[];
} {
  const boxes: Box[] = [{ id: 'host', lines: [hostname], kind: 'host' }];
  const edges: Edge[] = [];
  groupsOf(bridges, attachments).forEach(({ title, kind, notes, uplinks, members }, g) => {
    const id = `g${g}`;
    boxes.push({ id, lines: [title, ...notes], kind: kind === 'bridge' ? 'bridge' : 'device' });
    edges.push({ from: 'host', to: id, label: '' });
    uplinks.forEach((name, u) => {
      boxes.push({ id: `${id}u${u}`, lines: [name], kind: 'outside' });
      edges.push({ from: id, to: `${id}u${u}`, label: 'uplink' });
    });
    members.forEach((one, a) => {
      const condition = conditionOf(one);
      const lines = [`${SIGNS[condition].sign} ${titleOf(one)}`, one.ifname, ...one.addresses];
      boxes.push({ id: `${id}a${a}`, lines, kind: 'attachment', condition });
      const label = [one.hostDevice?.name ?? '', ...one.ports.map(renderPort)].filter(Boolean).join(', ');
      edges.push({ from: id, to: `${id}a${a}`, label });
    });
  });
  return { boxes, edges };
}
