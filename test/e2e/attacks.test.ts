// Can a caller exceed its rights by names, symbolic links, directories, environment or sockets?
import { expect, setDefaultTimeout, test } from 'bun:test';
import fs from 'node:fs';
import path from 'node:path';
import { wireOf } from '../../src/daemon/protocol.ts';
import { encodeAnswer } from '../../src/daemon/wire.ts';
import { AS_ORDINARY_USER, CATENA, catena } from '../helpers/catena.ts';
import { fullChain, writeChain } from '../helpers/chain.ts';
import { startDaemon } from '../helpers/daemon.ts';
import { deadline } from '../helpers/deadline.ts';
import { makeOtherBuild } from '../helpers/installed.ts';
import { type Container, directories, type Lab, type Row, useLabs, withHost } from '../helpers/netns.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { binWith, writeScript } from '../helpers/script.ts';
import { describeRoot, type Need, requires, testNeeding } from '../helpers/skip.ts';
import { until } from '../helpers/until.ts';
import { actAsDaemon } from '../helpers/wire.ts';
import { Random } from '../storm/random.ts';

setDefaultTimeout(deadline(600_000));

const POD = 'K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web;IgnoreUnknown=1';

describeRoot('names', () => {
  const makeLab = useLabs();

  test('that are paths out of a directory are refused by every plugin and the runner before anything is touched', async () => {
    const lab = await makeLab();
    const container = await lab.container();
    const before = entriesBelow(path.dirname(lab.tmp), 2);
    const conf = {
      cniVersion: '1.1.0',
      name: 'podnet',
      type: 'bridge',
      ipam: { type: 'host-local', subnet: '10.88.0.0/24', dataDir: `${lab.tmp}/leases` },
      dataDir: `${lab.tmp}/data`,
      delegates: [{ type: 'bridge', name: 'x' }],
    };
    for (const name of ['../../ESCAPE', '..', '/tmp/ESCAPE', 'a\nb', '-rf']) {
      for (const link of ['bridge', 'host-local', 'tuning', 'catena']) {
        const asId = await lab.plugin(link, {
          command: 'ADD',
          conf,
          container: { id: name, path: container.path },
        });
        expect([link, name, asId.error?.code]).toEqual([link, name, 4]);
        const asNetwork = await lab.plugin(link, { command: 'ADD', conf: { ...conf, name }, container });
        expect([link, name, asNetwork.error?.code]).toEqual([link, name, 7]);
      }
    }
    for (const ifname of ['../ESCAPE', '..', 'a b', 'x'.repeat(16), 'net%d', 'all', 'default']) {
      for (const link of ['bridge', 'tap', 'macvlan', 'tuning', 'catena']) {
        const { error } = await lab.plugin(link, { command: 'ADD', conf, container, ifname });
        expect([link, ifname, error?.code]).toEqual([link, ifname, 4]);
      }
    }
    expect(newEntries(before, entriesBelow(path.dirname(lab.tmp), 2))).toEqual([]);
    expect(await lab.ip(lab.host, 'link', 'show', 'type', 'bridge')).toEqual([]);
  });

  test('that are paths out of a directory are refused by the command', async () => {
    const lab = await makeLab();
    const container = await lab.container();
    const chain = writeChain(lab, fullChain(lab));
    for (const option of ['--container-id=../../ESCAPE', '--container-id=..', '--ifname=../ESCAPE']) {
      const { exitCode, stderr } = await chain.run('add', container, { args: [option] });
      expect([option, exitCode]).toEqual([option, 1]);
      expect(stderr).toContain('code: 4');
    }
    const evil = { ...fullChain(lab), plugins: [{ type: '../../bin/sh' }, { type: 'bridge' }] };
    const refused = await writeChain(lab, { ...evil, name: 'evil' }).run('add', container);
    expect(refused.stderr).toContain('a plugin type is a file name, without "/"');
    expect(entriesBelow(lab.tmp, 9).filter(entry => entry.includes('ESCAPE'))).toEqual([]);
  });
});

