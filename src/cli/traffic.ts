// What does `catena doctor --traffic` do?

import { peersIn } from '../between/note.ts';
import { runDir } from '../cni/directories.ts';
import { defined } from '../cni/json.ts';
import { type Probe, runProbe } from '../lab/probes.ts';
import { renderProbe } from '../lab/report.ts';
import { count, painter, renderTime } from '../lab/words.ts';
import { findIp } from '../net/ip.ts';
import type { NodeModel } from '../node/model.ts';
import { type ExtraTraffic, type Target, Traffic, targetsOf } from '../node/packet/traffic.ts';
import { whyNot } from '../node/packet/why-not.ts';
import { titleOf } from '../node/words.ts';
import { pause } from '../wait.ts';
import type { AnswerOf } from './answers/kinds.ts';
import { type CommandCall, UsageError } from './command.ts';
import { FAILURE, INCOMPLETE, SUCCESS } from './exit-codes.ts';
import { factsFor, readNodeFor } from './node/read.ts';
import { adviceFor, renderHops } from './node/walk.ts';
import { isData } from './output/format.ts';
import { printAnswer } from './output/print.ts';
import { findKnown } from './running/container.ts';
import { runtimeOf } from './target.ts';
import { foldText, styleOf, widthOf } from './terminal/lines.ts';
import { openProgress } from './terminal/progress.ts';

type Seen = AnswerOf<'TrafficReport'>['probes'][number];

const EXIT_CODES = { ok: SUCCESS, failed: FAILURE, incomplete: INCOMPLETE } as const;

/** Sends packets for what is attached. @returns 0 if all are answered, 1 if one is not, 3 if none could be sent */
export async function run(call: CommandCall): Promise<number> {
  const wanted = { beyond: beyondOf(call), rates: call.on('rates') };
  const [given] = call.positionals;
  if (process.getuid?.() !== 0)
    throw new Error('Cannot send packets from containers: only root may enter their namespaces. Run as root');
  const facts = factsFor(call);
  const id = given === undefined ? undefined : findKnown(given, call.cwd, runtimeOf(call)).containerId;
  const model = await readNodeFor(call, { facts });
  const targets = targetsOf(model.attachments, facts.attachments().attachments);
  const chosen = targets.filter(({ shown }) => id === undefined || shown.containerId === id);
  const started = performance.now();
  const open = () => new Traffic(targets, wanted, runDir(call.env));
  const probes = chosen.length ? await sendAll(call, model, open(), chosen) : [];
  const outcomes = new Set(probes.map(({ outcome }) => outcome));
  const outcome = outcomes.has('failed')
    ? 'failed'
    : outcomes.has('ok') || outcomes.size === 0
      ? 'ok'
      : 'incomplete';
  const ms = performance.now() - started;
  await printAnswer(call, 'TrafficReport', { outcome, probes }, () => renderVerdict(call, probes, ms));
  return EXIT_CODES[outcome];
}

/** What is printed for people is printed as soon as it is known. */
async function sendAll(
  call: CommandCall,
  model: NodeModel,
  traffic: Traffic,
  chosen: readonly Target[],
): Promise<Seen[]> {
  const all: Seen[] = [];
  const progress = openProgress(call, 'traffic');
  const tell = (lines: readonly string[]) => {
    if (isData(call)) return;
    progress.clear();
    call.out(foldText(`${lines.join('\n')}\n`, widthOf(call)));
  };
  let told: readonly string[] = [];
  const { signal } = call;
  try {
    for (const target of chosen) {
      const { network, containerId, ifname, addresses } = target.shown;
      const name = titleOf(target.shown);
      const where = [`${network} ${ifname}`, ...addresses.map(text => text.replace(/\/.*/, ''))].join(', ');
      tell([`${painter(styleOf(call))('bold', name)}: ${where}`]);
      const found = traffic.probesOf(target);
      const skip = (seen: string): Probe => ({ what: 'packets', run: () => ({ outcome: 'skipped', seen }) });
      const probes = typeof found === 'string' ? [skip(found)] : found;
      for (const probe of probes) {
        progress.step(`${name}: ${probe.what}`);
        // Sockets are waited for without a pause: signals are heard, and the progress is drawn, between two probes.
        await pause(0);
        signal.throwIfAborted();
        const seen = { network, containerId, ifname, name, ...send(call, model, traffic, target, probe) };
        all.push(seen);
        const hops = renderBad(call, seen);
        const isSame = hops.length > 0 && hops.join('\n') === told.join('\n');
        tell([...renderProbe(seen, painter(styleOf(call))), ...(isSame ? [`${GAP}as above`] : hops)]);
        if (hops.length) told = hops;
      }
    }
  } finally {
    progress.end();
    traffic.close();
  }
  return all;
}

