// Which requests do the plugins that give a container a device of the host's network get, with every option set?
import type { JsonObject } from '../../src/cni/json.ts';

/**
 * One request per plugin whose options the example conflists do not exhaust. No master exists, so that what a
 * damaged request makes stays inside the test's namespaces.
 * @param prevResult what a plugin before reported
 */
export function deviceRequests(prevResult: JsonObject | undefined): JsonObject[] {
  const base = { cniVersion: '1.1.0', name: 'podnet', master: 'nope0', mtu: 1400, prevResult };
  const ipam = { type: 'host-local', subnet: '10.9.0.0/24' };
  const mac = '02:00:00:00:00:09';
  return [
    {
      ...base,
      type: 'macvlan',
      mode: 'bridge',
      mac,
      bcqueuelen: 500,
      hostAccess: true,
      detectConflicts: false,
      args: { cni: { mac } },
      runtimeConfig: { mac },
      ipam,
    },
    { ...base, type: 'macvlan', mode: 'passthru', linkInContainer: true },
    { ...base, type: 'ipvlan', mode: 'l3s', flags: 'private', linkInContainer: true },
    {
      ...base,
      type: 'vlan',
      vlanId: [100, 200],
      protocol: '802.1ad',
      mac,
      egressQosMap: [{ from: 0, to: 5 }],
      ingressQosMap: [{ from: 5, to: 0 }],
      detectConflicts: false,
      ipam,
    },
    {
      cniVersion: '1.1.0',
      name: 'podnet',
      type: 'dhcp',
      ipam: {
        type: 'dhcp',
        provide: [{ option: 'host-name', value: 'web', fromArg: 'K8S_POD_NAME' }],
        request: [{ option: '42', skipDefault: true }],
        priority: 10,
        servers: ['10.9.0.1'],
        timeout: 1,
        daemonSocketPath: '/nonexistent/dhcp.sock',
      },
      prevResult,
    },
  ];
}