describeRoot('symbolic links', () => {
  const makeLab = useLabs();

  test('under the names of our files are replaced, and their targets stay unchanged', async () => {
    const lab = await makeLab();
    const container = await lab.container();
    const chain = writeChain(lab, fullChain(lab));
    const victim = plantVictim(lab);
    const record = `podnet/${container.id}:eth0`;
    const planted = [
      `cni/results/podnet-${container.id}-eth0`,
      `leases/podnet/last_reserved_ip.0`,
      `leases/podnet/last_reserved_ip.1`,
      `leases/podnet/.catena-lease`,
      `leases/podnet/.catena-pointer`,
      `leases/podnet/.catena-owners.new`,
      `tuning/${container.id}_eth0.json`,
      `tuning/${container.id}_eth0.json.new`,
      `state/unsettled/${record}`,
    ];
    for (const name of planted) plant(lab, name, victim.path);
    const { exitCode, stderr } = await chain.run('add', container);
    expect([exitCode, stderr]).toEqual([0, expect.not.stringContaining('precious')]);
    victim.check();
    expect((await chain.run('check', container)).exitCode).toBe(0);
    expect((await chain.run('del', container)).exitCode).toBe(0);
    victim.check();
  });

  test('in place of a note are not followed: the command reports them', async () => {
    const lab = await makeLab();
    const container = await lab.container();
    const chain = writeChain(lab, fullChain(lab));
    const victim = plantVictim(lab);
    plant(lab, `state/unsettled/podnet/${container.id}:eth0`, victim.path);
    const { exitCode, stderr } = await chain.run('del', container);
    expect(`${exitCode} ${stderr}`).toMatch(/ is a symbolic link/);
    victim.check();
  });

  test('in place of an executable are replaced by an installation', async () => {
    const lab = await makeLab();
    const victim = plantVictim(lab);
    plant(lab, 'bin/bridge', victim.path);
    const install = (...more: string[]) => catena(lab, ['install', '--bin-dir', `${lab.tmp}/bin`, ...more]);
    await install();
    expect(fs.readlinkSync(`${lab.tmp}/bin/bridge`)).toBe(victim.path);
    victim.check();
    expect((await install('--force')).exitCode).toBe(0);
    expect(fs.lstatSync(`${lab.tmp}/bin/bridge`).isFile()).toBe(true);
    victim.check();
  });
});

describeRoot('CNI_PATH', () => {
  const makeLab = useLabs();

  test('alone determines where executables are found: the working directory counts only if it is listed', async () => {
    const lab = await makeLab();
    const container = await lab.container();
    const cwd = `${lab.tmp}/cwd`;
    const note = `${lab.tmp}/ran`;
    fs.mkdirSync(cwd);
    for (const name of ['bridge', 'evil', 'host-local']) writeScript(`${cwd}/${name}`, `touch ${note}`);
    const ipam = { type: 'evil' };
    const conf = { cniVersion: '1.1.0', name: 'podnet', type: 'bridge', bridge: 'br0', ipam };
    const attach = (cniPath: string | undefined) => {
      const env = {
        ...directories(lab.tmp),
        CNI_COMMAND: 'ADD',
        CNI_CONTAINERID: container.id,
        CNI_NETNS: container.path,
        CNI_IFNAME: 'eth0',
        ...(cniPath === undefined ? {} : { CNI_PATH: cniPath }),
      };
      return lab.run(lab.host, [`${BIN_DIR}/bridge`], { env, cwd, stdin: JSON.stringify(conf) });
    };
    for (const cniPath of [undefined, '', BIN_DIR, `${BIN_DIR}:/nonexistent`]) {
      const { exitCode, stdout } = await attach(cniPath);
      expect([cniPath, exitCode, JSON.parse(stdout).msg]).toEqual([
        cniPath,
        1,
        expect.stringMatching(/Cannot find plugin "evil"/),
      ]);
    }
    expect(fs.existsSync(note)).toBe(false);
    // As with the reference: an empty entry is the working directory. Setting it is a deliberate choice.
    await attach(`${BIN_DIR}::/nonexistent`);
    expect(fs.existsSync(note)).toBe(true);
  });

  test('with a directory that others may write to is reported by `catena doctor`', async () => {
    const lab = await makeLab();
    const bin = `${lab.tmp}/bin`;
    const conf = `${lab.tmp}/conf`;
    fs.mkdirSync(bin);
    for (const name of ['bridge', 'portmap', 'bandwidth', 'tuning'])
      fs.writeFileSync(`${bin}/${name}`, '', { mode: 0o755 });
    fs.mkdirSync(conf);
    fs.writeFileSync(`${conf}/10.conflist`, JSON.stringify(fullChain(lab)));
    const ask = async () => {
      const argv = ['doctor', '--json', '--conf-dir', conf, '--bin-dir', bin];
      const { stdout } = await catena(lab, argv, { env: directories(lab.tmp) });
      const { findings } = JSON.parse(stdout) as {
        findings: { id: string; severity: string; found: string }[];
      };
      return findings.filter(({ id }) => id === 'permissions');
    };
    fs.chmodSync(bin, 0o755);
    expect(await ask()).toMatchObject([{ severity: 'ok' }]);
    fs.chmodSync(bin, 0o777);
    expect(await ask()).toMatchObject([{ severity: 'error', found: expect.stringContaining(bin) }]);
    fs.chmodSync(bin, 0o755);
    fs.chmodSync(`${bin}/portmap`, 0o775);
    expect(await ask()).toMatchObject([{ severity: 'error', found: expect.stringContaining('portmap') }]);
  });
});

