// How are the lines of a record written, and what do they mean together?
import type { JsonObject } from '../cni/json.ts';
import { decodeIntent, decodeLine, RECORD_VERSION } from './decode.ts';
import type {
  AttachmentRecord,
  Intent,
  Line,
  PendingChange,
  PluginOutcomeLine,
  RecordedError,
  Settings,
} from './record.ts';
import type { Runner } from './runner.ts';

/** The first line. */
export function renderIntent({ args, ...intent }: Intent): string {
  return `${JSON.stringify({ record: RECORD_VERSION, ...intent, args })}\n`;
}

/** Any later line. */
export function renderLine(line: Line): string {
  return `${JSON.stringify(line)}\n`;
}

/**
 * Combines the lines of a record.
 * @throws CniError 6 when it is damaged or not a record, naming file and reason
 */
export function parseRecord(text: string, file: string): AttachmentRecord {
  const [first = '', ...rest] = text.split('\n');
  const decoded = rest.filter(line => line !== '').map(decodeLine);
  const lines = decoded.filter(line => line !== undefined);
  return fold(decodeIntent(first, file), lines, file, decoded.length - lines.length);
}

/** Index of the last plugin that may have begun to work: recovery has to undo all up to it. */
export function lastBegun(record: AttachmentRecord, links: number): number {
  const { added, outcomes, segment, unreadable } = record;
  const last = outcomes.at(-1);
  if (added || unreadable > 0) return links - 1;
  const next = last === undefined ? 0 : last.error ? last.index : last.index + 1;
  return Math.min(Math.max(next, segment), links - 1);
}

function fold(intent: Intent, lines: readonly Line[], file: string, unreadable: number): AttachmentRecord {
  const outcomes: PluginOutcomeLine[] = [];
  let result: JsonObject | undefined;
  let segment = -1;
  let runners: Runner[] = [intent.runner];
  let [done, isDeleting, attempts] = [false, false, 0];
  let lastAttempt: string | undefined;
  let lastErrors: readonly RecordedError[] = [];
  let settings: Settings = { capabilityArgs: intent.capabilityArgs, source: intent.source };
  let change: PendingChange | undefined;
  let changer: Runner | undefined;
  let before: AttachmentRecord['before'];
  let changes = 0;
  for (const line of lines) {
    if (line.event === 'link') {
      const error = 'error' in line ? line.error : undefined;
      if ('result' in line) result = line.result;
      outcomes.push({ index: line.index, result: error ? undefined : result, error });
    } else if (line.event === 'segment') {
      segment = Math.max(segment, line.last);
    } else if (line.event === 'begin') {
      isDeleting = true;
      runners.push(line.runner);
    } else if (line.event === 'change') {
      change = { to: line.to, plugins: line.plugins };
      changer = line.runner;
    } else if (line.event === 'changed') {
      if (change) before = { ...settings, result };
      settings = change?.to ?? settings;
      [change, result, changes] = [undefined, line.result, changes + 1];
    } else if (line.event === 'unchanged') {
      [change, changer] = [undefined, undefined];
    } else if (line.event === 'cached') {
      [before, changer] = [undefined, undefined];
    } else {
      runners = runners.filter(({ op }) => op !== line.op);
      if (line.event === 'done') done = true;
      if (line.event === 'failed') {
        attempts = Math.max(attempts + 1, line.attempts);
        lastAttempt = line.time;
        lastErrors = line.errors;
      }
    }
  }
  const phase = attempts > 0 ? 'failed' : isDeleting ? 'deleting' : done ? 'attached' : 'adding';
  const last = { attempts, lastAttempt, lastErrors };
  const changed = { ...settings, change, before, changes };
  return {
    ...intent,
    ...changed,
    file,
    phase,
    added: done,
    outcomes,
    segment,
    result,
    runners: changer ? [...runners, changer] : runners,
    ...last,
    unreadable,
  };
}
