// Which boxes and lines does the graph of a node have, and how are they written in DOT and Mermaid?

import type { NodeModel } from '../model.ts';
import { renderPort, titleOf } from '../words.ts';
import { type Condition, conditionOf, isProblem, SIGNS } from './condition.ts';
import { groupsOf } from './layout.ts';

/** A box with lines of text. */
interface Box {
  /** Letters and digits; unique in the graph. */
  readonly id: string;
  readonly lines: readonly string[];
  readonly kind: 'host' | 'bridge' | 'device' | 'outside' | 'attachment';
  /** Of an attachment. */
  readonly condition?: Condition;
}

/** A line between two boxes. */
interface Edge {
  readonly from: string;
  readonly to: string;
  /** The device, and ports that lead along it. */
  readonly label: string;
}

/** The host first, then each group with its attachments. */
function graphOf({ hostname, bridges, attachments }: NodeModel): {
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

/** An undirected graph in the DOT language. */
export function drawDot(node: NodeModel): string {
  const { boxes, edges } = graphOf(node);
  return [
    'graph node {',
    '  rankdir=LR;',
    '  node [shape=box, fontname="sans-serif"];',
    ...boxes.map(box => `  ${box.id} [label=${quote(box.lines.join('\n'))}${lookOf(box)}];`),
    ...edges.map(({ from, to, label }) => `  ${from} -- ${to}${label ? ` [label=${quote(label)}]` : ''};`),
    '}',
    '',
  ].join('\n');
}

function lookOf({ kind, condition }: Box): string {
  if (condition !== undefined)
    return `, style=rounded${isProblem(condition) ? ', color=red, penwidth=3' : ''}`;
  return kind === 'outside' ? ', shape=ellipse' : '';
}

function quote(text: string): string {
  return `"${text.replace(/[\\"]/g, '\\$&').replaceAll('\n', '\\n')}"`;
}

/** A flowchart. Text is quoted, and what Mermaid would read as markup is written as entities. */
export function drawMermaid(node: NodeModel): string {
  const { boxes, edges } = graphOf(node);
  const bad = boxes.filter(({ condition }) => condition && isProblem(condition)).map(({ id }) => id);
  return [
    'flowchart LR',
    ...boxes.map(box => `  ${box.id}${shapeOf(box)}`),
    ...edges.map(({ from, to, label }) => `  ${from} ---${label ? `|"${toEntities(label)}"|` : ''} ${to}`),
    ...(bad.length
      ? ['  classDef problem stroke:#c00,stroke-width:3px', `  class ${bad.join(',')} problem`]
      : []),
    '',
  ].join('\n');
}

function shapeOf({ kind, lines }: Box): string {
  const text = `"${lines.map(toEntities).join('<br>')}"`;
  if (kind === 'attachment') return `(${text})`;
  return kind === 'outside' ? `((${text}))` : `[${text}]`;
}

function toEntities(text: string): string {
  return text.replace(/[&<>"#;]/g, char => `#${char.codePointAt(0)};`);
}
