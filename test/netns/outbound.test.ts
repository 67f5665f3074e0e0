// Do packets leave with the chosen source address, and by several gateways where a route names them?
import { expect, test } from 'bun:test';
import { ipToBytes, parseIp } from '../../src/net/ip.ts';
import { bindSocket, closeSocket, openSocket, sendBytesTo } from '../../src/sys/inet-socket.ts';
import { closeNetns, inNetns, openNetns } from '../../src/sys/netns.ts';
import { type Container, type Lab, type Row, withHost } from '../helpers/netns.ts';
import { askUdp } from '../helpers/pods.ts';
import { describeRoot } from '../helpers/skip.ts';
import { echo, startServer } from '../helpers/traffic.ts';

const MAIN_PLUGINS = ['bridge', 'ptp'];
const CHOSEN = ['192.0.2.77', '2001:db8:77::1'];

function confOf(lab: Lab, type: string, more: Row = {}, ipam: Row = {}): Row {
  const ranges = [[{ subnet: '10.88.0.0/24' }], [{ subnet: 'fd88::/64' }]];
  const routes = [{ dst: '0.0.0.0/0' }, { dst: '::/0' }];
  return {
    cniVersion: '1.1.0',
    name: 'podnet',
    type,
    ...(type === 'bridge' ? { bridge: 'br0', isGateway: true } : {}),
    ipMasq: true,
    ipam: { type: 'host-local', ranges, routes, dataDir: `${lab.tmp}/leases`, ...ipam },
    ...more,
  };
}

async function call(
  lab: Lab,
  command: string,
  conf: Row,
  container: Container,
  more: Row = {},
): Promise<Row> {
  return lab.plugin(conf.type, { command, conf, container, ...more });
}

describeRoot('ipMasqSource', () => {
  test.each(MAIN_PLUGINS)(
    '[1.1.0] %s: packets leave with the chosen addresses; CHECK, repair and DEL know it',
    async type => {
      await withHost(async lab => {
        const [container, outside] = [await lab.container(), await lab.outside()];
        await askableNeighbour(lab);
        const conf = confOf(lab, type, { ipMasqSource: CHOSEN });
        const { exitCode, stderr, result: prevResult } = await call(lab, 'ADD', conf, container);
        expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: '' });
        await startServer(lab, outside, { protocol: 'tcp', port: 7000 });
        for (const [i, address] of [outside.address.v4, outside.address.v6].entries()) {
          expect((await echo(lab, container, { protocol: 'tcp', address, port: 7000 }))?.peer).toBe(
            CHOSEN[i] as string,
          );
        }
        const { stdout } = await lab.run(lab.host, ['nft', 'list', 'table', 'inet', 'catena_masquerade']);
        expect(stdout).toContain('snat ip to 192.0.2.77');
        expect(stdout).toContain('snat ip6 to 2001:db8:77::1');
        expect(await call(lab, 'CHECK', conf, container, { prevResult })).toMatchObject({
          exitCode: 0,
          stdout: '',
        });
        const changed = { ...conf, ipMasqSource: ['192.0.2.78'] };
        expect((await call(lab, 'CHECK', changed, container, { prevResult })).exitCode).toBe(1);
        const env = { CATENA_REPAIR: '1' };
        expect(await call(lab, 'CHECK', changed, container, { prevResult, env })).toMatchObject({
          exitCode: 0,
        });
        const after = await echo(lab, container, {
          protocol: 'tcp',
          address: outside.address.v4,
          port: 7000,
        });
        expect(after?.peer).toBe('192.0.2.78');
        expect(await call(lab, 'DEL', changed, container)).toMatchObject({ exitCode: 0 });
        const left = await lab.nft(lab.host, 'list', 'table', 'inet', 'catena_masquerade');
        expect(JSON.stringify(left)).not.toContain('10.88.0.2');
      });
    },
  );

  test.each([
    [{ ipMasqSource: ['192.0.2.300'] }, 'holds "192.0.2.300"'],
    [{ ipMasqSource: ['192.0.2.1', '192.0.2.2'] }, 'two addresses of one IP version'],
    [{ ipMasqSource: ['192.0.2.1'], ipMasqBackend: 'iptables' }, 'needs "ipMasqBackend": "nftables"'],
  ])('[1.1.0] refuses %j before anything is changed', async (more, words) => {
    await withHost(async lab => {
      const container = await lab.container();
      for (const type of MAIN_PLUGINS) {
        const { error } = await call(lab, 'ADD', confOf(lab, type, more), container);
        expect(error).toMatchObject({ code: 7, msg: expect.stringContaining(words) });
      }
    });
  });
});

/** Without a link-local address the host cannot ask for its neighbour on behalf of an address that is not its own. */
async function askableNeighbour(lab: Lab): Promise<void> {
  await lab.ip(lab.host, 'addr', 'add', 'fe80::9/64', 'dev', 'outside0', 'nodad');
}

