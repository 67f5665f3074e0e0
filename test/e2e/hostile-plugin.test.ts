// What can an executable do to a chain by what it prints: without end, never closing, for a terminal, or false?
import { expect, test } from 'bun:test';
import fs from 'node:fs';
import { writeChain } from '../helpers/chain.ts';
import { makeOtherBuild } from '../helpers/installed.ts';
import { directories, type Lab, type Row, useLabs } from '../helpers/netns.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { binWith } from '../helpers/script.ts';
import { describeRoot } from '../helpers/skip.ts';

const ENDLESS = 'yes "this has no end"';
const RESULT = '{"cniVersion":"1.1.0","ips":[{"address":"10.88.0.2/24"}]}';

describeRoot('endless output', () => {
  const makeLab = useLabs();

  test('ends the plugin, and its ADD is undone', async () => {
    const lab = await makeLab();
    const container = await lab.container();
    const before = await lab.dump(container);
    const chain = writeChain(lab, listWith(lab, { type: 'evil' }));
    const { exitCode, stderr } = await chain.run('add', container, {
      binDir: binOnAdd(lab, 'evil', ENDLESS),
    });
    expect([exitCode, stderr]).toEqual([
      1,
      expect.stringContaining('printed more than 16 MiB: it was killed'),
    ]);
    expect(await lab.dump(container)).toEqual(before);
    expect(await chain.leases()).toEqual([]);
  });

  test('ends an IPAM plugin of one of our plugins, on standard error as well as on standard output', async () => {
    const lab = await makeLab();
    const container = await lab.container();
    const before = await lab.dump(container);
    for (const [name, body] of [
      ['evil', ENDLESS],
      ['loud', `yes 'this has no end' | head -c 200000000 >&2; exit 1`],
    ] as const) {
      const cniPath = binOnAdd(lab, name, body);
      const conf = {
        cniVersion: '1.1.0',
        name: 'podnet',
        type: 'bridge',
        bridge: 'br0',
        ipam: { type: name },
      };
      const { error, stdout } = await lab.plugin('bridge', { command: 'ADD', conf, container, cniPath });
      expect(error?.code).toBeGreaterThan(0);
      expect(stdout.length).toBeLessThan(100_000);
      if (name === 'evil') expect(error?.msg).toContain('printed more than 16 MiB: it was killed');
    }
    expect(await lab.dump(container)).toEqual(before);
  });

  test('ends a plugin of the delegate runner', async () => {
    const lab = await makeLab();
    const container = await lab.container();
    const delegates = [{ name: 'inner', cniVersion: '1.1.0', plugins: [{ type: 'evil' }] }];
    const conf = { cniVersion: '1.1.0', name: 'podnet', type: 'catena', delegates };
    const { error } = await lab.plugin('catena', {
      command: 'ADD',
      conf,
      container,
      cniPath: binOnAdd(lab, 'evil', ENDLESS),
    });
    expect(error?.msg).toContain('printed more than 16 MiB: it was killed');
  });
});

describeRoot('pipes that stay open', () => {
  const makeLab = useLabs();

  test('in a process that a plugin left behind delay no caller', async () => {
    const lab = await makeLab();
    const container = await lab.container();
    // In a session of its own: no signal to the group reaches it.
    const body = `setsid sleep 1000 & echo $! >> ${lab.tmp}/left; echo '${RESULT}'`;
    const cniPath = binOnAdd(lab, 'evil', body);
    try {
      const list = listWith(lab, { type: 'evil' }, { type: 'tuning', dataDir: `${lab.tmp}/tuning` });
      const added = await writeChain(lab, list).run('add', container, { binDir: cniPath });
      expect([added.exitCode, added.stderr]).toEqual([0, '']);
      const conf = {
        cniVersion: '1.1.0',
        name: 'podnet',
        type: 'bridge',
        bridge: 'br0',
        ipam: { type: 'evil' },
      };
      const { exitCode, result } = await lab.plugin('bridge', {
        command: 'ADD',
        conf,
        container,
        cniPath,
        ifname: 'net1',
      });
      expect([exitCode, result?.ips]).toEqual([0, [expect.objectContaining({ address: '10.88.0.2/24' })]]);
    } finally {
      endAll(`${lab.tmp}/left`);
    }
  });
});

