// Does no sandbox fail while the DaemonSet is upgraded node by node under a stream of pods?

import fs from 'node:fs';
import { makeOtherBuild } from '../../helpers/installed.ts';
import { awaiting } from '../awaiting.ts';
import { catenaImage } from '../images.ts';
import { untilInstalled } from '../install-catena.ts';
import { must, pod, type Scenario, untilPods } from '../scenario.ts';

export const upgrade: Scenario = {
  name: 'rolling upgrade',
  async play(cluster, namespace, saw) {
    const { kubectl, nodes, control } = cluster;
    const work = `${control.machine.lab.tmp}/upgrade`;
    fs.mkdirSync(work);
    const { name, archive } = await catenaImage(work, makeOtherBuild(`${work}/bin`), 'other');
    await cluster.provide(archive);
    fs.rmSync(`${work}/bin`, { recursive: true });
    let upgrading = true;
    let made = 0;
    const stream = async (): Promise<void> => {
      while (upgrading) {
        const names = nodes.map((_, i) => `stream-${made}-${i}`);
        const wanted = nodes.map(({ place }, i) =>
          pod(names[i] ?? '', { metadata: { namespace }, spec: { nodeName: place.name } }),
        );
        await kubectl.apply(...wanted);
        await untilPods(cluster, namespace, wanted.length, 90);
        await kubectl('delete', 'pod', '-n', namespace, ...names, '--timeout=90s');
        made += wanted.length;
      }
    };
    const started = performance.now();
    const streaming = stream();
    // Its failure is thrown where it is awaited, and not before.
    streaming.catch(() => {});
    const of = ['-n', 'kube-system', 'daemonset/catena'];
    await kubectl('set', 'image', ...of, `install=${name}`, `daemon=${name}`);
    try {
      await awaiting('the upgrade', 400, async () => {
        const said = await kubectl.try('rollout', 'status', ...of, '--watch=false');
        return said?.includes('successfully rolled out');
      });
      await untilInstalled(cluster);
    } finally {
      upgrading = false;
      await streaming;
    }
    const seconds = ((performance.now() - started) / 1000).toFixed(0);
    const events = await kubectl.list(
      'events',
      '-n',
      namespace,
      '--field-selector=reason=FailedCreatePodSandBox',
    );
    must(events.length === 0, `${events.length} sandboxes failed: ${events[0]?.message}`);
    saw(
      `${nodes.length} nodes upgraded in ${seconds} s while ${made} pods came and went; 0 failed sandboxes`,
    );
  },
};