/** What the reference lets every user read, and must find unchanged. */
const SHARED: Readonly<Record<string, number>> = {
  leases: 0o755,
  'leases/podnet': 0o755,
  'leases/podnet/lock': 0o750,
};

describeRoot('locks', () => {
  const makeLab = useLabs();

  testNeeding(
    'on all that another user, or a process of the pod, can open delay no verb and no installation',
    async () => {
      const lab = await makeLab();
      const list = fullChain(lab);
      const chain = writeChain(lab, { ...list, plugins: [...(list.plugins as object[]), { type: 'sbr' }] });
      const install = () => catena(lab, ['install', '--bin-dir', `${lab.tmp}/bin`]);
      const container = await lab.container();
      await chain.add(container);
      await install();
      fs.chmodSync(lab.tmp, 0o755);
      const wanted = [container.path, ...entriesBelow(lab.tmp, 9).map(name => path.join(lab.tmp, name))];
      const holder = Bun.spawn([...AS_ORDINARY_USER, 'perl', '-e', HOLD_ALL, ...wanted], {
        stdin: 'pipe',
        stdout: 'pipe',
      });
      try {
        const { value } = await holder.stdout.getReader().read();
        // The namespace, and the directories that the reference shares, at least.
        expect(Number(new TextDecoder().decode(value))).toBeGreaterThan(2);
        for (const verb of ['check', 'del', 'add', 'del']) {
          const { exitCode, stderr } = await chain.run(verb, container);
          expect([verb, exitCode, stderr]).toEqual([verb, 0, '']);
        }
        expect((await install()).stderr).toBe('');
        expect(entriesBelow(`${lab.tmp}/bin`, 1).filter(name => name.includes('lock'))).toEqual([]);
      } finally {
        holder.kill();
      }
    },
    requiresSecondUser(),
    requires('setpriv', 'perl'),
  );
});

describeRoot('connections to the address for metrics', () => {
  const makeLab = useLabs();

  testNeeding(
    'cost the daemon a few descriptors, and calls nothing',
    async () => {
      const lab = await makeLab();
      const chain = writeChain(lab, fullChain(lab));
      const daemon = await startDaemon(lab, '--metrics', '127.0.0.1:9464');
      const descriptors = () => fs.readdirSync(`/proc/${daemon.pid}/fd`).length;
      const before = descriptors();
      const strangers = lab.start(lab.host, ['perl', '-e', CONNECT, '9464', '500']);
      try {
        const { value } = await strangers.stdout.getReader().read();
        expect(new TextDecoder().decode(value)).toBe('500\n');
        const container = await lab.container();
        await chain.add(container);
        // The daemon has had its turn: it has accepted them, and let them go long before their time is up.
        expect(descriptors() - before).toBeLessThan(40);
        expect((await chain.run('del', container)).exitCode).toBe(0);
        expect((await daemon.fetch('/metrics')).status).toBe(200);
      } finally {
        strangers.kill();
      }
      expect(await daemon.stop()).toBe(0);
    },
    requires('perl'),
  );
});