/** A host with a server for {@link askUdp}, which knows no way to a container's own address. */
async function strangeOutside(lab: Lab) {
  const outside = await lab.outside();
  await askableNeighbour(lab);
  // A host that is not there takes the answers to it: they get lost without an error, which would fail what the server sends next.
  for (const [subnet, via] of [
    ['10.88.0.0/24', '10.201.0.99'],
    ['fd88::/64', 'fd00:201::99'],
  ] as const) {
    const lladdr = ['lladdr', '02:00:00:00:00:99', 'nud', 'permanent'];
    await lab.ip(outside, 'neigh', 'add', via, ...lladdr, 'dev', 'uplink');
    await lab.ip(outside, 'route', 'add', subnet, 'via', via, 'dev', 'uplink');
  }
  await startServer(lab, outside, { protocol: 'udp', port: 8080 });
  return outside.address;
}

/** Has the kernel track connections on behalf of something else. */
async function trackConnections(lab: Lab): Promise<void> {
  await lab.run(lab.host, ['nft', 'add table inet other']);
  const chain = 'add chain inet other forward { type filter hook forward priority 0; }';
  await lab.run(lab.host, ['nft', `${chain}; add rule inet other forward ct state new accept`]);
}

/** Sends from the port of {@link askUdp} all the time. @returns stops that */
function keepSending({ path }: Container, address: string): () => void {
  const netns = openNetns(path);
  const socket = inNetns(netns, () => openSocket('udp', 4));
  closeNetns(netns);
  bindSocket(socket, 'udp', 40000);
  const to = { address: ipToBytes(parseIp(address)), port: 8080 };
  const send = () => {
    try {
      sendBytesTo(socket, Uint8Array.of(1), to);
    } catch {
      // There is no route yet.
    }
  };
  const timer = setInterval(send, 0);
  return () => {
    clearInterval(timer);
    closeSocket(socket);
  };
}

describeRoot('ipMasq', () => {
  test.each(MAIN_PLUGINS)(
    '[1.1.0] %s: what a container sends as soon as it has a route is masqueraded',
    async type => {
      await withHost(async lab => {
        const [container, { v4 }] = [await lab.container(), await strangeOutside(lab)];
        await trackConnections(lab);
        await lab.sysctl(lab.host, 'net/ipv4/ip_forward', 1);
        const stop = keepSending(container, v4);
        const { exitCode } = await call(lab, 'ADD', confOf(lab, type), container);
        stop();
        expect(exitCode).toBe(0);
        // The kernel has decided about the flow with its first packet.
        expect(await askUdp(lab, container, v4)).toBe(true);
      });
    },
  );

  test.each(MAIN_PLUGINS)(
    '[1.1.0] %s: a repair ends flows that began while nothing masqueraded them',
    async type => {
      await withHost(async lab => {
        const [container, { v4, v6 }] = [await lab.container(), await strangeOutside(lab)];
        const conf = confOf(lab, type);
        const { result: prevResult } = await call(lab, 'ADD', conf, container);
        await trackConnections(lab);
        await lab.run(lab.host, ['nft', 'delete table inet catena_masquerade']);
        expect([await askUdp(lab, container, v4), await askUdp(lab, container, v6)]).toEqual([false, false]);
        const env = { CATENA_REPAIR: '1' };
        expect(await call(lab, 'CHECK', conf, container, { prevResult, env })).toMatchObject({ exitCode: 0 });
        expect([await askUdp(lab, container, v4), await askUdp(lab, container, v6)]).toEqual([true, true]);
      });
    },
  );
});

describeRoot('routes with several gateways', () => {
  test.each(MAIN_PLUGINS)(
    '[1.1.0] %s makes one multipath route of "gws"; CHECK and repair know it',
    async type => {
      await withHost(async lab => {
        const container = await lab.container();
        const routes = [
          { dst: '10.99.0.0/16', gws: ['10.88.0.7', '10.88.0.8'], gw: '10.88.0.9' },
          { dst: 'fd99::/64', gws: ['fd88::7', 'fd88::8'] },
        ];
        const conf = confOf(lab, type, { ipMasq: false }, { routes });
        const { exitCode, result: prevResult } = await call(lab, 'ADD', conf, container);
        expect({ exitCode, routes: prevResult.routes }).toEqual({ exitCode: 0, routes });
        const gatewaysOf = async (family: string, dst: string) => {
          const found = await lab.ip(container, family, 'route', 'show', dst);
          return found.flatMap(({ nexthops }) => nexthops.map(({ gateway }: Row) => gateway)).sort();
        };
        const intact = async () => [
          await gatewaysOf('-4', '10.99.0.0/16'),
          await gatewaysOf('-6', 'fd99::/64'),
        ];
        const wanted = [
          ['10.88.0.7', '10.88.0.8', '10.88.0.9'],
          ['fd88::7', 'fd88::8'],
        ];
        expect(await intact()).toEqual(wanted);
        const check = (env = {}) => call(lab, 'CHECK', conf, container, { prevResult, env });
        expect(await check()).toMatchObject({ exitCode: 0, stdout: '' });
        // A pod of ptp has no on-link route to its subnet left, so its repair cannot add a route by another gateway there.
        if (type === 'ptp') return;
        await lab.ip(container, 'route', 'del', '10.99.0.0/16');
        expect((await check()).exitCode).toBe(1);
        expect(await check({ CATENA_REPAIR: '1' })).toMatchObject({ exitCode: 0, stdout: '' });
        expect(await intact()).toEqual(wanted);
      });
    },
  );
});
