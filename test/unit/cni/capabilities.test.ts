import { expect, test } from 'bun:test';
import { Bandwidth, IpRange, PortMapping } from '../../../src/cni/capabilities.ts';
import { decode } from '../../../src/cni/json.ts';

test('PortMapping accepts the spelling of containerd', () => {
  const value = { HostPort: 8080, ContainerPort: 80, Protocol: 'tcp', HostIP: '' };
  expect(decode(PortMapping, value, 'it')).toEqual({
    hostPort: 8080,
    containerPort: 80,
    protocol: 'tcp',
    hostIP: '',
  });
});

test.each([
  { hostPort: 0 },
  { hostPort: 65536 },
  { containerPort: 0 },
  { hostPort: 1.5 },
  { hostPort: '80' },
])('PortMapping refuses %j', wrong => {
  expect(() => decode(PortMapping, { hostPort: 8080, containerPort: 80, ...wrong }, 'it')).toThrow(
    'Cannot use it',
  );
});

test('Bandwidth accepts the spelling of containerd and bursts beyond 32 bits', () => {
  expect(decode(Bandwidth, { IngressRate: 1000, EgressBurst: 34359738359 }, 'it')).toEqual({
    ingressRate: 1000,
    egressBurst: 34359738359,
  });
  expect(() => decode(Bandwidth, { ingressRate: -1 }, 'it')).toThrow(
    '"ingressRate" must be at least 0, found -1',
  );
});

test('IpRange needs a subnet', () => {
  expect(decode(IpRange, { Subnet: '10.0.0.0/24', rangeStart: '10.0.0.9' }, 'it')).toEqual({
    subnet: '10.0.0.0/24',
    rangeStart: '10.0.0.9',
  });
  expect(() => decode(IpRange, {}, 'it')).toThrow('"subnet" must be of type string, it is missing');
});