describeRoot('what a chain and a daemon keep', () => {
  const makeLab = useLabs();

  test('is accessible to its owner only: files 0600, directories 0700, sockets 0600', async () => {
    const lab = await makeLab();
    const chain = writeChain(lab, fullChain(lab));
    const daemon = await startDaemon(
      lab,
      '--log',
      `file:${lab.tmp}/log/catena.log`,
      '--grpc-socket',
      `${lab.tmp}/run/grpc.sock`,
    );
    const ports = [{ hostPort: 8080, containerPort: 80, protocol: 'tcp' }];
    for (const [i, binDir] of [BIN_DIR, makeOtherBuild(`${lab.tmp}/bin`)].entries()) {
      await chain.add(await lab.container(), {
        cap: { portMappings: ports.map(one => ({ ...one, hostPort: one.hostPort + i })) },
        binDir,
      });
    }
    fs.rmSync(`${lab.tmp}/bin`, { recursive: true });
    await chain.run('del', await lab.container());
    // The daemon still writes traces: a file gets its name once it is whole.
    let found: readonly (readonly [name: string, stat: fs.Stats | undefined])[] = [];
    await until(() => {
      found = entriesBelow(lab.tmp, 9).map(name => {
        return [name, fs.lstatSync(path.join(lab.tmp, name), { throwIfNoEntry: false })] as const;
      });
      return found.every(([, stat]) => stat);
    });
    const wrong = found.flatMap(([name, stat]) => {
      if (stat === undefined || stat.isSymbolicLink() || name === 'podnet.conflist') return [];
      const wanted = SHARED[name] ?? (stat.isDirectory() ? 0o700 : 0o600);
      const mode = stat.mode & 0o777;
      return (mode & ~wanted) === 0 ? [] : [`${name}: ${mode.toString(8)}`];
    });
    expect(wrong).toEqual([]);
    const sockets = entriesBelow(lab.tmp, 3).filter(name =>
      fs.lstatSync(path.join(lab.tmp, name)).isSocket(),
    );
    expect(sockets.sort()).toEqual(['run/catena.sock', 'run/catena.sock.wire', 'run/grpc.sock']);
    expect(await daemon.stop()).toBe(0);
  });

  test('contains no secrets in what people read: log, traces, metrics', async () => {
    const lab = await makeLab();
    const list = fullChain(lab);
    const binDir = binWith(
      lab,
      'vault',
      `echo 'login with password=hunter2 and "apiToken": "hunter2"' >&2; echo '{"code":7,"msg":"refused: token=hunter2","details":"Authorization: Bearer hunter2"}'; exit 1`,
    );
    const vault = { type: 'vault', token: 'hunter2', auth: { password: 'hunter2', user: 'root' } };
    const chain = writeChain(lab, { ...list, plugins: [...list.plugins, vault] });
    const log = `${lab.tmp}/log/catena.log`;
    const daemon = await startDaemon(lab, '--log', `file:${log}`, '--log-level', 'debug');
    const container = await lab.container();
    const failed = await chain.run('add', container, {
      binDir,
      args: ['--args', `${POD};API_TOKEN=hunter2`],
    });
    expect(failed.exitCode).toBe(1);
    // Who asked has the answer before anything is written about it.
    await until(() => fs.existsSync(log) && fs.readFileSync(log, 'utf8').includes('"pod_name":"web"'));
    const told = [
      fs.readFileSync(log, 'utf8'),
      await (await daemon.fetch('/metrics')).text(),
      await (await daemon.fetch('/v1/traces')).text(),
      ...entriesBelow(`${lab.tmp}/run/traces`, 1).map(name =>
        fs.readFileSync(`${lab.tmp}/run/traces/${name}`, 'utf8'),
      ),
    ];
    expect(told.length).toBeGreaterThan(3);
    for (const text of told) expect(text).not.toContain('hunter2');
    // What says which pod it was about stays.
    expect(told[0]).toContain('"pod_name":"web"');
    expect(told.at(-1)).toContain('shop');
    expect(await daemon.stop()).toBe(0);
  });
});

describeRoot('the daemon’s socket', () => {
  const makeLab = useLabs();

  testNeeding(
    'of another user is not connected to',
    async () => {
      const lab = await makeLab();
      const socket = `${lab.tmp}/run/catena.sock`;
      let asked = 0;
      const server = await actAsDaemon(socket, client => {
        asked++;
        client.end(encodeAnswer({ exitCode: 0, stdout: '"forged"', stderr: '' }));
      });
      try {
        const status = () => writeChain(lab, fullChain(lab)).run('status', container);
        const container: Container = await lab.container();
        expect((await status()).stdout).toContain('forged');
        fs.chownSync(wireOf(socket), 65534, 65534);
        expect((await status()).stdout).not.toContain('forged');
        expect(asked).toBe(1);
      } finally {
        await server.stop();
      }
    },
    requiresSecondUser(),
  );
});

/** Connects this many times to a port of 127.0.0.1, says how many succeeded, and keeps the connections. */
const CONNECT =
  'use Socket; my ($port, $count) = @ARGV; my @held; for (1..$count) { socket(my $s, PF_INET, SOCK_STREAM, 0) or last; connect($s, sockaddr_in($port, INADDR_LOOPBACK)) or last; push @held, $s } $| = 1; print scalar(@held), "\\n"; sleep 600;';

