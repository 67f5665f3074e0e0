// What does the firewall refuse before it touches anything?
import { describe, expect, test } from 'bun:test';
import { FirewallConf, parseFirewallConf } from '../../../../plugins/firewall/config.ts';
import { decode } from '../../../../src/cni/json.ts';

const parse = (more: object) =>
  parseFirewallConf(decode(FirewallConf, { type: 'firewall', ...more }, 'conf'));

describe('parseFirewallConf()', () => {
  test('has defaults, for which empty texts stand as well', () => {
    const defaults = { policy: 'open', adminChain: 'CNI-ADMIN' } as const;
    expect(parse({})).toEqual(defaults);
    expect(parse({ backend: '', ingressPolicy: '', iptablesAdminChainName: '' })).toEqual(defaults);
  });

  test('takes the reference’s options', () => {
    const conf = { backend: 'iptables', ingressPolicy: 'same-bridge', iptablesAdminChainName: 'OURS' };
    expect(parse(conf)).toEqual({ backend: 'iptables', policy: 'same-bridge', adminChain: 'OURS' });
  });

  test.each([
    [{ backend: 'pf' }, 7],
    [{ backend: 'firewalld' }, 2],
    [{ ingressPolicy: 'Isolated' }, 7],
    [{ iptablesAdminChainName: 'two words' }, 7],
    [{ iptablesAdminChainName: '-j' }, 7],
    [{ iptablesAdminChainName: 'x'.repeat(29) }, 7],
  ])('refuses %j with code %i', (conf, code) => {
    expect(() => parse(conf)).toThrow(expect.objectContaining({ code }));
  });
});
