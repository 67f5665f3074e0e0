// What does the worst pod, and the worst node, cost all others: time of their calls, memory and processor time of the daemon?
//
// Two nodes alike, each with a daemon that repairs. On one of them a pod does what it may; it is stopped while the other has its turn.
import { type Chain, fullChain, writeChain } from '../helpers/chain.ts';
import { type Daemon, startDaemon } from '../helpers/daemon.ts';
import { bringIntoLab } from '../helpers/into-lab.ts';
import { type ApiServer, startApiServer } from '../helpers/kubernetes.ts';
import { type Container, type Lab, type Namespace, withHost } from '../helpers/netns.ts';
import { startWatcher } from '../helpers/watched-host.ts';
import { quantile, timed } from './measure.ts';
import { memoryOfTree } from './memory.ts';
import { type Row, row } from './row.ts';
import { usedMs } from './watching.ts';

/** Attachments that stay, besides that of the hostile pod. */
const STANDING = 20;
/** Time for what is hostile to be at work before others are measured. */
const BEGIN_MS = 150;
/** Attachments that are made, checked and deleted in each turn. */
const PER_TURN = 4;

/** Something that works until it is paused. */
interface Attack {
  resume(): void;
  pause(): void | Promise<void>;
}

/** A node, what its pods are measured by, and what it has had so far. */
interface Side {
  readonly lab: Lab;
  readonly chain: Chain;
  readonly daemon: Daemon;
  readonly pods: readonly Container[];
  /** Where the kernel is measured alone. */
  readonly apart: Namespace;
  readonly samples: Map<string, number[]>;
  readonly attack: Attack | undefined;
  windowMs: number;
  daemonMs: number;
}

/** What the programs of a pod do: Python, since it must be quick. `ip(lines)` executes these without end. */
const PROGRAMS: Readonly<Record<string, string>> = {
  'only computes': 'while True: pass',
  'adds and deletes addresses': `ip([f"address {verb} 10.200.{i >> 8}.{i & 255}/32 dev eth0" for verb in ("add", "del") for i in range(1000)])`,
  'adds and deletes routes and rules': `ip([line for verb in ("add", "del") for i in range(1000) for line in
    (f"route {verb} 10.201.{i >> 8}.{i & 255}/32 dev eth0", f"rule {verb} from 10.202.{i >> 8}.{i & 255} table {1000 + i}")])`,
  'changes its interface': `ip([f"link set dev eth0 alias {char * 250} mtu {1300 + i}" for i, char in enumerate("abcdefgh")])`,
  'makes and deletes devices': `ip([line for i in range(50) for line in (f"link add x{i} type bridge", f"link del x{i}")])`,
  'has 1,000 devices with long names, and adds addresses': `
subprocess.run(["ip", "-force", "-batch", "-"], text=True, input="".join(
    f"link add d{i} type bridge\\nlink set dev d{i} alias catena:podnet/{'x' * 200}/eth{i}\\nlink property add dev d{i} altname {'n' * 100}{i}\\n"
    for i in range(1000)))
ip([f"address {verb} 10.200.{i >> 8}.{i & 255}/32 dev d{i}" for verb in ("add", "del") for i in range(1000)])`,
  'floods ARP with its own address': `
sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
sock.bind(("eth0", 0))
own = socket.inet_aton(subprocess.run(["ip", "-4", "-br", "addr", "show", "eth0"], text=True, capture_output=True).stdout.split()[2].split("/")[0])
mac = sock.getsockname()[4]
frame = b"\\xff" * 6 + mac + bytes.fromhex("08060001080006040001") + mac + own + b"\\xff" * 6 + own
while True: sock.send(frame)`,
  'opens connections without end': `
sock = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(400)]
while True:
  for port in range(1, 65535):
    for one in sock: one.sendto(b"x", ("10.88.0.1", port))`,
};

const PRELUDE = `
import os, signal, socket, subprocess, sys
def ip(lines):
  text = "\\n".join(lines) + "\\n"
  r, w = os.pipe()
  if os.fork() == 0:
    os.close(r)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    while True: os.write(w, text.encode())
  os.close(w)
  os.dup2(r, 0)
  null = os.open("/dev/null", os.O_WRONLY)
  os.dup2(null, 1)
  os.dup2(null, 2)
  os.execvp("ip", ["ip", "-force", "-batch", "-"])
`;

