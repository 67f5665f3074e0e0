// Does whatever a pod asks of a network leave everything as it is that the network's list says?
import fs from 'node:fs';
import path from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import fc from 'fast-check';
import { CatenaConf, optionsOf } from '../../../plugins/catena/config.ts';
import { decode, isObject, type JsonObject, memberOf } from '../../../src/cni/json.ts';
import { planNetworks } from '../../../src/delegate/plan.ts';
import { listWanted } from '../../../src/delegate/wanted.ts';
import { door } from '../door.ts';
import { ground } from '../ground.ts';
import { checkRefusal } from '../promise.ts';

const DEVICES = ['pciBusID', 'deviceID', 'device'];
const OPTIONS = [...DEVICES, 'mac', 'mtu', 'promisc', 'sysctl', 'ips', 'master', 'vlan', 'PciBusId', 'MAC'];
const VALUES = ['0000:00:03.0', '02:00:00:00:00:02', 1400, ['10.0.0.2/24'], { 'net.core.somaxconn': '9' }];
const members = fc.dictionary(fc.constantFrom(...OPTIONS), fc.constantFrom(...VALUES), { maxKeys: 4 });

/** A plugin of a list, and an element of the annotation that selects the list. */
export const requests = door({
  name: 'requests of a pod',
  weight: 3,
  arbitrary: fc.record({
    options: members,
    own: members,
    capabilities: fc.dictionary(fc.constantFrom('deviceID', 'mac', 'ips'), fc.boolean()),
    asked: fc.record(
      {
        deviceID: fc.constantFrom('0000:00:03.0', ''),
        mac: fc.constant('02:00:00:00:00:09'),
        ips: fc.constant(['10.0.0.9/24']),
        'cni-args': fc.oneof(
          members,
          fc.dictionary(fc.string(), fc.anything({ maxDepth: 1 }), { maxKeys: 3 }),
        ),
      },
      { requiredKeys: [] },
    ),
  }),
  async run({ options: own, own: args, capabilities, asked }) {
    const conf = { type: 'noop', ...own, capabilities, args: { cni: args } };
    const dir = ground().dir('requests');
    const list = { cniVersion: '1.1.0', name: 'net', plugins: [conf] };
    fs.writeFileSync(path.join(dir, 'net.conflist'), JSON.stringify(list));
    const runner = { type: 'catena', confDir: dir, delegates: [{ name: 'pods', type: 'noop' }] };
    const options = optionsOf(decode(CatenaConf, runner, 'configuration'), 'outer', '1.1.0');
    const annotations = { 'k8s.v1.cni.cncf.io/networks': JSON.stringify([{ name: 'net', ...asked }]) };
    const capabilityArgs = { 'io.kubernetes.cri.pod-annotations': annotations };
    const pod = { ...{ containerId: 'c', netns: '/n', ifname: 'eth0', args: [] }, capabilityArgs };
    try {
      const [, planned] = await planNetworks(options, pod, listWanted(options, pod));
      if (planned)
        expectKept(conf, planned.list.plugins[0]?.conf ?? {}, planned.attachment.capabilityArgs ?? {});
    } catch (error) {
      checkRefusal(error);
    }
  },
});

function expectKept(said: JsonObject, got: JsonObject, capabilityArgs: JsonObject): void {
  const { args: own, ...options } = said;
  const { args, ...now } = got;
  if (!isDeepStrictEqual(JSON.parse(JSON.stringify(options)), now)) throw new Error('the options are others');
  const [before, after] = [cniOf(own), cniOf(args)];
  for (const [key, value] of Object.entries(before))
    if (!isDeepStrictEqual(after[key], value)) throw new Error(`args.cni.${key} of the list is another`);
  for (const key of Object.keys(after))
    if (!Object.hasOwn(before, key) && memberOf(options, key) !== undefined)
      throw new Error(`args.cni.${key} of the pod replaces an option`);
  const declares = isObject(said.capabilities) ? said.capabilities : {};
  if (capabilityArgs.deviceID !== undefined) throw new Error('the pod chooses the device');
  if (capabilityArgs.mac !== undefined && !declares.mac && memberOf(options, 'mac') !== undefined)
    throw new Error('the pod replaces the hardware address');
}

function cniOf(args: unknown): JsonObject {
  return isObject(args) && isObject(args.cni) ? args.cni : {};
}
