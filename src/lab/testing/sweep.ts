// Does ADD leave nothing behind, whichever request the kernel refuses?
import { defined } from '../../cni/json.ts';
import type { CallOptions, Fault, Reply } from '../call.ts';
import { diffKernelStates } from '../diff.ts';
import type { Plugin } from '../play.ts';
import type { Watch } from '../state.ts';
import type { TestHost } from './host.ts';

/** The outcome of one ADD in which a request failed. */
export interface FaultReport extends Fault {
  /** Whether ADD failed. Most faults make it fail, but some plugins can do without some requests. */
  readonly failed: boolean;
  readonly error?: string;
  /** What differs from before ADD; after DEL, if ADD did not fail. */
  readonly left: readonly string[];
}

/** The steps of a sweep, for callers that inspect the kernel in their own way. */
export interface FaultTrial<S> {
  /** ADD with the given request failing. */
  add(failAt: number): Promise<Reply>;
  /** Undoes a successful ADD. */
  del(): Promise<Reply>;
  /** The state that must be the same before and after. */
  state(): S | Promise<S>;
  /** Human-readable differences; empty when there are none. */
  diff(before: S, after: S): string[];
}

/** More requests than any ADD makes: a plugin that reaches this number is in a loop. */
const MAX_REQUESTS = 2000;

/**
 * Runs ADD with the first request to the kernel failing, then with the second, and so on until ADD makes no further request.
 * Each time, the host, the container and the files must be as before.
 * @returns one report per request
 * @throws Error listing everything that was left behind
 */
export async function failAtEveryRequest(
  host: TestHost,
  plugin: Plugin,
  call: CallOptions,
  watch: Watch & { /** Differences that are right: a counter that only grows. */ ignore?: RegExp } = {},
): Promise<FaultReport[]> {
  const { ignore, ...rest } = watch;
  let added: Reply | undefined;
  return sweepFaults({
    async add(failAt) {
      added = await host.call(plugin, 'ADD', { ...call, failAt });
      return added;
    },
    del: () => host.call(plugin, 'DEL', { ...call, prevResult: added?.result ?? call.prevResult }),
    state: () => host.state(rest),
    diff: (before, after) => diffKernelStates(before, after).filter(line => !ignore?.test(line)),
  });
}

/** Like {@link failAtEveryRequest}, with all steps provided by the caller. */
export async function sweepFaults<S>({ add, del, state, diff }: FaultTrial<S>): Promise<FaultReport[]> {
  const reports: FaultReport[] = [];
  let before = await state();
  for (let request = 1; request <= MAX_REQUESTS; request++) {
    const reply = await add(request);
    const failed = reply.exitCode !== 0;
    if (!failed) await undo(del);
    const after = await state();
    const left = diff(before, after);
    before = after;
    if (reply.fault) {
      const error = reply.error?.msg;
      reports.push({ ...reply.fault, failed, ...defined({ error }), left });
      if (!failed || !left.length) continue;
      // Clean up, so that the next request can still be tried.
      await del();
      before = await state();
      continue;
    }
    if ((failed || left.length) && reports.some(one => one.left.length)) return judge(reports);
    if (failed) throw new Error(`Cannot run ADD even without an injected fault: ${describe(reply)}`);
    if (left.length) {
      throw new Error(
        `ADD and DEL leave something behind even without an injected fault: ${left.join('; ')}`,
      );
    }
    return judge(reports);
  }
  throw new Error(`Cannot finish: ADD makes more than ${MAX_REQUESTS} requests`);
}

async function undo(del: () => Promise<Reply>): Promise<void> {
  const reply = await del();
  if (reply.exitCode !== 0) throw new Error(`Cannot undo ADD with DEL: ${describe(reply)}`);
}

function judge(reports: FaultReport[]): FaultReport[] {
  if (reports.length === 0) {
    throw new Error(
      'Cannot inject a fault: the plugin makes no request, or its executable does not read CATENA_FAULT',
    );
  }
  const leaks = reports
    .filter(({ left }) => left.length)
    .map(({ request, what, left }) => `request ${request} (${what}): ${left.join('; ')}`);
  if (leaks.length) throw new Error(`Failed ADDs leave something behind:\n  ${leaks.join('\n  ')}`);
  return reports;
}

function describe({ exitCode, stdout, stderr }: Reply): string {
  return `exit status ${exitCode}: ${stdout}${stderr}`.trim();
}
