// What does a line of `catena log` show?
import { oneLine, type Paint, painter, type Style } from '../../lab/paint.ts';
import { shortId } from '../../node/words.ts';
import type { LogEntry } from './timeline.ts';

/** One line for each entry, in local time. @param wide with whole ids, of the container and of the trace */
export function renderLog(entries: readonly LogEntry[], style: Style, wide = false): string {
  const paint = painter(style);
  return entries.map(one => renderEntry(one, wide, paint)).join('');
}

/** What people call the container: its pod, or the beginning of its id. */
export function nameIn({ containerId = '', podNamespace, podName }: LogEntry): string {
  return podName === undefined ? shortId(containerId) : [podNamespace, podName].filter(Boolean).join('/');
}

function renderEntry(entry: LogEntry, wide: boolean, paint: Paint): string {
  const { time, what, network, containerId, ifname, by, code, message, source, trace } = entry;
  const id = wide && containerId !== undefined ? [containerId] : [];
  const who = [...new Set([nameIn(entry), ...id])].join(' ');
  const place = [who, ifname, network && `on ${network}`].filter(Boolean).join(' ');
  const failure = code === 0 ? '' : ` ${paint('red', `failed (${code})`)}`;
  const words = message === undefined ? '' : `: ${message}`;
  const origin = [by, source, ...(wide && trace !== undefined ? [`trace ${trace}`] : [])].join('; ');
  return `${oneLine(`${localTime(time)}  ${what.padEnd(7)}  ${place}${failure}${words}  [${origin}]`)}\n`;
}

/** `2026-01-31 08:00:00`. */
function localTime(time: string): string {
  const at = new Date(time);
  const two = (value: number) => String(value).padStart(2, '0');
  const date = [at.getFullYear(), two(at.getMonth() + 1), two(at.getDate())].join('-');
  return `${date} ${[at.getHours(), at.getMinutes(), at.getSeconds()].map(two).join(':')}`;
}
