// Does the tap plugin create taps and macvtaps as configured, and remove them?
import { expect, test } from 'bun:test';
import fs from 'node:fs';
import { tapCommand } from '../../plugins/tap/plugin.ts';
import { type Container, type Lab, type Row, withHost } from '../helpers/netns.ts';
import { describeRoot, requiresUpperKind, testNeeding } from '../helpers/skip.ts';
import { LATEST_SPEC_VERSION } from '../helpers/spec-versions.ts';
import { ping } from '../helpers/traffic.ts';

// Debian's containernetworking-plugins has no tap, so there is no reference to compare with here.

function confOf(lab: Lab, more: Row = {}): Row {
  return {
    cniVersion: '1.1.0',
    name: 'podnet',
    type: 'tap',
    ipam: {
      type: 'host-local',
      ranges: [[{ subnet: '10.67.0.0/24' }], [{ subnet: 'fd67::/64' }]],
      routes: [{ dst: '0.0.0.0/0' }, { dst: '192.0.2.0/24', table: 77 }],
      dataDir: `${lab.tmp}/leases`,
    },
    ...more,
  };
}

function call(lab: Lab, command: string, container: Container, more: Row = {}) {
  const { conf = confOf(lab), ...others } = more;
  return lab.plugin('tap', { command, conf, container, ...others });
}

async function add(lab: Lab, container: Container, more: Row = {}): Promise<Row> {
  const reply = await call(lab, 'ADD', container, more);
  expect(reply).toMatchObject({ exitCode: 0 });
  return reply.result;
}

function leasesOf(lab: Lab): string[] {
  const dir = `${lab.tmp}/leases/podnet`;
  return fs.existsSync(dir)
    ? fs
        .readdirSync(dir)
        .filter(name => /^(10|fd)/.test(name))
        .sort()
    : [];
}

async function linkOf(lab: Lab, container: Container, name = 'eth0'): Promise<Row | undefined> {
  return (await lab.ip(container, 'link', 'show')).find(({ ifname }) => ifname === name);
}

const OK = { exitCode: 0, stdout: '' };
const MAC = '02:00:00:00:67:01';

