// Which commands answer the page, and how often do they run?
import { createHash } from 'node:crypto';
import { keyOf } from '../cni/attachment.ts';
import type { NodeHealth, NodeModel } from '../node/model.ts';
import type { RequestSummary, ShownLease, ShownNode, ShownRequest } from './shown.ts';

/** What was read, as the text that is sent. */
interface Snapshot {
  readonly text: string;
  /** Changes with the content. */
  readonly etag: string;
  /** Unix time in milliseconds at which reading ended. */
  readonly at: number;
}

/** A reading rests for at least so many times as long as it took, so it costs a bounded share of a processor. */
const REST_FACTOR = 9;

/** Something that is read when it is asked for, at most once at a time, and again only after a rest. */
type Reading = ReturnType<typeof openReading>;

/** @param restMs the shortest time between the end of a reading and the start of the next */
export function openReading(read: () => Promise<string>, restMs: number, now: () => number = Date.now) {
  let latest: Snapshot | undefined;
  let readAgainAt = 0;
  let tookMs = 0;
  let hurriedMs: number | undefined;
  let running: Promise<Snapshot> | undefined;
  const readNow = async (): Promise<Snapshot> => {
    const started = now();
    hurriedMs = undefined;
    const text = await read();
    const at = now();
    latest = { text, etag: etagOf(text), at };
    tookMs = at - started;
    const usual = Math.max(restMs, REST_FACTOR * tookMs);
    readAgainAt = at + Math.min(usual, Math.max(hurriedMs ?? usual, tookMs));
    return latest;
  };
  return {
    /** The latest snapshot, whatever its age. */
    get latest(): Snapshot | undefined {
      return latest;
    },
    /** A snapshot that is recent. @throws what reading throws; it is tried again at the next call */
    async get(): Promise<Snapshot> {
      if (latest !== undefined && now() < readAgainAt) return latest;
      running ??= readNow().finally(() => {
        running = undefined;
      });
      return running;
    },
    /** Shortens the rest because something has changed, to this time or to that which the reading took if that is longer. */
    hurry(toMs: number): void {
      // One that is running may have begun before the change.
      if (running !== undefined) hurriedMs = toMs;
      else if (latest !== undefined) readAgainAt = Math.min(readAgainAt, latest.at + Math.max(toMs, tookMs));
    },
  };
}

function etagOf(text: string): string {
  return `"${createHash('sha256').update(text).digest('base64url').slice(0, 22)}"`;
}

/**
 * Runs a command of the tool with the directories of this one.
 * @param args the command, its arguments and options, without `--json`
 * @returns what it printed; commands that report what is broken print it and fail
 * @throws Error with its message if it printed nothing
 */
export type Ask = (args: readonly string[]) => Promise<string>;

/** What answers the paths below `api/`. */
export type Sources = ReturnType<typeof openSources>;

/** The node is read as often as the page asks. */
const NODE_REST_MS = 1_500;
/** CHECK starts the plugins of every attachment, so it rests longer, unless the node has changed. */
const CHECK_REST_MS = 15_000;
const CHECK_AFTER_CHANGE_MS = 2_000;
/** The doctor checks every attachment, too. */
const DOCTOR_REST_MS = 15_000;
const REST_MS = 3_000;
const ANSWER_FIRST_MS = 50;

