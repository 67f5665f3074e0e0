// Does `catena why-not` follow packets in every direction, through rules of other programs, as real packets go?
import { expect, test } from 'bun:test';
import fs from 'node:fs';
import { AS_ORDINARY_USER, CATENA, requiresOrdinaryUser } from '../helpers/catena.ts';
import { fullChain, writeChain } from '../helpers/chain.ts';
import { deadline } from '../helpers/deadline.ts';
import { lineReader, within } from '../helpers/lines.ts';
import {
  type Container,
  directories,
  type Lab,
  type Namespace,
  useLabs,
  withHost,
} from '../helpers/netns.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot, requires, requiresUpperKind } from '../helpers/skip.ts';
import { echo, startServer } from '../helpers/traffic.ts';

const TCP = { protocol: 'tcp' } as const;
const V4 = 'type filter hook forward priority filter;';

/** Asks the command, and runs lines as an operator pastes them. */
function operator(lab: Lab) {
  const env = { ...directories(lab.tmp), NETCONFPATH: lab.tmp, CNI_PATH: BIN_DIR };
  const askAs = async (user: readonly string[], ...words: string[]) => {
    const argv = [...user, CATENA, 'why-not', ...words, '--json'];
    const { exitCode, stdout, stderr } = await lab.run(lab.host, argv, { env, timeoutMs: 50_000 });
    if (stdout === '') throw new Error(stderr);
    const { outcome, hops } = JSON.parse(stdout);
    const last = hops.at(-1);
    return { exitCode, outcome, hops, last };
  };
  return {
    askAs,
    ask: (...words: string[]) => askAs([], ...words),
    async paste(line: string) {
      const argv = ['sh', '-c', line.replaceAll('catena ', `${CATENA} `)];
      const { exitCode, stderr } = await lab.run(lab.host, argv, { env, timeoutMs: 50_000 });
      if (exitCode !== 0) throw new Error(`${line}: ${stderr}`);
    },
  };
}

const ARRIVES = { exitCode: 0, outcome: 'arrives' };
const stopped = (name: string, evidence: string, mend?: string) => ({
  ...{ exitCode: 1, outcome: 'stopped' },
  last: {
    ...{ name, state: 'stops', evidence: expect.stringMatching(new RegExp(evidence)) },
    ...(mend ? { mend: expect.stringMatching(new RegExp(mend)) } : {}),
  },
});

/** The rules of kube-proxy for a Service with a NodePort, as `iptables-save` prints them. @param endpoints addresses of its pods */
function kubeProxy(...endpoints: readonly string[]): string {
  const sep = (to: string) => `KUBE-SEP-${to.replaceAll('.', '')}`;
  const comment = '-m comment --comment "default/web"';
  const chosen = endpoints.map((to, i) => {
    const left = endpoints.length - i;
    const chance = left > 1 ? `-m statistic --mode random --probability ${(1 / left).toFixed(11)} ` : '';
    return `-A KUBE-SVC-WEB ${comment} ${chance}-j ${sep(to)}`;
  });
  return `*nat
:KUBE-SERVICES - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-MARK-MASQ - [0:0]
:KUBE-SVC-WEB - [0:0]
:KUBE-EXT-WEB - [0:0]
${endpoints.map(to => `:${sep(to)} - [0:0]`).join('\n')}
-I PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-I OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-I POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0
-A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully
-A KUBE-NODEPORTS -p tcp ${comment} -m tcp --dport 30080 -j KUBE-EXT-WEB
-A KUBE-EXT-WEB -m comment --comment "masquerade traffic for default/web external destinations" -j KUBE-MARK-MASQ
-A KUBE-EXT-WEB -j KUBE-SVC-WEB
${endpoints.map(to => `-A ${sep(to)} -s ${to}/32 ${comment} -j KUBE-MARK-MASQ\n-A ${sep(to)} -p tcp ${comment} -m tcp -j DNAT --to-destination ${to}:80`).join('\n')}
-A KUBE-SVC-WEB ! -s 10.88.0.0/16 -d 10.96.0.10/32 -p tcp ${comment} -m tcp --dport 8000 -j KUBE-MARK-MASQ
${chosen.join('\n')}
-A KUBE-SERVICES -d 10.96.0.10/32 -p tcp ${comment} -m tcp --dport 8000 -j KUBE-SVC-WEB
-A KUBE-SERVICES -m comment --comment "kubernetes service nodeports" -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS
COMMIT
*filter
:FORWARD DROP [0:0]
:KUBE-FORWARD - [0:0]
:KUBE-FIREWALL - [0:0]
-A FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
-A FORWARD -j KUBE-FIREWALL
-A OUTPUT -j KUBE-FIREWALL
-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
-A KUBE-FORWARD -m comment --comment "kubernetes forwarding rules" -m mark --mark 0x4000/0x4000 -j ACCEPT
-A KUBE-FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A KUBE-FIREWALL -m mark --mark 0x8000/0x8000 -j DROP
COMMIT
`;
}

