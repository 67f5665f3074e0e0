// What does `catena gc --gone` do?
import { FAILED_WITHOUT_CODE } from '../observe/history.ts';
import { collectGone, type GoneAttachment } from '../watch/collect-gone.ts';
import type { CommandCall } from './command.ts';
import { noteDone } from './log/events.ts';
import { printAnswer } from './output/print.ts';
import { secondsIn } from './seconds.ts';
import { runtimeOf } from './target.ts';
import { during } from './terminal/progress.ts';

/** Runtimes remove a namespace and call DEL right after it; a busy node may take seconds for that. */
const GRACE_SECONDS = 10;

/** Deletes attachments whose namespace is gone, of one network or of all; exit code 1 if a deletion failed. */
export async function gcGone(call: CommandCall): Promise<number> {
  const [network] = call.positionals;
  const runtime = runtimeOf(call);
  const scope = { network, graceMs: graceOf(call) * 1000, dryRun: call.on('dry-run') };
  const report = await during(call, 'gc', 'attachments that outlived their namespace', () =>
    collectGone(scope, runtime),
  );
  for (const { state, why, error, ...id } of report)
    if (state === 'deleted' || state === 'failed') {
      const code = state === 'deleted' ? 0 : error?.code || FAILED_WITHOUT_CODE;
      noteDone(call, 'DEL', error ? `${why}: ${error.message}` : why, { code, id });
    }
  await printAnswer(call, 'GoneList', { items: report.map(toJson) }, { text: () => render(report) });
  return report.some(({ state }) => state === 'failed') ? 1 : 0;
}

function graceOf(call: CommandCall): number {
  const text = call.text('grace') ?? String(GRACE_SECONDS);
  return secondsIn(text, `--grace "${text}"`, { zero: true });
}

const WORDS = { found: 'DEL', deleted: 'DEL', kept: 'keep', failed: 'stuck' } as const;

function render(report: readonly GoneAttachment[]): string {
  if (report.length === 0) return 'no attachment outlived its namespace\n';
  return report
    .map(({ network, containerId, ifname, state, why, error }) => {
      const problem = error ? `; ${error.message}` : '';
      return `${WORDS[state].padEnd(5)} ${network} ${containerId} ${ifname}: ${why}${problem}\n`;
    })
    .join('');
}

function toJson({ error, ...one }: GoneAttachment) {
  return { ...one, ...(error ? { error: error.toReply() } : {}) };
}