/** Scenes whose work is that of a program in the pod, and the one of a pod that asks for much. */
const ASKS = 'asks for all that an annotation may';
/** Every scene of a pod, by what it does. */
export const POD_SCENES: readonly string[] = [...Object.keys(PROGRAMS), ASKS];

/** The lines of one hostile pod after another; the first column is a quiet node, the second one with that pod. */
export async function hostilePodRows(rounds: number, only: string | undefined): Promise<Row[]> {
  const rows: Row[] = [];
  for (const scene of POD_SCENES.filter(name => name.includes(only ?? ''))) {
    process.stderr.write(`a pod ${scene}\n`);
    rows.push(...(await measureScene(scene, rounds)));
  }
  return rows;
}

async function measureScene(scene: string, rounds: number): Promise<Row[]> {
  return await withSide(undefined, quiet =>
    withSide(scene, async hostile => {
      const memory: number[][] = [];
      for (let i = 0; i < rounds; i++) {
        for (const side of i % 2 ? [hostile, quiet] : [quiet, hostile]) await turn(side);
        memory.push(residentMiB(hostile.daemon));
      }
      return report(`pod ${scene}`, quiet, hostile, memory);
    }),
  );
}

/** Runs the body with a node of its own, and a hostile pod on it if a scene is given. */
async function withSide<T>(scene: string | undefined, body: (side: Side) => Promise<T>): Promise<T> {
  return await withHost(
    async lab => {
      const chain = writeChain(lab, fullChain(lab));
      const first = await lab.container();
      await chain.add(first);
      const daemon = await startWatcher(lab, { watch: 'repair' });
      for (let i = 1; i < STANDING; i++) await chain.add(await lab.container());
      const pods = [];
      for (let i = 0; i < PER_TURN; i++) pods.push(await lab.container());
      const attack = scene === undefined ? undefined : await begin(lab, first, scene);
      const samples = new Map<string, number[]>();
      const apart = await lab.container();
      const side = { lab, chain, daemon, pods, apart, samples, attack, windowMs: 0, daemonMs: 0 };
      try {
        for (let i = 0; i < 3; i++) await turn(side);
        samples.clear();
        return await body(Object.assign(side, { windowMs: 0, daemonMs: 0 }));
      } finally {
        await attack?.pause();
        await daemon.stop();
      }
    },
    { directly: true },
  );
}

async function turn(side: Side): Promise<void> {
  const { lab, chain, daemon, pods, apart, samples, attack } = side;
  const note = (part: string, ms: number) => samples.set(part, [...(samples.get(part) ?? []), ms]);
  attack?.resume();
  await Bun.sleep(BEGIN_MS);
  const [since, used] = [performance.now(), usedMs(daemon.pid)];
  for (const [i, pod] of pods.entries()) {
    const [hostPort, containerPort] = [20_000 + i, 80];
    const portMappings = ['tcp', 'udp'].map(protocol => ({ hostPort, containerPort, protocol }));
    for (const verb of ['add', 'check', 'del']) {
      const call = () => chain.run(verb, pod, verb === 'add' ? { cap: { portMappings } } : {});
      note(verb.toUpperCase(), await timed(async () => expectSuccess(verb, await call())));
    }
    for (const words of ['add a type veth peer name b', 'del a'])
      note(
        'of the kernel alone: a pair of devices',
        await timed(() => lab.run(apart, ['ip', 'link', ...words.split(' ')])),
      );
  }
  side.windowMs += performance.now() - since;
  side.daemonMs += usedMs(daemon.pid) - used;
  await attack?.pause();
}

function expectSuccess(verb: string, { exitCode, stderr }: { exitCode: number; stderr: string }): void {
  if (exitCode !== 0) throw new Error(`${verb} of another pod failed: ${stderr}`);
}

function report(what: string, quiet: Side, hostile: Side, memory: readonly (readonly number[])[]): Row[] {
  const parts = [...quiet.samples.keys()].flatMap(part =>
    ([0.5, 0.99] as const).map(at => {
      const [before, beside] = [quiet, hostile].map(({ samples }) => quantile(samples.get(part), at));
      return row(`${what}: ${part}, p${at * 100}`, 'ms', before ?? Number.NaN, beside ?? Number.NaN);
    }),
  );
  const share = ({ daemonMs, windowMs }: Side) => (daemonMs / windowMs) * 100;
  return [
    ...parts,
    row(`${what}: processor time of the daemon`, '%', share(quiet), share(hostile)),
    ...memoryRows(what, quiet.daemon, hostile.daemon),
    row(
      `${what}:   of its daemon, in the middle | at the end`,
      'MiB',
      memory[memory.length >> 1]?.[0] ?? Number.NaN,
      memory.at(-1)?.[0] ?? Number.NaN,
    ),
  ];
}

