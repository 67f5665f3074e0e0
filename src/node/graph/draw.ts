// How is the graph of a node drawn: with characters, as an image, in DOT and in Mermaid?

import { type Colour, type Paint, painter, type Style } from '../../lab/words.ts';
import type { NodeAttachment, NodeModel } from '../model.ts';
import { renderPort, renderRates, titleOf } from '../words.ts';
import {
  type Box,
  type Condition,
  conditionOf,
  type Group,
  groupsOf,
  isProblem,
  layOut,
  linesOf,
  type PlacedGroup,
  SIGNS,
  STUB,
  TRUNK_X,
} from './layout.ts';

interface GraphBox {
  /** Letters and digits; unique in the graph. */
  readonly id: string;
  readonly lines: readonly string[];
  readonly kind: 'host' | 'bridge' | 'device' | 'outside' | 'attachment';
  /** Of an attachment. */
  readonly condition?: Condition;
}

interface Edge {
  readonly from: string;
  readonly to: string;
  /** The device, and ports that lead along it. */
  readonly label: string;
}

/** The host first, then each group with its attachments. */
function graphOf({ hostname, bridges, attachments }: NodeModel): {
  readonly boxes: readonly GraphBox[];
  readonly edges: readonly Edge[];
} {
  const boxes: GraphBox[] = [{ id: 'host', lines: [hostname], kind: 'host' }];
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

function lookOf({ kind, condition }: GraphBox): string {
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
    ...edges.map(({ from, to, label }) => `  ${from} ---${label ? `|"${toMermaidText(label)}"|` : ''} ${to}`),
    ...(bad.length
      ? ['  classDef problem stroke:#c00,stroke-width:3px', `  class ${bad.join(',')} problem`]
      : []),
    '',
  ].join('\n');
}

function shapeOf({ kind, lines }: GraphBox): string {
  const text = `"${lines.map(toMermaidText).join('<br>')}"`;
  if (kind === 'attachment') return `(${text})`;
  return kind === 'outside' ? `((${text}))` : `[${text}]`;
}

function toMermaidText(text: string): string {
  return text.replace(/[&<>"#;]/g, char => `#${char.codePointAt(0)};`);
}

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
    const { title, kind, notes } = group;
    const head = [title, kind === 'bridge' ? '(bridge)' : '', ...notes].filter(Boolean).join(' ');
    return [`${corner} ${head}`, ...branchesOf(group, paint).map(line => `${indent}${line}`)];
  });
  return [hostname, ...body].map(line => `${line.trimEnd()}\n`).join('');
}

function branchesOf({ uplinks, members }: Group, paint: Paint): string[] {
  const lines = [...uplinks.map(name => `uplink ${name}`), ...members.map(one => leafOf(one, paint))];
  return lines.map((line, i) => `${i === lines.length - 1 ? '└─' : '├─'} ${line}`);
}

const COLOURS: Readonly<Partial<Record<Condition, Colour>>> = {
  ...{ broken: 'red', unsettled: 'yellow', gone: 'yellow', unknown: 'yellow', sound: 'green' },
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

const WIDTH = 960;
const LINE = 17;

/** For light and dark pages: the image follows the reader's setting. */
const STYLE = `text{font:13px sans-serif;fill:#1d2733}.note{font-size:11px;fill:#5a6675}.title{font-weight:600}
rect{fill:#fff;stroke:#8894a3}.wire{fill:none;stroke:#8894a3}.problem rect{stroke:#c00;stroke-width:3}
@media(prefers-color-scheme:dark){text{fill:#e8edf3}.note{fill:#a9b4c0}rect{fill:#18202a;stroke:#6d7a89}}`;

/** An SVG document without scripts or outside resources. */
export function drawSvg({ hostname, bridges, attachments }: NodeModel): string {
  const { width, height, host, groups } = layOut(groupsOf(bridges, attachments), WIDTH);
  const last = groups.findLast(({ kind }) => kind !== 'none');
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}">`,
    `<style>${STYLE}</style>`,
    ...(last ? [wire(`M${TRUNK_X} ${host.height}V${last.box.y + LINE - 1}`)] : []),
    rect(host),
    words(host.x + 10, host.y + 22, hostname, 'title'),
    ...groups.flatMap(drawGroup),
    '</svg>',
    '',
  ].join('\n');
}

function drawGroup(group: PlacedGroup): string[] {
  const { box, title, kind, notes, uplinks, cells, isLarge } = group;
  const below = [...notes, ...uplinks.map(name => `uplink ${name}`)];
  return [
    wire(`M${TRUNK_X} ${box.y + LINE - 1}H${box.x}`),
    wire(linesOf(group, WIDTH).join('')),
    rect(box),
    words(box.x + 10, box.y + 22, kind === 'bridge' ? `${title} (bridge)` : title, 'title'),
    ...below.map((note, i) => words(box.x + 10, box.y + 22 + LINE * (i + 1), note, 'note')),
    ...cells.flatMap(({ one, ...place }) => {
      const condition = conditionOf(one);
      const [address = ''] = one.addresses;
      const lines = isLarge ? [address, one.hostDevice?.name ?? 'no host end'] : [];
      return [
        `<g${isProblem(condition) ? ' class="problem"' : ''}>`,
        `<title>${toEntities(`${titleOf(one)} ${one.ifname} on ${one.network}: ${SIGNS[condition].meaning}`)}</title>`,
        ...(one.hostDevice ? [wire(`M${place.x + place.width / 2} ${place.y - STUB}V${place.y}`)] : []),
        rect(place),
        ...(isLarge
          ? [words(place.x + 9, place.y + 19, `${SIGNS[condition].sign} ${titleOf(one)}`, 'title')]
          : []),
        ...lines.map((line, i) => words(place.x + 9, place.y + 35 + 15 * i, line, 'note')),
        '</g>',
      ];
    }),
  ];
}

const wire = (path: string): string => `<path class="wire" d="${path}"/>`;

function rect({ x, y, width, height }: Box): string {
  return `<rect x="${x}" y="${y}" width="${width}" height="${height}" rx="6"/>`;
}

function words(x: number, y: number, text: string, look: 'title' | 'note'): string {
  const shown = text.length > 21 ? `${text.slice(0, 15)}…${text.slice(-5)}` : text;
  return `<text class="${look}" x="${x}" y="${y}">${toEntities(shown)}</text>`;
}

function toEntities(text: string): string {
  return text.replace(/[&<>"']/g, char => `&#${char.codePointAt(0)};`);
}