describeRoot('messages for a terminal', () => {
  const makeLab = useLabs();

  test('are escaped as text, and passed on unchanged in JSON', async () => {
    const lab = await makeLab();
    const container = await lab.container();
    const body = String.raw`printf '\033]0;owned\007\033[2J said \033[31mred\n' >&2; echo '{"code":7,"msg":"bad \u001b[2Jthing\u000a  hint: \u001b[8mrun it","details":"\u009b2J\u202egnp"}'; exit 1`;
    const chain = writeChain(lab, { ...listWith(lab), plugins: [{ type: 'evil' }] });
    const binDir = binOnAdd(lab, 'evil', body);
    const { stderr } = await chain.run('add', container, { binDir });
    expect(controlsIn(stderr)).toEqual([]);
    expect(stderr).toContain(String.raw`bad \u001b[2Jthing\n  hint: \u001b[8mrun it`);
    const asJson = await chain.run('add', container, { binDir, args: ['--json'] });
    expect(JSON.parse(asJson.stderr)).toMatchObject({
      code: 7,
      msg: 'bad \u001b[2Jthing\n  hint: \u001b[8mrun it',
      details: '\u009b2J\u202egnp',
    });
  });
});

const LIES: readonly (readonly [string, Row])[] = [
  ['names that are paths', { interfaces: [{ name: '../../../../tmp/ESCAPE', sandbox: '/etc/passwd' }] }],
  [
    'interfaces of the host',
    {
      interfaces: [
        { name: 'lo', mac: 'x' },
        { name: 'eth0', sandbox: '' },
      ],
      ips: [{ address: '10.88.0.2/24', interface: 1 }],
    },
  ],
  ['an index of nothing', { interfaces: [], ips: [{ address: '10.88.0.2/24', interface: 99 }] }],
  ['addresses that are none', { ips: [{ address: 'not-an-address' }] }],
  ['all addresses there are', { ips: [{ address: '0.0.0.0/0' }, { address: '::/0' }] }],
  [
    'another container',
    {
      interfaces: [{ name: 'eth0', sandbox: '/proc/1/ns/net' }],
      ips: [{ address: '10.88.0.2/24', interface: 0 }],
    },
  ],
  ['a version that does not exist', { cniVersion: '9.9.9' }],
  ['what is no result', { interfaces: { __proto__: 1 }, ips: 5, dns: [] }],
];

describeRoot('a false result', () => {
  const makeLab = useLabs();

  test.each(LIES)('with %s takes no later plugin out of the container', async (_, lie) => {
    const lab = await makeLab();
    const container = await lab.container();
    const binDir = binOnAdd(lab, 'evil', `echo '${JSON.stringify({ cniVersion: '1.1.0', ...lie })}'`);
    const host = await lab.dump(lab.host, {
      ignoreTables: ['inet catena_portmap', 'inet catena_firewall', 'inet catena_masquerade'],
    });
    const links: Row[] = [
      {
        type: 'tuning',
        sysctl: { 'net.ipv4.conf.IFNAME.arp_notify': '1' },
        mtu: 1300,
        dataDir: `${lab.tmp}/tuning`,
      },
      { type: 'portmap', capabilities: { portMappings: true } },
      { type: 'bandwidth', ingressRate: 1_000_000, ingressBurst: 1_000_000 },
      { type: 'firewall', backend: 'nftables' },
      { type: 'sbr' },
    ];
    const cap = { portMappings: [{ hostPort: 8080, containerPort: 80, protocol: 'tcp' }] };
    for (const link of links) {
      const chain = writeChain(lab, { ...listWith(lab, { type: 'evil' }, link), name: `net-${link.type}` });
      const added = await chain.run('add', container, { binDir, cap, args: ['--json'] });
      expect([0, 1]).toContain(added.exitCode);
      if (added.exitCode === 1) expect(JSON.parse(added.stderr).code).toBeGreaterThan(0);
      expect(added.stderr).not.toMatch(/TypeError|RangeError|\n\s+at /);
      await chain.run('del', container, { binDir });
    }
    // What links do to the host for a container is gone with it, and lo is as it was.
    expect(
      await lab.dump(lab.host, {
        ignoreTables: ['inet catena_portmap', 'inet catena_firewall', 'inet catena_masquerade'],
      }),
    ).toMatchObject({ links: host.links, addresses: host.addresses });
    expect(fs.existsSync('/tmp/ESCAPE')).toBe(false);
  });

  test('that is nearly too long for a request is refused by the plugin that receives it', async () => {
    const lab = await makeLab();
    const container = await lab.container();
    const body = `printf '{"cniVersion":"1.1.0","x":"'; head -c 16000000 /dev/zero | tr '\\0' x; printf '"}'`;
    const links = [
      { type: 'evil' },
      { type: 'tuning', pad: 'y'.repeat(1_000_000), dataDir: `${lab.tmp}/tuning` },
    ];
    const chain = writeChain(lab, listWith(lab, ...links));
    // A plugin of another build is a process of its own: a worker would take more.
    const binDir = makeOtherBuild(`${lab.tmp}/other`);
    fs.renameSync(`${binOnAdd(lab, 'evil', body)}/evil`, `${binDir}/evil`);
    const { exitCode, stderr } = await chain.run('add', container, { binDir });
    expect([exitCode, stderr.length < 10_000]).toEqual([1, true]);
    expect(stderr).toContain('longer than');
  });
});

