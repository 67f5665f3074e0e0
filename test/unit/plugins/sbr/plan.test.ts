// Which table and which routes does an address get, from what is there?
import { describe, expect, test } from 'bun:test';
import type { SbrOptions } from '../../../../plugins/sbr/config.ts';
import { OWN_PROTOCOL, type Present, planSbr, type Source, sourcesOf } from '../../../../plugins/sbr/plan.ts';
import { PROTOCOL } from '../../../../src/between/names.ts';

import { parseCidr, parseIp, renderCidr, renderIp } from '../../../../src/net/ip.ts';
import { type Route, RTPROT_ASKED } from '../../../../src/netlink/rtnl/route.ts';
import type { Rule } from '../../../../src/netlink/rtnl/rule.ts';

const OPTIONS: SbrOptions = { gateways: [], addSourceHints: false };
const V4: Source = { address: parseCidr('10.8.0.2/24'), gateway: parseIp('10.8.0.1') };
const V6: Source = { address: parseCidr('fd00:8::2/64') };

test('routes of a pod are none of those to other nodes, nor those that a pod asks for', () => {
  expect(new Set([OWN_PROTOCOL, PROTOCOL, RTPROT_ASKED]).size).toBe(3);
});

describe('planSbr()', () => {
  test('keeps the families separate', () => {
    const present = presentOf([route('10.8.0.0/24'), route('fd00:8::/64'), route('fe80::/64')]);
    expect(summary(planSbr([V4, V6], OPTIONS, present))).toEqual([
      '10.8.0.2/32 100: 10.8.0.0/24, 0.0.0.0/0 via 10.8.0.1',
      'fd00:8::2/128 101: fd00:8::/64, fe80::/64',
    ]);
  });

  test('leaves link-local routes and those of other interfaces in the main table', () => {
    const other = { ...route('10.7.0.0/24'), oif: 9 };
    const present = presentOf([route('10.8.0.0/24'), route('fd00:8::/64'), route('fe80::/64'), other]);
    const { leaving } = planSbr([V4, V6], OPTIONS, present);
    expect(leaving.map(({ dst }) => renderCidr(dst))).toEqual(['10.8.0.0/24', 'fd00:8::/64']);
    expect(planSbr([V4], OPTIONS, present).leaving).toHaveLength(1);
  });

  test('an address of full length has no subnet, in either family', () => {
    const alone = ['10.8.0.2/32', 'fd00:8::2/128', 'fd00::/32'].map(text => ({ address: parseCidr(text) }));
    expect(summary(planSbr(alone, OPTIONS, presentOf([])))).toEqual([
      '10.8.0.2/32 100: ',
      'fd00:8::2/128 101: ',
      'fd00::/128 102: fd00::/32',
    ]);
  });

  test('copies a route through a gateway that lies in no subnet', () => {
    const alone: Source = { address: parseCidr('10.8.0.2/32') };
    const far = [route('169.254.1.1/32'), route('0.0.0.0/0', '169.254.1.1')];
    expect(summary(planSbr([alone], OPTIONS, presentOf(far)))).toEqual([
      '10.8.0.2/32 100: 169.254.1.1/32, 0.0.0.0/0 via 169.254.1.1',
    ]);
  });

  test('skips tables that are in use, and those of the kernel', () => {
    const present = presentOf(
      Array.from({ length: 152 }, (_, i) => ({ ...route('192.0.2.0/24'), table: 100 + i })),
      [rule({ table: 252 })],
    );
    expect(planSbr([V4], OPTIONS, present).sources[0]?.rule.table).toBe(256);
  });

  test('finds its own rule, but none with further selectors', () => {
    const from = parseCidr('10.8.0.2/32');
    const planned = (one: Rule) => planSbr([V4], OPTIONS, presentOf([], [one])).sources[0];
    expect(planned(rule({ from, table: 150 }))).toMatchObject({ known: true, rule: { table: 150 } });
    const wider = parseCidr('10.8.0.2/31');
    for (const more of [{ iif: 'lo' }, { mark: 1 }, { to: from }, { from: wider }, { table: 254 }]) {
      expect(planned(rule({ from, table: 150, ...more }))).toMatchObject({
        known: false,
        rule: { table: 100 },
      });
    }
  });

  test('of a second ADD: the default route that was moved stays, unless a gateway is configured', () => {
    const moved = { ...route('0.0.0.0/0', '10.8.0.1'), table: 150 };
    const present = presentOf([moved], [rule({ from: parseCidr('10.8.0.2/32'), table: 150 })]);
    expect(summary(planSbr([V4], OPTIONS, present))).toEqual(['10.8.0.2/32 150: 10.8.0.0/24']);
    const gateway = parseIp('10.8.0.9');
    const configured = planSbr([{ ...V4, gateway }], { ...OPTIONS, gateways: [gateway] }, present);
    expect(summary(configured)).toEqual(['10.8.0.2/32 150: 10.8.0.0/24, 0.0.0.0/0 via 10.8.0.9']);
  });

  test.each([undefined, '10.8.0.1'])(
    'finds the table of a rule that was deleted, by the route to its subnet via %p',
    way => {
      const table = [route('10.8.0.0/24', way), route('0.0.0.0/0', '10.8.0.1')].map(one => ({
        ...one,
        table: 150,
      }));
      expect(summary(planSbr([V4], OPTIONS, presentOf(table)))).toEqual(['10.8.0.2/32 150: ']);
      const others = presentOf([...table, { ...route('192.0.2.0/24'), oif: 9, table: 150 }]);
      expect(planSbr([V4], OPTIONS, others).sources[0]?.rule.table).toBe(100);
    },
  );

  test('plans only rules with a configured table', () => {
    const plan = planSbr([V4, V6], { ...OPTIONS, table: 5000 }, presentOf([route('10.8.0.0/24')]));
    expect(summary(plan)).toEqual(['10.8.0.2/32 5000: ', 'fd00:8::2/128 5000: ']);
    expect(plan.leaving).toEqual([]);
  });

  test('moves only routes through gateways with addSourceHints', () => {
    const present = presentOf([route('10.8.0.0/24'), route('10.9.0.0/16', '10.8.0.9')]);
    const plan = planSbr([V4], { ...OPTIONS, addSourceHints: true }, present);
    expect(plan.leaving.map(({ dst }) => renderCidr(dst))).toEqual(['10.9.0.0/16']);
    expect(plan.hinted).toMatchObject([{ source: V4.address.ip, scope: 253 }]);
  });
});

