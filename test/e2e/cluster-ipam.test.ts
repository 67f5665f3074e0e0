// Do the executables allocate addresses in a real cluster's API, and without it while it is away?
import { afterAll, beforeAll, expect, test } from 'bun:test';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { run, TEST_PATH } from '../helpers/command.ts';
import { deadline } from '../helpers/deadline.ts';
import { directories, type Row } from '../helpers/netns.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { NO_REAL_API, type RealApi, startRealApi } from '../helpers/real-api.ts';
import { describeNeeding } from '../helpers/skip.ts';

const OBJECTS = { type: 'object', 'x-kubernetes-preserve-unknown-fields': true };

describeNeeding(
  'addresses of a whole cluster',
  () => {
    let dir: string;
    let api: RealApi;
    beforeAll(async () => {
      dir = mkdtempSync(join(tmpdir(), 'cat-ipam-'));
      api = await startRealApi(join(dir, 'api'));
      for (const name of ['one', 'two']) await api.addNode(name);
      for (const [kind, plural] of [
        ['IPPool', 'ippools'],
        ['OverlappingRangeIPReservation', 'overlappingrangeipreservations'],
      ] as const) {
        await api.server.ask('POST', 'apis/apiextensions.k8s.io/v1/customresourcedefinitions', {
          apiVersion: 'apiextensions.k8s.io/v1',
          kind: 'CustomResourceDefinition',
          metadata: { name: `${plural}.whereabouts.cni.cncf.io` },
          spec: {
            group: 'whereabouts.cni.cncf.io',
            scope: 'Namespaced',
            names: { kind, plural, singular: kind.toLowerCase(), listKind: `${kind}List` },
            versions: [
              { name: 'v1alpha1', served: true, storage: true, schema: { openAPIV3Schema: OBJECTS } },
            ],
          },
        });
      }
    }, deadline(180_000));
    afterAll(async () => {
      await api?.close();
      rmSync(dir, { recursive: true, force: true });
    });

    /** A node, as far as one machine can be several: directories of its own. */
    function node(name: string, type: string, ipam: Row) {
      const place = join(dir, name);
      const conf = {
        cniVersion: '1.1.0',
        name: 'podnet',
        type: 'bridge',
        ipam: { type, dataDir: join(place, 'leases'), ...ipam },
      };
      return async (command: string, id: string, more: Row = {}) => {
        const env = {
          PATH: TEST_PATH,
          ...directories(place),
          CNI_COMMAND: command,
          CNI_PATH: BIN_DIR,
          CNI_CONTAINERID: id,
          CNI_NETNS: '/run/netns/unused',
          CNI_IFNAME: 'eth0',
          CNI_ARGS: `IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=${id}`,
        };
        const { exitCode, stdout } = await run([`${BIN_DIR}/${type}`], {
          env,
          stdin: JSON.stringify({ ...conf, ...more }),
        });
        const reply = JSON.parse(stdout || '{}');
        return {
          exitCode,
          reply,
          addresses: (reply.ips ?? []).map(({ address }: Row) => address) as string[],
        };
      };
    }

    test('cluster: two nodes at once never share an address; ADD and DEL work while the API is away', async () => {
      const ipam = {
        kubeconfig: api.kubeconfig,
        subnets: [{ ipv4: '10.77.0.0/24', ipv6: 'fd77::/120' }],
        blockSize: 16,
      };
      const nodes = ['one', 'two'].map(name => node(name, 'cluster', { ...ipam, node: name }));
      const ids = Array.from({ length: 8 }, (_, i) => `c${i}`);
      const replies = await Promise.all(nodes.flatMap(call => ids.map(id => call('ADD', id))));
      expect(replies.map(({ exitCode }) => exitCode)).toEqual(replies.map(() => 0));
      const all = replies.flatMap(({ addresses }) => addresses);
      expect(new Set(all).size).toBe(32);
      const { items } = (await api.server.ask('GET', 'apis/catena.cni.cncf.io/v1alpha1/blocks')) as Row;
      expect(items.map(({ spec }: Row) => spec.node).sort()).toEqual(['one', 'two']);
      // A kubeconfig that leads nowhere stands for an API that is away.
      const away = {
        ipam: {
          type: 'cluster',
          dataDir: join(dir, 'one', 'leases'),
          ...ipam,
          node: 'one',
          kubeconfig: '/nowhere',
        },
      };
      const [one] = nodes;
      expect(await one?.('ADD', 'later', away)).toMatchObject({ exitCode: 0 });
      expect(await one?.('DEL', 'c0', away)).toMatchObject({ exitCode: 0 });
      expect(await one?.('STATUS', '', away)).toMatchObject({ exitCode: 0 });
      expect(await one?.('CHECK', 'c1', { prevResult: replies[1]?.reply })).toMatchObject({ exitCode: 0 });
      // GC frees what is not listed, and tells the API of the block that is empty then.
      const gc = {
        ...away,
        ipam: { ...away.ipam, kubeconfig: api.kubeconfig, coolDown: 0, lowWater: 0 },
        'cni.dev/valid-attachments': [],
      };
      expect(await one?.('GC', '', gc)).toMatchObject({ exitCode: 0 });
      const left = (await api.server.ask('GET', 'apis/catena.cni.cncf.io/v1alpha1/blocks')) as Row;
      expect(left.items.map(({ spec }: Row) => spec.node)).toEqual(['two']);
    });

    test('whereabouts: two nodes at once never share an address; DEL leaves neither entry nor reservation', async () => {
      const ipam = { range: '10.78.0.0/24', kubernetes: { kubeconfig: api.kubeconfig } };
      const nodes = ['w1', 'w2'].map(name => node(name, 'whereabouts', ipam));
      const ids = Array.from({ length: 6 }, (_, i) => `pod${i}`);
      const replies = await Promise.all(nodes.flatMap((call, n) => ids.map(id => call('ADD', `${id}-${n}`))));
      expect(replies.map(({ reply }) => reply.msg)).toEqual(replies.map(() => undefined));
      expect(replies.flatMap(({ addresses }) => addresses).sort()).toEqual(
        Array.from({ length: 12 }, (_, i) => `10.78.0.${i + 1}/24`).sort(),
      );
      const path = 'apis/whereabouts.cni.cncf.io/v1alpha1/namespaces/kube-system';
      const pool = (await api.server.ask('GET', `${path}/ippools/10.78.0.0-24`)) as Row;
      expect(Object.values(pool.spec.allocations)).toContainEqual({
        id: 'pod0-0',
        podref: 'ns/pod0-0',
        ifname: 'eth0',
      });
      // The original, which may have been there before, accepts this list.
      const refused = { ipam: { type: 'whereabouts', ...ipam, range_end: '10.9.0.9' } };
      expect((await nodes[0]?.('ADD', 'late', refused))?.reply).toMatchObject({ code: 7 });
      await Promise.all(nodes.flatMap((call, n) => ids.map(id => call('DEL', `${id}-${n}`, refused))));
      const after = (await api.server.ask('GET', `${path}/ippools/10.78.0.0-24`)) as Row;
      expect(after.spec.allocations).toEqual({});
      const { items } = (await api.server.ask('GET', `${path}/overlappingrangeipreservations`)) as Row;
      expect(items).toEqual([]);
    });
  },
  NO_REAL_API,
);
