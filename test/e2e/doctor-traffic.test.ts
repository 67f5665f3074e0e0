// Does `catena doctor --traffic` send packets for what is attached, find what stops them, and leave the node as it was?
import { expect, test } from 'bun:test';
import { AS_ORDINARY_USER, CATENA, requiresOrdinaryUser } from '../helpers/catena.ts';
import { fullChain, writeChain } from '../helpers/chain.ts';
import { deadline } from '../helpers/deadline.ts';
import { lineReader, within } from '../helpers/lines.ts';
import { directories, type Lab, withHost } from '../helpers/netns.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot, requires } from '../helpers/skip.ts';
import { startServer } from '../helpers/traffic.ts';

interface Seen {
  readonly name: string;
  readonly what: string;
  readonly outcome: string;
  readonly seen: string;
  readonly hops?: readonly { readonly name: string; readonly state: string; readonly mend?: string }[];
}

function operator(lab: Lab) {
  const env = { ...directories(lab.tmp), NETCONFPATH: lab.tmp, CNI_PATH: BIN_DIR };
  const run = (...argv: string[]) => lab.run(lab.host, argv, { env, timeoutMs: deadline(80_000) });
  return {
    run,
    async send(...words: string[]) {
      const { exitCode, stdout, stderr } = await run(CATENA, 'doctor', '--traffic', '--json', ...words);
      if (stdout === '') throw new Error(stderr);
      const { outcome, probes } = JSON.parse(stdout) as { outcome: string; probes: Seen[] };
      const failed = probes.filter(one => one.outcome === 'failed');
      return { exitCode, outcome, probes, failed };
    },
    async paste(line: string) {
      const { exitCode, stderr } = await run('sh', '-c', line.replaceAll('catena ', `${CATENA} `));
      if (exitCode !== 0) throw new Error(`${line}: ${stderr}`);
    },
  };
}

const portMappings = [
  { hostPort: 8080, containerPort: 80, protocol: 'tcp' },
  { hostPort: 5300, containerPort: 5300, protocol: 'udp' },
];

