// What does the page of catena ui show of a node that no test could set up: any number of attachments, with every condition and long names?
import type { NodeAttachment } from '../../src/node/model.ts';
import type { ShownEvent, ShownLease, ShownNode, ShownRequest } from '../../src/ui/shown.ts';

const TIME = '2026-11-27T08:00:00.000Z';
const ID = 'mwtixgohqiyq';
/** 20 letters without a place to break at, and what Kubernetes makes of a Deployment. */
const NAMES = ['web', 'prometheusoperatorxx', 'checkout-service-6d4f9c7b5d-x2vkq', 'db', 'WWWWWMMMM'];
const NETWORKS = ['podnet', 'bridge-full', 'observability-backend'];
const MESSAGE =
  'Cannot delete attachment podnet of container 4f1c0a9be2d34f1c0a9be2d34f1c0a9be2d34f1c0a9be2d34f1c0a9be2d3: plugin "f-noversion" (/opt/cni/bin/f-noversion) exited with 1 and printed nothing; run it by hand, or remove it from the list';

/** The attachment that has a view of its own. */
export function hrefOf(number: number): string {
  return `attachment/podnet/${number === 0 ? 'missing' : idOf(0)}/eth0`;
}

function idOf(i: number): string {
  return i.toString(16).padStart(64, '0');
}

function attachment(i: number, state: 'healthy' | 'broken'): NodeAttachment {
  const isBad = state === 'broken' && i % 3 === 0;
  const isUnsettled = state === 'broken' && i % 3 === 1;
  const network = NETWORKS[i % NETWORKS.length] ?? '';
  const host = { index: i + 10, kind: 'veth', mac: '02:00:0a:16:00:02', mtu: 1500, up: true, addresses: [] };
  return {
    ...{ network, containerId: idOf(i), ifname: 'eth0', netns: `/run/netns/cni-${idOf(i).slice(28)}` },
    ...(i % 2 === 0
      ? { containerName: NAMES[i % NAMES.length] ?? '' }
      : { podNamespace: 'monitoring', podName: NAMES[i % NAMES.length] ?? '' }),
    state: isUnsettled ? 'unsettled' : 'attached',
    ...(isUnsettled ? { why: MESSAGE } : {}),
    since: TIME,
    origin: {
      runner: 'containerd',
      executables: ['/opt/cni/bin/bridge', '/opt/cni/bin/portmap'],
      evidence: 'its record',
    },
    addresses: [
      `10.22.${i >> 8}.${i & 255}/16`,
      ...(i % 2 ? [`fd00:22:aaaa:bbbb:cccc:dddd:eeee:${i.toString(16)}/64`] : []),
    ],
    ports:
      i % 4 === 0
        ? [8080, 8443, 9090].map(port => ({ hostPort: port + i, containerPort: 80, protocol: 'tcp' }))
        : [],
    rates: { ingressBits: 10_000_000 },
    policies: ['accepts what comes from the same network'],
    device: { ...host, name: 'eth0' },
    hostDevice: {
      ...host,
      name: `veth${idOf(i).slice(56)}`,
      master: i % 3 === 0 ? 'cni0' : 'br-observability',
    },
    routes: [{ destination: '0.0.0.0/0', gateway: '10.22.0.1' }],
    health: isBad ? { state: 'broken', problem: MESSAGE } : { state: 'sound' },
  };
}

function nodeOf(number: number, state: 'healthy' | 'broken'): ShownNode {
  const device = {
    index: 2,
    kind: 'bridge',
    mtu: 1500,
    up: true,
    addresses: ['10.22.0.1/16', 'fd00:22:aaaa:bbbb:cccc:dddd:eeee:1/64'],
  };
  return {
    ...{ time: TIME, checkedAt: TIME, hostname: 'node-17.eu-central-1.compute.internal', version: '0.1.0' },
    networks: NETWORKS.map(name => ({
      ...{
        name,
        file: `/etc/cni/net.d/10-${name}.conflist`,
        cniVersion: '1.0.0',
        plugins: ['bridge', 'portmap'],
        leaseDirs: [],
      },
      attachments: Math.ceil(number / 3),
    })),
    attachments: Array.from({ length: number }, (_, i) => attachment(i, state)),
    bridges:
      number === 0
        ? []
        : ['cni0', 'br-observability'].map(name => ({
            device: { ...device, name },
            ports: ['enp0s31f6', 'wlp0s20f3verylong'],
          })),
    pools: NETWORKS.map((network, i) => ({
      network,
      range: `10.${22 + i}.0.0/16`,
      used: number,
      size: 65_533,
    })),
    daemon: { state: 'none' },
    notes: [],
  };
}

