// How does a process serve one call of a link after the other?
import { CniError, ErrorCode, toCniError } from '../cni/errors.ts';
import { removeLinks } from '../netlink/rtnl/link.ts';
import { NETLINK_NETFILTER, NETLINK_ROUTE, NetlinkSocket } from '../netlink/socket.ts';
import type { Done } from '../plugin/define.ts';
import type { HostSockets, Siblings, Workplace } from '../plugin/invocation.ts';
import { Removals } from '../plugin/removals.ts';
import { serve } from '../plugin/serve.ts';
import { readChunk, writeAll } from '../plugin/stdio.ts';
import { endWithParent } from '../sys/parent.ts';
import { compileEagerly } from './eager.ts';
import {
  LineSplitter,
  type LinkCall,
  STAY_FLAG,
  toLine,
  type WorkerReply,
  type WorkerRequest,
} from './protocol.ts';
import { noting } from './transactions.ts';

/**
 * Serves calls until standard input ends, one at a time: a link has the process, its environment and its namespaces to
 * itself, as in a process of its own.
 * @param links the links of this executable
 */
export async function runWorker(links: Siblings): Promise<never> {
  if (process.argv.includes(STAY_FLAG)) {
    compileEagerly();
    endWithParent();
  }
  process.on('uncaughtException', die);
  process.on('unhandledRejection', die);
  const desk: Desk = { sockets: openWhenAsked(), chains: new Map(), before: undefined };
  const lines = new LineSplitter();
  const chunk = new Uint8Array(1 << 16);
  for (let length = readChunk(chunk); length > 0; length = readChunk(chunk)) {
    for (const line of lines.push(chunk.subarray(0, length))) {
      writeAll(1, toLine(await answer(JSON.parse(line), links, desk)));
    }
  }
  // Whoever asked is gone; what was promised is done all the same.
  for (const removals of desk.chains.values()) await finish(removals, false, desk.sockets);
  process.exit(0);
}

/** What stays from one call to the next. */
interface Desk {
  readonly sockets: HostSockets;
  /** What the links of each chain have put off. */
  readonly chains: Map<string, Removals>;
  /** The call that was made last, and what came of it. */
  before: { readonly id: number; readonly reply: WorkerReply } | undefined;
}

async function answer(request: WorkerRequest, links: Siblings, desk: Desk): Promise<WorkerReply> {
  const { sockets, chains } = desk;
  if ('call' in request) {
    const { chain, id, follows } = request.call;
    const own = follows === undefined ? request.call : takeUp(request.call, desk.before);
    if (own === undefined) return SKIPPED;
    const removals = chains.get(chain) ?? new Removals();
    const reply = await noting(own.noted, () => call(own, links, { sockets, removals }));
    desk.before = { id, reply };
    if (!removals.waiting) return reply;
    chains.set(chain, removals);
    return { ...reply, removals: removals.indexes };
  }
  if ('rest' in request) return reporting(() => Bun.gc(true));
  if ('remove' in request) return reporting(() => removeLinks(sockets.route, request.remove));
  const removals = chains.get(request.finish);
  chains.delete(request.finish);
  if (removals === undefined) return DONE;
  return noting(request.noted, () => finish(removals, request.removed, sockets));
}

/** The call with the result of the one before; undefined when that failed, or was another worker's. */
function takeUp(call: LinkCall, before: Desk['before']): LinkCall | undefined {
  if (before?.id !== call.follows || before?.reply.exitCode !== 0) return undefined;
  // A request is never an empty object: it has a name.
  return { ...call, request: `${call.request.slice(0, -1)},"prevResult":${before.reply.stdout}}` };
}

async function call(
  { link, env, request, cwd }: LinkCall,
  links: Siblings,
  workplace: Workplace,
): Promise<WorkerReply> {
  takeEnvironment(env);
  takeDirectory(cwd);
  const definition = await links(link);
  if (definition === undefined) {
    const reason = 'this executable has none of that name; call it by a name it was installed with';
    return failed(new CniError(ErrorCode.internal, `Cannot call link "${link}": ${reason}`));
  }
  const invocation = { env, readRequest: () => request, workplace };
  const { exitCode, stdout, log } = await serve(definition, invocation, links);
  let stderr = '';
  await log.flush(text => {
    stderr += text;
  });
  return { exitCode, stdout, stderr };
}

function finish(removals: Removals, removed: boolean, sockets: HostSockets): Promise<WorkerReply> {
  return reporting(() => removals.settle(() => sockets.route, removed));
}

async function reporting(step: () => Done): Promise<WorkerReply> {
  try {
    await step();
    return DONE;
  } catch (thrown) {
    return failed(toCniError(thrown));
  }
}

const SKIPPED: WorkerReply = { exitCode: 1, stdout: '', stderr: '', skipped: true };

const DONE: WorkerReply = { exitCode: 0, stdout: '', stderr: '' };

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
function takeEnvironment(env: LinkCall['env']): void {
  for (const name of Object.keys(process.env)) if (env[name] === undefined) delete process.env[name];
  for (const [name, value] of Object.entries(env)) {
    if (value !== undefined && process.env[name] !== value) process.env[name] = value;
  }
}

/** The directory of the calls that do not say theirs, once another one was taken. */
let home: string | undefined;

/** Relative paths of a configuration start from the caller's directory; from none that is gone. */
function takeDirectory(cwd: string | undefined): void {
  const wanted = cwd ?? home;
  if (wanted === undefined) return;
  home ??= process.cwd();
  try {
    if (process.cwd() !== wanted) process.chdir(wanted);
  } catch {
    process.chdir('/');
  }
}

/** A promise that nobody waits for: nobody knows any more in which state this process is. */
function die(thrown: unknown): never {
  writeAll(2, `${thrown instanceof Error ? thrown.stack : String(thrown)}\n`);
  process.exit(1);
}
