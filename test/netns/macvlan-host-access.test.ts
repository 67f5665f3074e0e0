// Does the host reach its macvlan containers with "hostAccess", and does nothing of that remain?
import { expect, setDefaultTimeout, test } from 'bun:test';
import { deadline } from '../helpers/deadline.ts';
import { type Container, type Lab, type Namespace, type Row, withHost } from '../helpers/netns.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot, requiresUpperKind } from '../helpers/skip.ts';
import { mountSmallDisk } from '../helpers/small-disk.ts';
import { ping } from '../helpers/traffic.ts';

setDefaultTimeout(deadline(60_000));

const TABLE = { ignoreTables: ['inet catena_host_access'] };

function confOf(lab: Lab, more: object = {}): Row {
  return {
    cniVersion: '1.1.0',
    name: 'podnet',
    type: 'macvlan',
    master: 'outside0',
    hostAccess: true,
    detectConflicts: false,
    ipam: {
      type: 'host-local',
      ranges: [
        [{ subnet: '10.201.0.0/24', rangeStart: '10.201.0.10', gateway: '10.201.0.2' }],
        [{ subnet: 'fd00:201::/64', rangeStart: 'fd00:201::10', gateway: 'fd00:201::2' }],
      ],
      dataDir: `${lab.tmp}/leases`,
    },
    ...more,
  };
}

async function call(lab: Lab, command: string, conf: Row, container: Container, more = {}): Promise<Row> {
  const reply = await lab.plugin('macvlan', { command, conf, container, ...more });
  expect({ command, exitCode: reply.exitCode, stdout: reply.exitCode ? reply.stdout : '' }).toEqual({
    command,
    exitCode: 0,
    stdout: '',
  });
  return command === 'ADD' ? reply.result : {};
}

async function reaches(lab: Lab, from: Namespace, addresses: readonly string[]): Promise<string[]> {
  const answers = await Promise.all(addresses.map(address => ping(lab, from, address)));
  return addresses.filter((_, i) => answers[i]);
}

/** The host's own macvlans, and the addresses that it routes through them. */
async function accessOf(lab: Lab): Promise<{ devices: string[]; routes: string[]; elements: number }> {
  const links = await lab.ip(lab.host, 'link', 'show', 'type', 'macvlan');
  const routes = [
    ...(await lab.ip(lab.host, 'route', 'show')),
    ...(await lab.ip(lab.host, '-6', 'route', 'show')),
  ];
  const names = links.map(({ ifname }) => ifname);
  const sets = await lab.nft(lab.host, 'list', 'sets');
  return {
    devices: names,
    routes: routes.filter(({ dev, dst }) => names.includes(dev) && !dst.includes('/')).map(({ dst }) => dst),
    elements: sets.reduce((sum, { set }) => sum + (set?.elem?.length ?? 0), 0),
  };
}

const NONE = { devices: [], routes: [], elements: 0 };