/** The daemon first, then its workers. */
function residentMiB({ pid }: Daemon): number[] {
  return memoryOfTree(pid).map(({ resident }) => resident / 1024 / 1024);
}

function memoryRows(what: string, quiet: Daemon, hostile: Daemon): Row[] {
  const [before = [], beside = []] = [quiet, hostile].map(residentMiB);
  return [
    row(`${what}: RSS of the daemon`, 'MiB', before[0] ?? Number.NaN, beside[0] ?? Number.NaN),
    row(
      `${what}: RSS of its largest worker`,
      'MiB',
      Math.max(...before.slice(1)),
      Math.max(...beside.slice(1)),
    ),
    row(`${what}: workers`, '', before.length - 1, beside.length - 1),
  ];
}

async function begin(lab: Lab, pod: Container, scene: string): Promise<Attack> {
  if (scene === ASKS) return await beginAsking(lab);
  const child = lab.start(pod, ['python3', '-c', PRELUDE + PROGRAMS[scene]]);
  void child.stderr.pipeTo(new WritableStream({ write: text => void process.stderr.write(text) }));
  await Bun.sleep(scene.startsWith('has 1,000') ? 8_000 : 500);
  if (child.exitCode !== null) throw new Error(`what the pod does has ended with ${child.exitCode}`);
  child.kill('SIGSTOP');
  return { resume: () => child.kill('SIGCONT'), pause: () => child.kill('SIGSTOP') };
}

/** Networks that a pod may have, and what each may ask for. */
const [NETWORKS, PORTS] = [64, 1_024];
const ESCAPES = '\u001b[2J\u202e\u0007\r\n'.repeat(50);

/** A pod whose runtime tries again and again: one list with everything that is allowed, and others that are refused. */
async function beginAsking(lab: Lab): Promise<Attack> {
  const api = await startApiServer(lab.tmp);
  await bringIntoLab(lab, Number(new URL(api.url).port));
  const ipam = { type: 'host-local', ranges: [[{ subnet: '10.99.0.0/16' }]], dataDir: `${lab.tmp}/leases` };
  const plugins = [
    { type: 'bridge', bridge: 'br9', ipam },
    { type: 'portmap', capabilities: { portMappings: true } },
  ];
  api.addDefinition('ns', 'lan', { cniVersion: '1.1.0', name: 'lan', plugins });
  const ports = (of: number) =>
    Array.from({ length: PORTS / NETWORKS }, (_, i) => ({
      hostPort: 30_000 + of * 20 + i,
      containerPort: 80,
      protocol: 'tcp',
    }));
  const whole = Array.from({ length: NETWORKS }, (_, i) => ({
    name: 'lan',
    interface: `net${i}`,
    portMappings: ports(i),
    'cni-args': { text: ESCAPES, more: 'x'.repeat(2_000) },
  }));
  const annotations = [
    JSON.stringify(whole),
    'n,'.repeat(128 * 1024),
    `[${'{"name": "lan"},'.repeat(16 * 1024)}{}]`,
    `[{"name": "lan", "cni-args": ${'['.repeat(100 * 1024)}`,
    JSON.stringify([{ name: `lan${ESCAPES}`, 'cni-args': { x: '\\u0000'.repeat(20_000) } }]),
    JSON.stringify([{ name: 'n'.repeat(250 * 1024) }]),
  ];
  for (const [i, text] of annotations.entries())
    api.addPod('ns', `pod${i}`, { annotations: { 'k8s.v1.cni.cncf.io/networks': text } });
  const conf = {
    cniVersion: '1.1.0',
    name: 'pods',
    type: 'catena',
    kubeconfig: api.kubeconfig,
    delegates: [{ name: 'default', cniVersion: '1.1.0', type: 'loopback' }],
  };
  const container = await lab.container();
  let working: Promise<void> | undefined;
  let isOpen = false;
  const work = async () => {
    for (let i = 0; isOpen; i++) {
      const name = `pod${i % annotations.length}`;
      const env = { CNI_ARGS: `IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=${name};K8S_POD_UID=uid-1` };
      for (const command of ['ADD', 'DEL']) {
        const { error } = await lab.plugin('catena', { command, conf, container, env });
        if ((error === undefined) !== (command === 'DEL' || name === 'pod0'))
          throw new Error(`${command} of ${name}: ${JSON.stringify(error)?.slice(0, 500)}`);
      }
    }
  };
  return {
    resume() {
      isOpen = true;
      working ??= work();
    },
    async pause() {
      isOpen = false;
      await working;
      working = undefined;
    },
  };
}

