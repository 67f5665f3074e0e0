// How does the daemon listen, decline, and stop?
import { mkdirSync } from 'node:fs';
import { dirname } from 'node:path';
import { inEnvelope } from '../answers/envelope.ts';
import { ErrorCode } from '../cni/errors.ts';
import { commandOf, toResponse } from './api.ts';
import { type BegunCalls, hasGone } from './calls.ts';
import { listen, type OpenDoor, problem } from './door.ts';
import { networkIn } from './plugin-calls.ts';
import {
  type Declined,
  type DeclineReason,
  HANDOVER_PATH,
  isDeclined,
  type PingReply,
  type Place,
  type RunAnswer,
  type RunReply,
  type RunRequest,
  SILENCE_MS,
  STOP_PATH,
  SUCCESSION_PATH,
} from './protocol.ts';
import { RequestLimiter, SERVER_LIMITS, type ServerLimits, type ServerState } from './request-limiter.ts';
import { type OwnStart, type Succession, startSuccessor } from './succession.ts';
import { ownPlace, type Seat, takeSeat, trySeat, whoListens } from './who-listens.ts';
import type { AnswerCall, AnsweredCall } from './wire-server.ts';

/** What the server runs for its clients. */
export interface Backend {
  /** Runs a command as its own process would; never rejects. The signal is aborted when the client has gone. */
  run(request: RunRequest, signal: AbortSignal, queueMs: number): Promise<RunAnswer>;
  /** Answers all other HTTP requests; undefined for a path that it does not know. */
  answer(request: Request, state: ServerState): Promise<Response | undefined>;
  /** Why no call can be served now; undefined if calls can be. */
  readonly problem: string | undefined;
}

/** Events of the server that its owner is told about. */
export interface ServerEvents {
  /** A client was told to make its call itself. @param from where it is, if that is why */
  declined(reason: DeclineReason, detail?: string, from?: Place): void;
  /** The socket was missing and has been created again. */
  restored(why: string): void;
  /** A client has asked for the end. */
  stopped(): void;
  /** Another daemon has the socket, because it asked for it or because ours was removed: time to end. */
  replaced(why: string): void;
}

/** Options of the server. */
export interface ServerOptions {
  readonly limits?: ServerLimits | undefined;
  /** Asks a daemon that already listens to hand over. */
  readonly replace?: boolean | undefined;
  /** How this daemon was started, if it may start a successor. */
  readonly ownStart?: OwnStart | undefined;
  /** What a ping reports as the daemon's version. */
  readonly version?: string | undefined;
}

/** A listening daemon. */
export interface Server {
  readonly state: ServerState;
  /** The daemon's place; calls from other places are declined. */
  readonly place: Place;
  /** What it is doing now. */
  activity(): ServerState & { readonly connections: number };
  /** Changes the limits for future requests. */
  setLimits(limits: ServerLimits): void;
  /** Runs work when its turn comes; undefined if that does not come. @param group the network */
  admit<T>(group: string, work: (queueMs: number) => Promise<T>): Promise<T | undefined>;
  /** Accepts no new requests, answers those that it has, and closes. New clients run their chains themselves. */
  stop(): Promise<void>;
}

/** For callers that need no events. */
const UNTOLD: ServerEvents = { declined() {}, restored() {}, stopped() {}, replaced() {} };

/** How often the daemon checks that its socket still exists. */
const LOOK_EVERY_MS = 1_000;

/**
 * Listens on a unix socket that only its owner may open. The socket gets its name once it listens, so a client never finds a name
 * without a daemon behind it.
 * @throws SeatTaken if another daemon listens on it
 */
