// Which requests does the daemon take, and when does it end?
import * as z from 'zod/mini';
import { inEnvelope } from '../cli/answers/envelope.ts';
import { describeIssue, tryParse } from '../cni/json.ts';
import { type BegunCalls, hasGone } from './calls.ts';
import { type Handlers, openDoor, problem } from './door.ts';
import { type OwnStart, startSuccessor } from './on-demand.ts';
import { askerOf, type Turn, type WorkerPool } from './pool.ts';
import {
  CALL_PATH,
  DAEMON_COMMANDS,
  type DeclineReason,
  decline,
  describePing,
  HANDOVER_PATH,
  type ProcessPlace,
  type RunAnswer,
  type RunRequest,
  STOP_PATH,
  SUCCESSION_PATH,
} from './protocol.ts';
import { ownPlace } from './who-listens.ts';
import type { AnsweredCall } from './wire.ts';

export interface Backend {
  /** Runs a command as its own process would; never rejects. The signal is aborted when the client has gone. */
  run(request: RunRequest, signal: AbortSignal, queueMs: number, turn: Turn): Promise<RunAnswer>;
  /** Answers all other HTTP requests; undefined for a path that it does not know. */
  answer(request: Request): Promise<Response | undefined>;
  /** Where requests wait for their turn. */
  readonly pool: Pick<WorkerPool, 'enter' | 'state' | 'problem'>;
}

export interface ServerEvents extends Pick<Handlers, 'restored' | 'replaced'> {
  /** A client was told to make its call itself. @param from where it is, if that is why */
  declined(reason: DeclineReason, detail?: string, from?: ProcessPlace): void;
  /** A client has asked for the end. */
  stopped(): void;
}

interface ServerOptions {
  /** Asks a daemon that already listens to hand over. */
  readonly replace?: boolean | undefined;
  /** How this daemon was started, if it may start a successor. */
  readonly ownStart?: OwnStart | undefined;
  /** What a ping reports as the daemon's version. */
  readonly version?: string | undefined;
}

export interface Server {
  /** The daemon's place; calls from other places are declined. */
  readonly place: ProcessPlace;
  readonly connections: number;
  /** Accepts no new requests, answers those that it has, and closes. New clients run their chains themselves. */
  stop(): Promise<void>;
}

/**
 * Serves clients on the sockets of a path.
 * @throws SeatTaken if another daemon listens there
 */
export async function startServer(
  socketPath: string,
  backend: Backend,
  events: ServerEvents,
  { replace = false, version = '', ownStart }: ServerOptions = {},
): Promise<Server> {
  const place = ownPlace();
  const admission = new Admission(place, backend, events);
  const leave = (): void => {
    admission.isEnding = true;
    door.leave();
  };
  const serve = async (request: Request, calls: BegunCalls): Promise<Response> => {
    const { pathname } = new URL(request.url);
    const asks = `${request.method} ${pathname}`;
    if (asks === `POST ${CALL_PATH}` || asks === `GET ${NODE_PATH}`) {
      const asked = askedOverHttp(pathname, await request.text());
      if ('issue' in asked) return problem(400, asked.issue);
      const own = { ...asked, env: { ...process.env, ...asked.env }, place, key: crypto.randomUUID() };
      const { reply, told } = await admission.answer(own, calls, request.signal);
      told?.();
      return toResponse(pathname, reply);
    }
    const successor =
      asks === `POST ${SUCCESSION_PATH}` && succeedTo(admission.isEnding ? undefined : ownStart, place);
    if (successor instanceof Response) return successor;
    const isHandover = asks === `POST ${HANDOVER_PATH}`;
    if (!isHandover && !successor && asks !== `POST ${STOP_PATH}`)
      return (await backend.answer(request)) ?? problem(404, 'no such path');
    leave();
    if (isHandover) events.replaced('another daemon is replacing this one');
    else events.stopped();
    return Response.json(successor ? {} : inEnvelope('DaemonProcess', { pid: process.pid }));
  };
  const handlers = {
    serve,
    answer: admission.answer,
    ping: (asker: string | undefined) => answerPing(backend, version, place, asker),
    refuse: events.declined,
    restored: events.restored,
    replaced(why: string) {
      admission.isEnding = true;
      events.replaced(why);
    },
  };
  const door = await openDoor(socketPath, MAX_REQUEST_BYTES, handlers, replace);
  return {
    place,
    get connections() {
      return door.connections;
    },
    async stop() {
      leave();
      await door.close();
    },
  };
}

