// Can rates, ports, policy and sysctls of a running container be changed without it noticing anything else?
import { expect, test } from 'bun:test';
import fs from 'node:fs';
import { CATENA } from '../helpers/catena.ts';
import { mixedBinDir } from '../helpers/chain.ts';
import {
  cachedOf,
  changeableChain,
  onJournal,
  ports,
  rates,
  set,
  setCommand,
  settingsOf,
} from '../helpers/change.ts';
import { directories, type Lab, type Row, withHost } from '../helpers/netns.ts';
import { BIN_DIR, REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot, requires, requiresLinkKind, requiresReference } from '../helpers/skip.ts';
import { converse, measureRate, steadily } from '../helpers/traffic.ts';

const DONE = { exitCode: 0, stderr: '' };
/** Changes under traffic, of which every fifth is killed; CATENA_CHANGES=1000 for a long run. */
const CHANGES = Number(process.env.CATENA_CHANGES ?? 20);
/** Every nth point of a crash is tried; CATENA_CHANGE_STEP=1 tries all. */
const STEP = Number(process.env.CATENA_CHANGE_STEP ?? 25);

/** A list with a bridge of its own. */
function bridgedList(lab: Lab, name: string, net: number): Row {
  const ipam = { type: 'host-local', subnet: `10.${net}.0.0/24`, dataDir: `${lab.tmp}/leases` };
  return {
    cniVersion: '1.1.0',
    name,
    plugins: [{ type: 'bridge', bridge: `br-${name}`, isGateway: true, ipam }],
  };
}

async function sentThrough(lab: Lab, dev: string): Promise<Row> {
  const [qdisc] = await lab.tc(lab.host, '-s', 'qdisc', 'show', 'dev', dev, 'root');
  return { kind: qdisc?.kind, rate: qdisc?.options?.rate, bytes: qdisc?.bytes };
}

