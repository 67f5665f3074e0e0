// Which networks come and go when an annotation has changed?
import { expect, test } from 'bun:test';
import fs from 'node:fs';
import path from 'node:path';
import { readEntry } from '../../../src/attachments/entries.ts';
import { addPod } from '../../../src/delegate/add.ts';
import type { Cluster } from '../../../src/delegate/cluster.ts';
import { followPod, planFollowing } from '../../../src/delegate/follow.ts';
import type { RecordedNetwork } from '../../../src/delegate/record.ts';
import { selectByName } from '../../../src/delegate/selection.ts';
import type { WantedNetwork } from '../../../src/delegate/wanted.ts';
import { KEY, makePod, makeRunner } from '../../helpers/delegates.ts';
import { makeNoopChain } from '../../helpers/noop-chain.ts';

const has = (ifname: string, asked?: string): RecordedNetwork => ({
  label: ifname,
  network: ifname,
  ifname,
  source: '{}',
  args: [],
  capabilityArgs: {},
  ...(asked === undefined ? {} : { asked }),
});
const wants = (asked: string): WantedNetwork => ({
  selection: selectByName(asked),
  namespace: 'ns',
  byPod: true,
  asked,
});

test.each<[string, (string | undefined)[], string[], number[], string[]]>([
  ['nothing changes', [undefined, 'a', 'b'], ['b', 'a'], [], []],
  ['one comes', [undefined, 'a'], ['a', 'b'], [], ['b']],
  ['one goes', [undefined, 'a', 'b'], ['b'], [1], []],
  ['the default network and those of the configuration stay', [undefined, undefined], [], [], []],
  ['the same one twice', [undefined, 'a'], ['a', 'a'], [], ['a']],
  ['one of two equal ones goes', [undefined, 'a', 'a'], ['a'], [2], []],
])('%s', (_, present, wanted, going, coming) => {
  const networks = present.map((asked, i) => has(`net${i}`, asked));
  const found = planFollowing(networks, wanted.map(wants));
  expect(found.going.map(one => networks.indexOf(one))).toEqual(going);
  expect(found.coming.map(({ asked }) => asked ?? '')).toEqual(coming);
});

test('the entry of a network that comes is without the default route that it does not get', async () => {
  const chain = makeNoopChain();
  try {
    const routes = [{ dst: '0.0.0.0/0', gw: '10.1.0.1' }, { dst: '10.9.0.0/16' }];
    const ReportResult = { cniVersion: '1.1.0', routes };
    const listOf = (name: string) => ({
      cniVersion: '1.1.0',
      name,
      plugins: [chain.noop(name, { ReportResult })],
    });
    fs.mkdirSync(path.join(chain.dir, 'net.d'));
    fs.writeFileSync(path.join(chain.dir, 'net.d/two.conflist'), JSON.stringify(listOf('two')));
    let annotation = '';
    const annotations = () => ({ 'k8s.v1.cni.cncf.io/networks': annotation });
    const cluster = {
      findPod: async () => ({ uid: 'u', version: '1', annotations: annotations() }),
      replaceStatus: async () => true,
    } as unknown as Cluster;
    const runner = makeRunner(
      chain,
      { delegates: [listOf('one')] },
      {
        cluster: async () => cluster,
        fetchAnnotations: async () => annotations(),
        follow: { env: {}, stdin: '' },
      },
    );
    runner.present.set('eth0', [4]);
    const pod = makePod({ args: 'K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web' });
    await addPod(runner, pod);
    annotation = 'two';
    runner.present.set('net1', [4]);
    await followPod(runner, KEY, pod);
    expect(runner.changes).toEqual(['remove 4 net1']);
    const two = { network: 'two', containerId: 'c1', ifname: 'net1' };
    expect(readEntry(chain.runtime.cacheDir, two)?.result?.routes).toEqual(routes.slice(1));
  } finally {
    chain.dispose();
  }
});