/** Locks every file and directory that it can open, says how many these are, and ends with its input. */
const HOLD_ALL =
  'use Fcntl qw(:DEFAULT :flock); my @held; for (@ARGV) { sysopen(my $f, $_, O_RDONLY | O_NONBLOCK) or next; push @held, $f if flock($f, LOCK_EX | LOCK_NB) } $| = 1; print scalar(@held), "\\n"; <STDIN>';

/** A foreign file, with a check that it is untouched. */
function plantVictim(lab: Lab): { path: string; check(): void } {
  const file = `${lab.tmp}/victim`;
  fs.writeFileSync(file, 'precious', { mode: 0o640 });
  const before = fs.statSync(file);
  return {
    path: file,
    check() {
      const after = fs.statSync(file);
      expect(fs.readFileSync(file, 'utf8')).toBe('precious');
      expect([after.mode, after.ino, after.nlink]).toEqual([before.mode, before.ino, before.nlink]);
    },
  };
}

function plant(lab: Lab, name: string, target: string): void {
  const file = path.join(lab.tmp, name);
  fs.mkdirSync(path.dirname(file), { recursive: true, mode: 0o700 });
  fs.symlinkSync(target, file);
}

/** Names below a directory, to a depth. */
function entriesBelow(dir: string, depth: number): string[] {
  if (!fs.existsSync(dir)) return [];
  return fs.readdirSync(dir, { withFileTypes: true }).flatMap(entry => {
    const deeper =
      entry.isDirectory() && depth > 1 ? entriesBelow(path.join(dir, entry.name), depth - 1) : [];
    return [entry.name, ...deeper.map(name => `${entry.name}/${name}`)];
  });
}

/** Other tests work beside this one: only what a traversal would have made counts. */
function newEntries(before: readonly string[], after: readonly string[]): string[] {
  return after.filter(name => name.includes('ESCAPE') && !before.includes(name));
}

/** Needs an id of a user besides root: a user namespace may have one only. */
function requiresSecondUser(): Need {
  const file = path.join(fs.mkdtempSync('/tmp/cat-user-'), 'x');
  try {
    fs.writeFileSync(file, '');
    fs.chownSync(file, 65534, 65534);
    return fs.existsSync(CATENA) ? undefined : 'needs the executables';
  } catch {
    return 'needs to be root of more than one user';
  } finally {
    fs.rmSync(path.dirname(file), { recursive: true });
  }
}

describeRoot('a container that administers its network', () => {
  /** More of them, or others: CATENA_FORGER_SEED=5 CATENA_FORGER_ROUNDS=300. */
  const first = Number(process.env.CATENA_FORGER_SEED ?? 1);
  const rounds = Number(process.env.CATENA_FORGER_ROUNDS ?? 8);

  test('keeps nothing of the host, puts nothing there, and changes nothing that comes home, by whatever it forges', async () => {
    for (let seed = first; seed < first + rounds; seed++) {
      await withHost(async lab => {
        const forgery = await forge(lab, new Random(seed));
        const { kind, steps, exitCodes } = forgery;
        expect({ seed, kind, steps, exitCodes, ...(await forgery.after()) }).toMatchObject({
          ...forgery.before,
          kept: [],
          exitCodes: [0, 0],
        });
      });
    }
  });
});

