// What does a line of `catena ls` show?
import { type Colour, count, oneLine, painter, type Style } from '../../lab/words.ts';
import type { NodeAttachment, NodeModel } from '../../node/model.ts';
import { renderAge, renderPort, renderRates, shortId, titleOf } from '../../node/words.ts';
import { renderTable } from './table.ts';

interface Column {
  readonly title: string;
  cell(one: NodeAttachment, now: number): string;
  /** Left out unless an attachment has something to show in it. */
  readonly optional?: boolean;
  colour?(one: NodeAttachment): Colour | undefined;
  readonly wide?: boolean;
}

const COLUMNS: readonly Column[] = [
  { title: 'NAME', cell: titleOf },
  { title: 'NETWORK', cell: ({ network }) => network },
  { title: 'CONTAINER', cell: ({ containerId }) => shortId(containerId), wide: true },
  { title: 'IFNAME', cell: ({ ifname }) => ifname, wide: true },
  { title: 'ADDRESS', cell: ({ addresses }) => addresses.map(withoutPrefix).join(',') || '-' },
  { title: 'PORTS', cell: ({ ports }) => ports.map(renderPort).join(',') || '-' },
  { title: 'DEVICE', cell: ({ hostDevice }) => hostDevice?.name ?? '-', wide: true },
  { title: 'RATES', cell: ({ rates }) => renderRates(rates) || '-', wide: true },
  { title: 'MADE BY', cell: ({ origin }) => origin.runner, wide: true },
  { title: 'AGE', cell: ({ since }, now) => (since === undefined ? '-' : renderAge(since, now)) },
  {
    title: 'STATE',
    cell: ({ state }) => (state === 'attached' ? '' : state),
    colour: () => 'yellow',
    optional: true,
  },
  {
    title: 'HEALTH',
    cell: ({ health }) => health?.state ?? '',
    colour: ({ health }) => health && HEALTH[health.state],
    optional: true,
  },
];

const HEALTH = { sound: 'green', broken: 'red', unknown: 'yellow' } as const;

/** The table, then the reason of each attachment that is broken or unsettled. */
export function renderLs(
  node: NodeModel,
  shown: readonly NodeAttachment[],
  options: Style & { readonly wide: boolean; readonly width: number | undefined },
): string {
  if (shown.length === 0) {
    const all = node.attachments.length;
    const networks = count(node.networks.length, 'network');
    return all
      ? `none of ${count(all, 'attachment')} matches\n`
      : `no container is attached to a network; ${networks} configured (catena networks)\n`;
  }
  const now = Date.parse(node.time);
  const used = COLUMNS.filter(
    ({ cell, optional, wide }) =>
      (options.wide || !wide) && (!optional || shown.some(one => cell(one, now) !== '')),
  );
  const rows = shown.map(one => used.map(({ cell }) => oneLine(cell(one, now))));
  const paint = painter(options);
  const table = renderTable([used.map(({ title }) => title), ...rows], options.width, (cell, row, column) => {
    const one = shown[row - 1];
    const colour = one && used[column]?.colour?.(one);
    return colour ? paint(colour, cell) : cell;
  });
  const problems = shown.flatMap(one => {
    const why = one.health?.problem ?? one.why;
    return why === undefined ? [] : [`${oneLine(`${titleOf(one)} on ${one.network}: ${why}`)}\n`];
  });
  return [table, ...(problems.length ? ['\n'] : []), ...problems].join('');
}

function withoutPrefix(address: string): string {
  return address.replace(/\/\d+$/, '');
}