describeRoot(
  'why-not',
  () => {
    test('containers that have IPv6 only are followed with it, and asked for nothing else', () =>
      withHost(async lab => {
        const { ask } = operator(lab);
        const [web, db, old] = [await lab.container(), await lab.container(), await lab.container()];
        const list = (name: string, bridge: string, subnet: string) => {
          const ipam = { type: 'host-local', subnet, dataDir: `${lab.tmp}/leases` };
          const plugins = [
            { type: 'bridge', bridge, isDefaultGateway: true, ipam },
            { type: 'portmap', capabilities: { portMappings: true } },
          ];
          return writeChain(lab, { cniVersion: '1.1.0', name, plugins });
        };
        const six = list('six', 'br6', 'fd00:6::/64');
        await six.add(web, { cap: { portMappings: [{ hostPort: 8080, containerPort: 80 }] } });
        await six.add(db);
        await list('four', 'br4', '10.94.0.0/24').add(old);
        await startServer(lab, web, { ...TCP, port: 80, seconds: 60 });
        expect(await ask(`${web.id}:80`)).toMatchObject(ARRIVES);
        expect(await ask(db.id, `${web.id}:80`)).toMatchObject(ARRIVES);
        expect(await ask(db.id, ':8080')).toMatchObject(ARRIVES);
        expect(await ask(old.id, `${web.id}:80`)).toMatchObject(stopped('mapping', 'no IPv4 address'));
        expect(await ask('--ipv6', `${old.id}:80`)).toMatchObject(stopped('mapping', 'no IPv6 address'));
      }));

    test('prints commands in which a shell runs nothing of the name that a pod gave its interface', () =>
      withHost(async lab => {
        const { ask, paste } = operator(lab);
        const web = await lab.container();
        const ipam = { type: 'host-local', subnet: '10.95.0.0/24', dataDir: `${lab.tmp}/leases` };
        const plugins = [{ type: 'bridge', bridge: 'br5', isDefaultGateway: true, ipam }];
        const { add } = writeChain(lab, { cniVersion: '1.1.0', name: 'five', plugins });
        const name = "it's;exit";
        await add(web, { args: ['--ifname', name] });
        await lab.run(web, ['ip', 'link', 'set', name, 'down']);
        const { last } = await ask(web.id, '10.95.0.1:80');
        expect(last).toMatchObject({ name: 'device', evidence: `"${name}" is down` });
        await paste(last.mend);
        // As "tunl0", which is in each namespace where the module ipip is loaded.
        await lab.run(web, ['ip', 'link', 'add', 'beside', 'type', 'veth', 'peer', 'name', 'other']);
        expect((await ask(web.id, '10.95.0.1:80')).last.name).toBe('listener');
      }));

    test(
      'follows containers, the node and hosts outside to each other, with UDP and IPv6',
      () =>
        withHost(async lab => {
          const { ask, paste } = operator(lab);
          const [web, db, far] = [await lab.container(), await lab.container(), await lab.container()];
          const outside = await lab.outside();
          // Only masqueraded packets are answered.
          await lab.ip(outside, 'route', 'del', 'default');
          const portMappings = [
            { hostPort: 8080, containerPort: 80, protocol: 'tcp' },
            { hostPort: 5300, containerPort: 53, protocol: 'udp' },
          ];
          const chain = writeChain(lab, fullChain(lab));
          await chain.add(web, { cap: { portMappings } });
          await chain.add(db);
          const bridge = { type: 'bridge', bridge: 'br1', isDefaultGateway: true };
          const ipam = { type: 'host-local', subnet: '10.89.0.0/24', dataDir: `${lab.tmp}/leases` };
          await writeChain(lab, {
            ...{ cniVersion: '1.1.0', name: 'back' },
            plugins: [{ ...bridge, ipam }],
          }).add(far);
          const pair = await lab.container();
          const routed = { type: 'host-local', subnet: '10.90.0.0/24', dataDir: `${lab.tmp}/leases` };
          const toNode = [{ type: 'ptp', ipam: { ...routed, routes: [{ dst: '0.0.0.0/0' }] } }];
          await writeChain(lab, { cniVersion: '1.1.0', name: 'pairs', plugins: toNode }).add(pair);
          const tcp = { protocol: 'tcp', seconds: 100 } as const;
          await startServer(lab, pair, { ...tcp, port: 7000 });
          await startServer(lab, web, { ...tcp, port: 80 });
          await startServer(lab, web, { protocol: 'udp', port: 53, seconds: 100 });
          await startServer(lab, outside, { ...tcp, port: 9000 });
          const server = await startServer(lab, db, { ...tcp, port: 5432 });
          const answers = async (from: Namespace, protocol: 'tcp' | 'udp', address: string, port: number) =>
            (await echo(lab, from, { protocol, address, port, timeoutMs: 600 })) !== undefined;
          const { v4, v6 } = outside.hostAddress;

          const ways: [
            words: string[],
            from: Namespace,
            protocol: 'tcp' | 'udp',
            address: string,
            port: number,
          ][] = [
            [['web', 'db:5432'], web, 'tcp', '10.88.0.3', 5432],
            [['web', 'db:5432', '--ipv6'], web, 'tcp', 'fd88::3', 5432],
            [['far', 'db:5432'], far, 'tcp', '10.88.0.3', 5432],
            [['10.88.0.3:5432'], lab.host, 'tcp', '10.88.0.3', 5432],
            [['[fd88::3]:5432'], lab.host, 'tcp', 'fd88::3', 5432],
            [['pair', 'db:5432'], pair, 'tcp', '10.88.0.3', 5432],
            [['web', '10.90.0.2:7000'], web, 'tcp', '10.90.0.2', 7000],
            [['10.90.0.2:7000'], lab.host, 'tcp', '10.90.0.2', 7000],
            [['node', ':8080'], lab.host, 'tcp', v4, 8080],
            [['web', ':8080'], web, 'tcp', v4, 8080],
            [['far', ':8080'], far, 'tcp', v4, 8080],
            [['10.201.0.2', ':5300/udp'], outside, 'udp', v4, 5300],
            [['fd00:201::2', ':8080', '--ipv6'], outside, 'tcp', v6, 8080],
            [['web', '10.201.0.2:9000'], web, 'tcp', '10.201.0.2', 9000],
          ];
          const nameOf = (word: string) =>
            ({ web: web.name, far: far.name, db: db.name, pair: pair.name })[word] ??
            word.replace(/^db:/, `${db.name}:`);
          for (const [words, ...traffic] of ways) {
            const found = await ask(...words.map(nameOf));
            const seen = { words, answers: await answers(...traffic) };
            expect([seen, found.outcome, found.hops]).toEqual([
              { words, answers: true },
              'arrives',
              found.hops,
            ]);
          }

          // Each cause is proved by packets, named, and mended by the printed command.
          const cycle = async (
            make: string,
            [words, ...traffic]: (typeof ways)[number],
            named: ReturnType<typeof stopped>,
          ) => {
            await paste(make);
            expect([make, await answers(...traffic)]).toEqual([make, false]);
            const found = await ask(...words.map(nameOf));
            // Read before the comparison, which puts the matchers into the object.
            const { mend } = found.last;
            expect(found).toMatchObject(named);
            await paste(mend);
            expect([make, mend, await answers(...traffic)]).toEqual([make, mend, true]);
          };
          const way = (words: string) => {
            const found = ways.find(([own]) => own.join(' ') === words);
            if (found === undefined) throw new Error(words);
            return found;
          };
          await cycle(
            'true',
            [['db', '10.88.0.3:5432'], db, 'tcp', '10.88.0.3', 5432],
            stopped('device', '"lo" is down', 'ip link set dev lo up$'),
          );
          await cycle(
            'nft delete table inet catena_masquerade',
            way('web 10.201.0.2:9000'),
            stopped('translation', '10.88.0.2 is not masqueraded', 'catena repair podnet'),
          );
          await cycle(
            `nsenter --net=${web.path} ip route del default`,
            way('web 10.201.0.2:9000'),
            stopped('route', 'no route leads to 10.201.0.2', 'catena repair podnet'),
          );
          await cycle(
            'sysctl -qw net.ipv4.ip_forward=0',
            way('far db:5432'),
            stopped('forwarding', 'ip_forward = 0', 'sysctl'),
          );
          await cycle(
            'sysctl -qw net.ipv6.conf.all.forwarding=0',
            way('fd00:201::2 :8080 --ipv6'),
            stopped('forwarding', 'net.ipv6.conf.all.forwarding = 0', 'sysctl'),
          );
          await cycle(
            `nsenter --net=${far.path} ip route del default`,
            way('far db:5432'),
            stopped('route', 'no route', 'catena repair back'),
          );
          await cycle(
            `nsenter --net=${web.path} ip neigh replace 10.88.0.3 lladdr 02:00:00:00:00:99 dev eth0 nud permanent`,
            way('web db:5432'),
            stopped('neighbour', '10.88.0.3 at 02:00:00:00:00:99', 'ip neigh del'),
          );
          await cycle(
            `nft 'table inet own { chain out { type filter hook output priority 0; tcp dport 5432 reject; }; }'`,
            way('10.88.0.3:5432'),
            stopped('rules', 'dropped by rule', 'nft delete rule inet own out handle'),
          );
          await lab.sysctl(lab.host, 'net/bridge/bridge-nf-call-iptables', 1);
          await cycle(
            'iptables -P FORWARD DROP',
            way('web db:5432'),
            stopped('rules', 'policy of table ip filter', 'iptables -I FORWARD -i br0 -j ACCEPT'),
          );
          await server.stop();
          expect(await ask(web.name, `${db.name}:5432`)).toMatchObject(
            stopped('listener', 'no process listens on TCP port 5432'),
          );
          expect(await ask(':8081')).toMatchObject(
            stopped('listener', 'no process listens on TCP port 8081'),
          );
        }),
      deadline(110_000),
    );

    test(
      'names the rules of Docker, ufw and firewalld, and those that it cannot judge',
      () =>
        withHost(async lab => {
          const { ask, askAs, paste } = operator(lab);
          const web: Container = await lab.container();
          const outside = await lab.outside();
          const portMappings = [{ hostPort: 8080, containerPort: 80, protocol: 'tcp' }];
          await writeChain(lab, fullChain(lab)).add(web, { cap: { portMappings } });
          await startServer(lab, web, { protocol: 'tcp', port: 80, seconds: 100 });
          const { v4: address } = outside.hostAddress;
          const answers = async () =>
            (await echo(lab, outside, { protocol: 'tcp', address, port: 8080, timeoutMs: 600 })) !==
            undefined;
          const scenes: [rules: string, undo: string, named: ReturnType<typeof stopped>][] = [
            [
              'iptables -P FORWARD DROP; iptables -N DOCKER-USER; iptables -N DOCKER; iptables -A FORWARD -j DOCKER-USER; iptables -A FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT; iptables -A FORWARD -o docker0 -j DOCKER; iptables -A FORWARD -i docker0 ! -o docker0 -j ACCEPT',
              'nft delete table ip filter',
              stopped(
                'rules',
                'policy of table ip filter, chain "FORWARD" \\(priority 0\\)',
                '^iptables -I DOCKER-USER',
              ),
            ],
            [
              'iptables -N ufw-before-forward; iptables -N ufw-reject-forward; iptables -A FORWARD -j ufw-before-forward; iptables -A ufw-before-forward -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT; iptables -A ufw-before-forward -p icmp --icmp-type 8 -j ACCEPT; iptables -A FORWARD -j ufw-reject-forward; iptables -A ufw-reject-forward -j REJECT',
              'nft delete table ip filter',
              stopped(
                'rules',
                'rule \\d+ of table ip filter, chain "ufw-reject-forward" \\(entered from "FORWARD", priority 0\\)',
                '^ufw route allow in on br0 && ufw route allow out on br0$',
              ),
            ],
            [
              `nft 'table inet firewalld { chain filter_FORWARD { type filter hook forward priority 10; ct state { established, related } accept; iifname "lo" accept; jump zones; ct state invalid drop; reject with icmpx admin-prohibited; }; chain zones { iifname "eth7" goto public; }; chain public { return; }; }'`,
              'nft delete table inet firewalld',
              stopped(
                'rules',
                'rule \\d+ of table inet firewalld, chain "filter_FORWARD" \\(priority 10\\)',
                '^firewall-cmd --permanent --zone=trusted --add-interface=br0 && firewall-cmd --reload$',
              ),
            ],
            [
              `nft 'table bridge theirs { chain out { type filter hook output priority 0; ether type arp accept; ip daddr 10.88.0.2 tcp dport 80 drop; }; }'`,
              'nft delete table bridge theirs',
              stopped(
                'rules',
                'dropped by rule \\d+ of table bridge theirs, chain "out" \\(priority 0\\)',
                '^nft delete rule bridge theirs out handle \\d+$',
              ),
            ],
            [
              `nft 'table bridge theirs { chain pre { type filter hook prerouting priority 0; policy drop; }; }'`,
              'nft delete table bridge theirs',
              stopped(
                'reply',
                'rules: dropped by the policy of table bridge theirs, chain "pre" \\(priority 0\\)',
                '^nft insert rule bridge theirs pre iifname veth[0-9a-f]+ accept$',
              ),
            ],
          ];
          for (const [rules, undo, named] of scenes) {
            await paste(rules);
            expect([rules, await answers()]).toEqual([rules, false]);
            expect(await ask(':8080')).toMatchObject(named);
            await paste(undo);
            expect([rules, await answers()]).toEqual([rules, true]);
            expect(await ask(':8080')).toMatchObject(ARRIVES);
          }
          // Who may not read the rules learns nothing certain from their absence.
          await lab.run(lab.host, ['chmod', '-R', 'a+rX', lab.tmp]);
          expect(await askAs(AS_ORDINARY_USER, ':8080')).toMatchObject({
            ...{ exitCode: 3, outcome: 'unknown' },
            last: { name: 'translation', evidence: expect.stringContaining('cannot be read') },
          });

          const plugins = (bridge: string, subnet: string) => [
            {
              ...{ type: 'bridge', bridge, isDefaultGateway: true },
              ipam: { type: 'host-local', subnet, dataDir: `${lab.tmp}/leases` },
            },
            { type: 'firewall', ingressPolicy: 'same-bridge' },
          ];
          const [one, other, lan] = [await lab.container(), await lab.container(), await lab.container()];
          const cniVersion = '1.1.0';
          await writeChain(lab, { cniVersion, name: 'one', plugins: plugins('br1', '10.91.0.0/24') }).add(
            one,
          );
          await writeChain(lab, { cniVersion, name: 'other', plugins: plugins('br2', '10.92.0.0/24') }).add(
            other,
          );
          await startServer(lab, other, { protocol: 'tcp', port: 80, seconds: 100 });
          expect(
            await echo(lab, one, { ...TCP, address: '10.92.0.2', port: 80, timeoutMs: 600 }),
          ).toBeUndefined();
          expect(await ask(one.name, `${other.name}:80`)).toMatchObject(
            stopped('policy', 'table inet catena_firewall, chain "same_bridge"'),
          );
          await paste('nft delete table ip filter');

          const ipam = { type: 'host-local', subnet: '10.201.0.0/24', rangeStart: '10.201.0.50' };
          const macvlan = {
            type: 'macvlan',
            master: 'outside0',
            ipam: { ...ipam, dataDir: `${lab.tmp}/leases` },
          };
          await writeChain(lab, { cniVersion, name: 'lan', plugins: [macvlan] }).add(lan);
          expect(await ask(`${lan.name}:80`)).toMatchObject({
            ...{ exitCode: 3, outcome: 'unknown' },
            last: {
              name: 'device',
              evidence: expect.stringMatching(/of kind macvlan, which is not followed/),
            },
          });

          const unsure: [make: string, undo: string, named: string, evidence: string][] = [
            [
              `nft 'table inet fw { chain forward { ${V4} ct state new limit rate over 10/second drop; }; }'`,
              ...([
                'nft delete table inet fw',
                'rules',
                'rule \\d+ of chain "forward" cannot be judged',
              ] as const),
            ],
            [
              `nft 'table ip theirs { chain pre { type nat hook prerouting priority -80; tcp dport 8080 dnat to 10.88.0.2:80; }; }'`,
              ...(['nft delete table ip theirs', 'translation', 'has the same priority'] as const),
            ],
            [
              `nft 'table ip theirs { chain post { type nat hook postrouting priority 90; numgen random mod 2 0 masquerade; }; }'`,
              ...(['nft delete table ip theirs', 'translation', 'may replace its source: rule'] as const),
            ],
            [
              `nft 'table arp theirs { chain in { type filter hook input priority 0; accept; }; }'`,
              ...(['nft delete table arp theirs', 'rules', 'not judged: table arp theirs'] as const),
            ],
            [
              `nft 'table bridge theirs { chain out { type filter hook output priority 0; limit rate over 10/second drop; }; }'`,
              ...([
                'nft delete table bridge theirs',
                'rules',
                'rule \\d+ of chain "out" cannot be judged',
              ] as const),
            ],
            [
              'tc qdisc add dev outside0 ingress && tc filter add dev outside0 ingress protocol all u32 match u32 0 0 classid 1:1',
              ...(['tc qdisc del dev outside0 ingress', 'queue', 'a u32 filter of "outside0"'] as const),
            ],
            [
              'nft delete table inet catena_portmap',
              'catena repair podnet',
              'translation',
              'a process of the node may',
            ],
          ];
          // What others translate first is theirs, and certain.
          const earlier = `nft 'table ip theirs { chain pre { type nat hook prerouting priority -100; tcp dport 8080 dnat to ADDRESS; }; }'`;
          await paste(earlier.replace('ADDRESS', '10.88.0.2:80'));
          expect(await answers()).toBe(true);
          expect(await ask(':8080')).toMatchObject(ARRIVES);
          await paste('nft delete table ip theirs');
          await paste(earlier.replace('ADDRESS', '10.9.9.9:80'));
          expect(await answers()).toBe(false);
          const rule = 'rule \\d+ of table ip theirs, chain "pre" \\(priority -100\\)';
          expect(await ask(':8080')).toMatchObject(
            stopped(
              'translation',
              `${rule} leads it to 10.9.9.9:80 instead`,
              '^nft delete rule ip theirs pre handle',
            ),
          );
          await paste('nft delete table ip theirs');

          // Podman's monitor holds the ports of its container, and passes nothing on.
          fs.symlinkSync(process.execPath, `${lab.tmp}/conmon`);
          const hold =
            "Bun.listen({ hostname: '0.0.0.0', port: 8080, socket: { data() {} } }); console.log('ready')";
          const conmon = lab.start(lab.host, [`${lab.tmp}/conmon`, '-e', hold]);
          await within(deadline(10_000), 'a holder of the port', lineReader(conmon.stdout)());
          await paste('nft delete table inet catena_portmap');
          expect(await ask(':8080')).toMatchObject(
            stopped('translation', 'no rule leads port 8080 to it', '^catena repair podnet$'),
          );
          await paste('catena repair podnet');
          conmon.kill();
          await conmon.exited;

          await startServer(lab, lab.host, { ...TCP, port: 8080, seconds: 100 });
          for (const [make, undo, name, evidence] of unsure) {
            await paste(make);
            const found = await ask(':8080');
            expect(found).toMatchObject({ exitCode: 3, outcome: 'unknown' });
            const doubt = { name, state: 'unknown', evidence: expect.stringMatching(new RegExp(evidence)) };
            expect(found.hops).toContainEqual({ ...doubt, at: 'node' });
            await paste(undo);
          }
          // Newer kernels may lack it.
          const legacy = 'iptables-legacy -t nat -A PREROUTING -p tcp --dport 8080 -j DNAT --to 10.9.9.9';
          if ((await lab.run(lab.host, legacy.split(' '))).exitCode === 0) {
            const evidence = expect.stringContaining('the rules of iptables-legacy may lead it elsewhere');
            expect(await ask(':8080')).toMatchObject({
              exitCode: 3,
              last: { name: 'translation', evidence },
            });
          }
        }),
      deadline(110_000),
    );

    test(
      "follows the marks and ports of the reference's chains and of kube-proxy's",
      () =>
        withHost(async lab => {
          const { ask, paste } = operator(lab);
          const [web, db] = [await lab.container(), await lab.container()];
          const outside = await lab.outside();
          const hosts = { web, db, outside, node: lab.host } as const;
          const portMappings = [
            { hostPort: 8080, containerPort: 80, protocol: 'tcp' },
            { hostPort: 8081, containerPort: 80, protocol: 'tcp' },
          ];
          const ipam = { type: 'host-local', subnet: '10.88.0.0/16', dataDir: `${lab.tmp}/leases` };
          const chain = writeChain(lab, {
            ...{ cniVersion: '1.0.0', name: 'podnet' },
            plugins: [
              {
                ...{ type: 'bridge', bridge: 'br0', isDefaultGateway: true, hairpinMode: true },
                ...{ ipMasq: true, ipMasqBackend: 'iptables', ipam },
              },
              { type: 'portmap', backend: 'iptables', capabilities: { portMappings: true } },
            ],
          });
          await chain.add(web, { cap: { portMappings } });
          await chain.add(db);
          for (const one of [web, db]) await startServer(lab, one, { ...TCP, port: 80, seconds: 100 });
          const node = outside.hostAddress.v4;
          /** Both the command and a packet are asked. */
          const expectSame = async (scene: string, from: keyof typeof hosts, to: string, named?: RegExp) => {
            await paste('conntrack -F 2>/dev/null; true');
            const [address = node, port] = (to.startsWith(':') ? node + to : to).split(':');
            const way = { ...TCP, address, port: Number(port), timeoutMs: 600 };
            const answers = (await echo(lab, hosts[from], way)) !== undefined;
            const word =
              from === 'node' ? 'node' : from === 'outside' ? outside.address.v4 : hosts[from].name;
            const { outcome, last, hops } = await ask(word, to);
            const seen = { scene, from, to, outcome, ...(answers ? { hops } : { last: last.evidence }) };
            expect(seen).toEqual({
              ...{ scene, from, to, outcome: answers ? 'arrives' : 'stopped' },
              ...(answers ? { hops } : { last: expect.stringMatching(named ?? /never/) }),
            });
            expect([scene, from, to, answers]).toEqual([scene, from, to, named === undefined]);
          };

          // Without its mark, what a container sends to a port of its own is not masqueraded, and comes back to it as its own.
          for (const from of ['outside', 'node', 'db', 'web'] as const)
            await expectSame("the reference's chains", from, ':8080');
          const drop = '-p tcp -m multiport --dports 7000:7999,8080 -j DROP';
          await paste(`iptables -t raw -A PREROUTING ${drop}`);
          await expectSame('several ports', 'outside', ':8080', /dropped by rule \d+ of table ip raw/);
          await expectSame('several ports', 'outside', ':8081');
          await paste('nft delete table ip raw');
          await paste('iptables -t mangle -A PREROUTING -p tcp --dport 8081 -j MARK --set-mark 7');
          await paste('iptables -A FORWARD -m mark --mark 7 -j DROP');
          await expectSame('a mark that is dropped', 'outside', ':8080');
          await expectSame(
            'a mark that is dropped',
            'outside',
            ':8081',
            /dropped by rule \d+ of table ip filter/,
          );
          await paste('nft delete table ip filter; nft delete table ip mangle');

          await startServer(lab, lab.host, { ...TCP, port: 9090, seconds: 100 });
          const toPort = 'meta l4proto tcp th dport 7071 redirect to :9090';
          await paste(
            `nft 'table ip led { chain pre { type nat hook prerouting priority -100; ${toPort}; }; }'`,
          );
          await paste('iptables -t nat -A PREROUTING -p tcp --dport 7070 -j REDIRECT --to-ports 9090');
          for (const port of [':7070', ':7071']) await expectSame('a redirected port', 'outside', port);
          await paste(
            'nft delete table ip led; iptables -t nat -D PREROUTING -p tcp --dport 7070 -j REDIRECT --to-ports 9090',
          );

          const filtered = 'net/bridge/bridge-nf-call-iptables';
          if (fs.existsSync(`/proc/sys/${filtered}`)) {
            const ports = (await lab.ip(lab.host, 'link', 'show', 'master', 'br0')).map(
              ({ ifname }) => ifname,
            );
            const setPorts = (flags: string) =>
              paste(ports.map(port => `bridge link set dev ${port} ${flags}`).join(' && '));
            await lab.sysctl(lab.host, filtered, 1);
            await setPorts('hairpin off');
            await expectSame('no hairpin mode', 'web', ':8080', /is not in hairpin mode/);
            await expectSame('no hairpin mode', 'db', ':8080');
            await setPorts('isolated on');
            await expectSame('isolated ports', 'db', ':8080', /both are isolated ports of "br0"/);
            await setPorts('isolated off');
            await paste(
              `nft 'table ip raw { chain pre { type filter hook prerouting priority -300; tcp dport 80 drop; }; }'`,
            );
            await expectSame(
              'a rule for what arrives',
              'db',
              '10.88.0.2:80',
              /dropped by rule \d+ of table ip raw/,
            );
            await paste('nft delete table ip raw');
            await setPorts('hairpin on');
          }

          const load = async (rules: string) => {
            await paste(`iptables-restore --noflush <<'END'\n${rules}END`);
          };
          await load(kubeProxy('10.88.0.2'));
          for (const from of ['outside', 'node', 'db', 'web'] as const)
            await expectSame('kube-proxy', from, ':30080');
          for (const from of ['node', 'web'] as const)
            await expectSame('kube-proxy', from, '10.96.0.10:8000');
          // Only packets with the mark are accepted.
          const policy = /dropped by the policy of table ip filter/;
          await expectSame('a pod without the mark', 'db', '10.96.0.10:8000', policy);
          await paste('iptables -t nat -I KUBE-EXT-WEB -j MARK --or-mark 0x8000');
          await paste('iptables -I FORWARD -j KUBE-FIREWALL');
          await expectSame('a Service that drops', 'outside', ':30080', /chain "KUBE-FIREWALL"/);
          await paste('iptables -t nat -D KUBE-EXT-WEB -j MARK --or-mark 0x8000');
          await paste('iptables -t nat -F KUBE-MARK-MASQ');
          await expectSame('a mark that is not set', 'outside', ':30080', policy);
          await paste('nft delete table ip filter; nft delete table ip nat');
          await load(kubeProxy('10.88.0.2', '10.88.0.3'));
          const { outcome, last } = await ask(outside.address.v4, ':30080');
          expect([outcome, last.evidence]).toEqual([
            'unknown',
            expect.stringMatching(/may lead it elsewhere: rule \d+ of chain "KUBE-SVC-WEB" cannot be judged/),
          ]);
        }),
      deadline(110_000),
    );
  },
  requires('iptables', 'iptables-restore', 'conntrack'),
  requiresUpperKind('macvlan'),
  requiresOrdinaryUser(),
);

