import { expect, test } from 'bun:test';
import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { FORMER } from '../../src/cni/invocation.ts';
import { type Container, directories, type Lab, useLabs } from '../helpers/netns.ts';
import { BIN_DIR, type PluginCall, REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot, requiresReference, testNeeding } from '../helpers/skip.ts';
import { LATEST_SPEC_VERSION } from '../helpers/spec-versions.ts';

const OLD_MAC = '02:00:00:00:00:01';
const NEW_MAC = '02:00:00:00:00:99';

describeRoot('tuning', () => {
  const createLab = useLabs();

  /** A container with a veth `eth0`, and a way to call the plugin for it. */
  async function attachment(cniVersion: string = LATEST_SPEC_VERSION) {
    const lab = await createLab();
    const container = await lab.container();
    const make = [
      'ip',
      'link',
      'add',
      'eth0',
      'address',
      OLD_MAC,
      'type',
      'veth',
      'peer',
      'vethhost',
      'netns',
      lab.host.name,
    ];
    expect((await lab.run(container, make)).exitCode).toBe(0);
    await lab.run(container, ['ip', 'link', 'set', 'eth0', 'up']);
    const prevResult = {
      cniVersion,
      interfaces: [
        { name: 'eth0', mac: '02:00:00:00:00:77' },
        { name: 'eth0', mac: OLD_MAC, sandbox: container.path },
      ],
      ips: [{ ...(cniVersion < '1' ? { version: '4' } : {}), address: '10.0.0.2/24', interface: 1 }],
      ...(cniVersion < '1' ? { dns: {} } : {}),
    };
    const dataDir = join(lab.tmp, 'tuning');
    const call = (command: string, conf: object, more: Partial<PluginCall> = {}) => {
      const request = { cniVersion, name: 'tuned', type: 'tuning', dataDir, ...conf };
      return lab.plugin('tuning', { command, conf: request, container, prevResult, ...more });
    };
    const backup = join(dataDir, `${container.id}_eth0.json`);
    return { lab, container, prevResult, call, backup, dataDir };
  }

  async function linkOf(lab: Lab, container: Container) {
    const [link] = await lab.ip(container, 'link', 'show', 'eth0');
    return {
      mac: link?.address,
      mtu: link?.mtu,
      promisc: link?.flags.includes('PROMISC'),
      allmulti: link?.flags.includes('ALLMULTI'),
      txQLen: link?.txqlen,
    };
  }

  const untouched = { mac: OLD_MAC, mtu: 1500, promisc: false, allmulti: false, txQLen: 1000 };
  const wanted = { mac: NEW_MAC, mtu: 1400, promisc: true, allmulti: true, txQLen: 20000 };
  const sysctl = {
    'net.ipv4.conf.IFNAME.arp_filter': '1',
    'net/core/somaxconn': '500',
    'net.ipv4.ip_local_port_range': '20000 30000',
  };

  async function sysctlsOf(lab: Lab, container: Container): Promise<string[]> {
    const keys = ['net/ipv4/conf/eth0/arp_filter', 'net/core/somaxconn', 'net/ipv4/ip_local_port_range'];
    return Promise.all(keys.map(async key => (await lab.sysctl(container, key)).replace(/\s+/g, ' ')));
  }

  test('ADD refuses an MTU that would take the IPv6 addresses away, without touching them', async () => {
    const { lab, container, call, prevResult } = await attachment();
    const address = { address: 'fd00:9::2/64', interface: 1 };
    await lab.run(container, ['ip', 'address', 'add', address.address, 'dev', 'eth0', 'nodad']);
    const isThere = async () => {
      const [link] = await lab.ip(container, '-6', 'address', 'show', 'eth0');
      return link?.addr_info?.some(({ local }: { local: string }) => local === 'fd00:9::2') ?? false;
    };
    const dual = { prevResult: { ...prevResult, ips: [...prevResult.ips, address] } };
    const { error } = await call('ADD', { mtu: 1279 }, dual);
    expect(error).toMatchObject({ code: 7 });
    expect(error?.msg).toContain('Cannot set "mtu" of "eth0" to 1279: it would lose its address fd00:9::2');
    expect([await isThere(), (await linkOf(lab, container)).mtu]).toEqual([true, 1500]);
    expect((await call('ADD', { mtu: 1280 }, dual)).exitCode).toBe(0);
    expect(await isThere()).toBe(true);
    expect((await call('DEL', { mtu: 1280 }, dual)).exitCode).toBe(0);
    // Without IPv6 in the result it is as the configuration says.
    expect((await call('ADD', { mtu: 1279 })).exitCode).toBe(0);
  });

  test('[1.1.0] ADD warns of an MTU that the other end of a veth does not take', async () => {
    const { lab, call } = await attachment();
    expect((await call('ADD', { mtu: 1400 })).stderr).toBe('');
    await call('DEL', { mtu: 1400 });
    const { exitCode, stderr } = await call('ADD', { mtu: 4000 });
    expect(exitCode).toBe(0);
    expect(stderr).toContain('that of its other end \\"vethhost\\" on the host 1500: what is larger is lost');
    await call('DEL', { mtu: 4000 });
    await lab.ip(lab.host, 'link', 'set', 'vethhost', 'mtu', '4000');
    expect((await call('ADD', { mtu: 4000 })).stderr).toBe('');
  });

  test('ADD sets everything, DEL restores it', async () => {
    const { lab, container, prevResult, call, backup, dataDir } = await attachment();
    const before = await sysctlsOf(lab, container);
    const onHost = await lab.sysctl(lab.host, 'net/core/somaxconn');
    const { result } = await call('ADD', { ...wanted, sysctl });
    expect(await linkOf(lab, container)).toEqual(wanted);
    expect(await sysctlsOf(lab, container)).toEqual(['1', '500', '20000 30000']);
    expect(await lab.sysctl(lab.host, 'net/core/somaxconn')).toBe(onHost);
    const [other, own] = prevResult.interfaces;
    expect(result).toEqual({ ...prevResult, interfaces: [other, { ...own, mac: NEW_MAC, mtu: 1400 }] });
    expect(JSON.parse(readFileSync(backup, 'utf8'))).toMatchObject(untouched);
    expect([statSync(dataDir).mode & 0o777, statSync(backup).mode & 0o777]).toEqual([0o700, 0o600]);

    expect(await call('CHECK', { ...wanted, sysctl })).toMatchObject({ exitCode: 0, stdout: '' });
    for (const command of ['GC', 'STATUS']) expect((await call(command, { sysctl })).exitCode).toBe(0);
    for (let i = 0; i < 2; i++) {
      expect(await call('DEL', { ...wanted, sysctl })).toMatchObject({ exitCode: 0, stdout: '' });
      expect(await linkOf(lab, container)).toEqual(untouched);
      expect(await sysctlsOf(lab, container)).toEqual(before);
      expect(readdirSync(dataDir)).toEqual([]);
    }
  });

  const single: [attribute: keyof typeof wanted, backup: string][] = [
    ['mac', `"mac": "${OLD_MAC}"`],
    ['promisc', '"promisc": false'],
    ['mtu', '"mtu": 1500'],
    ['allmulti', '"allmulti": false'],
    ['txQLen', '"txQLen": 1000'],
  ];
  for (const [attribute, bytes] of single) {
    test(`ADD with ${attribute} alone, from args.cni, changes and keeps nothing else`, async () => {
      const { lab, container, call, backup } = await attachment();
      const change = { [attribute]: wanted[attribute] };
      expect((await call('ADD', { args: { cni: change } })).exitCode).toBe(0);
      expect(await linkOf(lab, container)).toEqual({ ...untouched, ...change });
      expect(readFileSync(backup, 'utf8')).toBe(`{\n ${bytes},\n "network": "tuned"\n}`);
      expect((await call('CHECK', { args: { cni: change } })).exitCode).toBe(0);
      await call('DEL', {});
      expect(await linkOf(lab, container)).toEqual(untouched);
      expect(existsSync(backup)).toBe(false);
    });
  }

  test("ADD takes the hardware address of the runtime in any notation and reports the kernel's", async () => {
    const { lab, container, call } = await attachment();
    const conf = { mac: '02:00:00:00:00:50', runtimeConfig: { mac: '02-00-00-00-00-AB' } };
    const { result } = await call('ADD', conf, { args: 'IgnoreUnknown=1;MAC=02:00:00:00:00:51' });
    expect(result.interfaces[1].mac).toBe('02:00:00:00:00:ab');
    expect((await linkOf(lab, container)).mac).toBe('02:00:00:00:00:ab');
    expect((await call('CHECK', conf)).exitCode).toBe(0);
  });

  test('ADD without any options returns prevResult and writes nothing', async () => {
    const { prevResult, call, dataDir } = await attachment();
    expect((await call('ADD', {})).result).toEqual(prevResult);
    expect(existsSync(dataDir)).toBe(false);
  });

  test('a second ADD keeps the first backup', async () => {
    const { lab, container, call } = await attachment();
    await call('ADD', { mtu: 1400, sysctl: { 'net.core.somaxconn': '500' } });
    const before = await lab.sysctl(container, 'net/ipv4/conf/eth0/arp_filter');
    await call('ADD', { mtu: 1300, promisc: true, sysctl });
    expect(await linkOf(lab, container)).toEqual({ ...untouched, mtu: 1300, promisc: true });
    await call('DEL', {});
    expect(await linkOf(lab, container)).toEqual(untouched);
    expect(await lab.sysctl(container, 'net/ipv4/conf/eth0/arp_filter')).toBe(before);
    expect(await lab.sysctl(container, 'net/core/somaxconn')).not.toBe('500');
  });

  const orders: [title: string, first: string, second: string, leaving: readonly ('eth0' | 'net1')[]][] = [
    ['the earlier one leaves first', '500', '600', ['eth0', 'net1']],
    ['the later one leaves first', '500', '600', ['net1', 'eth0']],
    ['both set the same', '500', '500', ['eth0', 'net1']],
  ];
  for (const [title, first, second, leaving] of orders) {
    test(`a sysctl of two networks keeps the value of the one that stays, then gets its own: ${title}`, async () => {
      const { lab, container, prevResult, call, dataDir } = await attachment();
      const more = ['ip', 'link', 'add', 'net1', 'type', 'veth', 'peer', 'vethmore', 'netns', lab.host.name];
      expect((await lab.run(container, more)).exitCode).toBe(0);
      const read = () => lab.sysctl(container, 'net/core/somaxconn');
      const original = await read();
      const values = { eth0: first, net1: second };
      const run = (command: string, ifname: 'eth0' | 'net1') => {
        const interfaces = [{ name: ifname, sandbox: container.path }];
        const conf = { name: `of-${ifname}`, sysctl: { 'net.core.somaxconn': values[ifname] } };
        return call(command, conf, { ifname, prevResult: { ...prevResult, interfaces, ips: [] } });
      };
      for (const ifname of ['eth0', 'net1'] as const) expect((await run('ADD', ifname)).exitCode).toBe(0);
      expect(await read()).toBe(second);
      const [leaves, stays] = leaving as ['eth0', 'net1'];
      for (let i = 0; i < 2; i++) {
        expect(await run('DEL', leaves)).toMatchObject({ exitCode: 0, stderr: '' });
        expect(await read()).toBe(values[stays]);
        expect(await run('CHECK', stays)).toMatchObject({ exitCode: 0, stdout: '' });
      }
      expect(await run('DEL', stays)).toMatchObject({ exitCode: 0, stderr: '' });
      expect(await read()).toBe(original);
      expect(readdirSync(dataDir)).toEqual([]);
    });
  }

  test('of three networks with one sysctl, an ADD that fails and a change pass its value on, too', async () => {
    const { lab, container, prevResult, call, dataDir } = await attachment();
    for (const name of ['net1', 'net2']) {
      const pair = ['ip', 'link', 'add', name, 'type', 'veth', 'peer', `veth${name}`, 'netns', lab.host.name];
      expect((await lab.run(container, pair)).exitCode).toBe(0);
    }
    const read = () => lab.sysctl(container, 'net/core/somaxconn');
    const original = await read();
    const run = (command: string, ifname: string, conf: object, more: Partial<PluginCall> = {}) => {
      const interfaces = [{ name: ifname, sandbox: container.path }];
      return call(
        command,
        { name: `of-${ifname}`, ...conf },
        { ifname, prevResult: { ...prevResult, interfaces, ips: [] }, ...more },
      );
    };
    const conf = (value: string) => ({ sysctl: { 'net.core.somaxconn': value } });
    expect((await run('ADD', 'eth0', conf('500'))).exitCode).toBe(0);
    expect((await run('ADD', 'net1', conf('600'))).exitCode).toBe(0);
    expect((await run('ADD', 'net2', { ...conf('700'), mtu: 70_000 })).exitCode).toBe(1);
    expect(await read()).toBe('600');
    expect((await run('ADD', 'net2', conf('700'))).exitCode).toBe(0);
    const change = { env: { CATENA_CHANGE: 'do' } };
    const former = { cniVersion: LATEST_SPEC_VERSION, name: 'of-net1', type: 'tuning', ...conf('600') };
    expect(await run('CHECK', 'net1', { [FORMER]: former }, change)).toMatchObject({ exitCode: 0 });
    expect(await read()).toBe('700');
    expect((await run('DEL', 'net2', conf('700'))).exitCode).toBe(0);
    expect(await read()).toBe('500');
    expect((await run('DEL', 'eth0', conf('500'))).exitCode).toBe(0);
    expect(await read()).toBe(original);
    await run('DEL', 'net1', {});
    expect(readdirSync(dataDir)).toEqual([]);
  });

  const failures: [title: string, conf: object, gist: string][] = [
    ['an MTU the device cannot have', { ...wanted, mtu: 70000 }, 'mtu 70000'],
    [
      'a sysctl the kernel lacks',
      { ...wanted, sysctl: { 'net.core.somaxconn': '5', 'net.ipv4.nothing': '1' } },
      'net.ipv4.nothing',
    ],
    [
      'a value the kernel refuses',
      { ...wanted, sysctl: { 'net.core.somaxconn': '5', 'net.ipv4.conf.IFNAME.arp_filter': 'x' } },
      'arp_filter" to "x"',
    ],
  ];
  for (const [title, conf, gist] of failures) {
    test(`ADD with ${title} leaves everything unchanged`, async () => {
      const { lab, container, call, dataDir } = await attachment();
      const before = [await lab.dump(container), await sysctlsOf(lab, container)];
      const { error } = await call('ADD', conf);
      expect(error).toMatchObject({ code: 999, msg: expect.stringContaining(gist) });
      expect(error?.details).toBeUndefined();
      expect([await lab.dump(container), await sysctlsOf(lab, container)]).toEqual(before);
      expect(existsSync(dataDir) ? readdirSync(dataDir) : []).toEqual([]);
    });
  }

  test('ADD and CHECK refuse a duplicate sysctl, a missing prevResult and a missing interface', async () => {
    const { lab, container, call } = await attachment();
    const twice =
      '{"cniVersion":"1.1.0","name":"n","type":"tuning","sysctl":{"net.core.somaxconn":"1","net.core.somaxconn":"2"}}';
    for (const command of ['ADD', 'CHECK']) {
      expect((await lab.plugin('tuning', { command, conf: twice, container })).error?.msg).toContain(
        'occurs twice',
      );
      expect((await call(command, {}, { prevResult: undefined })).error?.msg).toContain(
        'required prevResult missing',
      );
      expect((await call(command, { mtu: 1400 }, { ifname: 'eth9' })).error?.msg).toContain(
        'find link "eth9"',
      );
    }
  });

  test('sysctls alone need no interface, as after a main plugin without a kernel device', async () => {
    const { lab, container, call } = await attachment();
    const before = await lab.sysctl(container, 'net/core/somaxconn');
    const conf = {
      sysctl: { 'net.core.somaxconn': '321' },
      // None of these asks for anything.
      mac: '',
      mtu: 0,
      promisc: false,
    };
    const call9 = (command: string, more: object = {}) =>
      call(command, { ...conf, ...more }, { ifname: 'net9' });
    expect((await call9('ADD')).exitCode).toBe(0);
    expect(await lab.sysctl(container, 'net/core/somaxconn')).toBe('321');
    expect((await call9('CHECK')).exitCode).toBe(0);
    expect((await call9('DEL')).exitCode).toBe(0);
    expect(await lab.sysctl(container, 'net/core/somaxconn')).toBe(before);
    for (const asked of [
      { mac: NEW_MAC },
      { mtu: 1400 },
      { promisc: true },
      { allmulti: false },
      { txQLen: 9 },
    ]) {
      expect((await call9('ADD', asked)).error?.msg).toContain('find link "net9"');
      expect(await lab.sysctl(container, 'net/core/somaxconn')).toBe(before);
    }
  });

  test('ADD obeys the allowlist of the node', async () => {
    const { lab, container, call, prevResult, dataDir } = await attachment();
    const rules = join(lab.tmp, 'allowlist.conf');
    writeFileSync(rules, '^net\\.core\\.somaxconn$\n');
    // A mount namespace of its own puts the list where the plugin looks without touching the machine's /etc.
    const script =
      'mount -t tmpfs none /etc && mkdir -p /etc/cni/tuning && cp "$1" /etc/cni/tuning/ && exec "$2"';
    const add = (keys: object, command = 'ADD') =>
      lab.run(lab.host, ['unshare', '-m', 'sh', '-c', script, 'sh', rules, join(BIN_DIR, 'tuning')], {
        env: {
          CNI_COMMAND: command,
          ...directories(lab.tmp),
          CNI_CONTAINERID: container.id,
          CNI_NETNS: container.path,
          CNI_IFNAME: 'eth0',
          CNI_PATH: BIN_DIR,
        },
        stdin: JSON.stringify({
          cniVersion: '1.1.0',
          name: 'n',
          type: 'tuning',
          dataDir,
          sysctl: keys,
          prevResult,
        }),
      });
    expect((await add({ 'net.core.somaxconn': '500' })).exitCode).toBe(0);
    const refused = await add({ 'net.core.somaxconn': '600', 'net.ipv4.conf.IFNAME.arp_filter': '1' });
    expect(JSON.parse(refused.stdout)).toMatchObject({
      code: 7,
      msg: expect.stringContaining('"net.ipv4.conf.IFNAME.arp_filter"'),
    });
    expect(await lab.sysctl(container, 'net/core/somaxconn')).toBe('500');
    writeFileSync(rules, '^net\\.core\\.\n^net\\.ipv4\\.[^.]*$\n');
    for (const [key, path] of [
      ['net.core.//.ipv4.ip_forward', 'net/ipv4/ip_forward'],
      ['net.core./../ipv4.ip_forward', 'net/ipv4/ip_forward'],
      ['net.ipv4.conf/all/arp_filter', 'net/ipv4/conf/all/arp_filter'],
    ] as const) {
      const before = await lab.sysctl(container, path);
      const other = await add({ [key]: before === '0' ? '1' : '0' });
      expect(JSON.parse(other.stdout).msg).toContain(`"${key}"`);
      expect(await lab.sysctl(container, path)).toBe(before);
    }
    writeFileSync(rules, '^net\\.core\\.somaxconn$\n');
    const status = await add({ 'net.ipv4.conf.IFNAME.arp_filter': '1' }, 'STATUS');
    expect(JSON.parse(status.stdout).code).toBe(50);
    for (const [list, words] of [
      ['', 'is empty, which allows none; add lines, or remove the file to allow all'],
      ['net\n(\n', 'line 2 is not a valid regular expression: ('],
    ] as const) {
      writeFileSync(rules, list);
      expect(JSON.parse((await add({ 'net.core.somaxconn': '700' })).stdout).msg).toContain(words);
      expect((await add({})).exitCode).toBe(0);
    }
    expect(await lab.sysctl(container, 'net/core/somaxconn')).toBe('500');
    await call('DEL', {});
  });

  const tampered: [change: string[], words: string][] = [
    [['address', '02:00:00:00:00:55'], `mac is 02:00:00:00:00:55 instead of ${NEW_MAC}`],
    [['mtu', '1350'], 'mtu is 1350 instead of 1400'],
    [['promisc', 'off'], 'promisc is false instead of true'],
    [['allmulticast', 'off'], 'allmulti is false instead of true'],
    [['txqueuelen', '7'], 'txQLen is 7 instead of 20000'],
  ];
  test('CHECK reports every attribute and every sysctl that was changed', async () => {
    const { lab, container, call } = await attachment();
    const conf = { ...wanted, sysctl };
    await call('ADD', conf);
    for (const [change, words] of tampered) {
      await lab.run(container, ['ip', 'link', 'set', 'eth0', ...change]);
      expect((await call('CHECK', conf)).error).toMatchObject({
        code: 999,
        msg: expect.stringContaining(words),
      });
      await call('ADD', conf);
      expect((await call('CHECK', conf)).exitCode).toBe(0);
    }
    await lab.sysctl(container, 'net/ipv4/ip_local_port_range', '20000 30001');
    expect((await call('CHECK', conf)).error?.msg).toContain('is "20000\t30001" instead of "20000 30000"');
  });

  test("ADD refuses another container's interface, as CHECK does and DEL would not restore it", async () => {
    const { lab, container, call } = await attachment();
    const owner = `catena:tuned/${container.id}/eth0`;
    await lab.ip(lab.host, 'link', 'set', 'vethhost', 'alias', owner);
    const other = { ...container, id: 'another' };
    const before = await linkOf(lab, container);
    for (const command of ['ADD', 'CHECK']) {
      const { error } = await call(command, wanted, { container: other });
      expect(error).toMatchObject({
        code: 8,
        msg: expect.stringContaining(`belongs to container "${container.id}"`),
      });
    }
    expect(await linkOf(lab, container)).toEqual(before);
    expect(await call('ADD', wanted)).toMatchObject({ exitCode: 0 });
    expect(await call('DEL', wanted)).toMatchObject({ exitCode: 0 });
    expect(await linkOf(lab, container)).toEqual(before);
  });

  test('CHECK ignores a packet capture and attributes that are not configured', async () => {
    const { lab, container, call } = await attachment();
    await call('ADD', { mtu: 1400 });
    await lab.run(container, ['ip', 'link', 'set', 'eth0', 'promisc', 'on']);
    expect((await call('CHECK', { mtu: 1400 })).exitCode).toBe(0);
  });

  test('DEL without namespace or interface takes the backup away', async () => {
    const { lab, container, call, backup } = await attachment();
    await call('ADD', wanted);
    await lab.run(container, ['ip', 'link', 'del', 'eth0']);
    expect((await call('DEL', wanted)).exitCode).toBe(0);
    expect(existsSync(backup)).toBe(false);

    const second = await attachment();
    await second.call('ADD', wanted);
    await second.lab.remove(second.container);
    expect((await second.call('DEL', wanted)).exitCode).toBe(0);
    expect(existsSync(second.backup)).toBe(false);
  });

  test('DEL keeps the backup while a value cannot be restored', async () => {
    const { call, backup } = await attachment();
    await call('ADD', { sysctl: { 'net.core.somaxconn': '500' } });
    const right = readFileSync(backup, 'utf8');
    writeFileSync(backup, right.replace(/("[^"]*somaxconn"): ?"\d+"/, '$1:"many"'));
    expect(await call('DEL', {})).toMatchObject({
      exitCode: 0,
      stderr: expect.stringContaining('somaxconn'),
    });
    expect(existsSync(backup)).toBe(true);
    writeFileSync(backup, right);
    expect((await call('DEL', {})).exitCode).toBe(0);
    expect(existsSync(backup)).toBe(false);
  });

  test('DEL without ADD changes nothing', async () => {
    const { lab, container, call } = await attachment();
    expect((await call('DEL', wanted)).exitCode).toBe(0);
    expect(await linkOf(lab, container)).toEqual(untouched);
  });

  test('GC removes only backups of invalid attachments of its network', async () => {
    const { lab, container, call, dataDir } = await attachment();
    const kept = await lab.container();
    const others = [await lab.container(), await lab.container()];
    for (const one of [kept, ...others]) {
      const pair = ['ip', 'link', 'add', 'eth0', 'type', 'veth', 'peer', `v${one.id.slice(-8)}`, 'netns'];
      expect((await lab.run(one, [...pair, lab.host.name])).exitCode).toBe(0);
    }
    await call('ADD', wanted);
    await call('ADD', wanted, { container: kept });
    const [foreign, old] = others;
    await call('ADD', { ...wanted, name: 'othernet' }, foreign ? { container: foreign } : {});
    // As the reference writes it, and we did before there was a key.
    writeFileSync(join(dataDir, `${old?.id}_eth0.json`), '{\n "mtu": 1500\n}');
    expect(readdirSync(dataDir)).toHaveLength(4);
    const gc = (valid?: object[]) => {
      const conf = { cniVersion: '1.1.0', name: 'tuned', type: 'tuning', dataDir };
      const list = valid ? { 'cni.dev/valid-attachments': valid } : {};
      return lab.plugin('tuning', { command: 'GC', conf: { ...conf, ...list } });
    };
    expect((await gc()).exitCode).toBe(0);
    expect(readdirSync(dataDir)).toHaveLength(4);
    expect((await gc([{ containerID: kept.id, ifname: 'eth0' }])).exitCode).toBe(0);
    expect(readdirSync(dataDir).sort()).toEqual([kept, ...others].map(({ id }) => `${id}_eth0.json`).sort());
    // What GC left is still good for a DEL.
    expect((await call('DEL', {}, { container: kept })).exitCode).toBe(0);
    expect((await linkOf(lab, kept)).mtu).toBe(1500);
    expect((await linkOf(lab, container)).mtu).toBe(1400);
  });

  test('STATUS reports whether ADD could apply the configuration, and changes nothing', async () => {
    const { lab, call, dataDir } = await attachment();
    const before = await lab.dump(lab.host);
    for (const conf of [{}, wanted, { sysctl }, { ...wanted, sysctl }]) {
      expect(await call('STATUS', conf)).toMatchObject({ exitCode: 0, stdout: '' });
    }
    expect(await lab.dump(lab.host)).toEqual(before);
    expect(existsSync(dataDir)).toBe(false);
    const file = join(lab.tmp, 'file');
    writeFileSync(file, '');
    for (const [conf, words] of [
      [{ mtu: 1400, dataDir: file }, `"${file}" is not a directory`],
      [{ mtu: 1400, dataDir: join(file, 'backups') }, `"${file}" is not a directory`],
      [{ mtu: 1400, dataDir: '/proc/sys/none' }, 'Cannot keep backups in "/proc/sys/none"'],
      [{ mac: 'zz' }, '"zz"'],
      [{ sysctl: { 'kernel.hostname': 'x' } }, 'only parameters below "net" can be set'],
    ] as const) {
      expect((await call('STATUS', conf)).error).toMatchObject({
        code: 50,
        msg: expect.stringContaining(words),
      });
    }
    const run = (conf: object, ...wrapper: string[]) =>
      lab.run(lab.host, [...wrapper, join(BIN_DIR, 'tuning')], {
        stdin: JSON.stringify({ cniVersion: '1.1.0', name: 'n', type: 'tuning', dataDir, ...conf }),
        env: { CNI_COMMAND: 'STATUS', CNI_PATH: BIN_DIR },
      });
    const unprivileged = ['setpriv', '--bounding-set=-all', '--inh-caps=-all', '--no-new-privs'];
    expect((await run({ mtu: 1400 }, ...unprivileged)).stdout).toContain('EPERM');
    const readOnly = 'mount -o bind,ro /proc/sys /proc/sys && exec "$0"';
    const refused = await run({ sysctl }, 'unshare', '-m', 'sh', '-c', readOnly);
    expect(JSON.parse(refused.stdout)).toMatchObject({
      code: 50,
      msg: expect.stringContaining('"/proc/sys/net/core/somaxconn" cannot be written'),
    });
    expect((await run({ mtu: 1400 }, 'unshare', '-m', 'sh', '-c', readOnly)).exitCode).toBe(0);
  });

  // Debian's package is older than txQLen.
  const known = { mac: NEW_MAC, mtu: 1400, promisc: true, allmulti: true };
  for (const [mine, other, title] of [
    [BIN_DIR, REFERENCE_BIN_DIR, 'the reference restores what we changed'],
    [REFERENCE_BIN_DIR, BIN_DIR, 'we restore what the reference changed'],
  ] as const) {
    testNeeding(
      title,
      async () => {
        const { lab, container, call, backup } = await attachment('1.0.0');
        expect((await call('ADD', { ...known, sysctl }, { binDir: mine })).exitCode).toBe(0);
        expect(await linkOf(lab, container)).toEqual({ ...untouched, ...known });
        expect(
          (await call('CHECK', { ...known, sysctl: { 'net.core.somaxconn': '500' } }, { binDir: other }))
            .exitCode,
        ).toBe(0);
        expect((await call('DEL', known, { binDir: other })).exitCode).toBe(0);
        expect(await linkOf(lab, container)).toEqual(untouched);
        expect(existsSync(backup)).toBe(false);
      },
      requiresReference('tuning'),
    );
  }

  testNeeding(
    "backups equal the reference's byte for byte, apart from the name of the network",
    async () => {
      const ours = await attachment('1.0.0');
      const theirs = await attachment('1.0.0');
      await ours.call('ADD', known);
      await theirs.call('ADD', known, { binDir: REFERENCE_BIN_DIR });
      expect(readFileSync(ours.backup, 'utf8').replace(',\n "network": "tuned"', '')).toBe(
        readFileSync(theirs.backup, 'utf8'),
      );
    },
    requiresReference('tuning'),
  );
});