describe('sourcesOf()', () => {
  const interfaces = [{ name: 'net1' }, { name: 'net1', sandbox: '/x' }, { name: 'eth0', sandbox: '/x' }];

  test('uses addresses of the interface, of none and of one that is not listed', () => {
    const ips = [0, 1, 2, 3, undefined].map((at, i) => ({
      address: `10.0.0.${i}/24`,
      ...(at === undefined ? {} : { interface: at }),
    }));
    const found = sourcesOf({ interfaces, ips }, 'net1', OPTIONS);
    expect(found.map(({ address }) => renderIp(address.ip))).toEqual(['10.0.0.1', '10.0.0.3', '10.0.0.4']);
  });

  test('prefers configured gateways, by family', () => {
    const ips = [
      { address: '10.0.0.2/24', gateway: '10.0.0.1' },
      { address: 'fd00::2/64', gateway: 'fd00::1' },
    ];
    const found = sourcesOf({ ips }, 'net1', { ...OPTIONS, gateways: [parseIp('10.0.0.9')] });
    expect(found.map(({ gateway }) => gateway && renderIp(gateway))).toEqual(['10.0.0.9', 'fd00::1']);
  });

  test('refuses a result without addresses', () => {
    expect(() => sourcesOf({}, 'net1', OPTIONS)).toThrow('has no addresses');
  });
});

function presentOf(routes: Route[], rules: Rule[] = []): Present {
  return { index: 5, routes, rules, otherTables: () => [] };
}

function route(dst: string, gateway?: string): Route {
  return { dst: parseCidr(dst), oif: 5, table: 254, ...(gateway ? { gateway: parseIp(gateway) } : {}) };
}

function rule(parts: Partial<Rule>): Rule {
  const none = {
    from: undefined,
    to: undefined,
    iif: undefined,
    oif: undefined,
    mark: undefined,
    isL3mdev: false,
  };
  return { family: 4, priority: 1, table: 254, ...none, ...parts };
}

function summary({ sources }: ReturnType<typeof planSbr>): string[] {
  return sources.map(({ rule: { from, table }, routes }) => {
    const words = routes.map(
      ({ dst, gateway }) => `${renderCidr(dst)}${gateway ? ` via ${renderIp(gateway)}` : ''}`,
    );
    return `${renderCidr(from)} ${table}: ${words.join(', ')}`;
  });
}
