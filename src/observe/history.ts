// What has been attached and detached on this node, also long after the record is gone?
// README.md, "History", says what is missing here.
import { join } from 'node:path';
import type { RequestWatcher } from '../chain/run/runtime.ts';
import { derivedNameOf } from '../cni/attachment.ts';
import { stateDir } from '../cni/directories.ts';
import { findCniArgs } from '../cni/env.ts';
import { objectIn } from '../cni/invocation.ts';
import { defined, isObject, tryParse } from '../cni/json.ts';
import { RUNNER_VARIABLE } from '../files/process-stat.ts';
import { tryRead } from '../files/read-file.ts';
import { outcomeOf, podOf, type RequestRecord } from './record.ts';
import { openRotatingFile } from './rotating-file.ts';
import { maskText } from './secrets.ts';

export interface HistoryEvent {
  /** ISO time of its end. */
  readonly time: string;
  /**
   * `ADD`, `DEL`, `GC`; `SET`: a change in place; `REPAIR`: something was put back; `RECOVER`: an interrupted or failed operation was undone;
   * `ADOPT`, `HANDOVER`; `SWAP`, `INSTALL`, `UNINSTALL`: of the node, without an attachment.
   */
  readonly verb: string;
  readonly network: string;
  readonly containerId: string;
  readonly ifname: string;
  readonly podNamespace?: string;
  /** Without a namespace of pods, what people call the container. */
  readonly podName?: string;
  /** `command`, `daemon`, or `runtime`: another runtime called a plugin. */
  readonly by: string;
  /** The plugin that a runtime called. */
  readonly plugin?: string;
  /** 0 for success, else an error code of the protocol. */
  readonly code: number;
  readonly message?: string;
  /** Id of its trace, if one was kept. */
  readonly trace?: string;
}

/** A line has about 200 bytes, so this is at least 5,000 operations. */
const LIMITS = { maxBytes: 1024 * 1024, maxFiles: 2 };

/** The file below the state directory. */
export function historyFileOf(stateDir: string): string {
  return join(stateDir, 'history', 'events');
}

/** Appends events, each by one write, without secrets. A failure is ignored: no operation may fail because it cannot be noted. */
export function appendHistory(stateDir: string, events: readonly HistoryEvent[]): void {
  if (events.length === 0) return;
  const file = openRotatingFile(historyFileOf(stateDir), LIMITS);
  try {
    for (const { message, ...event } of events) {
      const told = defined({ message: message && maskText(message) });
      file.append(Buffer.from(`${JSON.stringify({ ...event, ...told })}\n`));
    }
  } catch {
    // The disk is full, or this user may not write there.
  } finally {
    file.close();
  }
}

/** All events that are kept, oldest first. Lines that were cut off are skipped. */
export function readHistory(stateDir: string): HistoryEvent[] {
  const file = historyFileOf(stateDir);
  const lines = [`${file}.1`, file].flatMap(one => tryRead(one)?.split('\n') ?? []);
  return lines.flatMap(line => {
    const value = tryParse(line);
    const isEvent = isObject(value) && KEYS.every(key => typeof value[key] === 'string');
    return isEvent ? (value as unknown as HistoryEvent) : [];
  });
}

const KEYS = ['time', 'verb', 'network', 'containerId', 'ifname', 'by'] as const;

/** Operations that change something; CHECK and STATUS do not. */
const CHANGING: readonly string[] = ['ADD', 'DEL', 'GC', 'SET', 'REPAIR'];

/** What an event says about a request. */
type Finished = Pick<
  RequestRecord,
  'verb' | 'network' | 'containerId' | 'ifname' | 'netns' | 'podNamespace' | 'podName' | 'code' | 'message'
>;

/** The event of a request that has just ended; undefined if it changed nothing. */
export function eventOf(
  finished: Finished,
  how: Pick<HistoryEvent, 'by' | 'plugin' | 'trace'>,
): HistoryEvent | undefined {
  const { verb, network, containerId, ifname, podNamespace, code, message } = finished;
  if (!CHANGING.includes(verb)) return undefined;
  const podName = finished.podName ?? derivedNameOf(finished);
  return {
    ...{ time: new Date().toISOString(), verb, network, containerId, ifname },
    ...defined({ podNamespace, podName, message }),
    code,
    ...how,
  };
}

/**
 * Notes what a process of a plugin did for a runtime. A runner of ours notes its chain itself, and a plugin that calls another one its own
 * call.
 * @param request what the plugin was sent
 * @param reply what it printed
 */
export function noteCall(
  plugin: string,
  env: Readonly<Record<string, string | undefined>>,
  request: string,
  reply: string,
): void {
  const { name: network, type } = objectIn(request) ?? {};
  if (env[RUNNER_VARIABLE] !== undefined || type !== plugin || typeof network !== 'string') return;
  const { CNI_COMMAND: verb = '', CNI_CONTAINERID: containerId = '' } = env;
  const { CNI_IFNAME: ifname = '', CNI_NETNS: netns = '', CNI_ARGS: args = '' } = env;
  const { code = 0, msg: message } = (objectIn(reply) ?? {}) as {
    readonly code?: number;
    readonly msg?: string;
  };
  const call = { verb, network, containerId, ifname, netns, ...podOf(findCniArgs(args)) };
  const event = eventOf({ ...call, code, ...defined({ message }) }, { by: 'runtime', plugin });
  if (event !== undefined) appendHistory(stateDir(env), [event]);
}

/** Notes a request that has ended and has a trace. */
export function noteRequest(stateDir: string, record: RequestRecord, by: HistoryEvent['by']): void {
  const plugin = by === 'runtime' ? record.plugins[0]?.type : undefined;
  const event = eventOf(record, { by, trace: record.id, ...defined({ plugin }) });
  if (event !== undefined) appendHistory(stateDir, [event]);
}

/** A watcher that notes each request, and nothing else of it. */
export function historyAlone(stateDir: string): RequestWatcher {
  return {
    begin: (facts, env) => ({
      env,
      id: '',
      watch: {},
      end({ error }) {
        const finished = { ...facts, ...podOf(facts.args ?? []), ...outcomeOf(error) };
        const event = eventOf(finished, { by: 'command' });
        if (event !== undefined) appendHistory(stateDir, [event]);
      },
    }),
  };
}
