// Who has an address, and how long is there no answer at it, as a neighbour sees that asks all the time?
//
// Runs as a program in the neighbour's namespace: <interface index> <hardware address> <address>…, and says what it sees, a line of JSON each.
import net from 'node:net';
import { decodeArp, ETH_P_ARP, encodeArpProbe } from '../../src/attach/conflict.ts';
import { parseIp, renderIp } from '../../src/net/ip.ts';
import { BROADCAST, openPacketSocket, receivePacket, sendPacket } from '../../src/sys/packet-socket.ts';
import { lineReader } from '../helpers/lines.ts';
import type { Lab, Namespace, Row } from '../helpers/netns.ts';

const ASK_MS = 50;
const CONNECT_MS = 150;
const PING_S = 0.1;
/** Shorter times without an answer are not said. */
const GAP_MS = 250;

type Way = 'ping' | 'tcp';

/** What is said: another one has the address; several have; there was no answer for so long. */
export type Said = { readonly address: string; readonly at: number } & (
  | { readonly holder: string }
  | { readonly several: readonly string[] }
  | { readonly way: Way; readonly gapMs: number }
);

/** Watches addresses from a namespace. @param device of the link on which they are */
export async function watchAddresses(
  lab: Lab,
  from: Namespace,
  device: string,
  addresses: readonly string[],
) {
  const [link] = await lab.ip<Row[]>(from, 'link', 'show', device);
  const own = [String(link?.ifindex), String(link?.address)];
  // Before the others of the machine, as it is to measure what is lost, and not how busy they are.
  const program = ['nice', '-n', '-15', process.execPath, import.meta.path];
  const child = lab.start(from, [...program, ...own, ...addresses]);
  const said: Said[] = [];
  const next = lineReader(child.stdout);
  const reading = (async () => {
    for (let line = await next(); line !== ''; line = await next()) said.push(JSON.parse(line));
  })();
  return {
    said,
    async stop(): Promise<void> {
      child.kill('SIGTERM');
      await child.exited;
      await reading;
    },
  };
}

/** A time without an answer that is the network's. */
export interface Loss {
  readonly address: string;
  readonly way: Way;
  readonly ms: number;
  /** When it ended. */
  readonly at: number;
}

/** @param controls addresses that nothing happens to: a time in which one of them did not answer either is the machine's, and not counted */
export function lossesIn(said: readonly Said[], controls: readonly string[]): Loss[] {
  const gaps = said.flatMap(one => ('gapMs' in one ? [{ ...one, from: one.at - one.gapMs }] : []));
  const idle = gaps.filter(({ address }) => controls.includes(address)).sort((a, b) => a.from - b.from);
  return gaps
    .filter(({ address }) => !controls.includes(address))
    .map(({ address, way, from, at }) => {
      let [ms, begun] = [0, from];
      for (const one of idle.filter(({ way: its }) => its === way)) {
        if (one.at <= begun || one.from >= at) continue;
        ms += Math.max(0, one.from - begun);
        begun = one.at;
      }
      return { address, way, ms: ms + Math.max(0, at - begun), at };
    });
}

/** The longest in ms. */
export function longest(losses: readonly Loss[]): number {
  return Math.max(0, ...losses.map(({ ms }) => ms));
}

/** The longest few. */
export function tell(losses: readonly Loss[]): string {
  return losses
    .toSorted((a, b) => b.ms - a.ms)
    .slice(0, 12)
    .map(({ address, way, ms, at }) => `${address} ${way} ${ms} ${new Date(at).toISOString().slice(11, 23)}`)
    .join(', ');
}

if (import.meta.main) {
  const [index = '', mac = '', ...addresses] = process.argv.slice(2);
  watchHolders(Number(index), mac, addresses);
  for (const address of addresses) {
    void watchPing(address);
    watchConnections(address);
  }
}

/** Answers to probes name no asker, by which they differ from announcements and from what others were told. */
function watchHolders(index: number, mac: string, addresses: readonly string[]): void {
  const socket = openPacketSocket(index, ETH_P_ARP);
  const room = new Uint8Array(2048);
  const holders = new Map<string, string>();
  setInterval(() => {
    const answers = new Map<string, Set<string>>(addresses.map(address => [address, new Set()]));
    for (let frame = receivePacket(socket, room); frame; frame = receivePacket(socket, room)) {
      const message = decodeArp(frame.bytes);
      if (message?.target.value === 0n) answers.get(renderIp(message.sender))?.add(message.senderMac);
    }
    for (const [address, macs] of answers) {
      const [holder] = macs;
      if (macs.size > 1) say({ address, several: [...macs] });
      else if (holder !== undefined && holders.get(address) !== holder) {
        holders.set(address, holder);
        say({ address, holder });
      }
    }
    for (const address of addresses) sendPacket(socket, encodeArpProbe(mac, parseIp(address)), BROADCAST);
  }, ASK_MS);
}

async function watchPing(address: string): Promise<void> {
  const answered = gapsOf(address, 'ping');
  const child = Bun.spawn(['ping', '-n', '-i', String(PING_S), address], {
    stdout: 'pipe',
    stderr: 'ignore',
  });
  process.on('SIGTERM', () => {
    child.kill('SIGKILL');
    process.exit(0);
  });
  const next = lineReader(child.stdout);
  for (let line = await next(); line !== ''; line = await next())
    if (line.includes(' bytes from ')) answered();
}

/** A connection each time: what is open ends with the machine that has it, unless its memory moves as well. */
function watchConnections(address: string): void {
  const answered = gapsOf(address, 'tcp');
  setInterval(() => {
    const socket = net.connect(80, address, () => socket.write('GET / HTTP/1.0\r\n\r\n'));
    socket.setTimeout(2 * CONNECT_MS, () => socket.destroy());
    socket
      .on('error', () => {})
      .once('data', () => {
        answered();
        socket.destroy();
      });
  }, CONNECT_MS);
}

function gapsOf(address: string, way: Way): () => void {
  let last: number | undefined;
  return () => {
    const now = Date.now();
    if (last !== undefined && now - last > GAP_MS) say({ address, way, gapMs: now - last });
    last = now;
  };
}

function say(what: Row): void {
  process.stdout.write(`${JSON.stringify({ ...what, at: Date.now() })}\n`);
}
