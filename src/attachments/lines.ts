// How are the lines of a note written, and what do they mean together?
import type { JsonObject } from '../cni/json.ts';
import { decodeIntent, decodeLine, RECORD_VERSION } from './decode.ts';
import type { AttachmentRecord, Intent, Line, RecordedError } from './record.ts';
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
 * Combines the lines of a note.
 * @throws CniError 6 when it is damaged or not a note, naming file and reason
 */
export function parseNote(text: string, file: string): AttachmentRecord {
  const [first = '', ...rest] = text.split('\n');
  const decoded = rest.filter(line => line !== '').map(decodeLine);
  const lines = decoded.filter(line => line !== undefined);
  return fold(decodeIntent(first, file), lines, file, decoded.length - lines.length);
}

/** Index of the last plugin that may have begun to work: recovery has to undo all up to it. */
export function lastBegun({ added, segment, unreadable }: AttachmentRecord, links: number): number {
  return added || unreadable > 0 ? links - 1 : Math.min(segment, links - 1);
}

function fold(intent: Intent, lines: readonly Line[], file: string, unreadable: number): AttachmentRecord {
  const added = intent.added === true;
  let result: JsonObject | undefined = intent.result;
  let segment = -1;
  let runners: Runner[] = added ? [] : [intent.runner];
  let [isDeleting, attempts] = [false, 0];
  let lastAttempt: string | undefined;
  let lastErrors: readonly RecordedError[] = [];
  let change: AttachmentRecord['change'];
  for (const line of lines) {
    if (line.event === 'segment') {
      segment = Math.max(segment, line.last);
      result = line.result ?? result;
    } else if (line.event === 'begin') {
      isDeleting = true;
      runners.push(line.runner);
    } else if (line.event === 'change') {
      const { to, plugins, runner } = line;
      change = { to, plugins, op: runner.op };
      runners.push(runner);
    } else {
      runners = runners.filter(({ op }) => op !== line.op);
      attempts = Math.max(attempts + 1, line.attempts);
      lastAttempt = line.time;
      lastErrors = line.errors;
    }
  }
  const phase = attempts > 0 ? 'failed' : isDeleting ? 'deleting' : added ? 'attached' : 'adding';
  const last = { attempts, lastAttempt, lastErrors };
  return {
    ...intent,
    ...(result === undefined ? {} : { result }),
    file,
    isNoted: true,
    phase,
    added,
    segment,
    runners,
    change,
    ...last,
    unreadable,
  };
}
