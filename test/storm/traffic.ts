// Do packets pass to every attachment that stands, by its addresses and by its port of the host?

import { ask } from './actors/listeners.ts';
import type { Namespaces } from './actors/namespaces.ts';
import type { Violation } from './history.ts';
import { addressesOf, type Entry, hostDevicesOf, type Model } from './model.ts';
import { keyOf, LISTEN_PORT, NETS } from './networks.ts';
import { tool } from './node.ts';

/** An attachment and what did not answer. */
interface Silent {
  readonly entry: Entry;
  readonly problems: readonly string[];
}

/** How long what the reference made may take: its gateways are checked for duplicates first. */
const PATIENCE_MS = 8_000;

/** Attachments that do not answer as promised. */
export async function findSilent(
  model: Model,
  namespaces: Namespaces,
  watchesNeighbours: boolean,
): Promise<Violation[]> {
  const standing = model.list('present').filter(entry => model.isInPlace(entry) && NETS[entry.net].isReached);
  await namespaces.listen([...new Set(standing.map(({ slot }) => slot))]);
  // The listener of a busy machine may be slow once; a neighbour's old entry lasts for eight seconds.
  const slow = await silentAmong(standing, model, namespaces);
  if (slow.length === 0) return [];
  const first = await silentAmong(
    slow.map(({ entry }) => entry),
    model,
    namespaces,
  );
  if (first.length === 0) return [];
  const devices = first.flatMap(({ entry }) => NETS[entry.net].bridge ?? hostDevicesOf(entry));
  for (const device of new Set(devices)) await tool(['ip', 'neigh', 'flush', 'dev', device]);
  let silent = await silentAmong(standing, model, namespaces);
  const rule = 'present: it answers only once the host has forgotten its neighbour';
  const ours = first.filter(({ entry }) => entry.by !== 'reference');
  if (silent.length === 0 && !watchesNeighbours) return [];
  if (silent.length === 0) return ours.map(one => ({ rule, text: textOf(one) }));
  const giveUpAt = performance.now() + PATIENCE_MS;
  while (silent.some(({ entry }) => entry.by === 'reference') && performance.now() < giveUpAt) {
    await Bun.sleep(500);
    silent = await silentAmong(standing, model, namespaces);
  }
  return silent.map(one => ({ rule: 'present: it does not answer', text: textOf(one) }));
}

function textOf({ entry, problems }: Silent): string {
  return `${keyOf(entry)} (${entry.by}): ${problems.join('; ')}`;
}

async function silentAmong(
  entries: readonly Entry[],
  model: Model,
  namespaces: Namespaces,
): Promise<Silent[]> {
  const problems = await Promise.all(entries.map(entry => problemsOf(entry, model, namespaces)));
  return entries
    .map((entry, i) => ({ entry, problems: problems[i] ?? [] }))
    .filter(one => one.problems.length > 0);
}

async function problemsOf(entry: Entry, model: Model, namespaces: Namespaces): Promise<string[]> {
  const { slot, net, hostPort, portUnsure, damaged } = entry;
  const addresses = addressesOf(entry);
  // Whose lease was lost may still have the address that this one was given.
  if (addresses.some(address => model.othersWithAddress(entry, address).length > 0)) return [];
  const asked = addresses.map((address): [string, number] => [address, LISTEN_PORT]);
  // The networks of a pod share a port: the first keeps it while it is there.
  const sharers = model
    .list('present', 'whole', 'unknown')
    .filter(one => one.pod === entry.pod && one.hostPort === hostPort);
  const hasPort = hostPort !== undefined && !portUnsure && !damaged && sharers.length === 1;
  // The gateway's address is the host's, and in the container's own subnet: it needs no route of its own.
  for (const { gateway } of entry.result?.ips ?? []) {
    if (gateway !== undefined && hasPort) asked.push([gateway, hostPort]);
  }
  const answers = await Promise.all(asked.map(([host, port]) => ask(host, port)));
  const token = namespaces.tokenOf(slot);
  return answers.flatMap((answer, i) => {
    const where = asked[i]?.join(' port ');
    if (typeof answer === 'string') return [`${where}: ${answer}`];
    if (answer.token !== token) return [`${where}: ${answer.token} answers, not ${token}`];
    const { somaxconn } = NETS[net];
    const isSet =
      somaxconn === undefined || asked[i]?.[1] !== LISTEN_PORT || answer.somaxconn === String(somaxconn);
    return isSet ? [] : [`net.core.somaxconn is ${answer.somaxconn}`];
  });
}
