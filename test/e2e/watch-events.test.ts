// Does the cluster learn what the daemon's watch found and did about the networks of pods?

import { expect, test } from 'bun:test';
import { mkdirSync, writeFileSync } from 'node:fs';
import { writeChain } from '../helpers/chain.ts';
import { bringIntoLab } from '../helpers/into-lab.ts';
import { startApiServer } from '../helpers/kubernetes.ts';
import { wholeLines } from '../helpers/lines.ts';
import { useLabs } from '../helpers/netns.ts';
import { describeRoot, requires } from '../helpers/skip.ts';
import { until } from '../helpers/until.ts';
import { startWatcher, untilWatch, watchedList } from '../helpers/watched-host.ts';

const argsOf = (name: string, uid?: string) =>
  `IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=${name}${uid ? `;K8S_POD_UID=${uid}` : ''}`;

describeRoot(
  'a daemon that watches the pods of a cluster',
  () => {
    const makeLab = useLabs();

    test('tells of damage, repairs, and what it cannot repair; once each, and not of other containers', async () => {
      const lab = await makeLab();
      const api = await startApiServer(lab.tmp);
      const leave = await bringIntoLab(lab, Number(new URL(api.url).port));
      try {
        mkdirSync(`${lab.tmp}/net.d`);
        const runner = {
          type: 'catena',
          kubeconfig: api.kubeconfig,
          delegates: [{ name: 'x', type: 'bridge' }],
        };
        const list = { cniVersion: '1.0.0', name: 'all', plugins: [runner] };
        writeFileSync(`${lab.tmp}/net.d/00-all.conflist`, JSON.stringify(list));
        // The runtime passed the uid of one pod only; the cluster knows that of the other.
        api.addPod('ns', 'seen', { uid: 'uid-2' });
        const pods: Record<string, string> = {};
        for (const [i, [name, watch, args]] of [
          ['web', 'repair', argsOf('web', 'uid-1')],
          ['seen', 'observe', argsOf('seen')],
          ['lost', 'repair', argsOf('lost', 'uid-3')],
          ['none', 'repair', ''],
        ].entries()) {
          const own = watchedList(lab, String(name), `10.6${i}.0.0/24`, { catena: { watch } });
          writeFileSync(`${lab.tmp}/net.d/${name}.conflist`, JSON.stringify(own));
          const container = await lab.container();
          await writeChain(lab, own).add(container, { args: args ? ['--args', args] : [] });
          pods[String(name)] = container.id;
        }
        const daemon = await startWatcher(lab, { watchSeconds: 3600 });
        const [port] = await lab.ip(lab.host, 'link', 'show', 'master', 'br-lost');
        for (const name of ['web', 'seen', 'none'])
          await lab.run(lab.host, ['ip', 'addr', 'flush', 'dev', `br-${name}`]);
        await lab.run(lab.host, ['ip', 'link', 'delete', port?.ifname]);
        await untilWatch(daemon, watch => watch.givenUp.length === 1 && watch.drifted.length === 1);
        const events = () =>
          api.events('ns').map(({ involvedObject, reason, type, message }) => {
            return { pod: `${involvedObject.name} ${involvedObject.uid}`, reason, type, message };
          });
        await until(() => events().length === 3);
        // Repaired a second time: the cluster knows of it already.
        await Bun.sleep(2_100);
        await lab.run(lab.host, ['ip', 'addr', 'flush', 'dev', 'br-web']);
        await untilWatch(daemon, watch => watch.repairs.repaired === 3);
        await Bun.sleep(2_100);
        expect(events().toSorted((a, b) => a.pod.localeCompare(b.pod))).toEqual([
          {
            pod: 'lost uid-3',
            reason: 'NetworkNotRepaired',
            type: 'Warning',
            message: expect.stringContaining('"lost"'),
          },
          {
            pod: 'seen uid-2',
            reason: 'NetworkDamaged',
            type: 'Warning',
            message: expect.stringContaining('br-seen'),
          },
          {
            pod: 'web uid-1',
            reason: 'NetworkRepaired',
            type: 'Normal',
            message: expect.stringContaining('br-web'),
          },
        ]);

        // A cluster that cannot be reached is told of once in the log, and nothing waits for it.
        api.answer(500);
        await lab.run(lab.host, ['ip', 'addr', 'add', '10.61.0.1/24', 'dev', 'br-seen']);
        await lab.run(lab.host, ['ip', 'link', 'set', 'br-web', 'down']);
        await untilWatch(daemon, watch => watch.repairs.repaired === 4);
        const log = () => wholeLines(`${lab.tmp}/daemon.log`);
        await until(() => log().some(line => line.includes('cannot tell the cluster')));
      } finally {
        leave();
        await api.close();
      }
    });
  },
  requires('openssl', 'ss', 'ip'),
);