/** A packet that fails, and one that could not be sent, is followed by the rules and routes of the kernel. */
function send(
  call: CommandCall,
  model: NodeModel,
  traffic: Traffic,
  target: Target,
  { what, run: ask, sends, isFollowed }: Probe,
): Pick<Seen, 'what' | 'outcome' | 'seen' | 'hops'> {
  const { outcome, seen } = runProbe(ask);
  if (sends === undefined || outcome === 'ok' || (outcome === 'skipped' && !isFollowed))
    return { what, outcome, seen };
  const ends = traffic.endsOf(sends, target);
  const walk = whyNot(model, ...ends, adviceFor(call), peersIn(runDir(call.env)));
  if (outcome === 'failed') return { what, outcome, seen, hops: walk.hops };
  const isStopped = walk.outcome === 'stopped';
  return {
    what,
    outcome: isStopped ? 'failed' : 'skipped',
    seen: isStopped ? 'it would not arrive' : seen,
    ...defined({ hops: isStopped ? walk.hops : undefined }),
  };
}

/** Below a failure, the hops that do not let the packet pass. */
function renderBad(call: CommandCall, seen: Seen): string[] {
  const style = { ...styleOf(call), width: widthOf(call) };
  if (seen.hops === undefined) return [];
  const bad = seen.hops.filter(({ state }) => state !== 'passes');
  const hops = bad.length
    ? renderHops(bad, { ...style, width: style.width && style.width - GAP.length })
    : ['no hop is known that stops it: rules and routes let it pass'];
  return hops.map(line => `${GAP}${line}`);
}

const GAP = ' '.repeat(11);

function renderVerdict(call: CommandCall, probes: readonly Seen[], ms: number): string {
  const paint = painter(styleOf(call));
  const failed = probes.filter(({ outcome }) => outcome === 'failed').length;
  const ok = probes.filter(({ outcome }) => outcome === 'ok').length;
  const time = paint('dim', `in ${renderTime(ms)}`);
  if (probes.length === 0) return 'nothing is attached, so nothing was sent\n';
  const skipped = probes.length - ok - failed;
  const rest = skipped ? `, ${skipped} skipped` : '';
  if (failed)
    return `${paint('red', `${count(failed, 'check')} of ${probes.length} failed`)}${rest}, ${time}\n`;
  if (ok === 0) return `${paint('yellow', 'nothing could be sent')}, ${time}\n`;
  return `${paint('green', `${count(ok, 'check')} passed`)}${rest}, ${time}\n`;
}

const BEYOND = /^(?:\[(?<v6>[^\]]+)\]|(?<v4>[\d.]+)):(?<port>\d{1,5})$/;

/** `--to`: an address, or one with a TCP port. */
function beyondOf(call: CommandCall): ExtraTraffic['beyond'] {
  const text = call.text('to');
  if (text === undefined) return undefined;
  const { v4, v6 = v4 ?? text, port } = BEYOND.exec(text)?.groups ?? {};
  const address = findIp(v6);
  if (address && Number(port ?? 1) > 0 && Number(port ?? 1) < 65_536)
    return { address, ...(port === undefined ? {} : { port: Number(port) }) };
  throw new UsageError(
    `Cannot use --to "${text}": expected an address, or one with a TCP port: 192.0.2.1:443 or [2001:db8::1]:443`,
  );
}
