// How does a process serve one call of a link after the other?
import { CniError, ErrorCode, toCniError } from '../cni/errors.ts';
import { NETLINK_NETFILTER, NETLINK_ROUTE, NetlinkSocket } from '../netlink/socket.ts';
import type { HostSockets, Siblings, Workplace } from '../plugin/invocation.ts';
import { Removals } from '../plugin/removals.ts';
import { serve } from '../plugin/serve.ts';
import { readChunk, writeAll } from '../plugin/stdio.ts';
import { type CallRequest, LineSplitter, toLine, type WorkerReply, type WorkerRequest } from './protocol.ts';

/**
 * Serves calls until standard input ends, one at a time: a link has the process, its environment and its namespaces to
 * itself, as in a process of its own.
 * @param links the links of this executable
 */
export async function runWorker(links: Siblings): Promise<never> {
  process.on('uncaughtException', die);
  process.on('unhandledRejection', die);
  const workplace: Workplace = { sockets: openWhenAsked(), removals: new Removals() };
  const lines = new LineSplitter();
  const chunk = new Uint8Array(1 << 16);
  for (let length = readChunk(chunk); length > 0; length = readChunk(chunk)) {
    for (const line of lines.push(chunk.subarray(0, length))) {
      const request = JSON.parse(line) as WorkerRequest;
      const reply = request === 'finish' ? await finish(workplace) : await call(request, links, workplace);
      writeAll(1, toLine(reply));
    }
  }
  // Whoever asked is gone; what was promised is done all the same.
  await finish(workplace);
  process.exit(0);
}

async function call(
  { link, env, request }: CallRequest,
  links: Siblings,
  workplace: Workplace,
): Promise<WorkerReply> {
  takeEnvironment(env);
  const definition = await links(link);
  if (definition === undefined) {
    return failed(
      new CniError(
        ErrorCode.internal,
        `Cannot call link "${link}": this executable has none of that name; call it by a name it was installed with`,
      ),
    );
  }
  const invocation = { env, readRequest: () => request, workplace };
  const { exitCode, stdout, log } = await serve(definition, invocation, links);
  let stderr = '';
  await log.flush(text => {
    stderr += text;
  });
  return { exitCode, stdout, stderr, ...(workplace.removals.waiting ? { unfinished: true } : {}) };
}

async function finish({ removals, sockets }: Workplace): Promise<WorkerReply> {
  try {
    await removals.settle(() => sockets.route);
    return { exitCode: 0, stdout: '', stderr: '' };
  } catch (thrown) {
    return failed(toCniError(thrown));
  }
}

function failed(error: CniError): WorkerReply {
  return { exitCode: 1, stdout: JSON.stringify(error.toReply()), stderr: '' };
}

/**
 * Sockets that stay open: closing one for nf_tables after something was deleted waits until the kernel has freed it
 * (10 to 20 ms), which is then nobody's time.
 */
function openWhenAsked(): HostSockets {
  let route: NetlinkSocket | undefined;
  let netfilter: NetlinkSocket | undefined;
  return {
    get route() {
      route ??= new NetlinkSocket(NETLINK_ROUTE);
      return route;
    },
    get netfilter() {
      netfilter ??= new NetlinkSocket(NETLINK_NETFILTER);
      return netfilter;
    },
  };
}

/** Some things are looked up far below a call, such as the directory of locks. */
function takeEnvironment(env: CallRequest['env']): void {
  for (const name of Object.keys(process.env)) if (env[name] === undefined) delete process.env[name];
  for (const [name, value] of Object.entries(env)) {
    if (value !== undefined && process.env[name] !== value) process.env[name] = value;
  }
}

/** A promise that nobody waits for: nobody knows any more in which state this process is. */
function die(thrown: unknown): never {
  writeAll(2, `${thrown instanceof Error ? thrown.stack : String(thrown)}\n`);
  process.exit(1);
}
