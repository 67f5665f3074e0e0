// Does `catena why-not` say of random rules what they do to real packets?
//
// It may call rules unknown, but must never call a connection stopped that is answered, or arrived that is not.
import { expect, test } from 'bun:test';
import { CATENA } from '../helpers/catena.ts';
import { fullChain, writeChain } from '../helpers/chain.ts';
import { deadline } from '../helpers/deadline.ts';
import { directories, withHost } from '../helpers/netns.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot, requires } from '../helpers/skip.ts';
import { echo, startServer } from '../helpers/traffic.ts';

/** `CATENA_RULE_SETS` and `CATENA_RULE_SEED` choose them. */
const RULE_SETS = Number(process.env.CATENA_RULE_SETS ?? 20);
const SEED = Number(process.env.CATENA_RULE_SEED ?? Date.now() % 2 ** 31);

const CONDITIONS = [
  ...['iifname "br0"', 'iifname "outside0"', 'oifname "br0"', 'oifname != "br0"', 'iifname != "outside0"'],
  ...['iifname { "br0", "lo" }', 'iifname "out*"', 'iif != oif', 'meta nfproto ipv4', 'meta mark 0'],
  ...['ip saddr 10.88.0.0/16', 'ip daddr 10.88.0.2', 'ip daddr 10.201.0.1', 'ip saddr 10.201.0.2'],
  ...['ip saddr @subnets', 'ip daddr @subnets', 'ip daddr & 255.255.0.0 == 10.88.0.0', 'ip ttl > 0'],
  ...['ip daddr 10.0.0.0-10.100.0.0', 'ip daddr . tcp dport { 10.88.0.2 . 80, 10.201.0.1 . 8080 }'],
  ...['tcp dport 80', 'tcp dport 8080', 'tcp sport 80', 'tcp dport { 22, 80, 443 }', 'tcp dport 70-90'],
  ...['tcp dport != 80', 'tcp flags syn', 'meta l4proto tcp', 'ip protocol tcp', 'meta l4proto { tcp, udp }'],
  ...['ct state new', 'ct state established,related', 'ct status dnat', 'ct original proto-dst 8080'],
  ...['ct direction reply', 'ct direction original', 'ct original ip daddr 10.201.0.1'],
  ...['fib saddr type local', 'fib daddr type local', 'fib daddr type unicast'],
];
const MAPS = [
  'ct state vmap { new : accept, established : continue }',
  'ip daddr . tcp dport vmap { 10.88.0.2 . 80 : accept, 10.201.0.1 . 8080 : continue }',
];
const SUBNETS =
  'set subnets { type ipv4_addr; flags interval; elements = { 10.88.0.0/24, 10.201.0.2, 10.201.0.1 }; }';
const IPTABLES = [
  ...['-i br0', '-o br0', '! -i outside0', '-s 10.88.0.0/16', '-d 10.88.0.2', '-p tcp --dport 80'],
  ...['-p tcp --sport 80', '-m conntrack --ctstate NEW', '-m conntrack --ctstate RELATED,ESTABLISHED'],
  ...['-m conntrack --ctstate DNAT', '! -d 10.88.0.0/16', '-m addrtype --dst-type LOCAL', '-p tcp'],
];

/** Numbers that the seed determines. */
function generator(seed: number) {
  let state = seed;
  const below = (count: number): number => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) & 0x7fff_ffff;
    return (state >> 8) % count;
  };
  const pick = (from: readonly string[]): string => from[below(from.length)] ?? '';
  return { below, pick };
}