const LOG_SINCE = '7d';
const TRACE_PATH = /^traces\/([\da-z]{12})$/;
const LIST_PATH = /^lists\/([\w.-]+)$/;
/** The ends are names, addresses and ports as they are typed: no path of a file, and no option. */
const PACKET_PATH = /^why-not\/(?!.*\.\.)((?:\w[\w.:/-]*)?)~([\w:[][\w.:/[\]-]*)$/;
const MOST_PACKET_CHARS = 400;

/** Nothing is read before the page asks for it. */
export function openSources(ask: Ask) {
  const checks = openReading(async () => {
    const { attachments } = JSON.parse(await ask(['ls', '--check'])) as NodeModel;
    return JSON.stringify(attachments.map(one => [keyOf(one), one.health]));
  }, CHECK_REST_MS);
  const node = openReading(() => ask(['ls']), NODE_REST_MS);
  let nodeEtag = '';
  let checkProblem: string | undefined;
  const readings: Readonly<Record<string, Reading>> = {
    findings: openReading(() => ask(['doctor']), DOCTOR_REST_MS),
    leases: openReading(() => readLeases(ask, node), REST_MS),
    networks: openReading(() => ask(['networks']), CHECK_REST_MS),
    log: openReading(() => ask(['log', `--since=${LOG_SINCE}`]), REST_MS),
    traces: openReading(async () => JSON.stringify(summaries(await ask(['log', '--requests']))), REST_MS),
  };

  async function check(): Promise<void> {
    checkProblem = await checks.get().then(
      () => undefined,
      ({ message }: Error) => message,
    );
  }

  /** Does not wait for CHECK: the page shows what the last one reported, and when. */
  async function answerNode(): Promise<Snapshot> {
    const { text, at } = await node.get();
    const { time, ...model } = JSON.parse(text) as NodeModel;
    const etag = etagOf(JSON.stringify(model));
    if (etag !== nodeEtag) checks.hurry(CHECK_AFTER_CHANGE_MS);
    nodeEtag = etag;
    // After this answer is on its way: reading a large node keeps the process busy.
    setTimeout(check, ANSWER_FIRST_MS).unref();
    const shown = withHealth(model, checks.latest, checkProblem);
    // The tag ignores the time of reading.
    return { text: JSON.stringify({ time, ...shown }), etag: etagOf(JSON.stringify(shown)), at };
  }

  /** The file is the one that the node's model names; a network without one has no explanation. */
  async function answerList(network: string): Promise<Snapshot> {
    const { networks } = JSON.parse((await node.get()).text) as NodeModel;
    const file = networks.find(({ name }) => name === network)?.file;
    return fresh(file === undefined ? '{"plugins":[]}' : await ask(['validate', '--explain', '--', file]));
  }

  return {
    /** @returns undefined if there is no such path */
    answer(path: string): Promise<Snapshot> | undefined {
      const ends = path.length > MOST_PACKET_CHARS ? null : PACKET_PATH.exec(path);
      if (ends !== null) return ask(['why-not', '--', ...ends.slice(1).filter(Boolean)]).then(fresh);
      if (path === 'node') return answerNode();
      const [, id] = TRACE_PATH.exec(path) ?? [];
      if (id !== undefined) return ask(['log', id]).then(fresh);
      const [, network] = LIST_PATH.exec(path) ?? [];
      if (network !== undefined) return answerList(network);
      return Object.hasOwn(readings, path) ? readings[path]?.get() : undefined;
    },
  };
}

function fresh(text: string): Snapshot {
  return { text, etag: etagOf(text), at: Date.now() };
}

function withHealth(
  model: Omit<NodeModel, 'time'>,
  checked: Snapshot | undefined,
  checkProblem: string | undefined,
): Omit<ShownNode, 'time'> {
  const health = new Map(checked && (JSON.parse(checked.text) as [string, NodeHealth | undefined][]));
  return {
    ...model,
    attachments: model.attachments.map(one => {
      const found = health.get(keyOf(one));
      return found === undefined ? one : { ...one, health: found };
    }),
    ...(checked === undefined ? {} : { checkedAt: new Date(checked.at).toISOString() }),
    ...(checkProblem === undefined ? {} : { checkProblem }),
  };
}

/** The leases of every network that has a directory for them. */
async function readLeases(ask: Ask, node: Reading): Promise<string> {
  const { networks } = JSON.parse((await node.get()).text) as NodeModel;
  const leases: ShownLease[] = [];
  for (const { name, leaseDirs } of networks) {
    if (leaseDirs.length === 0) continue;
    // A directory that does not exist yet has no leases.
    const text = await ask(['ipam', 'ls', '--', name]).catch(() => '{"items":[]}');
    leases.push(...itemsIn<ShownLease>(text));
  }
  return JSON.stringify(leases);
}

/** What a list of requests shows; the newest come first. */
function summaries(text: string): RequestSummary[] {
  return itemsIn<ShownRequest>(text)
    .reverse()
    .map(record => {
      const { id, verb, network, containerId, ifname, startedAt, durationMs, code } = record;
      return { id, verb, network, containerId, ifname, startedAt, durationMs, code };
    });
}

function itemsIn<T>(text: string): T[] {
  return (JSON.parse(text) as { items: T[] }).items;
}
