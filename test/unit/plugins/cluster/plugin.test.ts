import { expect, test } from 'bun:test';
import { ClusterConf } from '../../../../plugins/cluster/config.ts';
import { wishOf } from '../../../../plugins/cluster/plugin.ts';
import { CLAIM_ARG } from '../../../../src/cni/env.ts';
import { renderIp } from '../../../../src/net/ip.ts';

function wish(pod: string, more: object = {}) {
  const conf = ClusterConf.parse({ ipam: { type: 'cluster', keep: 60 }, ...more });
  const environment = { CNI_ARGS: `IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=${pod}` };
  const env = { ifname: 'eth0' } as Parameters<typeof wishOf>[0]['env'];
  const found = wishOf({ environment, env, network: 'podnet' }, conf);
  return found && { ...found, addresses: found.addresses.map(renderIp) };
}

test('a pod of a StatefulSet wishes for the address of the one before it', () => {
  expect(wish('web-12')).toEqual({
    ...{ keptFor: 'pod/podnet/ns/web-12/eth0', keepS: 60, addresses: [], isPromise: false },
  });
  expect(wish('web-7d9c5-x4k2v')).toBeUndefined();
  expect(wish('web-12', { ipam: { type: 'cluster' } })).toBeUndefined();
});

test('a claim is told from a later one of its name, and comes before the name of the pod', () => {
  const claim = { namespace: 'ns', name: 'vm', uid: 'u1' };
  const asked = wish('web-12', {
    args: { cni: { [CLAIM_ARG]: claim } },
    runtimeConfig: { ips: ['10.1.0.9/24'] },
  });
  expect(asked).toEqual({
    ...{ keptFor: 'claim/ns/vm/u1', keepS: undefined, addresses: ['10.1.0.9'], isPromise: true },
  });
});

test('a requested address alone is not kept', () => {
  expect(wish('web', { runtimeConfig: { ips: ['fd00::9'] } })).toEqual({
    ...{ keptFor: undefined, keepS: undefined, addresses: ['fd00::9'], isPromise: true },
  });
  expect(() => wish('web', { runtimeConfig: { ips: ['nine'] } })).toThrow('"nine" of "runtimeConfig.ips"');
});