/** @param asker executable that probes; without one, the state is wanted as data */
function answerPing(
  { pool }: Backend,
  version: string,
  { executable }: ProcessPlace,
  asker: string | undefined,
): RunAnswer {
  const { running, queued } = pool.state;
  const uptimeSeconds = Math.floor(process.uptime());
  const state = { version, executable, pid: process.pid, running, queued, uptimeSeconds };
  if (asker === undefined) return { exitCode: 0, stdout: JSON.stringify(state), stderr: '' };
  if (asker !== executable) return decline('build', 'another executable was installed');
  return { exitCode: 0, stdout: `${describePing(state)}\n`, stderr: '' };
}

const MAX_REQUEST_BYTES = 32 * 1024 * 1024;

const NODE_PATH = '/v1/attachments';

/** The message to a client that would wait for others that wait. */
export const BUSY = 'Cannot take the request: too many requests wait for plugins or servers; try again later';

/** Why a request is left to its client, and where that is if that is why. */
type Refusal = readonly [reason: DeclineReason, error: string, from?: ProcessPlace];

/** Takes requests, or leaves them to their clients. */
class Admission {
  isEnding = false;

  readonly #place: ProcessPlace;
  readonly #backend: Backend;
  readonly #events: ServerEvents;

  constructor(place: ProcessPlace, backend: Backend, events: ServerEvents) {
    [this.#place, this.#backend, this.#events] = [place, backend, events];
  }

  readonly answer = async (
    request: RunRequest,
    calls: BegunCalls,
    signal: AbortSignal,
  ): Promise<AnsweredCall> => {
    const why = this.#findObstacle(request, await hasGone(signal));
    if (why) return { reply: this.#refuse(...why) };
    const { ageMs = 0, key, args, env, stdin } = request;
    const asked = performance.now();
    // What hangs in one network must not hold up others.
    const turn = await this.#backend.pool.enter(
      args.length === 0 ? askerOf(env, stdin) : { network: args[1] ?? '' },
    );
    if (turn === undefined) return { reply: this.#refuse('busy', BUSY) };
    try {
      if (signal.aborted || !calls.begin(key))
        return { reply: this.#refuse('stale', 'the client has cancelled the call') };
      const told = () => calls.end(key);
      const queueMs = performance.now() - asked + Math.max(ageMs, 0);
      // If that rejects, the call counts as begun for good: its client must not make it as well.
      const reply = await this.#backend.run(request, signal, queueMs, turn);
      if (reply.declined !== undefined) this.#events.declined(reply.declined, reply.error);
      return { reply, told };
    } finally {
      turn.leave();
    }
  };

  #refuse(...[reason, error, from]: Refusal): RunAnswer {
    this.#events.declined(reason, error, from);
    return decline(reason, error);
  }

  #findObstacle({ place: theirs }: RunRequest, isGone: boolean): Refusal | undefined {
    const { executable, network, mount } = this.#place;
    if (theirs.executable !== executable)
      return ['build', `the client is executable ${theirs.executable}, the daemon ${executable}`, theirs];
    if (theirs.network !== network) return ['namespace', 'another network namespace', theirs];
    if (theirs.mount !== mount) return ['namespace', 'another mount namespace', theirs];
    // As one that was killed while this process was stopped: what it asked for may no longer be right.
    if (isGone) return ['stale', 'the client has gone'];
    if (this.isEnding) return ['ending', 'the daemon is shutting down'];
    const { problem: trouble } = this.#backend.pool;
    return trouble === undefined ? undefined : ['workers', trouble];
  }
}

/** A request over HTTP. */
const Call = z.strictObject({
  /** Command line without the executable's name. */
  args: z._default(z.array(z.string()), []),
  /** The plugin that is called; without one, and without a command line, the delegate runner is. */
  plugin: z.optional(z.string()),
  env: z.optional(z.record(z.string(), z.string())),
  stdin: z._default(z.string(), ''),
  cwd: z._default(z.string().check(z.startsWith('/', 'must be an absolute path')), '/'),
});

/** Every device, network and attachment of the node. */
const NODE = { args: ['ls', '--all', '--json'], stdin: '', cwd: '/' };

/** The request of a person, who works with the environment of the daemon; or why it is none. */
function askedOverHttp(pathname: string, body: string): z.output<typeof Call> | { readonly issue: string } {
  if (pathname === NODE_PATH) return NODE;
  const { data, error } = z.safeParse(Call, tryParse(body), { reportInput: true });
  if (data === undefined)
    return { issue: `the body is no call: ${error?.issues.map(describeIssue).join('; ')}` };
  const [command = ''] = data.args;
  if (data.args.length === 0 || DAEMON_COMMANDS.includes(command)) return data;
  return { issue: `the daemon runs no command "${command}"; it runs ${DAEMON_COMMANDS.join(', ')}` };
}

function toResponse(pathname: string, { declined, error = '', ...reply }: RunAnswer): Response {
  if (declined !== undefined) return problem(503, error);
  if (pathname === CALL_PATH) return Response.json(reply);
  return new Response(reply.stdout || reply.stderr, {
    status: reply.exitCode === 0 ? 200 : 500,
    headers: { 'content-type': 'application/json' },
  });
}

/** Answers a caller that has replaced the executable; `ending` if this daemon ends, and its service manager starts the next one. */
function succeedTo(ownStart: OwnStart | undefined, place: ProcessPlace): Response | 'ending' {
  if (ownStart === undefined) return problem(409, 'this daemon has no successor');
  try {
    const found = startSuccessor(ownStart, place);
    if (found === 'same') return problem(409, 'the executable is still the same');
    return found === 'ending' ? found : Response.json(found);
  } catch (error) {
    return problem(500, (error as Error).message);
  }
}

/** What each reason means to a reader of the log. */
const MEANING: Readonly<Record<DeclineReason, string>> = {
  request: 'the request was not made by a client of this version',
  build: 'client and daemon are different executables: start the daemon of the installed build',
  namespace:
    'client and daemon are in different network or mount namespaces: start the daemon where the runtime runs',
  stale:
    'the client stopped waiting before the daemon handled the request: the daemon was stopped or overloaded',
  busy: 'too many requests of the network, or of all networks, wait for plugins or servers that do not answer',
  workers: 'no worker could take the call',
  ending: 'the daemon is shutting down',
};

/** Minimum interval between two log lines about the same reason. */
const QUIET_MS = 60_000;

/** Counts declined calls. The first one of a reason is logged at once; after that, one line a minute gives the number. */
export class DeclinedCalls {
  readonly #log: (message: string, fields: Record<string, string | number>) => void;
  readonly #counts = new Map<DeclineReason, { count: number; last: string; told: number; toldAt: number }>();

  constructor(log: (message: string, fields: Record<string, string | number>) => void) {
    this.#log = log;
  }

  /** Counts one call. @param detail more about it, human-readable */
  add(reason: DeclineReason, detail = ''): void {
    const now = performance.now();
    const known = this.#counts.get(reason) ?? { count: 0, last: '', told: 0, toldAt: -QUIET_MS };
    const counted = { ...known, count: known.count + 1, last: new Date().toISOString() };
    this.#counts.set(reason, counted);
    if (now - known.toldAt < QUIET_MS) return;
    this.#counts.set(reason, { ...counted, told: counted.count, toldAt: now });
    const why = detail === '' ? MEANING[reason] : `${MEANING[reason]} (${detail})`;
    this.#log(`declined calls, which the clients run themselves: ${why}`, {
      reason,
      calls: counted.count - known.told,
    });
  }

  /** How many were declined for each reason, and when the last one was. */
  get counts(): Readonly<Partial<Record<DeclineReason, { readonly count: number; readonly last: string }>>> {
    return Object.fromEntries(
      [...this.#counts].map(([reason, { count, last }]) => [reason, { count, last }]),
    );
  }
}