describeRoot(
  'doctor --traffic',
  () => {
    test(
      'sends to gateways, neighbours, outside and published ports, and changes nothing',
      () =>
        withHost(async lab => {
          const { send, run } = operator(lab);
          const [web, db] = [await lab.container(), await lab.container()];
          const outside = await lab.outside();
          const chain = writeChain(lab, fullChain(lab));
          await chain.add(web, { cap: { portMappings } });
          await chain.add(db);
          await startServer(lab, web, { protocol: 'tcp', port: 80, seconds: 100 });
          await startServer(lab, web, { protocol: 'udp', port: 5300, seconds: 100 });
          const dumps = () => Promise.all([lab.host, web, db].map(ns => lab.dump(ns)));
          const before = await dumps();
          const found = await send();
          expect([found.exitCode, found.outcome, found.failed]).toEqual([0, 'ok', []]);
          const oks = found.probes.filter(one => one.outcome === 'ok' && one.name === web.id);
          const { v4, v6 } = outside.hostAddress;
          expect(oks.map(({ what }) => what)).toEqual([
            'eth0 is up, mtu 1400',
            'gateway 10.88.0.1 replies to the container',
            'gateway fd88::1 replies to the container',
            `${db.id} replies at 10.88.0.3`,
            `${db.id} replies at fd88::3`,
            "IPv4 outside is reachable, and sees the host's address",
            "IPv6 outside is reachable, and sees the host's address",
            `${outside.address.v4} replies, beyond the uplink`,
            `${outside.address.v6} replies, beyond the uplink`,
            ...[v4, v6].flatMap(address =>
              ['outside', 'the host', 'the container itself'].map(
                from => `TCP port 8080 of ${address} is forwarded to 80, from ${from}`,
              ),
            ),
          ]);
          const udp = found.probes.filter(one => one.what.startsWith('UDP'));
          expect(udp.map(one => one.outcome)).toEqual(Array(6).fill('skipped'));
          expect(await dumps()).toEqual(before);
          const own = await lab.run(lab.host, ['ip', 'netns', 'pids', web.name]);
          expect(own.stdout.trim().split('\n')).toHaveLength(2);

          const one = await send(db.name, '--to', outside.address.v4);
          expect(new Set(one.probes.map(({ name }) => name))).toEqual(new Set([db.id]));
          expect(one.probes.filter(({ what }) => what.includes('beyond')).map(({ what }) => what)).toEqual([
            `${outside.address.v4} replies, beyond the uplink`,
          ]);
          const { stdout } = await run('env', 'COLUMNS=80', CATENA, 'doctor', '--traffic', db.name);
          expect(stdout).toContain(`${db.id}: podnet eth0, 10.88.0.3, fd88::3\n  ok       eth0 is up`);
          expect(stdout.split('\n').filter(line => line.length > 80)).toEqual([]);
          expect(stdout).toMatch(/\n\d+ checks passed, in /);

          const wrong = await run(CATENA, 'doctor', '--traffic', '--to', 'nowhere');
          expect([wrong.exitCode, wrong.stderr]).toEqual([
            2,
            expect.stringContaining('expected an address, or one with a TCP port'),
          ]);
          const user = await run(...AS_ORDINARY_USER, CATENA, 'doctor', '--traffic');
          expect([user.exitCode, user.stderr]).toEqual([1, expect.stringContaining('Run as root')]);
          expect((await run(CATENA, 'doctor', web.name)).exitCode).toBe(2);
        }),
      deadline(110_000),
    );

    test(
      'names the hop at which packets stop, with a mend that helps',
      () =>
        withHost(async lab => {
          const { send, paste, run } = operator(lab);
          const web = await lab.container();
          await lab.outside();
          const chain = writeChain(lab, fullChain(lab));
          await chain.add(web, { cap: { portMappings: [portMappings[0]] } });
          const server = await startServer(lab, web, { protocol: 'tcp', port: 80, seconds: 100 });
          const damages: [make: string, what: string, hop: string][] = [
            ['nft delete table inet catena_portmap', 'TCP port 8080', 'translation'],
            [`nsenter --net=${web.path} ip route del default`, 'IPv4 outside', 'route'],
            ['iptables -P FORWARD DROP', 'beyond the uplink', 'rules'],
            [
              `nft 'table inet own { chain in { type filter hook input priority 0; icmp type echo-request drop; }; }'`,
              'gateway 10.88.0.1',
              'rules',
            ],
            [
              `nft 'table ip own { chain in { type filter hook input priority 0; policy drop; ct state established accept; }; }'`,
              'gateway 10.88.0.1',
              'rules',
            ],
            ['ip addr del 10.88.0.1/16 dev br0', 'gateway 10.88.0.1', 'neighbour'],
          ];
          for (const [make, what, hop] of damages) {
            await paste(make);
            const { exitCode, failed } = await send();
            const [first] = failed.filter(one => one.what.includes(what));
            const { name, state, mend = '' } = first?.hops?.at(-1) ?? {};
            const seen = [make, exitCode, failed.map(one => [one.what, one.hops?.at(-1)?.name]), name, state];
            expect(seen).toEqual([make, 1, seen[2], hop, 'stops']);
            await paste(mend);
            const healed = await send();
            expect([make, mend, healed.failed]).toEqual([make, mend, []]);
          }
          await server.stop();
          const { exitCode, failed } = await send();
          expect([exitCode, failed.map(({ hops }) => hops?.at(-1))]).toMatchObject([
            1,
            expect.arrayContaining([expect.objectContaining({ name: 'listener', state: 'stops' })]),
          ]);
          // One cause is told once.
          const { stdout } = await run(CATENA, 'doctor', '--traffic');
          expect(stdout.match(/no process listens/g)).toHaveLength(1);
          expect(stdout.match(/^ +as above$/gm)?.length).toBe(failed.length - 1);
        }),
      deadline(170_000),
    );

    test(
      'measures rates on request, and asks DNS servers',
      () =>
        withHost(async lab => {
          const { send } = operator(lab);
          const web = await lab.container();
          const list = fullChain(lab, { rate: 10_000_000 });
          list.plugins[0].dns = { nameservers: ['10.88.0.1'] };
          list.plugins[0].ipam.ranges.length = 1;
          await writeChain(lab, list).add(web);
          const usual = await send();
          expect(usual.failed).toMatchObject([
            {
              what: 'DNS server 10.88.0.1 answers',
              hops: expect.arrayContaining([expect.objectContaining({ name: 'listener', state: 'stops' })]),
            },
          ]);
          const echoing =
            "await Bun.udpSocket({ port: 53, socket: { data: (own, ...all) => own.send(...all) } }); console.log('ready')";
          const dns = lab.start(lab.host, [process.execPath, '-e', echoing]);
          expect(await within(deadline(10_000), 'a DNS server', lineReader(dns.stdout)())).toBe('ready');
          const found = await send('--rates');
          expect(found.failed).toEqual([]);
          expect(found.probes.filter(({ what }) => /^at most|^DNS/.test(what))).toMatchObject([
            { what: 'DNS server 10.88.0.1 answers', outcome: 'ok' },
            { what: 'at most 10 Mbit into the container', outcome: 'ok' },
            { what: 'at most 10 Mbit out of the container', outcome: 'ok' },
          ]);
        }),
      deadline(110_000),
    );
  },
  requires('iptables'),
  requiresOrdinaryUser(),
);