/** One attachment, what its container forges, and DEL, twice. */
async function forge(lab: Lab, random: Random) {
  const [container, hiding] = [await lab.container(), await lab.container()];
  const host = (...args: string[]) => lab.ip(lab.host, ...args);
  const inside = (...args: string[]) => lab.ip(container, ...args).catch(() => []);
  await host('link', 'add', 'low0', 'up', 'type', 'veth', 'peer', 'low1');
  const kind = random.pick(['veth', 'lower', 'macvlan', 'tap', 'macvtap']);
  const isLent = kind === 'veth' || kind === 'lower';
  if (kind === 'veth') await host('link', 'add', 'up0', 'type', 'veth', 'peer', 'far0', 'netns', hiding.name);
  if (kind === 'lower') await host('link', 'add', 'up0', 'link', 'low0', 'type', 'macvlan', 'mode', 'bridge');
  if (isLent) {
    await host('addr', 'add', '10.1.1.5', 'peer', '10.1.1.1/32', 'dev', 'up0');
    await host('link', 'set', 'up0', 'up', 'alias', 'rack 7');
    await host('route', 'add', 'default', 'via', '172.31.1.1', 'dev', 'up0', 'onlink', 'initcwnd', '20');
    await host('route', 'add', '10.50.0.0/16', 'via', 'inet6', 'fe80::1', 'dev', 'up0');
  }
  const type = isLent ? 'host-device' : kind === 'macvlan' ? 'macvlan' : 'tap';
  const master = { tap: {}, macvlan: { master: 'low0' }, macvtap: { kind: 'macvtap', master: 'low0' } };
  const conf = {
    ...{ cniVersion: '1.1.0', name: 'podnet', type },
    ...(isLent ? { device: 'up0' } : master[kind as keyof typeof master]),
  };
  const stateOf = async () => ({
    links: (await host('link')).map(({ ifname, flags, group, ifalias, address }) => {
      return {
        ifname,
        flags: flags.filter((one: string) => !/LOWER|NO-CARRIER/.test(one)),
        group,
        ifalias,
        address,
      };
    }),
    routes: (await host('route')).map(row =>
      JSON.stringify({ ...row, flags: row.flags.filter((one: string) => one !== 'linkdown') }),
    ),
    addresses: (await host('-4', 'addr')).flatMap(({ addr_info }) => addr_info),
  });
  const before = await stateOf();
  const add = await lab.plugin(type, { command: 'ADD', conf, container });
  expect([kind, add.error]).toEqual([kind, undefined]);
  const [own] = (await lab.ip(container, 'link', 'show', 'eth0')) as [Row];
  const steps: string[][] = [];
  let name = 'eth0';
  let isHidden = false;
  const act = async (...args: string[]): Promise<void> => {
    steps.push(args);
    await inside(...args);
  };
  for (let n = random.int(1, 6); n > 0 && !isHidden; n--) {
    const step = random.pick([
      'name',
      'alias',
      'flags',
      'twin',
      'decoy',
      ...(isLent ? ['address', 'hide'] : []),
    ]);
    if (step === 'name') {
      const other = random.pick(['foo', 'cni0', 'up0']);
      await act('link', 'set', name, 'down');
      await act('link', 'set', name, 'name', other);
      if ((await inside('link', 'show', other))[0]?.ifindex === own.ifindex) name = other;
    }
    const aliases = ['', 'up0', 'cni0', 'catena:podnet/forged/eth0'];
    if (step === 'alias') await act('link', 'set', name, 'alias', random.pick(aliases));
    if (step === 'address') await act('link', 'set', name, 'address', '02:00:00:00:0f:01');
    if (step === 'flags') {
      await act('link', 'set', name, 'arp', 'off', 'multicast', 'off', 'promisc', 'on', 'group', '9');
    }
    if (step === 'hide') {
      await act('link', 'set', name, 'netns', hiding.name);
      isHidden = true;
    }
    if (step === 'twin' && kind === 'lower')
      await act('link', 'add', 'twin', 'link', name, 'type', 'macvlan', 'mode', 'bridge');
    if (step === 'twin') await act('link', 'set', 'twin', 'name', 'eth0', 'alias', 'up0');
    if (step === 'decoy' || isHidden) {
      const sign = [
        'name',
        'eth0',
        'address',
        own.address,
        ...(isHidden ? ['index', String(own.ifindex)] : []),
      ];
      await act('link', 'add', ...sign, 'type', 'veth', 'peer', 'tail', 'netns', hiding.name);
      await act('link', 'set', 'eth0', 'alias', random.pick(['up0', 'cni0']), 'up');
    }
  }
  const prevResult = add.result;
  const exitCodes: number[] = [];
  for (const _ of [1, 2]) {
    exitCodes.push((await lab.plugin(type, { command: 'DEL', conf, container, prevResult })).exitCode);
  }
  const lost = (text: string) => isHidden && /up0|10\.1\.1\.|172\.31|10\.50/.test(text);
  return {
    ...{ kind, steps, exitCodes },
    // What the container hid ends with its namespace.
    before: {
      links: before.links.filter(({ ifname }) => !(isHidden && ifname === 'up0')),
      routes: before.routes.filter(text => !lost(text)),
      addresses: before.addresses.filter(({ local }) => !lost(local)),
    },
    async after() {
      const kept = (await inside('link')).filter(({ ifindex, link_netnsid }) => {
        return ifindex === own.ifindex && !isHidden && (kind !== 'veth' || link_netnsid !== undefined);
      });
      return { ...(await stateOf()), kept };
    },
  };
}
