import { describe, expect, test } from 'bun:test';
import { derivedMac, requestedMac } from '../../../src/attach/mac-and-mtu.ts';
import { parseCniArgs } from '../../../src/cni/env.ts';
import { isUnicastMac, parseMac } from '../../../src/net/interface.ts';

const SEGMENT = '52:54:00:12:34:56';

describe('derivedMac()', () => {
  const owner = { network: 'podnet', containerId: 'web-1', ifname: 'eth0' };

  test('is the same for an attachment, and another for any part of it and on another segment', () => {
    const mac = derivedMac(owner, SEGMENT);
    expect(derivedMac({ ...owner }, SEGMENT)).toBe(mac);
    const others = [
      derivedMac({ ...owner, network: 'podnet2' }, SEGMENT),
      derivedMac({ ...owner, containerId: 'web-2' }, SEGMENT),
      derivedMac({ ...owner, ifname: 'eth1' }, SEGMENT),
      derivedMac(owner, '52:54:00:12:34:57'),
    ];
    expect(new Set([mac, ...others]).size).toBe(5);
  });

  test('is a unicast address, locally administered', () => {
    for (let i = 0; i < 200; i++) {
      const bytes = parseMac(derivedMac({ ...owner, containerId: `c${i}` }, SEGMENT));
      expect(isUnicastMac(bytes)).toBe(true);
      expect((bytes[0] ?? 0) & 2).toBe(2);
    }
  });

  test('does not repeat among 5,000 containers with consecutive ids', () => {
    const seen = new Set<string>();
    for (let i = 0; i < 5_000; i++) seen.add(derivedMac({ ...owner, containerId: `web-${i}` }, SEGMENT));
    expect(seen.size).toBe(5_000);
  });
});

describe('requestedMac()', () => {
  const [of, cni, runtime] = ['0a:58:00:00:00:01', '0a:58:00:00:00:02', '0a:58:00:00:00:03'];
  const ask = (conf: object, args = '', configured?: string) =>
    requestedMac({ conf, args: parseCniArgs(args) } as Parameters<typeof requestedMac>[0], configured);

  test('takes the capability, else args.cni, else CNI_ARGS, else the configuration', () => {
    const inArgs = `IgnoreUnknown=1;MAC=${of}`;
    const configured = '0a:58:00:00:00:04';
    expect(ask({ args: { cni: { mac: cni } }, runtimeConfig: { mac: runtime } }, inArgs, configured)).toBe(
      runtime,
    );
    expect(ask({ args: { cni: { mac: cni } } }, inArgs, configured)).toBe(cni);
    expect(ask({}, inArgs, configured)).toBe(of);
    expect(ask({}, '', configured)).toBe(configured);
    expect(ask({})).toBeUndefined();
  });

  test('reads any notation, and reports that of the kernel', () => {
    expect(ask({ runtimeConfig: { mac: runtime.replaceAll(':', '-').toUpperCase() } })).toBe(runtime);
  });

  test.each(['nonsense', '01:00:5e:00:00:01', '00:00:00:00:00:00', '0a:58:0a:00:00:00:00:07'])(
    'refuses %s with code 7',
    mac => {
      expect(() => ask({ runtimeConfig: { mac } })).toThrow(
        expect.objectContaining({ code: 7, message: expect.stringContaining(`"${mac}"`) }),
      );
    },
  );
});
