// How is a node drawn as an image of its own?
import type { NodeModel } from '../model.ts';
import { titleOf } from '../words.ts';
import { conditionOf, isProblem, SIGNS } from './condition.ts';
import { type Box, groupsOf, layOut, linesOf, type PlacedGroup, STUB, TRUNK_X } from './layout.ts';

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