describeRoot('tap', () => {
  test('ADD makes a tap with addresses and routes; DEL deletes it', async () => {
    const cniVersion = LATEST_SPEC_VERSION;
    await withHost(async lab => {
      const container = await lab.container();
      const conf = confOf(lab);
      const before = await lab.dump(container);
      const result = await add(lab, container, { conf });
      const link = await linkOf(lab, container);
      expect(link).toMatchObject({
        flags: expect.arrayContaining(['UP']),
        linkinfo: { info_kind: 'tun', info_data: { type: 'tap', persist: true, multi_queue: false } },
      });
      expect(result).toEqual({
        cniVersion,
        interfaces: [{ name: 'eth0', mac: link?.address, mtu: 1500, sandbox: container.path }],
        ips: [
          { address: '10.67.0.2/24', gateway: '10.67.0.1', interface: 0 },
          { address: 'fd67::2/64', gateway: 'fd67::1', interface: 0 },
        ],
        routes: [{ dst: '0.0.0.0/0' }, { dst: '192.0.2.0/24', table: 77 }],
      });
      const [{ addr_info: addresses = [] } = {}] = await lab.ip(container, 'addr', 'show', 'eth0');
      expect(addresses.map(({ local }: Row) => local)).toEqual(
        expect.arrayContaining(['10.67.0.2', 'fd67::2']),
      );
      expect(await lab.ip(container, 'route', 'show', 'table', '77')).toMatchObject([
        { gateway: '10.67.0.1' },
      ]);
      expect(await ping(lab, container, '10.67.0.2')).toBe(false);
      const check = { conf, prevResult: result };
      expect(await call(lab, 'CHECK', container, check)).toMatchObject(OK);
      await lab.ip(container, 'addr', 'flush', 'dev', 'eth0');
      expect((await call(lab, 'CHECK', container, check)).error?.msg).toContain('addresses of "eth0"');
      const repaired = await call(lab, 'CHECK', container, { ...check, env: { CATENA_REPAIR: '1' } });
      expect(repaired).toMatchObject(OK);
      expect(await lab.plugin('tap', { command: 'STATUS', conf })).toMatchObject(OK);
      for (const _ of [1, 2]) expect(await call(lab, 'DEL', container, { conf })).toMatchObject(OK);
      expect(await lab.dump(container)).toEqual(before);
      expect(leasesOf(lab)).toEqual([]);
    });
  });

  test('[1.1.0] ADD sets owner, group, queues, MTU, hardware address and bridge; CHECK compares them', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      await lab.ip(container, 'link', 'add', 'br0', 'up', 'type', 'bridge');
      const { ipam: _, ...base } = confOf(lab);
      const conf = { ...base, owner: 1001, group: 0, multiQueue: true, mtu: 1400, mac: MAC, bridge: 'br0' };
      const prevResult = await add(lab, container, { conf });
      expect(prevResult).toEqual({
        cniVersion: '1.1.0',
        interfaces: [{ name: 'eth0', mac: MAC, mtu: 1400, sandbox: container.path }],
      });
      expect(await linkOf(lab, container)).toMatchObject({
        address: MAC,
        mtu: 1400,
        master: 'br0',
        ifalias: `catena:podnet/${container.id}/eth0`,
        linkinfo: { info_data: { multi_queue: true, user: 1001, group: 'root' } },
      });
      // What makes it in a context of SELinux, which this kernel may lack, makes the same device.
      const command = tapCommand({ ifname: 'other', multiQueue: true, owner: 1001, group: 0 });
      expect(await lab.run(container, command)).toMatchObject({ exitCode: 0 });
      const [own, other] = [await linkOf(lab, container), await linkOf(lab, container, 'other')];
      expect(other?.linkinfo.info_data).toEqual(own?.linkinfo.info_data);
      expect(await call(lab, 'CHECK', container, { conf, prevResult })).toMatchObject(OK);
      const others: [Row, string][] = [
        [{ owner: 1002 }, 'owner of'],
        [{ group: 7 }, 'group of'],
        [{ multiQueue: false }, '"multiQueue" of'],
      ];
      for (const [more, words] of others) {
        const check = await call(lab, 'CHECK', container, { conf: { ...conf, ...more }, prevResult });
        expect(check.error?.msg).toContain(words);
      }
      const changes: [string[], string][] = [
        [['link', 'set', 'eth0', 'nomaster'], 'bridge of'],
        [['link', 'set', 'eth0', 'down'], 'state of'],
        [['link', 'set', 'eth0', 'mtu', '1300'], 'MTU of'],
        [['link', 'set', 'eth0', 'address', '02:00:00:00:bb:02'], 'hardware address of'],
      ];
      for (const [change, words] of changes) {
        await lab.ip(container, ...change);
        const check = await call(lab, 'CHECK', container, { conf, prevResult });
        expect(check.error?.msg).toContain(words);
        const repaired = { conf, prevResult, env: { CATENA_REPAIR: '1' } };
        expect(await call(lab, 'CHECK', container, repaired)).toMatchObject(OK);
      }
      expect(await call(lab, 'DEL', container, { conf })).toMatchObject(OK);
      expect(await linkOf(lab, container)).toBeUndefined();
    });
  });

  test('[1.1.0] a program of the owner can attach to the tap, and another user cannot', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      await add(lab, container, { conf: confOf(lab, { owner: 65534 }) });
      // TUNSETIFF of linux/if_tun.h with IFF_TAP | IFF_NO_PI.
      const attach = [
        'import fcntl, os, struct, sys',
        'os.setgid(65534)',
        'os.setuid(int(sys.argv[1]))',
        'fd = os.open("/dev/net/tun", os.O_RDWR)',
        'fcntl.ioctl(fd, 0x400454ca, struct.pack("16sH22x", b"eth0", 0x1002))',
      ].join('\n');
      const { mode } = fs.statSync('/dev/net/tun');
      const outcome = async (uid: string) => {
        const { exitCode, stderr } = await lab.run(container, ['python3', '-c', attach, uid]);
        return exitCode === 0 ? 'attached' : (/PermissionError|OSError.*/.exec(stderr)?.[0] ?? stderr);
      };
      // Without the right to open the file of the driver, only root gets that far.
      if (mode & 0o006) expect(await outcome('65534')).toBe('attached');
      expect(await outcome('65533')).toContain('PermissionError');
      expect(await outcome('0')).toBe('attached');
    });
  });

  test('[1.1.0] ADD refuses what it cannot make, and leaves nothing', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      const before = await lab.dump(container);
      const rows: [Row, number, string][] = [
        [{ mac: '01:00:00:00:00:01' }, 7, 'hardware address'],
        [{ bridge: 'br9' }, 7, '"bridge" is "br9"'],
        [{ bridge: 'lo' }, 7, '"bridge" is "lo"'],
        [{ kind: 'macvtap', master: 'nope0' }, 7, '"nope0"'],
        [{ kind: 'macvtap', master: 'lo', owner: 1 }, 7, '"owner"'],
        [{ ipam: { type: 'not-there' } }, 5, 'not-there'],
        [{ ipam: { type: 'static' } }, 7, 'returned no address'],
        [{ ipam: { type: 'static', addresses: [{ address: 'nonsense' }] } }, 7, 'nonsense'],
      ];
      for (const [more, code, words] of rows) {
        const reply = await call(lab, 'ADD', container, { conf: confOf(lab, more) });
        expect({ more, code: reply.error?.code ? code : 0, text: JSON.stringify(reply.error) }).toMatchObject(
          {
            code,
            text: expect.stringContaining(words.replaceAll('"', '\\"')),
          },
        );
        if (code === 7) expect(reply.error?.code).toBe(7);
      }
      expect(await lab.dump(container)).toEqual(before);
      await lab.ip(container, 'tuntap', 'add', 'mode', 'tap', 'name', 'eth0');
      expect((await call(lab, 'ADD', container)).error).toMatchObject({ code: 4 });
    });
  });

  test('[1.1.0] "selinuxContext" is refused where there is no SELinux, and leaves nothing', async () => {
    if (fs.existsSync('/sys/fs/selinux/enforce')) return;
    await withHost(async lab => {
      const container = await lab.container();
      const before = await lab.dump(container);
      const conf = confOf(lab, { selinuxContext: 'system_u:system_r:container_t:s0' });
      const status = await lab.plugin('tap', { command: 'STATUS', conf });
      expect(status.error).toMatchObject({ code: 50, msg: expect.stringContaining('SELinux') });
      const refused = await call(lab, 'ADD', container, { conf });
      expect(refused.error).toMatchObject({ code: 7, msg: expect.stringContaining('is SELinux enabled') });
      expect(await lab.dump(container)).toEqual(before);
    });
  });

  test('[1.1.0] DEL deletes a tap and a macvtap under whatever name the container gave it', async () => {
    await withHost(async lab => {
      await lab.ip(lab.host, 'link', 'add', 'low0', 'up', 'type', 'veth', 'peer', 'low1');
      for (const more of [{}, { kind: 'macvtap', master: 'low0', mode: 'passthru' }]) {
        for (const hide of [
          ['name', 'foo'],
          ['name', 'foo', 'alias', ''],
          ['name', 'foo', 'alias', 'catena:podnet/forged/eth0'],
          ['alias', 'catena:podnet/forged/eth0'],
        ]) {
          const container = await lab.container();
          const conf = confOf(lab, more);
          const prevResult = await add(lab, container, { conf });
          await lab.ip(container, 'link', 'set', 'eth0', 'down');
          await lab.ip(container, 'link', 'set', 'eth0', ...hide);
          expect(await call(lab, 'DEL', container, { conf, prevResult })).toMatchObject(OK);
          expect((await lab.ip(container, 'link')).map(({ ifname }) => ifname)).toEqual(['lo']);
        }
      }
      expect(leasesOf(lab)).toEqual([]);
    });
  });

  test.each(['net%d', 'all', 'default'])(
    '[1.1.0] ADD refuses "%s" as name, and leaves nothing',
    async ifname => {
      await withHost(async lab => {
        const container = await lab.container();
        const before = await lab.dump(container);
        const reply = await call(lab, 'ADD', container, { ifname });
        expect(reply.error).toMatchObject({ code: 4, msg: expect.stringContaining('CNI_IFNAME') });
        expect(await lab.dump(container)).toEqual(before);
        expect(leasesOf(lab)).toEqual([]);
      });
    },
  );

  test('[1.1.0] DEL leaves a tap of another attachment, and an interface that is no tap', async () => {
    await withHost(async lab => {
      const [container, plain] = [await lab.container(), await lab.container()];
      await add(lab, container);
      await lab.ip(plain, 'link', 'add', 'eth0', 'type', 'veth', 'peer', 'other');
      for (const [path, words] of [
        [container.path, 'it belongs to'],
        [plain.path, 'not the tun or macvtap'],
      ] as const) {
        const other = await call(lab, 'DEL', { ...container, id: 'another', path });
        expect(other).toMatchObject(OK);
        expect(other.stderr).toContain(words);
      }
      expect(await linkOf(lab, container)).toBeDefined();
      expect(await linkOf(lab, plain)).toBeDefined();
      await lab.remove(container);
      expect(await call(lab, 'DEL', container)).toMatchObject(OK);
      expect(leasesOf(lab)).toEqual([]);
    });
  });

  test('[1.1.0] GC releases the addresses of attachments that are not in the list', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      // Containers of the other tests have addresses of the usual subnet.
      const ipam = { ...confOf(lab).ipam, ranges: [[{ subnet: '10.68.0.0/24' }]] };
      await add(lab, container, { conf: confOf(lab, { ipam }) });
      const gc = (valid: Row[]) =>
        lab.plugin('tap', {
          command: 'GC',
          conf: { ...confOf(lab, { ipam }), 'cni.dev/valid-attachments': valid },
        });
      expect(await gc([{ containerID: container.id, ifname: 'eth0' }])).toMatchObject(OK);
      expect(leasesOf(lab)).toHaveLength(1);
      // A pod that still has an address would keep it.
      await lab.remove(container);
      expect(await gc([])).toMatchObject(OK);
      expect(leasesOf(lab)).toEqual([]);
    });
  });

  testNeeding(
    '[1.1.0] kind macvtap makes a tap on a device of the host and reports its device node',
    async () => {
      await withHost(async lab => {
        const container = await lab.container();
        await lab.ip(lab.host, 'link', 'add', 'up0', 'mtu', '1450', 'type', 'veth', 'peer', 'far0');
        const conf = confOf(lab, { kind: 'macvtap', master: 'up0', mode: 'vepa', mac: MAC, mtu: 1400 });
        const status = (more: Row = {}) =>
          lab.plugin('tap', { command: 'STATUS', conf: { ...conf, ...more } });
        expect((await status()).error).toMatchObject({ code: 50, msg: expect.stringContaining('down') });
        await lab.ip(lab.host, 'link', 'set', 'up0', 'up');
        // The name in the container is free there, whatever the host has.
        await lab.ip(lab.host, 'link', 'add', 'eth0', 'type', 'veth', 'peer', 'eth1');
        expect(await status()).toMatchObject(OK);
        expect((await status({ mtu: 1500 })).error).toMatchObject({ code: 50 });
        const result = await add(lab, container, { conf });
        expect(structuredClone(result.interfaces)).toMatchObject([
          { name: 'eth0', mac: MAC, mtu: 1400, deviceNode: expect.stringMatching(/^\d+:\d+$/) },
        ]);
        const link = await linkOf(lab, container);
        expect(link).toMatchObject({ linkinfo: { info_kind: 'macvtap', info_data: { mode: 'vepa' } } });
        const { stdout } = await lab.run(container, [
          'unshare',
          '--mount',
          'sh',
          '-c',
          `mount -t sysfs none /sys && cat /sys/class/net/eth0/macvtap/tap${link?.ifindex}/dev`,
        ]);
        expect(stdout.trim()).toBe(result.interfaces[0].deviceNode);
        expect(await call(lab, 'CHECK', container, { conf, prevResult: result })).toMatchObject(OK);
        const check = await call(lab, 'CHECK', container, {
          conf: { ...conf, mode: 'bridge' },
          prevResult: result,
        });
        expect(check.error?.msg).toContain('mode of');
        expect(await call(lab, 'DEL', container, { conf })).toMatchObject(OK);
        expect(await linkOf(lab, container)).toBeUndefined();
      });
    },
    requiresUpperKind('macvtap'),
  );

  testNeeding(
    '[1.1.0] the hardware address of a macvtap is derived from the attachment, but in mode "passthru"',
    async () => {
      await withHost(async lab => {
        const [container, other] = [await lab.container(), await lab.container()];
        await lab.ip(lab.host, 'link', 'add', 'up0', 'address', MAC, 'type', 'veth', 'peer', 'far0');
        await lab.ip(lab.host, 'link', 'set', 'up0', 'up');
        const conf = confOf(lab, { kind: 'macvtap', master: 'up0', mode: 'bridge', mac: undefined });
        const macs: string[] = [];
        for (const one of [container, other, container]) {
          macs.push((await add(lab, one, { conf })).interfaces[0].mac);
          expect((await linkOf(lab, one))?.address).toBe(macs.at(-1));
          expect(await call(lab, 'DEL', one, { conf })).toMatchObject(OK);
        }
        expect(macs[2]).toBe(macs[0]);
        expect(macs[1]).not.toBe(macs[0]);
        const passthru = await add(lab, container, { conf: { ...conf, mode: 'passthru' } });
        expect(passthru.interfaces[0].mac).toBe(MAC);
        expect(await call(lab, 'DEL', container, { conf })).toMatchObject(OK);
      });
    },
    requiresUpperKind('macvtap'),
  );
});