describeRoot(
  'catena set',
  () => {
    test('changes every plugin of a chain in place; CHECK, repair and DEL know', async () => {
      await withHost(async lab => {
        const [container, outside] = [await lab.container(), await lab.outside()];
        const chain = changeableChain(lab);
        const somaxconn = await lab.sysctl(container, 'net/core/somaxconn');
        const added = await chain.add(container, {
          cap: { portMappings: ports(8080, 8081), bandwidth: rates(80) },
        });
        const way = { from: outside, to: container, address: outside.hostAddress.v4 };
        const kept = await converse(lab, { ...way, listen: 80, port: 8080 });
        // A server of the host, on a port that is forwarded from the change on.
        const own = await converse(lab, { ...way, to: lab.host, listen: 9090, port: 9090 });
        try {
          expect(await kept.say('before')).toBe('before');
          const veth = added.interfaces[1].name;
          const before = await sentThrough(lab, veth);
          expect(before).toMatchObject({ kind: 'tbf', rate: 10_000_000 });

          const cap = { portMappings: ports(8080, 9090), bandwidth: rates(16) };
          const tuning = { sysctl: { 'net.ipv4.conf.IFNAME.arp_filter': '1' }, mtu: 1400 };
          const conf = { firewall: { ingressPolicy: 'isolated' }, tuning };
          const changed = await set(lab, container, { cap, conf });
          expect(changed).toMatchObject(DONE);
          expect(await kept.say('after')).toBe('after');
          expect(await own.say('own')).toBe('own');
          expect(await settingsOf(lab, container)).toEqual({
            ports: [8080, 9090],
            rates: [16, 16],
            policies: [expect.stringContaining('isolated')],
            somaxconn,
          });
          expect(await lab.sysctl(container, 'net/ipv4/conf/eth0/arp_filter')).toBe('1');
          expect(await lab.ip(container, 'link', 'show', 'eth0')).toMatchObject([{ mtu: 1400 }]);
          // The same qdisc with other parameters: it goes on counting.
          const after = await sentThrough(lab, veth);
          expect(after).toMatchObject({ kind: 'tbf', rate: 2_000_000 });
          expect(after.bytes).toBeGreaterThan(before.bytes);
          const rate = await steadily(
            () => measureRate(lab, { from: outside, to: container, address: '10.88.0.2' }),
            bytes => bytes * 8 > 8_000_000 && bytes * 8 < 20_000_000,
          );
          expect(rate * 8).toBeGreaterThan(8_000_000);
          expect(rate * 8).toBeLessThan(20_000_000);

          expect(cachedOf(lab, container)).toMatchObject({
            capabilityArgs: cap,
            result: JSON.parse(changed.stdout),
          });
          expect(cachedOf(lab, container).config.plugins[2]).toEqual({ type: 'firewall', ...conf.firewall });
          expect(await chain.run('check', container)).toEqual({ ...DONE, stdout: '' });
          await lab.run(lab.host, ['nft', 'flush', 'ruleset']);
          expect((await onJournal(lab, 'repair')).stdout).toContain('1 mended');
          expect((await settingsOf(lab, container)).ports).toEqual([8080, 9090]);

          const nothing = {
            cap: { portMappings: null, bandwidth: null },
            conf: { tuning: { sysctl: null, mtu: null } },
          };
          expect(await set(lab, container, nothing)).toMatchObject(DONE);
          expect(await settingsOf(lab, container)).toMatchObject({ ports: [], rates: [] });
          expect(await lab.sysctl(container, 'net/ipv4/conf/eth0/arp_filter')).toBe('0');
          expect(fs.readdirSync(`${lab.tmp}/tuning`)).toEqual([]);
          // Its port is no longer forwarded, so the connection has ended.
          expect(await kept.say('late')).not.toBe('late');
        } finally {
          await kept.end();
          await own.end();
        }
        expect(await chain.run('check', container)).toMatchObject(DONE);
        expect(await chain.run('del', container)).toMatchObject(DONE);
        expect(await settingsOf(lab, container)).toMatchObject({ ports: [], rates: [], policies: [] });
        expect(fs.readdirSync(`${lab.tmp}/cni/results`)).toEqual([]);
      });
    });

    test('of two plugins of one type, a change of one leaves what the other set', async () => {
      await withHost(async lab => {
        const container = await lab.container();
        const chain = changeableChain(lab, { type: 'tuning', mtu: 1400, dataDir: `${lab.tmp}/tuning` });
        const original = await lab.sysctl(container, 'net/core/somaxconn');
        await chain.add(container);
        const found = async () => {
          const [link] = await lab.ip(container, 'link', 'show', 'eth0');
          expect(await chain.run('check', container)).toMatchObject(DONE);
          return [await lab.sysctl(container, 'net/core/somaxconn'), link?.mtu];
        };
        const change = async (conf: object) => {
          expect(await set(lab, container, { conf })).toMatchObject(DONE);
          return await found();
        };
        expect(await change({ 5: { mtu: 1300 } })).toEqual(['321', 1300]);
        expect(await change({ 4: { sysctl: { 'net.core.somaxconn': '654' } } })).toEqual(['654', 1300]);
        expect(await change({ 4: { sysctl: null } })).toEqual([original, 1300]);
        const failing = { 5: { mtu: 1200 }, 4: { sysctl: { 'net.core.somaxconn': '-1' } } };
        expect(await set(lab, container, { conf: failing })).toMatchObject({ exitCode: 1 });
        expect(await found()).toEqual([original, 1300]);
        expect(await change({ 4: { sysctl: { 'net.core.somaxconn': '9' } } })).toEqual(['9', 1300]);
        const kept = `${lab.tmp}/tuning/${container.id}_eth0.json`;
        expect(JSON.parse(fs.readFileSync(kept, 'utf8'))).toMatchObject({
          mtu: 1500,
          sysctl: { 'net/core/somaxconn': original },
        });
        expect(await chain.run('del', container)).toMatchObject(DONE);
        expect(await lab.sysctl(container, 'net/core/somaxconn')).toBe(original);
      });
    });

    test('what cannot be changed is refused, and nothing changes', async () => {
      await withHost(async lab => {
        const [container, other] = [await lab.container(), await lab.container()];
        const chain = changeableChain(lab);
        await chain.add(container, { cap: { portMappings: ports(8080), bandwidth: rates(80) } });
        await chain.add(other, { cap: { portMappings: ports(9090) } });
        const before = [await settingsOf(lab, container), cachedOf(lab, container)];
        const refused = async (wanted: Parameters<typeof set>[2], ...more: string[]) => {
          const { exitCode, stderr } = await set(lab, container, wanted, ...more);
          expect(exitCode).toBe(1);
          expect([await settingsOf(lab, container), cachedOf(lab, container)]).toEqual(before);
          return stderr;
        };
        // The firewall comes after portmap, and bandwidth before neither: what precedes the failure is undone.
        const taken = {
          cap: { portMappings: ports(9090), bandwidth: rates(5) },
          conf: { firewall: { ingressPolicy: 'isolated' } },
        };
        expect(await refused(taken)).toContain(`container "${other.id}" of network "podnet" holds 9090/tcp`);
        expect(
          await refused({
            cap: { bandwidth: rates(5) },
            conf: { tuning: { sysctl: { 'net.core.somaxconn': '-1' } } },
          }),
        ).toContain('somaxconn');
        expect(await refused({ cap: { mac: '02:00:00:00:00:01' } })).toContain(
          'declared are "portMappings", "bandwidth"',
        );
        expect(await refused({ conf: { bridge: { mtu: 1400 } } })).toContain(
          'no option of "bridge" can be changed',
        );
        expect(await refused({ conf: { tuning: { dataDir: '/tmp' } } })).toContain('Cannot change "dataDir"');
        expect(await refused({ conf: { vlan: {} } })).toContain('has no plugin "vlan"');
        expect(await refused({ cap: { bandwidth: { ingressRate: -1 } } })).toContain('ingressRate');
        const own = { cap: { bandwidth: rates(5) }, conf: { bandwidth: rates(6) } };
        expect(await refused(own)).toContain('the configuration has its own, which take precedence');
        const bin = mixedBinDir(lab, REFERENCE_BIN_DIR, 'bandwidth');
        expect(await refused({ cap: { bandwidth: rates(5) } }, '--bin-dir', bin)).toContain(
          "is not Catena's",
        );
        await lab.remove(container);
        const { exitCode, stderr } = await set(lab, container, { cap: { bandwidth: rates(5) } });
        expect([exitCode, stderr]).toEqual([1, expect.stringContaining('no longer exists; run DEL')]);
        expect(await chain.run('del', container)).toMatchObject(DONE);
        expect((await set(lab, container, { cap: { bandwidth: rates(5) } })).stderr).toContain('on record');
      });
    });

    test(
      'wherever a change is killed, the attachment is what it was or what it was to become',
      async () => {
        await withHost(async lab => {
          const container = await lab.container();
          const chain = changeableChain(lab);
          const [first, second] = [
            {
              cap: { portMappings: ports(8080), bandwidth: rates(80) },
              conf: { tuning: { sysctl: { 'net.core.somaxconn': '321' } } },
            },
            {
              cap: { portMappings: ports(9090), bandwidth: rates(16) },
              conf: { tuning: { sysctl: { 'net.core.somaxconn': '654' } } },
            },
          ];
          await chain.add(container, { cap: first.cap });
          const states = new Map([
            [9090, second],
            [8080, first],
          ]);
          const seen = new Map<number, Row>();
          seen.set(8080, await settingsOf(lab, container));
          expect(await set(lab, container, second)).toMatchObject(DONE);
          seen.set(9090, await settingsOf(lab, container));
          let [now, struck] = [9090, 0];
          const outcomes = { before: 0, after: 0 };
          // The kernel's requests, files and replies of runner and worker, each counted for itself.
          for (const calls of ['sendto,sendmsg', 'write,rename,unlink,symlink']) {
            let beyond = 0;
            for (let nth = 1; beyond < 2; nth += STEP) {
              const next = now === 8080 ? 9090 : 8080;
              const strace = [
                'strace',
                '-f',
                '-qq',
                '-o',
                '/dev/null',
                '-e',
                `trace=${calls}`,
                '-e',
                `inject=${calls}:signal=KILL:when=${nth}`,
              ];
              const argv = [...strace, ...setCommand(container, states.get(next) ?? {})];
              const { exitCode } = await lab.run(lab.host, argv, {
                env: directories(lab.tmp),
                timeoutMs: 60_000,
              });
              beyond = exitCode === 0 ? beyond + 1 : 0;
              struck += 1;
              const recovery = struck % 3;
              if (recovery === 0) expect(await chain.run('check', container)).toMatchObject(DONE);
              else if (recovery === 1) expect((await onJournal(lab, 'repair')).exitCode).toBe(0);
              else expect(await set(lab, container, { cap: {}, conf: { tuning: {} } })).toMatchObject(DONE);
              expect((await onJournal(lab, 'repair')).stdout).toBe(
                'attachments: 1 sound, 0 mended, 0 broken, 0 skipped\n',
              );
              const found = await settingsOf(lab, container);
              const port = found.ports[0];
              expect(found).toEqual(seen.get(port) ?? {});
              expect(cachedOf(lab, container).capabilityArgs).toEqual(states.get(port)?.cap);
              outcomes[port === now ? 'before' : 'after'] += 1;
              now = port;
            }
          }
          if (STEP === 1) process.stdout.write(`${struck} points: ${JSON.stringify(outcomes)}\n`);
          expect(await chain.run('del', container)).toMatchObject(DONE);
          expect(await settingsOf(lab, container)).toMatchObject({ ports: [], rates: [], policies: [] });
        });
      },
      STEP === 1 ? 3_600_000 : 300_000,
    );

    test(
      'a connection survives changes of rates, ports and networks, kills among them, and two at once',
      async () => {
        await withHost(async lab => {
          const [container, outside] = [await lab.container(), await lab.outside()];
          const chain = changeableChain(lab);
          await chain.add(container, { cap: { portMappings: ports(8080), bandwidth: rates(80) } });
          const talk = await converse(lab, {
            from: outside,
            to: container,
            listen: 80,
            address: outside.hostAddress.v4,
            port: 8080,
          });
          const begun = performance.now();
          let killed = 0;
          const storage = bridgedList(lab, 'storage', 99);
          fs.writeFileSync(`${lab.tmp}/storage.conflist`, JSON.stringify(storage));
          const hasStorage = async () =>
            (await lab.ip(container, 'link', 'show')).some(({ ifname }) => ifname === 'net1');
          const kill = async (argv: readonly string[], afterMs: number) => {
            const env = Object.entries(directories(lab.tmp)).map(pair => pair.join('='));
            const child = lab.start(lab.host, ['env', ...env, ...argv]);
            await Bun.sleep(afterMs);
            child.kill('SIGKILL');
            await child.exited;
            killed += 1;
          };
          /** Adds the second network, or removes it; a killed call is followed by one that is not. */
          const swing = async (n: number) => {
            const target = [container.id, '--bin-dir', BIN_DIR];
            const attach = [
              CATENA,
              'attach',
              ...target,
              'storage',
              '--file',
              `${lab.tmp}/storage.conflist`,
              '--ifname',
              'net1',
            ];
            const argv = (await hasStorage()) ? [CATENA, 'detach', ...target, 'net1'] : attach;
            if (n % 2 === 0) await kill(argv, 20 + ((n * 37) % 200));
            const next = (await hasStorage()) ? [CATENA, 'detach', ...target, 'net1'] : attach;
            const done = await lab.run(lab.host, next, { env: directories(lab.tmp), timeoutMs: 60_000 });
            expect(done).toMatchObject(DONE);
            expect(await hasStorage()).toBe(next === attach);
          };
          try {
            for (let n = 1; n <= CHANGES; n++) {
              const wanted = {
                cap: { portMappings: ports(8080, 9000 + (n % 50)), bandwidth: rates(10 + (n % 40)) },
              };
              if (n % 5 === 0) await kill(setCommand(container, wanted), 20 + ((n * 37) % 200));
              else if (n % 3 === 0) await swing(n);
              else if (n % 7 === 0) {
                const more = { cap: { bandwidth: rates(33) } };
                const both = await Promise.all([set(lab, container, wanted), set(lab, container, more)]);
                for (const one of both) expect(one).toMatchObject(DONE);
              } else expect(await set(lab, container, wanted)).toMatchObject(DONE);
              expect(await talk.say(`change ${n}`)).toBe(`change ${n}`);
              if (n % 10 === 0) expect(await chain.run('check', container)).toMatchObject(DONE);
            }
            const record = fs
              .readdirSync(`${lab.tmp}/cni/results`)
              .map(name => fs.statSync(`${lab.tmp}/cni/results/${name}`).size);
            expect(Math.max(...record)).toBeLessThan(500_000);
            if (CHANGES > 100)
              process.stdout.write(
                `${CHANGES} changes, ${killed} killed, ${Math.round(performance.now() - begun)} ms, record of ${record} bytes\n`,
              );
          } finally {
            await talk.end();
          }
          if (await hasStorage()) await swing(1);
          expect(fs.readdirSync(`${lab.tmp}/leases/storage`).filter(name => /^10\./.test(name))).toEqual([]);
          expect(await lab.ip(lab.host, 'link', 'show', 'master', 'br-storage')).toEqual([]);
          // DEL and a change at once: whichever comes first, DEL succeeds and nothing remains.
          const late = set(lab, container, { cap: { portMappings: ports(8080, 9999), bandwidth: rates(1) } });
          expect(await chain.run('del', container)).toMatchObject(DONE);
          await late;
          expect(await settingsOf(lab, container)).toMatchObject({ ports: [], rates: [], policies: [] });
          expect(fs.readdirSync(`${lab.tmp}/state/unsettled/podnet`)).toEqual([]);
        });
      },
      CHANGES > 100 ? 3_600_000 : 180_000,
    );
  },
  requiresLinkKind('ifb'),
  requires('strace'),
  requiresReference('bandwidth'),
);
