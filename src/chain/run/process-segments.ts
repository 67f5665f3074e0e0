// How does a segment run if each plugin is a separate process?

import { type isOwnExecutable, ownExecutables } from '../config/own-executable.ts';
import type { ExecOutcome, PluginProcess, StartPlugin } from './exec-plugin.ts';
import { type PluginCall, type Segment, type SegmentRunner, withPrevResult } from './segment.ts';

/**
 * Runs each plugin as a process. Our own next plugin starts while the one before it works. A foreign executable starts only in
 * its turn, because it might act before it has read its request. Starting one process ahead takes a fifth off a chain of five
 * on two cores (42 to 34 ms); starting two or all of them ahead gains nothing more.
 * @param isOwn whether an executable does nothing before it has read its request
 */
export function processSegments(
  start: StartPlugin,
  isOwn: typeof isOwnExecutable = ownExecutables(),
): SegmentRunner {
  return { joins: isOwn, run: segment => runProcesses(start, segment) };
}

async function* runProcesses(start: StartPlugin, segment: Segment): AsyncGenerator<ExecOutcome> {
  const { calls, threadsResult, stopsAtFailure, deadlineMs, signal, onBegin } = segment;
  const launch = ({ path, env }: PluginCall): PluginProcess => start({ path, env, deadlineMs, signal });
  let ahead: PluginProcess | undefined;
  let result: string | undefined;
  try {
    for (const [position, call] of calls.entries()) {
      const process = ahead ?? launch(call);
      ahead = undefined;
      onBegin?.(position);
      const sent = process.send(result === undefined ? call.stdin : withPrevResult(call.stdin, result));
      const next = calls[position + 1];
      // Not in this turn of the event loop: starting a process takes milliseconds, and the request is still in our buffer.
      const starting =
        next &&
        setImmediate(() => {
          ahead = launch(next);
        });
      const outcome = await sent;
      if (starting) clearImmediate(starting);
      yield outcome;
      if (outcome.exitCode !== 0 && stopsAtFailure) return;
      if (threadsResult) result = outcome.stdout;
    }
  } finally {
    // Safe: it has read nothing.
    ahead?.discard();
  }
}
