// What does a line of `catena log` show?
import { shortId } from '../../node/words.ts';
import type { LogEntry } from './timeline.ts';

/** One line for each entry, in local time. */
export function renderLog(entries: readonly LogEntry[]): string {
  return entries.map(renderEntry).join('');
}

function renderEntry(entry: LogEntry): string {
  const { time, what, network, containerID = '', ifname, podNamespace, podName, by, code, message } = entry;
  const pod = podName === undefined ? undefined : [podNamespace, podName].filter(Boolean).join('/');
  const who = pod ?? shortId(containerID);
  const place = [who, ifname, network && `on ${network}`].filter(Boolean).join(' ');
  const failure = code === 0 ? '' : ` failed (${code})`;
  const words = message === undefined ? '' : `: ${message}`;
  return `${localTime(time)}  ${what.padEnd(7)}  ${place}${failure}${words}  [${by}; ${entry.source}]\n`;
}

/** `2026-01-31 08:00:00`. */
function localTime(time: string): string {
  const at = new Date(time);
  const two = (value: number) => String(value).padStart(2, '0');
  const date = [at.getFullYear(), two(at.getMonth() + 1), two(at.getDate())].join('-');
  return `${date} ${[at.getHours(), at.getMinutes(), at.getSeconds()].map(two).join(':')}`;
}