export async function startServer(
  socketPath: string,
  backend: Backend,
  events: ServerEvents = UNTOLD,
  { limits = SERVER_LIMITS, replace = false, version = '', ownStart }: ServerOptions = {},
): Promise<Server> {
  const place = await ownPlace();
  const gate = new RequestLimiter(limits);
  let seat: Seat | undefined = await takeSeat(socketPath, replace);
  const doors: OpenDoor[] = [];
  let current = openDoor();
  let ending = false;
  let isLooking = false;
  const look = setInterval(async () => {
    if (isLooking) return;
    isLooking = true;
    // If the socket cannot be created now, the next check tries again.
    await restore().catch(() => {});
    isLooking = false;
  }, LOOK_EVERY_MS);
  look.unref();

  function openDoor(): OpenDoor {
    const answer = (calls: BegunCalls): AnswerCall => {
      return (request, signal) => answerTo(request, calls, signal);
    };
    const door = listen(socketPath, limits.bytes, { serve, answer, ping, refuse: events.declined });
    doors.push(door);
    return door;
  }

  function ping(): PingReply {
    const { running, queued } = gate.state;
    const uptimeSeconds = Math.floor(process.uptime());
    return { version, executable: place.executable, pid: process.pid, running, queued, uptimeSeconds };
  }

  async function serve(request: Request): Promise<Response> {
    const { pathname } = new URL(request.url);
    if (request.method === 'POST' && pathname === HANDOVER_PATH) return handOver();
    if (request.method === 'POST' && pathname === SUCCESSION_PATH) return succession();
    if (request.method === 'POST' && pathname === STOP_PATH) {
      leave();
      events.stopped();
      return Response.json(inEnvelope('DaemonProcess', { pid: process.pid }));
    }
    const body = request.method === 'POST' ? await request.text() : '';
    const asked = commandOf(request.method, pathname, body);
    if (asked) return 'args' in asked ? runVerb(asked.args, request.signal) : problem(400, asked.problem);
    return (await backend.answer(request, gate.state)) ?? problem(404, 'no such path');
  }

  async function answerTo(
    request: RunRequest,
    calls: BegunCalls,
    signal: AbortSignal,
  ): Promise<AnsweredCall> {
    const why = findObstacle(request, await hasGone(signal));
    if (why) return { reply: why };
    const { ageMs = 0 } = request;
    const answered = await gate.admit(groupOf(request), async (queueMs): Promise<AnsweredCall> => {
      if (signal.aborted || !calls.begin(request.key))
        return { reply: decline('stale', 'the client has cancelled the call') };
      const told = () => calls.end(request.key);
      try {
        return { reply: await backend.run(request, signal, queueMs + Math.max(ageMs, 0)), told };
      } catch (error) {
        told();
        throw error;
      }
    });
    if (answered === undefined) return { reply: refuse('busy', BUSY) };
    if (isDeclined(answered.reply)) events.declined(answered.reply.declined, answered.reply.error);
    return answered;
  }

  function refuse(reason: DeclineReason, error: string, from?: Place): Declined {
    events.declined(reason, error, from);
    return decline(reason, error);
  }

  function findObstacle(request: RunRequest, isGone: boolean): Declined | undefined {
    const { place: theirs, ageMs = 0, silentMs = ageMs } = request;
    if (theirs.executable !== place.executable)
      return refuse(
        'build',
        `the client is executable ${theirs.executable}, the daemon ${place.executable}`,
        theirs,
      );
    if (theirs.network !== place.network) return refuse('namespace', 'another network namespace', theirs);
    if (theirs.mount !== place.mount) return refuse('namespace', 'another mount namespace', theirs);
    if (isGone) return refuse('stale', 'the client has gone');
    // Its client has given up, or was killed while this process was stopped: what it asked for may no longer be right.
    if (Math.abs(silentMs) > SILENCE_MS)
      return refuse('stale', `the daemon did not come to it for ${silentMs} ms`);
    if (ending) return refuse('ending', 'the daemon is shutting down');
    const { problem: trouble } = backend;
    return trouble === undefined ? undefined : refuse('workers', trouble);
  }

  async function runVerb(args: readonly string[], signal: AbortSignal): Promise<Response> {
    if (await hasGone(signal)) return problem(503, 'the client has gone');
    const request = { place, args, cwd: '/', env: process.env, key: crypto.randomUUID() };
    const reply =
      (await gate.admit(groupOf(request), queueMs => backend.run(request, signal, queueMs))) ?? OVERLOADED;
    return toResponse(reply);
  }

  /** Its caller has replaced the executable. */
  function succession(): Response {
    if (ownStart === undefined || ending) return problem(409, 'this daemon has no successor');
    let found: Succession;
    try {
      found = startSuccessor(ownStart, place);
    } catch (error) {
      return problem(500, (error as Error).message);
    }
    if (found === 'same') return problem(409, 'the executable is still the same');
    if (found !== 'ending') return Response.json(found);
    leave();
    events.stopped();
    return Response.json({});
  }

  function handOver(): Response {
    leave();
    events.replaced('another daemon is replacing this one');
    return Response.json(inEnvelope('DaemonProcess', { pid: process.pid }));
  }

  /** Gives the socket up for another daemon. */
  function leave(): void {
    ending = true;
    clearInterval(look);
    current.remove();
    seat?.release();
    seat = undefined;
  }

  /** Creates the socket again if it was removed, alone or with its directory. Leaves if another daemon has the name. */
  async function restore(): Promise<void> {
    if (ending || (current.isWhole() && seat?.holds())) return;
    mkdirSync(dirname(socketPath), { recursive: true, mode: 0o700 });
    const listener = current.isThere() ? undefined : await whoListens(socketPath);
    // One that is ending leaves the name free in a moment.
    if (ending || listener === 'ending') return;
    if (listener !== undefined) {
      leave();
      events.replaced(`another daemon listens on "${socketPath}"`);
      return;
    }
    const fresh = seat?.holds() ? seat : trySeat(socketPath);
    // Another daemon is starting: either it finds that this one listens, or it will listen itself.
    if (fresh === undefined) return;
    if (fresh !== seat) seat?.release();
    seat = fresh;
    if (current.isWhole()) return;
    const former = current;
    current = openDoor();
    void former.close();
    events.restored(`the socket "${socketPath}" no longer existed: listening again`);
  }

  return {
    get state() {
      return gate.state;
    },
    place,
    activity: () => ({
      ...gate.state,
      connections: doors.reduce((sum, { connections }) => sum + connections, 0),
    }),
    setLimits(next) {
      gate.limits = next;
    },
    admit: (group, work) => gate.admit(group, work),
    async stop() {
      leave();
      await Promise.all(doors.map(door => door.close()));
    },
  };
}

/** The message to a client whose turn does not come. */
export const BUSY = 'Cannot take the request: too many requests wait for plugins or servers; try again later';

/** The network that a request is for: what hangs in one network must not hold up others. */
function groupOf({ stdin, args }: RunRequest): string {
  return stdin === undefined ? (args[1] ?? '') : networkIn(stdin);
}

const OVERLOADED: RunReply = {
  exitCode: 1,
  stdout: JSON.stringify({ code: ErrorCode.tryAgainLater, msg: BUSY }),
  stderr: `catena: ${BUSY}\n`,
};

function decline(declined: DeclineReason, error: string): Declined {
  return { declined, error };
}