/** Blocks that the hostile node writes: nearly the whole pool. More are not kept. */
const BLOCKS = 60_000;
const POOL = { ipv4: '10.64.0.0/10' };
const API = '/apis/catena.cni.cncf.io/v1alpha1';

/** Two clusters alike, of three nodes; in one of them a node has written all that it may. The columns are those two. */
export async function hostileNodeRows(rounds: number): Promise<Row[]> {
  process.stderr.write('a node\n');
  return await withNode(false, quiet =>
    withNode(true, async hostile => {
      for (let i = 0; i < rounds; i++)
        for (const side of i % 2 ? [hostile, quiet] : [quiet, hostile]) await allocate(side, i);
      const [before, beside] = [await stateOf(quiet), await stateOf(hostile)];
      const parts = [...quiet.samples.keys()].flatMap(part =>
        ([0.5, 0.99] as const).map(at => {
          const [less, more] = [quiet, hostile].map(({ samples }) => quantile(samples.get(part), at));
          return row(`node: ${part}, p${at * 100}`, 'ms', less ?? Number.NaN, more ?? Number.NaN);
        }),
      );
      return [
        ...parts,
        row('node: routes that lead to it', '', before.routes, beside.routes),
        row('node: routes for addresses of others that lead to it', '', before.stolen, beside.stolen),
        row('node: processor time of the daemon beside its writes', '%', quiet.percent, hostile.percent),
        ...memoryRows('node', quiet.daemon, hostile.daemon),
      ];
    }),
  );
}

/** A node of a cluster. */
interface NodeSide {
  readonly lab: Lab;
  readonly api: ApiServer;
  readonly daemon: Daemon;
  readonly samples: Map<string, number[]>;
  percent: number;
}

const MALLORY = '192.0.2.66';

async function withNode<T>(isHostile: boolean, body: (side: NodeSide) => Promise<T>): Promise<T> {
  return await withHost(
    async lab => {
      await lab.ip(lab.host, 'link', 'add', 'up0', 'type', 'bridge');
      await lab.ip(lab.host, 'addr', 'add', '192.0.2.1/24', 'dev', 'up0');
      await lab.ip(lab.host, 'link', 'set', 'up0', 'up');
      const api = await startApiServer(lab.tmp);
      const close = await bringIntoLab(lab, Number(new URL(api.url).port));
      for (const [name, address] of [
        ['own', '192.0.2.1'],
        ['near', '192.0.2.2'],
        ['mallory', MALLORY],
      ] as const)
        api.collections.put(`/api/v1/nodes/${name}`, nodeOf(name, address));
      api.collections.put(`${API}/pools/default`, {
        ...{
          apiVersion: 'catena.cni.cncf.io/v1alpha1',
          kind: 'Pool',
          metadata: { name: 'default', uid: 'uid-pool' },
        },
        spec: { subnets: [POOL], blockSize: 64, layout: 'routed' },
      });
      putBlock(api, 'near', '10.64.1.0/26');
      if (isHostile) attackCluster(api);
      const file = `${lab.tmp}/daemon.json`;
      await Bun.write(
        file,
        JSON.stringify({
          nodes: 'blocks',
          nodesKubeconfig: api.kubeconfig,
          log: `file:${lab.tmp}/daemon.log`,
        }),
      );
      const daemon = await startDaemon(lab, '--config', file, '--node-name', 'own');
      const side: NodeSide = { lab, api, daemon, samples: new Map(), percent: 0 };
      try {
        const since = performance.now();
        while (!(await routesOf(side)).some(({ dst }) => dst === '10.64.1.0/26')) {
          if (performance.now() - since > 120_000)
            throw new Error(`no route: ${await (await daemon.fetch('/v1/state')).text()}`);
          await Bun.sleep(20);
        }
        note(side, 'a new daemon until it has a route to another node', performance.now() - since);
        const [at, used] = [performance.now(), usedMs(daemon.pid)];
        for (let i = 0; i < 100; i++) {
          if (isHostile) writeStatus(api, i);
          await Bun.sleep(50);
        }
        side.percent = ((usedMs(daemon.pid) - used) / (performance.now() - at)) * 100;
        return await body(side);
      } finally {
        await daemon.stop();
        close();
        await api.close();
      }
    },
    { directly: true },
  );
}

