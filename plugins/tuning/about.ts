// What can tools know about tuning without running it?
import { decode, isObject, type JsonObject } from '../../src/cni/json.ts';
import { aboutPlugin, type PluginAdvice } from '../../src/cni/plugin-about.ts';
import { DEFAULT_DATA_DIR, TuningConf } from './config.ts';
import { planTuning } from './plan.ts';

export const about = aboutPlugin({
  kind: 'meta',
  summary: 'sets sysctls and attributes of the interface in the container',
  capabilities: ['mac'],
  config: TuningConf,
  validate: conf => void planTuning(conf, [], 'eth0'),
  filesOf: ({ dataDir }) => ({
    backupDir: typeof dataDir === 'string' && dataDir ? dataDir : DEFAULT_DATA_DIR,
  }),
  advise: ({ mac }, entry, earlier) => adviseOnMac(mac, entry, earlier),
  mtuOf: ({ mtu }) => (typeof mtu === 'number' ? mtu : undefined),
  effectsOf(request) {
    const { sysctl = {} } = decode(TuningConf, request, 'request');
    return { policies: Object.entries(sysctl).map(([name, value]) => `has ${name} = ${value}`) };
  },
});

/** A bridge with `macspoofchk` lets through what the container sends from the address that the bridge gave it, and drops the rest. */
function adviseOnMac(
  mac: string | undefined,
  entry: JsonObject,
  earlier: readonly JsonObject[],
): PluginAdvice[] {
  const guard = earlier.find(({ type, macspoofchk }) => type === 'bridge' && macspoofchk === true);
  // With the capability, both set the same address.
  if (guard === undefined || (!mac && (!takesMac(entry) || takesMac(guard)))) return [];
  const message =
    '"macspoofchk" of "bridge" drops what the container sends from an address that "tuning" sets later: give "bridge" the capability "mac" instead';
  return [{ path: mac ? ['mac'] : ['capabilities', 'mac'], message }];
}

function takesMac({ capabilities }: JsonObject): boolean {
  return isObject(capabilities) && capabilities.mac === true;
}
