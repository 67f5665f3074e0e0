// What does a person get who types ports, rates and addresses instead of JSON?
import { describe, expect, test } from 'bun:test';
import { capabilitiesOf } from '../../../src/cli/capability-options.ts';
import { type CommandCall, UsageError } from '../../../src/cli/command.ts';

function callWith(options: Record<string, string | string[]>): CommandCall {
  const texts = (name: string) => [options[name] ?? []].flat();
  return { text: (name: string) => texts(name)[0], texts } as unknown as CommandCall;
}

describe('--port', () => {
  test.each([
    ['8080', { hostPort: 8080, containerPort: 8080, protocol: 'tcp' }],
    ['8080:80', { hostPort: 8080, containerPort: 80, protocol: 'tcp' }],
    ['8080:80/udp', { hostPort: 8080, containerPort: 80, protocol: 'udp' }],
    ['8080:80/UDP', { hostPort: 8080, containerPort: 80, protocol: 'udp' }],
    ['8080/sctp', { hostPort: 8080, containerPort: 8080, protocol: 'sctp' }],
    ['127.0.0.1:8080:80', { hostIP: '127.0.0.1', hostPort: 8080, containerPort: 80, protocol: 'tcp' }],
    ['[fd00::1]:53:53/udp', { hostIP: 'fd00::1', hostPort: 53, containerPort: 53, protocol: 'udp' }],
  ])('%s', (text, mapping) => {
    expect(capabilitiesOf(callWith({ port: [text] }))).toEqual({ portMappings: [mapping] });
  });

  test.each(['', 'web', '0:80', '80:70000', '8080:80/icmp', ':80', '1:2:3:4', '-1', '80:', '8e3'])(
    'refuses "%s"',
    text => {
      expect(() => capabilitiesOf(callWith({ port: [text] }))).toThrow(UsageError);
    },
  );
});

describe('--rate', () => {
  test.each([
    ['10M', [10_000_000, 250_000, 10_000_000, 250_000]],
    ['10Mbit/2M', [10_000_000, 250_000, 2_000_000, 50_000]],
    ['1.5G/0', [1_500_000_000, 37_500_000, 0, 0]],
    ['64k', [64_000, 24_224, 64_000, 24_224]],
  ])('%s', (text, [ingressRate, ingressBurst, egressRate, egressBurst]) => {
    const bandwidth = { ingressRate, ingressBurst, egressRate, egressBurst } as Record<string, unknown>;
    expect(capabilitiesOf(callWith({ rate: text }))).toEqual({ bandwidth });
  });

  test.each(['', 'fast', '10m', '10MB', '1/2/3', '-1', '10M/'])('refuses "%s"', text => {
    expect(() => capabilitiesOf(callWith({ rate: text }))).toThrow(UsageError);
  });
});

test('each replaces its capability in the JSON text, and leaves the others', () => {
  const cap = JSON.stringify({ portMappings: [], mac: '02:00:00:00:00:01', aliases: ['web'] });
  const call = callWith({
    cap,
    port: ['1', '2:3'],
    ip: ['10.1.0.5', 'fd00::5/64'],
    mac: '02-42-AC-00-00-02',
  });
  expect(() => capabilitiesOf(callWith({ mac: 'x' }))).toThrow(UsageError);
  expect(capabilitiesOf(callWith({ cap }))).toEqual(JSON.parse(cap));
  expect(capabilitiesOf(callWith({ ...{ cap }, ip: ['10.1.0.5'] }))).toMatchObject({
    ips: ['10.1.0.5'],
    aliases: ['web'],
  });
  expect(
    capabilitiesOf({ ...call, text: name => (name === 'mac' ? '02:42:AC:00:00:02' : call.text(name)) }),
  ).toEqual({
    portMappings: [
      { hostPort: 1, containerPort: 1, protocol: 'tcp' },
      { hostPort: 2, containerPort: 3, protocol: 'tcp' },
    ],
    mac: '02:42:ac:00:00:02',
    aliases: ['web'],
    ips: ['10.1.0.5', 'fd00::5/64'],
  });
});