/** Blocks over the whole pool, and over what others have; its own object as large as it may be, and other addresses in it. */
function attackCluster(api: ApiServer): void {
  for (const cidr of [
    '0.0.0.0/1',
    '10.64.0.0/16',
    '10.64.1.0/26',
    '10.64.1.0/27',
    '127.0.0.0/24',
    '192.0.2.0/24',
  ])
    putBlock(api, 'mallory', cidr);
  for (let i = 0; i < BLOCKS; i++) {
    const at = i * 64;
    putBlock(api, 'mallory', `10.${64 + (at >> 16)}.${(at >> 8) & 255}.${at & 255}/26`);
  }
}

function writeStatus(api: ApiServer, i: number): void {
  const object = nodeOf('mallory', MALLORY);
  const annotations = { text: `${i}`.repeat(100_000).slice(0, 250_000) };
  const images = Array.from({ length: 5_000 }, (_, k) => ({ names: [`image${k}:${i}`], sizeBytes: k }));
  const status = { ...object.status, images };
  api.collections.put('/api/v1/nodes/mallory', {
    ...object,
    metadata: { ...object.metadata, annotations },
    status,
  });
  putBlock(api, 'mallory', `10.127.${i}.0/26`);
}

function nodeOf(name: string, address: string) {
  const metadata = {
    name,
    uid: `uid-${name}`,
    creationTimestamp: `2026-01-0${name === 'mallory' ? 3 : 1}T00:00:00Z`,
  };
  return {
    apiVersion: 'v1',
    kind: 'Node',
    metadata,
    spec: {},
    status: { addresses: [{ type: 'InternalIP', address }] },
  };
}

function putBlock(api: ApiServer, node: string, cidr: string): void {
  const [from = '', prefix] = cidr.split('/');
  // As src/pools/pool.ts names blocks, so that names collide.
  const name = `default-${from}`;
  const ranges = [{ subnet: cidr, from, to: from, gateway: from, prefix: Number(prefix) }];
  const path = `${API}/blocks/${node === 'mallory' && !cidr.endsWith('/26') ? `${name}-${prefix}` : name}`;
  if (api.objects.has(path)) return;
  api.collections.put(path, {
    ...{ apiVersion: 'catena.cni.cncf.io/v1alpha1', kind: 'Block' },
    metadata: {
      name: path.split('/').at(-1),
      uid: `uid-${path}`,
      labels: { 'catena.cni.cncf.io/pool': 'default', 'catena.cni.cncf.io/node': node },
    },
    spec: { pool: 'default', node, network: 'podnet', size: 64, cidrs: [cidr], ranges },
  });
}

/** One ADD for which a block must be claimed, and one with a block that the node has. */
async function allocate(side: NodeSide, i: number): Promise<void> {
  const { lab, api } = side;
  const ipam = {
    type: 'cluster',
    kubeconfig: api.kubeconfig,
    node: 'own',
    dataDir: `${lab.tmp}/leases`,
    lowWater: 0,
    timeout: 60,
  };
  const conf = { cniVersion: '1.1.0', name: `net${i}`, type: 'bridge', ipam };
  for (const [id, part] of [
    ['one', 'ADD that claims a block'],
    ['two', 'ADD with a block that is there'],
  ] as const) {
    const container = { id: `${id}-${i}`, path: '/run/netns/unused' };
    note(
      side,
      part,
      await timed(async () => {
        const { exitCode, stdout } = await lab.plugin('cluster', { command: 'ADD', conf, container });
        if (exitCode !== 0) throw new Error(`ADD failed: ${JSON.stringify(JSON.parse(stdout))}`);
      }),
    );
  }
}

function note({ samples }: NodeSide, part: string, ms: number): void {
  samples.set(part, [...(samples.get(part) ?? []), ms]);
}

async function routesOf({ lab }: NodeSide) {
  return await lab.ip<{ dst: string; gateway?: string; protocol?: string }[]>(
    lab.host,
    'route',
    'show',
    'proto',
    '67',
  );
}

async function stateOf(side: NodeSide): Promise<{ routes: number; stolen: number }> {
  const to = (await routesOf(side)).filter(({ gateway }) => gateway === MALLORY).map(({ dst }) => dst);
  const stolen = to.filter(dst => !dst.startsWith('10.') || !dst.endsWith('/26') || dst === '10.64.1.0/26');
  return { routes: to.length, stolen: stolen.length };
}