/** By path below `api/`, or the first part of one. */
export function answersOf(number: number, state: 'healthy' | 'broken'): Readonly<Record<string, unknown>> {
  const node = nodeOf(number, state);
  const isBroken = state === 'broken';
  const leases = node.attachments.slice(0, 60).map(
    ({ network, containerId, ifname, addresses: [address = ''] }, i): ShownLease => ({
      ...{ network, containerId, ifname, address: address.replace(/\/.*/, '') },
      state: (['live', 'unused', 'unknown', 'new'] as const)[isBroken ? i % 4 : 0] ?? 'live',
      evidence: [],
    }),
  );
  const log = node.attachments.map(
    ({ network, containerId, ifname }, i): ShownEvent => ({
      ...{
        time: TIME,
        what: ['ADD', 'REPAIR', 'HANDOVER', 'UNINSTALL'][i % 4] ?? '',
        network,
        containerId,
        ifname,
      },
      ...{ by: ['containerd', 'catena daemon', 'catena multus-cni-network'][i % 3] ?? '', source: 'log' },
      code: isBroken && i % 3 === 0 ? 7 : 0,
      ...(i % 2 === 0 ? { message: MESSAGE } : {}),
    }),
  );
  const mend = `catena del podnet ${idOf(0)} --ifname eth0 && catena add podnet /run/netns/cni-${idOf(0).slice(28)} --ifname eth0`;
  const call = {
    startMs: 0,
    durationMs: 12.5,
    verb: 'ADD',
    network: 'podnet',
    code: isBroken ? 7 : 0,
    transactions: [],
  };
  const request = {
    ...{
      id: ID,
      verb: 'ADD',
      network: 'podnet',
      containerId: idOf(0),
      ifname: 'eth0',
      durationMs: 42.1,
      startedAt: Date.parse(TIME),
    },
    ...{ code: isBroken ? 7 : 0, warm: true, ...(isBroken ? { message: MESSAGE } : {}) },
    plugins: ['bridge', 'portmap', 'third-party-plugin-x'].map(link => ({
      ...call,
      link,
      executable: `/opt/cni/bin/${link}`,
      ...(isBroken ? { message: MESSAGE } : {}),
    })),
  } as unknown as ShownRequest;
  const verdicts = NETWORKS.map((name, i) => ({
    ...{ file: `10-${name}.conflist`, used: i === 0 },
    why:
      i === 0
        ? 'it is the first file by name that can be loaded, and max_conf_num is 1'
        : `containerd reads 1 file, and 10-podnet.conflist comes before it`,
  }));
  return {
    ...{
      node,
      leases,
      log: { items: log },
      traces: [request],
      [`traces/${ID}`]: request,
      lists: { plugins: [] },
    },
    findings: {
      verdict: {
        ...(isBroken
          ? { state: 'to do', errors: 2, summary: '2 things to do (2 errors)' }
          : { state: 'healthy', errors: 0, summary: 'healthy' }),
      },
      findings: [
        ...(isBroken
          ? [
              { id: 'attachments.check', severity: 'error', found: MESSAGE, mend },
              {
                id: 'rules.tables',
                severity: 'warning',
                found: 'something flushed nf_tables: the rules of 3 containers (web, db, dflt) are gone',
                mend: 'catena repair',
              },
            ]
          : []),
        { id: 'plugins.version', severity: 'ok', found: 'every plugin of the lists answers VERSION' },
      ],
    },
    networks: {
      confDir: '/etc/cni/net.d',
      files: NETWORKS.map((network, i) => ({
        ...{
          name: `10-${network}.conflist`,
          path: `/etc/cni/net.d/10-${network}.conflist`,
          network,
          cniVersion: '1.0.0',
          plugins: ['bridge', 'portmap', 'bandwidth', 'tuning'],
        },
        ...(isBroken && i === 1 ? { unusable: MESSAGE } : {}),
      })),
      runtimes: ['containerd', 'CRI-O', 'podman'].map(runtime => ({
        runtime,
        files: [`10-${NETWORKS[0]}.conflist`],
        verdicts,
      })),
      notes: [],
    },
    'why-not': {
      ...{ from: 'outside', to: ':8080', simulated: true, outcome: isBroken ? 'stopped' : 'arrives' },
      hops: [
        { name: 'route', at: 'node', state: 'passes', evidence: '172.31.254.1 is an address of the node' },
        {
          name: 'translation',
          at: 'node',
          state: isBroken ? 'stops' : 'passes',
          evidence: MESSAGE,
          ...(isBroken ? { mend: 'catena repair podnet' } : {}),
        },
      ],
    },
  };
}
