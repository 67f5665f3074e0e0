// What does the firewall refuse before it touches anything?
import { describe, expect, test } from 'bun:test';
import { FirewallConf, parseFirewallConf } from '../../../../plugins/firewall/config.ts';
import { decode } from '../../../../src/cni/json.ts';

const parse = (more: object) =>
  parseFirewallConf(decode(FirewallConf, { type: 'firewall', ...more }, 'conf'));

describe('parseFirewallConf()', () => {
  test('has defaults, also for empty strings', () => {
    const defaults = { policy: 'open', adminChain: 'CNI-ADMIN', zone: 'trusted' } as const;
    expect(parse({})).toEqual(defaults);
    expect(parse({ backend: '', ingressPolicy: '', iptablesAdminChainName: '', firewalldZone: '' })).toEqual(
      defaults,
    );
  });

  test('accepts the reference’s options', () => {
    const conf = { backend: 'iptables', ingressPolicy: 'same-bridge', iptablesAdminChainName: 'OURS' };
    const options = { policy: 'same-bridge', adminChain: 'OURS', zone: 'trusted' } as const;
    expect(parse(conf)).toEqual({ backend: 'iptables', ...options });
    const firewalld = { backend: 'firewalld', firewalldZone: 'pods' };
    expect(parse({ ...conf, ...firewalld })).toEqual({ ...options, backend: 'firewalld', zone: 'pods' });
  });

  test.each([
    [{ backend: 'pf' }, 7],
    [{ ingressPolicy: 'Isolated' }, 7],
    [{ iptablesAdminChainName: 'DROP' }, 7],
    [{ iptablesAdminChainName: 'FORWARD' }, 7],
    [{ iptablesAdminChainName: 'CNI-FORWARD' }, 7],
    [{ iptablesAdminChainName: '"x"' }, 7],
    [{ iptablesAdminChainName: 'two words' }, 7],
    [{ iptablesAdminChainName: '-j' }, 7],
    [{ iptablesAdminChainName: 'x'.repeat(29) }, 7],
  ])('refuses %j with code %i', (conf, code) => {
    expect(() => parse(conf)).toThrow(expect.objectContaining({ code }));
  });
});
