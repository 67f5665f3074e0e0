import { expect, test } from 'bun:test';
import { ANNOTATIONS, ClusterConf } from '../../../../plugins/cluster/config.ts';
import { choosePool, limitsOf, refuseUnusable } from '../../../../plugins/cluster/plan.ts';

const IPAM = {
  type: 'cluster',
  kubeconfig: '/k',
  pools: [
    { pool: 'public', namespaces: ['web', 'shop-*'], subnets: [{ ipv4: '10.9.0.0/16' }] },
    { pool: 'lab' },
  ],
};

const chosen = (namespace: string, annotation?: string) => {
  const annotations = annotation === undefined ? {} : { 'catena.cni.cncf.io/pool': annotation };
  const conf = ClusterConf.parse({ ipam: IPAM, runtimeConfig: { [ANNOTATIONS]: annotations } });
  const environment = { CNI_ARGS: `IgnoreUnknown=1;K8S_POD_NAMESPACE=${namespace};K8S_POD_NAME=p` };
  return choosePool({ environment }, conf).name;
};

test.each([
  ['web', undefined, 'public'],
  ['shop-7', undefined, 'public'],
  ['shop', undefined, 'default'],
  ['other', undefined, 'default'],
  ['web', 'lab', 'lab'],
  ['web', 'default', 'default'],
])('a pod of namespace %s with annotation %s gets an address of %s', (namespace, annotation, pool) => {
  expect(chosen(namespace, annotation)).toBe(pool);
});

test('a pod may not name a pool that the configuration does not list', () => {
  expect(() => chosen('web', 'secret')).toThrow(
    'Cannot use pool "secret" of annotation "catena.cni.cncf.io/pool": the network has "default", "public", "lab"',
  );
});

test('each pool must be usable, and have a name of its own', () => {
  const refuse = (ipam: object) => () => refuseUnusable(ClusterConf.parse({ ipam }));
  expect(refuse(IPAM)).not.toThrow();
  expect(refuse({ ...IPAM, kubeconfig: '' })).toThrow('give "subnets" of pool "default"');
  expect(refuse({ ...IPAM, pools: [{ pool: 'default' }] })).toThrow('"pools" has "default" twice');
  expect(refuse({ ...IPAM, pools: [{ pool: 'a', subnets: [{ ipv4: '10.0.0.1/8' }] }] })).toThrow(
    '10.0.0.0/8',
  );
  const overlapping = [
    { pool: 'a', subnets: [{ ipv4: '10.9.0.0/24' }] },
    { pool: 'b', subnets: [{ ipv4: '10.9.0.0/16' }] },
  ];
  expect(refuse({ ...IPAM, pools: overlapping })).toThrow('pools "a" and "b" overlap');
  expect(refuse({ ...IPAM, grace: 1800 })).not.toThrow();
  expect(refuse({ ...IPAM, grace: 1799 })).toThrow('"grace" must be 1800 at least');
  for (const numbers of [{ lowWater: -1 }, { coolDown: -1 }, { keep: -1 }, { timeout: 0 }])
    expect(refuse({ ...IPAM, ...numbers })).toThrow('"lowWater", "coolDown" and "keep" must not be negative');
});

test('zero is a number that a configuration may give', () => {
  const limits = (ipam: object) => limitsOf(ClusterConf.parse({ ipam }));
  expect(limits({ type: 'cluster', blockSize: 64 })).toEqual({ lowWater: 8, coolDownS: 300, graceS: 3600 });
  expect(limits({ type: 'cluster', lowWater: 0, coolDown: 0 })).toMatchObject({ lowWater: 0, coolDownS: 0 });
});
