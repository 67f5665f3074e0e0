// What does `catena ls` do?
import { setTimeout as pause } from 'node:timers/promises';
import { isatty } from 'node:tty';
import { shortId } from '../../cni/attachment.ts';
import { CniError, ErrorCode } from '../../cni/errors.ts';
import { didYouMean } from '../../cni/json.ts';
import { type Colour, count, oneLine, painter, renderTable, type Style } from '../../lab/words.ts';
import { cidrContains, findCidr, findIp } from '../../net/ip.ts';
import { readRecords } from '../../node/facts.ts';
import { drawDot, drawMermaid, drawSvg, drawText } from '../../node/graph/draw.ts';
import type { NodeAttachment, NodeModel } from '../../node/model.ts';
import { renderAge, renderPort, renderRates, titleOf, withoutStandIns } from '../../node/words.ts';
import { type CommandCall, UsageError } from '../command.ts';
import { readNodeFor } from '../node/read.ts';
import { printAnswer, printList } from '../output/print.ts';
import { runtimeOf } from '../target.ts';
import { styleOf, widthOf } from '../terminal/lines.ts';
import { during } from '../terminal/progress.ts';

/** Bridges, devices and what is attached to them, by format. */
const DRAWINGS: Readonly<Record<string, (node: NodeModel, style: Style) => string>> = {
  tree: drawText,
  svg: drawSvg,
  mermaid: drawMermaid,
  dot: drawDot,
};

/** Milliseconds between two looks of `--watch`. */
const LOOK_AGAIN_MS = 2_000;

/** Lists the attachments of this node. With `--check`, fails if one is broken. */
export async function run(call: CommandCall): Promise<number> {
  if (call.on('unsettled')) return listUnsettled(call);
  if (call.on('watch')) return watch(call);
  const { node, shown } = await look(call);
  for (const note of node.notes) call.warn(new CniError(ErrorCode.unknown, note));
  await print(call, node, shown);
  return shown.some(({ health }) => health?.state === 'broken') ? 1 : 0;
}

async function look(call: CommandCall): Promise<{ node: NodeModel; shown: NodeAttachment[] }> {
  // Without CHECK nothing is known to be broken.
  const asksHealth = call.on('check') || call.texts('filter').some(one => one.startsWith('health='));
  const node = asksHealth
    ? await during(call, 'ls', 'CHECK of every attachment', () => readNodeFor(call, { health: true }))
    : await readNodeFor(call);
  const network = call.text('network');
  const filters = [...call.texts('filter'), ...(network === undefined ? [] : [`network=${network}`])];
  const selected = selectAttachments(node.attachments, filters);
  return { node, shown: call.on('all') ? selected : withoutStandIns(selected) };
}

async function print(call: CommandCall, node: NodeModel, shown: readonly NodeAttachment[]): Promise<void> {
  const render = (wide: boolean) =>
    renderLs(node, shown, { ...styleOf(call), wide, width: wide ? undefined : widthOf(call) });
  const draw = DRAWINGS[call.format];
  const whole = { ...node, attachments: [...shown] };
  await printAnswer(call, 'Node', whole, {
    text: () => draw?.(whole, styleOf(call)) ?? render(false),
    wide: () => render(true),
    names: () => shown.map(titleOf),
  });
}

/** A terminal shows the present; elsewhere, what has changed is printed again. */
async function watch(call: CommandCall): Promise<number> {
  const clear = isatty(1) ? '\u001b[H\u001b[2J' : '';
  let before: string | undefined;
  while (!call.signal.aborted && !call.isUnread) {
    const { node, shown } = await look(call);
    const now = JSON.stringify(shown);
    if (clear !== '') process.stdout.write(clear);
    if (clear !== '' || now !== before) await print(call, node, shown);
    before = now;
    await pause(LOOK_AGAIN_MS, undefined, { signal: call.signal }).catch(() => undefined);
  }
  return 0;
}

/** By key of `--filter`. */
const FILTERS: Readonly<Record<string, (one: NodeAttachment, value: string) => boolean>> = {
  name: (one, value) => titleOf(one).includes(value),
  id: ({ containerId }, value) => containerId.startsWith(value),
  network: ({ network }, value) => network === value,
  address: hasAddress,
  port: ({ ports }, value) =>
    ports.some(({ hostPort, protocol }) => [`${hostPort}`, `${hostPort}/${protocol}`].includes(value)),
  device: ({ hostDevice, device }, value) => [hostDevice?.name, device?.name].includes(value),
  state: ({ state }, value) => state === value,
  health: ({ health }, value) => health?.state === value,
  runner: ({ origin }, value) => origin.runner === value,
};

/**
 * The attachments that match all filters.
 * @param filters `<key>=<value>`
 * @throws UsageError for an unknown key
 */
function selectAttachments(
  attachments: readonly NodeAttachment[],
  filters: readonly string[],
): NodeAttachment[] {
  const tests = filters.map(text => {
    const at = text.indexOf('=');
    const [key, value] = [text.slice(0, at), text.slice(at + 1)];
    const matches = at > 0 && Object.hasOwn(FILTERS, key) ? FILTERS[key] : undefined;
    if (matches) return (one: NodeAttachment) => matches(one, value);
    const near = at > 0 ? didYouMean(key, Object.keys(FILTERS)) : '';
    throw new UsageError(
      `Cannot use --filter "${text}": expected <key>=<value> with one of ${Object.keys(FILTERS).join(', ')}${near}`,
    );
  });
  return attachments.filter(one => tests.every(test => test(one)));
}

/** An address, or a subnet in which one lies. */
function hasAddress({ addresses }: NodeAttachment, value: string): boolean {
  const subnet = findCidr(value);
  const ips = addresses.flatMap(text => findCidr(text)?.ip ?? findIp(text) ?? []);
  if (subnet) return ips.some(ip => cidrContains(subnet, ip));
  const wanted = findIp(value);
  return wanted !== undefined && ips.some(ip => ip.family === wanted.family && ip.value === wanted.value);
}

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
  { title: 'ADDRESS', cell: ({ addresses }) => addresses.join(',').replace(/\/\d+/g, '') || '-' },
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
function renderLs(
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

/** Prints the operations that are still to be undone, and reports records that cannot be read. */
async function listUnsettled(call: CommandCall): Promise<number> {
  const { unsettled, damaged } = readRecords(runtimeOf(call));
  const only = call.text('network');
  const items = unsettled.flatMap(({ record: { network, containerId, ifname, file }, why }) =>
    only === undefined || only === network ? { network, containerId, ifname, why, file } : [],
  );
  await printList(call, 'UnsettledList', items, {
    text: () =>
      items.map(one => `${one.network} ${one.containerId} ${one.ifname}: ${one.why}\n`).join('') ||
      'nothing is unsettled\n',
    names: () => items.map(({ containerId }) => containerId),
  });
  for (const error of damaged) call.warn(error);
  return 0;
}
