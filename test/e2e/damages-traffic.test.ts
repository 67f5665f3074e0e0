// Which damages of a node does `catena doctor --traffic` find by sending packets, and at which hop?
import { expect, setDefaultTimeout, test } from 'bun:test';
import type { Finished } from '../helpers/command.ts';
import { damageRows } from '../helpers/damage-scenes.ts';
import { type DamageRow, namesOf, type Scene } from '../helpers/damage-table.ts';
import { onCatena, type WholeNode } from '../helpers/damaged-nodes.ts';
import { deadline } from '../helpers/deadline.ts';
import { expectGenerated, table } from '../helpers/generated.ts';
import { RUNTIME_ENV } from '../helpers/runtimes.ts';
import { describeRoot, requires } from '../helpers/skip.ts';
import { startServer } from '../helpers/traffic.ts';

setDefaultTimeout(deadline(420_000));

const ENV = {
  PATH: `/opt/cni/bin:${RUNTIME_ENV.PATH}`,
  CATENA_RUN_DIR: '/run/catena',
  LEASES: '/var/lib/cni/networks/shop',
};
/** Each is played on a node of its own: most of their time they wait for packets that are dropped. */
const PARTS = 6;

/** Names of the hops at which packets stop, by damage. Of the others, no packet tells. */
const FOUND: Readonly<Record<string, string>> = {
  'nft flush ruleset': 'translation (node)',
  'the address of the bridge removed': 'neighbour (container), route (node)',
  'the bridge set down': 'device (node)',
  'the default route in the container deleted': 'reply (container), route (container)',
  'ip_forward set to 0': 'forwarding (node)',
  'a foreign rule that drops forwarded packets': 'reply (node), rules (node)',
  'a foreign policy of drop': 'rules (node)',
  'a foreign DNAT of the same port': 'translation (node)',
  'nft delete table inet catena_portmap': 'translation (node)',
  'nft delete table inet catena_masquerade': 'translation (node)',
  'the bridge deleted': 'reply (node), route (node), translation (node)',
  'forwarding of the bridge turned off': 'forwarding (node), reply (node)',
  'all addresses and routes of the bridge flushed': 'neighbour (container), route (node)',
  'the default route in the container given a router that is not there':
    'neighbour (container), reply (container)',
  'the bridge deleted, and made again by another program': 'reply (node), route (node), translation (node)',
  'a routing rule that drops what containers send': 'reply (node), route (node)',
  'a route to the address of the container through another device': 'reply (node), route (node)',
  'a route that bans the container, as fail2ban makes it': 'reply (node), route (node)',
  'the address of the container given to the node': 'listener (node), route (node)',
  'the elements of all host ports deleted': 'translation (node)',
  'the ifb device deleted': 'queue (node), reply (node)',
  'the device of the container set down on the host': 'device (node)',
  'the device taken from the bridge': 'reply (node), route (node)',
  'the hairpin mode turned off': 'device (node)',
  'the address in the container removed': 'device (container), route (container)',
  'the interface in the container set down': 'device (container)',
  'the hardware address in the container changed': 'no known hop',
  'a wrong permanent neighbour in the container': 'neighbour (container), reply (container)',
  'the device of the container deleted': 'device (container), route (container)',
  'a rule about bridged packets that drops what is sent to containers': 'reply (node), rules (node)',
  'a policy that drops bridged packets': 'reply (node), rules (node)',
  'a foreign rule before all others that drops the port': 'rules (node)',
  'a wrong permanent neighbour on the host': 'neighbour (node), reply (node)',
  'a routing rule that prohibits what is sent to containers': 'reply (node), route (node)',
  'iptables -I FORWARD -i <bridge> -j DROP': 'reply (node), rules (node)',
  'a rule of iptables in the table raw that drops the port': 'rules (node)',
  'a DNAT of iptables of the same port': 'translation (node)',
  'the route of the subnet deleted': 'reply (node), route (node)',
};

type Row = DamageRow & Partial<Scene>;

const ROWS: readonly Row[] = damageRows();

interface Probe {
  readonly name: string;
  readonly what: string;
  readonly outcome: string;
  readonly hops?: readonly { readonly name: string; readonly at: string; readonly state: string }[];
}

describeRoot(
  'doctor --traffic on a damaged node',
  () => {
    const size = Math.ceil(ROWS.length / PARTS);
    const parts = Array.from({ length: PARTS }, (_, part) => ROWS.slice(part * size, (part + 1) * size));
    test.each(parts)('finds what stops packets, part %#', (...rows) =>
      onCatena(async node => {
        const seen: [string, string][] = [];
        for (const row of rows) seen.push([row.way, await play(node, row)]);
        process.stdout.write(`${JSON.stringify(seen)}\n`);
        expect(seen).toEqual(rows.map(({ way }) => [way, FOUND[way] ?? '']));
      }),
    );
  },
  requires('ip', 'nft', 'tc', 'iptables'),
);

/** Damages the node, looks, and puts it right. */
async function play(node: WholeNode, { way, damage, outcome }: Row): Promise<string> {
  const { machine, web } = node;
  const { lab } = machine;
  const names = await namesOf(node, web);
  const typed = (line: string, inside?: 'container') => {
    const options = { env: ENV, timeoutMs: deadline(60_000) };
    const argv = ['sh', '-c', line];
    return inside ? lab.run(web.netns, argv, options) : machine.run(argv, options);
  };
  const server = await startServer(lab, web.netns, { protocol: 'tcp', port: 80 });
  await typed(damage.line(names), damage.inside);
  let found = await look(typed);
  // On a busy machine, a reply may be late.
  if (found !== (FOUND[way] ?? '')) found = await look(typed);
  if (damage.undo && outcome !== 'repaired') await typed(damage.undo(names), damage.inside);
  else
    for (const { mend } of JSON.parse((await typed('catena doctor --json')).stdout).findings)
      if (mend !== undefined) await typed(mend);
  await server.stop();
  return found;
}

/** Names of the hops at which packets of the container stop. */
async function look(typed: (line: string) => Promise<Finished>): Promise<string> {
  const { stdout, stderr } = await typed('catena doctor --traffic --json');
  if (stdout === '') throw new Error(stderr);
  const { probes } = JSON.parse(stdout) as { probes: readonly Probe[] };
  // Nothing listens on the UDP port.
  const own = probes.filter(({ name, what }) => name === 'web' && !what.startsWith('UDP'));
  const failed = own.flatMap(one => (one.outcome === 'failed' && one.hops ? [one.hops] : []));
  const stops = failed.map(hops => hops.find(({ state }) => state === 'stops'));
  const hops = stops.map(hop =>
    hop ? `${hop.name} (${hop.at === 'node' ? 'node' : 'container'})` : 'no known hop',
  );
  return [...new Set(hops)].sort().join(', ');
}

test('its page says which', () => {
  const found = ROWS.filter(({ way }) => FOUND[way] !== undefined);
  const rows = found.map(({ way }) => [way, FOUND[way] ?? '']);
  expectGenerated('src/node/packet/README.md', 'traffic', table(['damage', 'packets stop at'], rows));
  const unseen = ROWS.filter(({ way }) => FOUND[way] === undefined).map(({ way }) => `* ${way}`);
  expectGenerated('src/node/packet/README.md', 'unseen', unseen);
});
