// Does the doctor tell whether rules of other programs stop packets of containers?
import { expect, test } from 'bun:test';
import { mkdirSync } from 'node:fs';
import { catena } from '../helpers/catena.ts';
import { fullChain, writeChain } from '../helpers/chain.ts';
import { runOk } from '../helpers/command.ts';
import { directories, type Lab, type Namespace, useLabs } from '../helpers/netns.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot, requires } from '../helpers/skip.ts';
import { echo, startServer } from '../helpers/traffic.ts';

/** Rules of other programs, as commands or in the language of nft; what is found, by severity; the fix. */
interface Scene {
  readonly what: string;
  readonly iptables?: readonly string[];
  readonly nft?: string;
  readonly found: readonly (readonly [severity: string, found: RegExp, mend: RegExp])[];
}

const TCP = { protocol: 'tcp' } as const;
const FORWARD = 'type filter hook forward priority filter;';
const INTO_BRIDGE = /^iptables -I (\S+) -i br0 -j ACCEPT && iptables -I \1 -o br0 -j ACCEPT$/;

const SCENES: readonly Scene[] = [
  {
    what: 'the policy that Docker sets',
    iptables: [
      '-P FORWARD DROP',
      '-N DOCKER-USER',
      '-A FORWARD -j DOCKER-USER',
      '-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT',
      '-A FORWARD -i docker0 -j ACCEPT',
    ],
    found: [
      [
        'error',
        /^the policy of chain "FORWARD" of table ip filter drops connections of 1 container \(\S+\) of network "podnet" to the outside, and through port 8080\/tcp of the host$/,
        INTO_BRIDGE,
      ],
    ],
  },
  {
    what: 'the same with the fix that it was told',
    iptables: [
      '-P FORWARD DROP',
      '-N DOCKER-USER',
      '-A FORWARD -j DOCKER-USER',
      '-I DOCKER-USER -i br0 -j ACCEPT',
      '-I DOCKER-USER -o br0 -j ACCEPT',
    ],
    found: [],
  },
  {
    what: 'replies that nothing accepts',
    iptables: [
      '-P FORWARD DROP',
      '-A FORWARD -s 10.88.0.0/16 -j ACCEPT',
      '-A FORWARD -d 10.88.0.0/16 -p tcp --dport 80 -j ACCEPT',
    ],
    found: [
      [
        'error',
        /^the policy of chain "FORWARD" of table ip filter drops connections of 1 container/,
        INTO_BRIDGE,
      ],
    ],
  },
  {
    what: 'accepted translations, as reference plugins and Docker accept them',
    iptables: [
      '-P FORWARD DROP',
      '-A FORWARD -m conntrack --ctstate DNAT -m comment --comment "mapped" -j ACCEPT',
      '-A FORWARD -s 10.88.0.0/16 -j ACCEPT',
      '-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT',
    ],
    found: [],
  },
  {
    what: 'published ports that portmap has accepted by their label, and nothing else',
    iptables: [
      '-P FORWARD DROP',
      '-A FORWARD -m connlabel --label 107 -m comment --comment "catena: published ports" -j ACCEPT',
    ],
    found: [
      [
        'error',
        /^the policy of chain "FORWARD" of table ip filter drops connections of 1 container .* to the outside$/,
        INTO_BRIDGE,
      ],
    ],
  },
  {
    what: 'what the firewall plugin accepts of one container',
    iptables: [
      '-P FORWARD DROP',
      '-N CNI-FORWARD',
      '-A CNI-FORWARD -d 10.88.0.2 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT',
      '-A CNI-FORWARD -s 10.88.0.2 -j ACCEPT',
      '-A CNI-FORWARD -d 10.88.0.2 -m conntrack --ctstate DNAT -j ACCEPT',
      '-I FORWARD -j CNI-FORWARD',
    ],
    found: [],
  },
  {
    what: 'a rule behind a jump, and rules about other traffic',
    nft: `table inet fw {
      set ports { type inet_service; flags interval; elements = { 25, 100-200 } }
      chain forward { ${FORWARD} policy accept; ct state vmap { established : accept, invalid : drop }; tcp dport @ports drop; ip daddr 10.88.0.0/16 jump pods; }
      chain pods { iifname "br0" accept; oifname "br0" tcp dport { 80, 443 } ct state new reject; }
    }`,
    found: [
      [
        'error',
        /^the rule with handle \d+ in chain "pods" of table inet fw drops connections through port 8080\/tcp/,
        /^nft insert rule inet fw forward iifname br0 accept && nft insert rule inet fw forward oifname br0 accept$/,
      ],
    ],
  },
  {
    what: 'an ending of firewalld, which accepts what it knows',
    nft: `table inet firewalld {
      chain filter_FORWARD { ${FORWARD} policy accept; ct state { established, related } accept; ct status dnat accept; iifname "lo" accept; jump zones; ct state { invalid } drop; reject with icmpx admin-prohibited; }
      chain zones { iifname "eth7" goto public; }
      chain public { return; }
      chain rpfilter { type filter hook prerouting priority -150; meta nfproto ipv6 fib saddr . mark . iif oif missing drop; }
    }`,
    found: [
      [
        'error',
        /in chain "filter_FORWARD" of table inet firewalld drops connections of 1 container \(\S+\) of network "podnet" to the outside$/,
        /^firewall-cmd --permanent --zone=trusted --add-interface=br0 && firewall-cmd --reload$/,
      ],
    ],
  },
  {
    what: 'a rule that cannot be judged',
    nft: `table inet fw { chain forward { ${FORWARD} policy accept; oifname "br0" ct state new limit rate over 10/second drop; }\n}`,
    found: [
      [
        'warning',
        /^the rule with handle \d+ in chain "forward" of table inet fw may drop connections through port 8080/,
        /^nft -a list chain inet fw forward$/,
      ],
    ],
  },
  {
    what: 'a translation before ours, and one of another port',
    nft: `table ip theirs { chain pre { type nat hook prerouting priority -110; tcp dport 8081 dnat to 10.9.9.8; fib daddr type local tcp dport 8080 dnat to 10.9.9.9:80; }\n}`,
    found: [
      [
        'error',
        /^the rule with handle \d+ in chain "pre" of table ip theirs leads port 8080\/tcp of the host to 10\.9\.9\.9 instead of 1 container/,
        /^nft delete rule ip theirs pre handle \d+ {2}# or map another port$/,
      ],
    ],
  },
  {
    what: 'a translation by iptables, which comes before ours, and one after ours',
    iptables: [
      '-t nat -A PREROUTING -m addrtype --dst-type LOCAL -p tcp --dport 8080 -j DNAT --to-destination 10.9.9.9:80',
    ],
    nft: 'table ip theirs { chain pre { type nat hook prerouting priority -70; tcp dport 8080 dnat to 10.9.9.7; }\n}',
    found: [
      [
        'error',
        /in chain "PREROUTING" of table ip nat leads port 8080\/tcp of the host to 10\.9\.9\.9 instead of/,
        /^nft delete rule ip nat PREROUTING handle/,
      ],
    ],
  },
  {
    what: 'a translation after ours',
    nft: 'table ip theirs { chain pre { type nat hook prerouting priority -70; tcp dport 8080 dnat to 10.9.9.7; }\n}',
    found: [],
  },
  {
    what: 'a translation at the same priority as ours',
    nft: 'table ip theirs { chain pre { type nat hook prerouting priority -80; tcp dport 8080 dnat to 10.9.9.9; }\n}',
    found: [
      [
        'warning',
        /in chain "pre" of table ip theirs may lead port 8080\/tcp of the host to 10\.9\.9\.9 instead of/,
        /^nft delete rule ip theirs pre handle/,
      ],
    ],
  },
  {
    what: 'a drop before connections are tracked',
    nft: 'table ip raw2 { chain pre { type filter hook prerouting priority raw; iifname "outside0" tcp dport 8000-8999 drop; }\n}',
    found: [
      [
        'error',
        /in chain "pre" of table ip raw2 drops connections through port 8080\/tcp/,
        /^nft delete rule ip raw2 pre handle \d+$/,
      ],
    ],
  },
  {
    what: 'a drop at the ingress of the bridge',
    nft: 'table netdev early { chain in { type filter hook ingress device "br0" priority 0; tcp dport 9 drop; }\n}',
    found: [
      [
        'warning',
        /^table netdev early may drop what 1 container \(\S+\) of network "podnet" sends or gets/,
        /^nft list table netdev early$/,
      ],
    ],
  },
];