describeRoot('a DEL that never succeeds', () => {
  const makeLab = useLabs();

  test.each([
    ['fails', 'evil says no'],
    ['is no longer installed', 'Cannot find plugin "evil"'],
  ])('and %s: --forget deletes the rest, lists it, and leaves other attachments alone', async (how, why) => {
    const lab = await makeLab();
    const [container, other] = [await lab.container(), await lab.container()];
    const made = `ip link add evil0 type bridge; echo '{"cniVersion":"1.1.0","interfaces":[{"name":"evil0","sandbox":"'$CNI_NETNS'"}]}'`;
    const body = `[ "$CNI_COMMAND" = ADD ] && { nsenter --net=$CNI_NETNS sh -c ${quoteWord(made)}; exit; }\n[ "$CNI_COMMAND" = DEL ] && { echo '{"code":7,"msg":"evil says no"}'; exit 1; }\nexit 0`;
    const portmap = { type: 'portmap', capabilities: { portMappings: true } };
    const chain = writeChain(lab, listWith(lab, portmap, { type: 'evil' }));
    const binDir = binWith(lab, 'evil', body);
    const port = (hostPort: number) => ({
      portMappings: [{ hostPort, containerPort: 80, protocol: 'tcp' }],
    });
    await chain.add(container, { binDir, cap: port(8080) });
    await chain.add(other, { binDir, cap: port(8081) });
    if (how !== 'fails') fs.rmSync(`${binDir}/evil`);
    const failsToDelete = async (one: typeof other) => {
      const failed = await chain.run('del', one, { binDir });
      expect([failed.exitCode, failed.stderr]).toEqual([1, expect.stringContaining(why)]);
    };
    await failsToDelete(container);
    const { exitCode, stderr } = await chain.run('del', container, { binDir, args: ['--forget'] });
    expect([exitCode, stderr.trimEnd().split('\n')]).toEqual([
      0,
      [
        expect.stringMatching(
          /^catena: warning: Forgot what plugin "evil" made for interface "eth0" of container/,
        ),
        `catena: warning: Left behind: interface "evil0" in namespace "${container.path}"; if nothing needs it: nsenter --net=${container.path} ip link del evil0`,
      ],
    ]);
    expect(stderr).toContain(why);
    const links = (await lab.run(container, ['ip', '-o', 'link'])).stdout;
    expect([links.includes('eth0'), links.includes('evil0')]).toEqual([false, true]);
    const rules = (await lab.run(lab.host, ['nft', 'list', 'ruleset'])).stdout;
    expect([rules.includes(container.id), rules.includes('. 8080')]).toEqual([false, false]);
    // What stays has the same way out. Its DEL fails only now: a verb retries it a second later, with a warning more.
    await failsToDelete(other);
    expect(await chain.leases()).toEqual([]);
    const { stdout } = await askNode(lab, binDir, 'repair');
    expect(stdout).toStartWith(`stuck   podnet ${other.id} eth0: its DEL failed once: ${why}`);
    expect(stdout.split(why)).toHaveLength(2);
    expect(stdout).toContain(
      'hint: if a third-party plugin can never delete its part, "catena del --forget"',
    );
    expect(stdout).not.toContain(container.id);
    const again = await chain.run('del', container, { binDir, args: ['--forget'] });
    expect([again.exitCode, again.stdout]).toEqual([0, '']);
    expect((await askNode(lab, binDir, 'doctor')).stdout.replace(/\s+/g, ' ')).toContain(
      `catena del --forget podnet ${other.path} --container-id ${other.id} --ifname eth0`,
    );
  });

  test.each([
    [
      'fails',
      '[ "$CNI_COMMAND" = DEL ] && { echo \'{"code":7,"msg":"evil says no"}\'; exit 1; }',
      'evil says no',
    ],
    ['is no longer installed', '', 'Cannot find plugin "evil"'],
  ])('of an IPAM plugin that %s: --forget deletes all that ours made', async (_, onDel, why) => {
    const lab = await makeLab();
    const container = await lab.container();
    const before = await lab.dump(container);
    const binDir = binWith(lab, 'evil', `${onDel}\n[ "$CNI_COMMAND" = ADD ] && echo '${RESULT}'\nexit 0`);
    const [bridge = {}, ...rest] = listWith(lab, { type: 'tuning', mtu: 1400 }).plugins as Row[];
    const list = {
      ...listWith(lab),
      plugins: [{ ...bridge, ipMasq: true, ipam: { type: 'evil' } }, ...rest],
    };
    const chain = writeChain(lab, list);
    await chain.add(container, { binDir });
    if (onDel === '') fs.rmSync(`${binDir}/evil`);
    for (const _ of [1, 2]) {
      const failed = await chain.run('del', container, { binDir });
      expect([failed.exitCode, failed.stderr]).toEqual([1, expect.stringContaining(why)]);
    }
    expect(await fixesOf(lab, binDir)).toEqual([
      `del --forget podnet ${container.path} --container-id ${container.id} --ifname eth0`,
    ]);

    const { exitCode, stderr } = await chain.run('del', container, { binDir, args: ['--forget'] });
    const about = `interface "eth0" of container "${container.id}" on network "podnet"`;
    expect([exitCode, stderr.trimEnd().split('\n')]).toEqual([
      0,
      [expect.stringContaining(`Forgot what plugin "evil" made for ${about}, as its DEL fails: `)],
    ]);
    expect(stderr).toContain(why);
    expect(await lab.dump(container)).toEqual(before);
    const rules = (await lab.run(lab.host, ['nft', 'list', 'ruleset'])).stdout;
    expect([rules.includes(container.id), (await chain.run('ls', container)).stdout]).toEqual([false, '']);
  });

  test('of a delegate: what doctor prints deletes the pod', async () => {
    const lab = await makeLab();
    const container = await lab.container();
    const before = await lab.dump(container);
    const body = `[ "$CNI_COMMAND" = DEL ] && { echo '{"code":7,"msg":"evil says no"}'; exit 1; }\n[ "$CNI_COMMAND" = ADD ] && echo '${RESULT}'\nexit 0`;
    const binDir = binWith(lab, 'evil', body);
    const delegates = [{ ...listWith(lab, { type: 'evil' }), name: 'inner' }];
    const plugins = [{ type: 'catena', delegates }];
    const chain = writeChain(lab, { ...listWith(lab), plugins });
    await chain.add(container, { binDir });
    for (const _ of [1, 2]) expect((await chain.run('del', container, { binDir })).exitCode).toBe(1);
    const fixes = await fixesOf(lab, binDir);
    expect(fixes).toEqual([
      `del --forget inner ${container.path} --container-id ${container.id} --ifname eth0`,
      'repair podnet',
    ]);
    for (const fix of fixes) expect((await askNode(lab, binDir, ...fix.split(' '))).exitCode).toBe(0);
    expect(await fixesOf(lab, binDir)).toEqual([]);
    expect([await lab.dump(container), await chain.leases()]).toEqual([before, []]);
  });
});

