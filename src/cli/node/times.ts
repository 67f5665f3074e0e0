// How do people write times?
import { UsageError } from '../command.ts';

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/**
 * The moment that a text means: `90s`, `15min`, `2h`, `3d` and `1w` ago; `today` and `yesterday` at midnight, local time; or an ISO date or time.
 * @returns Unix time in milliseconds
 * @throws UsageError
 */
export function parseMoment(text: string, now = Date.now()): number {
  const [, amount = '', unit = ''] = /^(\d+) ?(s|m|min|h|d|w)( ago)?$/.exec(text.trim()) ?? [];
  const size = UNITS[unit];
  if (size !== undefined) return now - Number(amount) * size;
  const midnight = new Date(now);
  midnight.setHours(0, 0, 0, 0);
  if (text === 'today') return midnight.getTime();
  if (text === 'yesterday') return midnight.setDate(midnight.getDate() - 1);
  const moment = /^\d{4}-\d\d-\d\d/.test(text)
    ? Date.parse(isDate(text) ? `${text}T00:00` : text)
    : Number.NaN;
  if (!Number.isNaN(moment)) return moment;
  throw new UsageError(
    `Cannot read time "${text}": expected such as 15min, 2h, 3d, today, yesterday, 2026-01-31 or 2026-01-31T08:00Z`,
  );
}

const UNITS: Readonly<Record<string, number>> = {
  s: SECOND,
  m: MINUTE,
  min: MINUTE,
  h: HOUR,
  d: DAY,
  w: 7 * DAY,
};

function isDate(text: string): boolean {
  return /^\d{4}-\d\d-\d\d$/.test(text);
}
