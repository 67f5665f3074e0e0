// What is kept of a cluster when a scenario fails? Logs are in the directory already; this adds states and traces.

import fs from 'node:fs';
import type { Cluster } from './cluster.ts';

const POOL_KINDS = ['pools', 'blocks', 'addresses'].map(kind => `${kind}.catena.cni.cncf.io`).join();

const OF_CLUSTER: Readonly<Record<string, readonly string[]>> = {
  'pods.txt': ['get', 'pods', '-A', '-o', 'wide'],
  'pods.yaml': ['get', 'pods', '-A', '-o', 'yaml'],
  'nodes.txt': ['describe', 'nodes'],
  'events.txt': ['get', 'events', '-A', '--sort-by=.lastTimestamp'],
  'pools.yaml': ['get', POOL_KINDS, '-o', 'yaml'],
  'catena.log': ['logs', '-n', 'kube-system', '-l', 'app.kubernetes.io/name=catena', '--tail=-1', '--prefix'],
};

const OF_NODE: Readonly<Record<string, readonly string[]>> = {
  'nft.txt': ['nft', 'list', 'ruleset'],
  'links.txt': ['ip', '-d', 'addr'],
  'routes.txt': ['ip', 'route'],
  'neighbours.txt': ['ip', 'neighbour'],
  'connections.txt': ['conntrack', '-L'],
  'ls.txt': ['/opt/cni/bin/catena', 'ls'],
  'log.txt': ['/opt/cni/bin/catena', 'log'],
  'doctor.txt': ['/opt/cni/bin/catena', 'doctor'],
  'sandboxes.txt': ['ctr', '--namespace', 'k8s.io', 'containers', 'ls'],
};

/** Writes them below a directory; what cannot be asked is left out. */
export async function collect({ kubectl, nodes }: Cluster, dir: string): Promise<void> {
  fs.mkdirSync(dir, { recursive: true });
  for (const [file, args] of Object.entries(OF_CLUSTER)) {
    fs.writeFileSync(`${dir}/${file}`, (await kubectl.try(...args)) ?? 'no answer\n');
  }
  for (const { place, machine } of nodes) {
    const own = `${dir}/${place.name}`;
    fs.mkdirSync(own, { recursive: true });
    for (const [file, argv] of Object.entries(OF_NODE)) {
      const said = await machine.run(argv).catch(error => ({ stdout: String(error), stderr: '' }));
      fs.writeFileSync(`${own}/${file}`, `${said.stdout}${said.stderr}`);
    }
    for (const dir of ['/run/catena/traces', '/var/lib/cni/networks']) {
      const from = machine.path(dir);
      if (fs.existsSync(from)) fs.cpSync(from, `${own}/${dir.split('/').at(-1)}`, { recursive: true });
    }
  }
}