/** What doctor prints for attachments that are neither complete nor removed. */
async function fixesOf(lab: Lab, binDir: string): Promise<string[]> {
  const { stdout } = await askNode(lab, binDir, 'doctor', '--json');
  const { findings } = JSON.parse(stdout) as { findings: { id: string; mend?: string }[] };
  const own = findings.flatMap(({ id, mend }) => (id === 'state.unsettled' && mend ? mend : []));
  return [...new Set(own)].map(mend => mend.replace(/^catena /, ''));
}

function askNode(lab: Lab, binDir: string, ...argv: string[]) {
  return lab.run(lab.host, [`${BIN_DIR}/catena`, ...argv], {
    env: { ...directories(lab.tmp), CNI_PATH: binDir },
  });
}

function quoteWord(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

/** Codes of control characters besides line breaks and tabs, and of those that turn writing around; colours do no harm. */
function controlsIn(text: string): number[] {
  const codes = Array.from(text, char => char.codePointAt(0) ?? 0);
  return codes.filter(
    code => (code < 32 && code !== 9 && code !== 10) || (code > 126 && code < 160) || code === 0x202e,
  );
}

/** A bridge, then these. */
function listWith(lab: Lab, ...links: Row[]): Row {
  const ipam = { type: 'host-local', subnet: '10.88.0.0/24', dataDir: `${lab.tmp}/leases` };
  return {
    cniVersion: '1.1.0',
    name: 'podnet',
    plugins: [{ type: 'bridge', bridge: 'br0', ipam }, ...links],
  };
}

/** A directory with our links and one more that does this on ADD. */
function binOnAdd(lab: Lab, name: string, body: string): string {
  return binWith(lab, name, `[ "$CNI_COMMAND" = ADD ] || exit 0\n${body}`);
}

function endAll(list: string): void {
  const pids = fs.existsSync(list)
    ? fs.readFileSync(list, 'utf8').split('\n').filter(Boolean).map(Number)
    : [];
  for (const pid of pids) {
    try {
      process.kill(pid, 'SIGKILL');
    } catch {
      // It has ended.
    }
  }
}