/** Commands that make a rule set; the kernel refuses some. */
function randomRules({ below, pick }: ReturnType<typeof generator>): string {
  const rules = (count: number, verdicts: readonly string[]) =>
    Array.from({ length: count }, () => {
      const conditions = Array.from({ length: 1 + below(2) }, () => pick(CONDITIONS)).join(' ');
      return below(8) === 0 ? pick(MAPS) : `${conditions} ${pick(verdicts)}`;
    }).join('; ');
  const kind = below(10);
  if (kind < 2) {
    const rule = () => `iptables -A ${pick(['FORWARD', 'FORWARD', 'inner'])} ${pick(IPTABLES)}`;
    const lines = Array.from(
      { length: 1 + below(4) },
      () => `${rule()} -j ${pick(['ACCEPT', 'DROP', 'RETURN', 'REJECT'])}`,
    );
    return `iptables -P FORWARD ${pick(['ACCEPT', 'DROP'])}; iptables -N inner; ${lines.join('; ')}; iptables -A FORWARD -j inner`;
  }
  if (kind < 5) {
    const into = below(3) > 0;
    const hook = pick(['prerouting', 'prerouting', 'output']);
    const verdicts = into
      ? [
          'dnat to 10.88.0.2:80',
          'dnat to 10.88.0.9:80',
          'dnat to 10.88.0.2:81',
          'redirect to :81',
          'accept',
          'return',
        ]
      : ['masquerade', 'snat to 10.201.0.1', 'snat to 10.88.0.1', 'accept', 'return'];
    // Before ours and after.
    const base = into
      ? `${hook} priority ${pick(['-120', '-99', '-90', '-79', '-70'])}`
      : `postrouting priority ${pick(['90', '110', '130'])}`;
    return `nft 'table ip random { ${SUBNETS}; chain inner { ${rules(below(2), verdicts)}; }; chain base { type nat hook ${base}; ${rules(1 + below(3), [...verdicts, 'jump inner'])}; }; }'`;
  }
  const hook = pick(['forward', 'forward', 'prerouting', 'postrouting', 'output', 'input']);
  const base = `type filter hook ${hook} priority ${pick(['-310', '-150', '0', '5'])}; policy ${pick(['accept', 'accept', 'drop'])}`;
  const ends = ['accept', 'drop', 'return'];
  return `nft 'table inet random { ${SUBNETS}; chain last { ${rules(below(3), ends)}; }; chain inner { ${rules(below(3), [...ends, 'jump last', 'goto last'])}; }; chain base { ${base}; ${rules(1 + below(4), [...ends, 'reject', 'jump inner', 'goto last', 'counter', 'continue'])}; }; }'`;
}

describeRoot(
  'why-not, for random rules',
  () => {
    test(
      `agrees with real packets (seed ${SEED})`,
      () =>
        withHost(async lab => {
          const [web, outside] = [await lab.container(), await lab.outside()];
          const portMappings = [{ hostPort: 8080, containerPort: 80, protocol: 'tcp' }];
          await writeChain(lab, fullChain(lab)).add(web, { cap: { portMappings } });
          await startServer(lab, web, { protocol: 'tcp', port: 80, seconds: 3_000 });
          await startServer(lab, outside, { protocol: 'tcp', port: 80, seconds: 3_000 });
          const env = { ...directories(lab.tmp), NETCONFPATH: lab.tmp, CNI_PATH: BIN_DIR };
          const ways = [
            { from: outside, words: ['10.201.0.2', ':8080'], address: '10.201.0.1', port: 8080 },
            { from: outside, words: ['10.201.0.2', '10.88.0.2:80'], address: '10.88.0.2', port: 80 },
            { from: lab.host, words: ['node', ':8080'], address: '10.201.0.1', port: 8080 },
            { from: lab.host, words: ['10.88.0.2:80'], address: '10.88.0.2', port: 80 },
            { from: web, words: [web.name, ':8080'], address: '10.201.0.1', port: 8080 },
            { from: web, words: [web.name, '10.201.0.2:80'], address: '10.201.0.2', port: 80 },
          ];
          const random = generator(SEED);
          const wrong: unknown[] = [];
          for (let made = 0; made < RULE_SETS; ) {
            const rules = randomRules(random);
            const shell = (line: string) => lab.run(lab.host, ['sh', '-c', line]);
            const way = ways[random.below(ways.length)];
            if (way && (await shell(rules)).exitCode === 0) {
              made++;
              const { from, words, ...to } = way;
              const answers =
                (await echo(lab, from, { protocol: 'tcp', ...to, timeoutMs: 300 })) !== undefined;
              const argv = [CATENA, 'why-not', ...words, '--json'];
              const { stdout, stderr } = await lab.run(lab.host, argv, { env, timeoutMs: 50_000 });
              const { outcome, hops } = stdout ? JSON.parse(stdout) : { outcome: stderr, hops: [] };
              const is = `${answers ? 'answers' : 'does not'}, ${outcome}`;
              const fits = answers ? ['arrives', 'unknown'] : ['stopped', 'unknown'];
              if (!fits.includes(outcome)) wrong.push({ rules, words, is, last: hops.at(-1) });
            }
            await shell(
              'nft delete table inet random; nft delete table ip random; nft delete table ip filter',
            );
          }
          expect({ seed: SEED, wrong }).toEqual({ seed: SEED, wrong: [] });
        }),
      deadline(60_000 + RULE_SETS * 2_000),
    );
  },
  requires('iptables'),
);
