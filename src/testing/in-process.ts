// How is a plugin called without a process of its own, but inside the fake host?
//
// A namespace belongs to a thread. The calling thread enters the host for the duration of a call, so calls run one after
// another. Work that a plugin passes to other threads (asynchronous file functions on /proc/sys) stays outside.
import { defined } from '../cni/defined.ts';
import type { PluginDefinition } from '../plugin/define.ts';
import { serve } from '../plugin/serve.ts';
import { closeNetns, enter, type Netns, openOwnNetns } from '../sys/netns.ts';
import { type CallOptions, environmentOf, type Reply, requestOf, toReply, type Verb } from './call.ts';
import { withFaults } from './fault.ts';

/** Calls a plugin definition inside the namespace, with the call's environment as that of the process. */
export function callInProcess(
  host: Netns,
  definition: PluginDefinition,
  verb: Verb,
  call: CallOptions,
): Promise<Reply> {
  const next = previous.then(() =>
    visiting(host, environmentOf(verb, call), async () => {
      const started = performance.now();
      const env = { ...process.env };
      const invocation = { env, readStdin: () => requestOf(call) };
      const { value, fault } = await withFaults(call.failAt, () => serve(definition, invocation));
      const { exitCode, stdout, log } = value;
      let stderr = '';
      await log.flush(text => {
        stderr += text;
      });
      const durationMs = performance.now() - started;
      return toReply({ exitCode, stdout, stderr, durationMs, ...defined({ fault }) });
    }),
  );
  previous = next.catch(() => {});
  return next;
}

let previous: Promise<unknown> = Promise.resolve();

async function visiting<T>(host: Netns, env: Record<string, string>, visit: () => Promise<T>): Promise<T> {
  const before = { ...process.env };
  const own = openOwnNetns();
  enter(host);
  try {
    for (const name of Object.keys(process.env)) if (name.startsWith('CNI_')) delete process.env[name];
    Object.assign(process.env, env);
    return await visit();
  } finally {
    enter(own);
    closeNetns(own);
    for (const name of Object.keys(process.env)) if (!(name in before)) delete process.env[name];
    Object.assign(process.env, before);
  }
}