describeRoot(
  'macvlan with hostAccess',
  () => {
    test('the host reaches a container that has the addresses of an earlier one', async () => {
      await withHost(async lab => {
        const [one, two, three] = [await lab.container(), await lab.container(), await lab.container()];
        await lab.outside();
        const { ipam, ...rest } = confOf(lab);
        const ranges = ipam.ranges.map(([range]: Row[]) => [
          { ...range, rangeEnd: range?.rangeStart.replace(/10$/, '11') },
        ]);
        const conf = { ...rest, ipam: { ...ipam, ranges } };
        const addresses = ['10.201.0.10', 'fd00:201::10'];
        for (const container of [one, two]) await call(lab, 'ADD', conf, container);
        expect(await reaches(lab, lab.host, addresses)).toEqual(addresses);
        await call(lab, 'DEL', conf, one);
        const { ips } = await call(lab, 'ADD', conf, three);
        expect(ips.map(({ address }: Row) => address.split('/')[0])).toEqual(addresses);
        expect(await reaches(lab, lab.host, addresses)).toEqual(addresses);
      });
    });

    test('host and containers reach each other, as long as any of them is there', async () => {
      await withHost(async lab => {
        const [one, two, without] = [await lab.container(), await lab.container(), await lab.container()];
        const outside = await lab.outside();
        const conf = confOf(lab);
        const before = await lab.dump(lab.host);
        const result = await call(lab, 'ADD', conf, one);
        await call(lab, 'ADD', conf, two);
        await call(lab, 'ADD', { ...conf, hostAccess: false }, without);
        const pods = ['10.201.0.10', 'fd00:201::10', '10.201.0.11', 'fd00:201::11'];
        expect(await reaches(lab, lab.host, pods)).toEqual(pods);
        expect(await ping(lab, lab.host, '10.201.0.12')).toBe(false);
        const [device] = await lab.ip(lab.host, 'addr', 'show', 'type', 'macvlan');
        const own = device?.addr_info.map(({ local }: Row) => local);
        expect(own).toEqual([expect.stringMatching(/^fe80::/)]);
        expect(await reaches(lab, one, ['10.201.0.1', `${own[0]}%eth0`, ...pods.slice(2)])).toHaveLength(4);
        await call(lab, 'CHECK', conf, one, { prevResult: result });
        expect((await lab.plugin('macvlan', { command: 'STATUS', conf })).exitCode).toBe(0);

        // The network beyond sees one host with one hardware address.
        expect(await reaches(lab, outside, ['10.201.0.1', 'fd00:201::1'])).toHaveLength(2);
        const neighbours = await lab.ip(outside, 'neigh', 'show', 'to', '10.201.0.1');
        const [master] = await lab.ip(lab.host, 'link', 'show', 'dev', 'outside0');
        expect(neighbours.map(({ lladdr }) => lladdr)).toEqual([master?.address]);
        // It has no second way in, past rules for the master.
        const aside = ['neigh', 'replace', '10.201.0.1', 'lladdr', device?.address, 'dev', 'uplink'];
        await lab.ip(outside, ...aside);
        expect(await ping(lab, outside, '10.201.0.1')).toBe(false);
        expect(await ping(lab, outside, `${own[0]}%uplink`)).toBe(false);

        const listing = (await lab.run(lab.host, ['nft', 'list', 'ruleset'])).stdout;
        expect(await lab.run(lab.host, ['nft', '-c', '-f', '-'], { stdin: listing })).toMatchObject({
          exitCode: 0,
        });

        await call(lab, 'DEL', conf, one);
        expect(await accessOf(lab)).toMatchObject({ routes: ['10.201.0.11', 'fd00:201::11'], elements: 4 });
        expect(await reaches(lab, lab.host, pods)).toEqual(pods.slice(2));
        await lab.remove(two);
        for (const container of [two, two, without]) await call(lab, 'DEL', conf, container);
        expect(await accessOf(lab)).toEqual(NONE);
        expect(await lab.dump(lab.host, TABLE)).toEqual(before);
      });
    });

    const DAMAGES: readonly [
      what: string,
      msg: string,
      damage: (lab: Lab, device: string) => Promise<unknown>,
    ][] = [
      ['a route', 'routes of', lab => lab.ip(lab.host, '-6', 'route', 'del', 'fd00:201::10')],
      ['the device', "host's device", (lab, device) => lab.ip(lab.host, 'link', 'del', device)],
      [
        'the packet filter',
        "host's access",
        lab => lab.run(lab.host, ['nft', 'delete', 'table', 'inet', 'catena_host_access']),
      ],
    ];
    test('CHECK notices what is missing, and repair restores it', async () => {
      await withHost(async lab => {
        const container = await lab.container();
        await lab.outside();
        const conf = confOf(lab);
        const prevResult = await call(lab, 'ADD', conf, container);
        const { devices } = await accessOf(lab);
        for (const [what, msg, damage] of DAMAGES) {
          await damage(lab, devices[0] ?? '');
          const check = { command: 'CHECK', conf, container, prevResult };
          const { error } = await lab.plugin('macvlan', check);
          expect([what, error?.msg]).toEqual([what, expect.stringContaining(msg)]);
          await call(lab, 'CHECK', conf, container, { prevResult, env: { CATENA_REPAIR: '1' } });
          await call(lab, 'CHECK', conf, container, { prevResult });
          expect(await reaches(lab, lab.host, ['10.201.0.10', 'fd00:201::10'])).toHaveLength(2);
        }
      });
    });

    test('after a flush of the packet filter, DEL removes its own routes and no others', async () => {
      await withHost(async lab => {
        const [one, two] = [await lab.container(), await lab.container()];
        await lab.outside();
        const conf = confOf(lab);
        await call(lab, 'ADD', conf, one);
        await call(lab, 'ADD', conf, two);
        await lab.run(lab.host, ['nft', 'flush', 'ruleset']);
        // Even if the option was taken out of the configuration since.
        await call(lab, 'DEL', { ...conf, hostAccess: false }, one);
        expect((await accessOf(lab)).routes).toEqual(['10.201.0.11', 'fd00:201::11']);
        await call(lab, 'DEL', conf, two);
        expect(await accessOf(lab)).toEqual(NONE);
      });
    });

    test('DEL ends it while the run directory is full or read-only', async () => {
      await withHost(async lab => {
        await lab.outside();
        const conf = confOf(lab);
        const disk = await mountSmallDisk(lab, () => ({}));
        for (const state of ['full', 'ro'] as const) {
          const container = await lab.container();
          await call(lab, 'ADD', conf, container);
          if (state === 'full') await disk.limitFiles(0);
          else await disk.remount('ro');
          const { exitCode, stdout } = await disk.run([`${BIN_DIR}/macvlan`], {
            stdin: JSON.stringify(conf),
            env: {
              ...{ CNI_COMMAND: 'DEL', CNI_CONTAINERID: container.id, CNI_IFNAME: 'eth0' },
              ...{ CNI_NETNS: container.path, CNI_PATH: BIN_DIR, CATENA_RUN_DIR: disk.dir },
            },
          });
          expect([state, exitCode, stdout]).toEqual([state, 0, '']);
          expect(await accessOf(lab)).toEqual(NONE);
        }
      });
    });

    test('GC ends it for attachments that are not in the list; so does the end of the master', async () => {
      await withHost(async lab => {
        const [one, two] = [await lab.container(), await lab.container()];
        await lab.outside();
        const conf = confOf(lab);
        await call(lab, 'ADD', conf, one);
        await call(lab, 'ADD', conf, two);
        await lab.remove(one);
        const valid = [{ containerID: two.id, ifname: 'eth0' }];
        const gc = { command: 'GC', conf: { ...conf, 'cni.dev/valid-attachments': valid } };
        expect((await lab.plugin('macvlan', gc)).exitCode).toBe(0);
        expect((await accessOf(lab)).routes).toEqual(['10.201.0.11', 'fd00:201::11']);
        await lab.ip(lab.host, 'link', 'del', 'outside0');
        await call(lab, 'DEL', conf, two);
        expect(await accessOf(lab)).toEqual(NONE);
      });
    });

    test('ADD leaves a device alone that has the name of its own, and says so', async () => {
      await withHost(async lab => {
        const container = await lab.container();
        await lab.outside();
        const [master] = await lab.ip(lab.host, 'link', 'show', 'dev', 'outside0');
        await lab.ip(lab.host, 'link', 'add', `hmv${master?.ifindex}`, 'type', 'bridge');
        const reply = await lab.plugin('macvlan', { command: 'ADD', conf: confOf(lab), container });
        expect(reply.error).toMatchObject({ code: 7, msg: expect.stringContaining('rename it') });
        expect((await lab.ip(container, 'link')).map(({ ifname }) => ifname)).toEqual(['lo']);
        expect((await lab.ip(lab.host, 'link', 'show', 'type', 'bridge')).length).toBe(1);
      });
    });
  },
  requiresUpperKind('macvlan'),
);