describeRoot(
  'rules of other programs',
  () => {
    const makeLab = useLabs();

    test('are found if they stop packets of containers, and only then', async () => {
      const lab = await makeLab();
      const outside = await lab.outside();
      mkdirSync(`${lab.tmp}/run`);
      const chain = writeChain(lab, fullChain(lab));
      const web = await lab.container();
      const ports = [{ hostPort: 8080, containerPort: 80, protocol: 'tcp' }];
      await chain.add(web, { cap: { portMappings: ports } });
      await startServer(lab, web, { ...TCP, port: 80 });
      await startServer(lab, outside, { ...TCP, port: 443 });
      expect(await findings(lab)).toEqual([]);
      for (const { what, iptables = [], nft, found } of SCENES) {
        for (const rule of iptables) await inHost(lab, 'iptables-nft', ...(rule.match(/"[^"]*"|\S+/g) ?? []));
        if (nft !== undefined) await inHost(lab, 'nft', nft);
        const seen = (await findings(lab)).filter(one => !/IPv6/.test(one.found));
        const words = found.map(([severity, text, mend]) => {
          return { severity, found: expect.stringMatching(text), mend: expect.stringMatching(mend) };
        });
        expect([what, seen]).toEqual([what, words]);
        // What was said must be what packets find; a translation at the same priority may come before or after ours.
        const isReached = async (way: RegExp, from: Namespace, address: string, port: number) => {
          const said = seen.filter(one => way.test(one.found));
          if (said.some(one => one.severity === 'warning' && /may lead/.test(one.found))) return;
          const isStopped = said.some(({ severity }) => severity === 'error');
          const reply = await echo(lab, from, { ...TCP, address, port, timeoutMs: 700 });
          expect([what, way, reply === undefined]).toEqual([what, way, isStopped]);
        };
        await Promise.all([
          isReached(/port 8080/, outside, outside.hostAddress.v4, 8080),
          isReached(/to the outside/, web, outside.address.v4, 443),
        ]);
        const theirs = ['ip filter', 'ip nat', 'ip theirs', 'ip raw2', 'inet fw', 'inet firewalld'];
        for (const table of [...theirs, 'netdev early'])
          await lab.run(lab.host, ['nft', `delete table ${table}`]);
      }
      expect(await findings(lab)).toEqual([]);
    });
  },
  requires('iptables-nft'),
);

interface Found {
  readonly severity: string;
  readonly found: string;
  readonly mend?: string;
}

async function findings(lab: Lab): Promise<Found[]> {
  const args = ['doctor', '--json', '--conf-dir', lab.tmp, '--bin-dir', BIN_DIR];
  const { stdout } = await catena(lab, args, { env: directories(lab.tmp) });
  const all = JSON.parse(stdout).findings as (Found & { id: string })[];
  return all
    .filter(({ id, severity }) => id === 'kernel.foreign-rules' && severity !== 'ok')
    .map(({ id: _, ...one }) => one);
}

async function inHost(lab: Lab, ...argv: string[]): Promise<void> {
  await runOk(['nsenter', `--net=${lab.host.path}`, '--', ...argv]);
}
