// What does `catena daemon` do?
import { runDir } from '../../cni/directories.ts';
import { makeBackend } from '../../daemon/backend.ts';
import { POOL_LIMITS, WorkerPool } from '../../daemon/pool.ts';
import { socketPathOf } from '../../daemon/protocol.ts';
import { SERVER_LIMITS, startServer } from '../../daemon/server.ts';
import { notifyServiceManager } from '../../sys/notify.ts';
import { compileEagerly } from '../../worker/eager.ts';
import { type CommandCall, UsageError } from '../command.ts';
import { runMain } from '../main.ts';

/** Serves commands and plugin calls until a signal ends it; what was begun is finished first. */
export async function run(call: CommandCall): Promise<number> {
  const { env, links, signal, asPlugin } = call;
  if (asPlugin === undefined)
    throw new UsageError('Cannot run as a daemon: only the compiled executable can');
  compileEagerly();
  const socket = socketPathOf(call.text('run-dir') ?? runDir(env));
  const pool = new WorkerPool(env, {
    ...POOL_LIMITS,
    workers: countOf(call, 'workers', POOL_LIMITS.workers),
  });
  const backend = makeBackend(
    pool,
    ({ args, env: own, cwd, key }, write, end) =>
      runMain(args, { links, env: own, cwd, write, signal: end, workers: pool, asPlugin, request: key }),
    (plugin, end) => asPlugin(plugin, { workers: pool, signal: end }),
  );
  const requests = countOf(call, 'requests', SERVER_LIMITS.requests);
  const server = startServer(socket, backend, { ...SERVER_LIMITS, requests });
  call.err(`catena: listening on "${socket}"\n`);
  notifyServiceManager('READY=1', env.NOTIFY_SOCKET);
  await new Promise<void>(resolve => signal.addEventListener('abort', () => resolve(), { once: true }));
  notifyServiceManager('STOPPING=1', env.NOTIFY_SOCKET);
  await server.stop();
  pool.close();
  return 0;
}

function countOf(call: CommandCall, option: string, fallback: number): number {
  const text = call.text(option);
  if (text === undefined) return fallback;
  const count = Number(text);
  if (Number.isInteger(count) && count > 0) return count;
  throw new UsageError(`Cannot use --${option} "${text}": expected a whole number above zero`);
}
