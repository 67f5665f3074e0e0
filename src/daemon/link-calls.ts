// How does the daemon serve one of our links that somebody else's runtime calls by itself?
import type { ExecOutcome } from '../chain/exec-plugin.ts';
import { finishLinks } from '../chain/links.ts';
import { findTraceParent, startSpan, traceEnv } from '../chain/trace-context.ts';
import type { Command } from '../cni/env.ts';
import { CniError, ErrorCode } from '../cni/errors.ts';
import type { Outcome } from '../cni/reply.ts';
import { serveThrough, type WorkerSource } from '../worker/client.ts';
import { errorOf, type MakeCall, networkIn, objectIn, type PluginCall } from './plugin-calls.ts';
import type { RunReply } from './protocol.ts';

/** A call of a link as a process of its own would get it. */
export interface LinkRequest extends PluginCall {
  readonly link: string;
  /** Directory that relative paths start from. */
  readonly cwd: string;
}

/** Longest time for one call: runtimes give up long before, and that ends it. */
const LINK_DEADLINE_MS = 10 * 60_000;

/**
 * Serves calls by workers. Nothing is recorded or taken back here: that is the business of whoever runs the chain, as
 * with a process for each link. When the caller goes away in the middle, the worker is ended, as its process would be.
 */
export function linkCallsTo(workers: WorkerSource): MakeCall<LinkRequest> {
  return async ({ link, env, stdin, cwd }, signal, watch) => {
    const { onLink, noted, envOf } = watch;
    const parent = findTraceParent(env);
    const span = parent && startSpan(parent);
    const own = serveThrough(workers, cwd);
    const invocation = {
      ...{ path: link, env: { ...env, ...envOf?.(link), ...traceEnv(parent, span) } },
      ...{ deadlineMs: LINK_DEADLINE_MS, signal, noted },
    };
    const outcome = await own.start(invocation).send(stdin);
    const about = { network: networkIn(stdin), verb: env.CNI_COMMAND as Command };
    const late = await finishLinks(own.finish, about.network, about.verb, watch);
    const reply = replyOf(link, outcome, late);
    const said = objectIn(reply.stdout);
    const { durationMs, transactions } = outcome;
    onLink?.({
      ...{ ...about, link, index: 0, executable: process.execPath, durationMs, stderr: reply.stderr },
      ...(reply.exitCode !== 0 ? { error: errorOf(said) } : said ? { result: said } : {}),
      ...(span ? { span } : {}),
      ...(transactions ? { transactions } : {}),
    });
    return reply;
  };
}

/** Byte for byte what the link said, unless it could not say anything or what it had put off failed. */
function replyOf(link: string, outcome: ExecOutcome, late: Outcome | undefined): RunReply {
  const { exitCode, stdout, stderr } = outcome;
  if (exitCode === undefined || outcome.ended !== undefined || outcome.again) {
    const how = outcome.ended ?? outcome.signal ?? outcome.spawnError ?? `exit status ${exitCode}`;
    const error = new CniError(
      ErrorCode.tryAgainLater,
      `Cannot finish call of plugin "${link}": its worker ended (${how}); delete the attachment and try again`,
    );
    return { exitCode: 1, stdout: JSON.stringify(error.toReply()), stderr };
  }
  if (exitCode === 0 && late && late.exitCode !== 0)
    return { exitCode: 1, stdout: late.stdout, stderr: `${stderr}${late.stderr}` };
  return { exitCode, stdout, stderr };
}
