// Do pods outlive a change from Catena to the reference's plugins, and back?

import fs from 'node:fs';
import { REFERENCE_BIN_DIR } from '../../helpers/plugin.ts';
import { awaiting } from '../awaiting.ts';
import { untilInstalled } from '../install-catena.ts';
import type { Node } from '../node.ts';
import { answerOf, must, pod, type Scenario, untilAnswers, untilPods } from '../scenario.ts';

/**
 * A list without the runner, whose pods no other program could delete. It comes first by name. The reference refuses a default
 * route of `ipam` besides that of `isDefaultGateway`.
 */
const FILE = '/etc/cni/net.d/00-plain.conflist';
/** Comes before the name that the installation then chooses, in order to be first: containerd deletes from its first list. */
const FILE_AGAIN = '/etc/cni/net.d/00-00-00-plain.conflist';
const PLAIN = {
  cniVersion: '1.0.0',
  name: 'plain',
  plugins: [
    {
      type: 'bridge',
      bridge: 'plain0',
      hairpinMode: true,
      isDefaultGateway: true,
      ipMasq: true,
      ipam: { type: 'host-local', subnet: '10.66.0.0/24' },
    },
    { type: 'portmap', capabilities: { portMappings: true } },
    { type: 'bandwidth', capabilities: { bandwidth: true } },
  ],
};

export const handover: Scenario = {
  name: 'handover and back',
  leaves: /^plain0$/,
  async play(cluster, namespace, saw) {
    const { kubectl, nodes, wire } = cluster;
    const node = nodes.at(-1);
    if (node === undefined) throw new Error('a cluster has a node');
    const { name, address } = node.place;
    const catena = (...args: string[]) => node.machine.ok(['/opt/cni/bin/catena', ...args]);
    const start = (one: string, hostPort: number) =>
      kubectl.apply(
        pod(one, {
          metadata: { namespace },
          spec: { nodeName: name },
          container: { ports: [{ hostPort, containerPort: 80 }] },
        }),
      );
    const works = (one: string, port: number) =>
      untilAnswers(`outside asks ${address}:${port}`, one, () =>
        answerOf(wire.lab, wire.lab.host, `${address}:${port}`),
      );
    const end = async (one: string, port: number): Promise<void> => {
      await kubectl('delete', 'pod', '-n', namespace, one, '--timeout=110s');
      await awaiting(`${address}:${port} to be closed`, 30, async () => {
        return (await answerOf(wire.lab, wire.lab.host, `${address}:${port}`)) === undefined;
      });
    };
    node.machine.write(FILE, JSON.stringify(PLAIN));
    try {
      // containerd looks at the directory.
      await Bun.sleep(2000);
      await start('stays', 8090);
      await start('goes', 8091);
      const made = await untilPods(cluster, namespace, 2);
      must(
        made.every(({ status }) => status.podIP.startsWith('10.66.0.')),
        `the pods have ${made.map(({ status }) => status.podIP)}, not addresses of the plain list`,
      );
      await works('stays', 8090);
      await catena('handover', '--to', REFERENCE_BIN_DIR);
      await works('stays', 8090);
      await catena('uninstall', '--to', REFERENCE_BIN_DIR);
      placeReference(node);
      await works('stays', 8090);
      await end('goes', 8091);
      await start('between', 8092);
      await untilPods(cluster, namespace, 2);
      await works('between', 8092);
      saw('handed over: a pod of ours works on, another is deleted by the reference, which makes a third');
      removeReference(node);
      const all = ['-n', 'kube-system', '-l', 'app.kubernetes.io/name=catena'];
      await kubectl('delete', 'pod', ...all, `--field-selector=spec.nodeName=${name}`, '--timeout=110s');
      await untilInstalled(cluster);
      fs.renameSync(node.machine.path(FILE), node.machine.path(FILE_AGAIN));
      await Bun.sleep(2000);
      await works('stays', 8090);
      await works('between', 8092);
      await end('stays', 8090);
      await end('between', 8092);
      // kubelet forgets a pod before its sandbox has ended, and containerd deletes from the networks that it has then.
      await awaiting('the leases to be given back', 60, async () => {
        const { files } = await node.machine.holds();
        return !files.some(file => file.includes('/networks/plain/'));
      });
      saw('installed again: both are deleted by ours');
    } finally {
      for (const file of [FILE, FILE_AGAIN]) fs.rmSync(node.machine.path(file), { force: true });
    }
  },
};

function placeReference({ machine }: Node): void {
  for (const name of fs.readdirSync(REFERENCE_BIN_DIR))
    fs.copyFileSync(`${REFERENCE_BIN_DIR}/${name}`, machine.path(`/opt/cni/bin/${name}`));
}

function removeReference({ machine }: Node): void {
  for (const name of fs.readdirSync(REFERENCE_BIN_DIR))
    fs.rmSync(machine.path(`/opt/cni/bin/${name}`), { force: true });
}