/** A cause, and what of it is named as long as the packet meets no other one before. */
type Pile = readonly (readonly [make: string, hop: string, evidence: RegExp])[];

describeRoot(
  'why-not, where several things would stop a packet',
  () => {
    const makeLab = useLabs();

    /** Adds one cause after the other, from the end of the way to its beginning: the last one is the first that the packet meets. */
    async function pileUp(way: readonly string[], causes: (web: Container, port: string) => Pile) {
      const lab = await makeLab();
      const { ask, paste } = operator(lab);
      await lab.outside();
      const web = await lab.container();
      const portMappings = [{ hostPort: 8080, containerPort: 80, protocol: 'tcp' }];
      await writeChain(lab, fullChain(lab, { rate: 100_000_000 })).add(web, { cap: { portMappings } });
      await startServer(lab, web, { ...TCP, port: 80, seconds: 100 });
      const [pair] = await lab.ip(lab.host, 'link', 'show', 'master', 'br0');
      const words = way.map(word => (word === 'web' ? web.name : word));
      expect(await ask(...words)).toMatchObject({ outcome: expect.not.stringContaining('stopped') });
      for (const [make, name, evidence] of causes(web, pair?.ifname)) {
        await paste(make);
        const { outcome, last } = await ask(...words);
        const found = [make, outcome, last.name, last.evidence];
        expect(found).toEqual([make, 'stopped', name, expect.stringMatching(evidence)]);
      }
    }

    test('prints no repair of a route that no ADD has made, and of an address that no container has', async () => {
      const lab = await makeLab();
      const { ask } = operator(lab);
      const web = await lab.container();
      const ipam = { type: 'host-local', subnet: '10.88.0.0/24', dataDir: `${lab.tmp}/leases` };
      const plugins = [{ type: 'bridge', bridge: 'br0', isGateway: true, ipam }];
      await writeChain(lab, { cniVersion: '1.1.0', name: 'podnet', plugins }).add(web);
      for (const [address, name, words] of [
        ['192.0.2.1', 'route', 'no route leads to 192.0.2.1, and its ADD made none'],
        ['10.88.0.77', 'neighbour', 'no device on "br0" has 10.88.0.77, to which it sends'],
      ] as const) {
        const { outcome, last } = await ask(web.id, `${address}:80`);
        expect([outcome, last.name, last.evidence, last.mend]).toEqual(['stopped', name, words, undefined]);
      }
    });

    test('names the first that a packet from outside meets', () =>
      pileUp(['outside', ':8080'], ({ path }, port) => {
        const inside = (line: string) => `nsenter --net=${path} ${line}`;
        const drop = (hook: string, what: string) =>
          `{ chain c { type filter hook ${hook} priority -10; ${what} drop; }; }`;
        return [
          [inside('ip route del default'), 'reply', /^route: no route leads to/],
          [inside(`nft 'table inet own ${drop('input', 'tcp dport 80')}'`), 'rules', /table inet own/],
          [inside(`nft 'table inet way ${drop('prerouting', 'tcp dport 80')}'`), 'rules', /table inet way/],
          [inside('ip link set eth0 down'), 'device', /^"eth0" is down/],
          [
            `tc qdisc replace dev ${port} root handle 1: tbf rate 8bit burst 10 limit 10`,
            'queue',
            /^tbf of "/,
          ],
          [
            `nft 'table bridge last ${drop('postrouting', `oifname "${port}"`)}'`,
            'rules',
            /table bridge last/,
          ],
          [`ip link set ${port} down`, 'device', new RegExp(`^"${port}" is down`)],
          [
            'ip neigh replace 10.88.0.2 lladdr 02:00:00:00:00:99 dev br0 nud permanent',
            'neighbour',
            /has 10.88.0.2 at 02:00:00:00:00:99/,
          ],
          [`nft 'table inet post ${drop('postrouting', 'tcp dport 80')}'`, 'rules', /table inet post/],
          [`nft 'table inet mid ${drop('forward', 'tcp dport 80')}'`, 'rules', /table inet mid/],
          ['ip link set br0 down', 'device', /^"br0" is down/],
          ['sysctl -qw net.ipv4.ip_forward=0', 'forwarding', /ip_forward = 0/],
          ['ip route add blackhole 10.88.0.2/32', 'route', /a route of type blackhole/],
          [
            `nft 'table ip other { chain c { type nat hook prerouting priority -110; tcp dport 8080 dnat to 10.9.9.9:80; }; }'`,
            'translation',
            /10\.9\.9\.9:80 instead/,
          ],
          [`nft 'table inet pre ${drop('prerouting', 'tcp dport 8080')}'`, 'translation', /instead/],
          [
            `nft 'table inet raw { chain c { type filter hook prerouting priority -300; tcp dport 8080 drop; }; }'`,
            'rules',
            /table inet raw/,
          ],
        ];
      }));

    test('names the first that a packet of a container meets', () =>
      pileUp(['web', '10.201.0.2:9000'], ({ path }, port) => {
        const inside = (line: string) => `nsenter --net=${path} ${line}`;
        const drop = (hook: string) =>
          `{ chain c { type filter hook ${hook} priority -10; tcp dport 9000 drop; }; }`;
        return [
          ['nft delete table inet catena_masquerade', 'translation', /is not masqueraded/],
          [
            `tc qdisc replace dev outside0 root handle 1: tbf rate 8bit burst 10 limit 10`,
            'queue',
            /"outside0"/,
          ],
          [`nft 'table inet post ${drop('postrouting')}'`, 'rules', /table inet post/],
          [`nft 'table inet mid ${drop('forward')}'`, 'rules', /table inet mid/],
          ['sysctl -qw net.ipv4.ip_forward=0', 'forwarding', /ip_forward = 0/],
          ['ip route add blackhole 10.201.0.2/32', 'route', /a route of type blackhole/],
          [`nft 'table inet pre ${drop('prerouting')}'`, 'rules', /table inet pre/],
          [
            inside('ip neigh replace 10.88.0.1 lladdr 02:00:00:00:00:99 dev eth0 nud permanent'),
            'neighbour',
            /has 10.88.0.1 at 02:00:00:00:00:99/,
          ],
          [`nft 'table bridge b ${drop('prerouting')}'`, 'rules', /table bridge b/],
          [
            'ip link del $(ip -br link show type ifb | cut -d" " -f1)',
            'queue',
            /a device that no longer exists/,
          ],
          [`ip link set ${port} down`, 'device', new RegExp(`^"${port}" is down`)],
          ['ip link set br0 down', 'device', /^"br0" is down/],
          [
            inside('tc qdisc replace dev eth0 root handle 1: tbf rate 8bit burst 10 limit 10'),
            'queue',
            /"eth0"/,
          ],
          [inside(`nft 'table inet own ${drop('output')}'`), 'rules', /table inet own/],
          [inside('ip route del default'), 'route', /^no route leads to/],
          [inside('ip link set eth0 down'), 'device', /^"eth0" is down/],
        ];
      }));
  },
  requires('nft', 'tc'),
);
