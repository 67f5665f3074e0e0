// Which lines are missing, and in which order do they come?
import { describe, expect, test } from 'bun:test';
import { ensureLines, releaseLines } from '../../../../../plugins/firewall/kernel/iptables.ts';
import { parseIp } from '../../../../../src/net/ip.ts';
import { parseSaved, type SavedTable } from '../../../../../src/netlink/iptables/program.ts';

const NOTHING: SavedTable = { chains: ['INPUT', 'FORWARD', 'OUTPUT'], rules: [] };
const pods = [parseIp('10.9.0.2')];
const open = { pods, adminChain: 'CNI-ADMIN' };
const closed = { ...open, ingress: { home: 'br0', policy: 'isolated' } } as const;

describe('ensureLines()', () => {
  test('creates chains before rules, and adds nothing that exists', () => {
    for (const wanted of [open, closed]) {
      const lines = ensureLines(NOTHING, wanted);
      expect(lines.findLastIndex(line => line.startsWith('-N'))).toBeLessThan(
        lines.findIndex(line => !line.startsWith('-N')),
      );
      expect(ensureLines(applied(NOTHING, lines), wanted)).toEqual([]);
    }
  });

  test('isolates before it accepts, also if both jumps existed in the other order', () => {
    const { chains, rules } = applied(NOTHING, ensureLines(NOTHING, closed));
    const jumps = rules.filter(rule => rule.startsWith('FORWARD'));
    expect(jumps.map(rule => rule.split(' ').at(-1))).toEqual(['CNI-ISOLATION-STAGE-1', 'CNI-FORWARD']);
    const reversed = {
      chains,
      rules: [...jumps.toReversed(), ...rules.filter(rule => !jumps.includes(rule))],
    };
    expect(applied(reversed, ensureLines(reversed, closed)).rules[0]).toBe(jumps[0] ?? '');
  });

  test('accepts the shared rules of older releases of the reference', () => {
    const older = applied(
      NOTHING,
      ensureLines(NOTHING, { ...closed, ingress: { home: 'br9', policy: 'same-bridge' } }),
    );
    const rules = older.rules.map(rule => rule.replace('same-bridge|isolated', 'same-bridge'));
    const lines = ensureLines({ ...older, rules }, closed);
    expect(lines.filter(line => / FORWARD | RETURN$/.test(line))).toEqual([]);
    expect(lines.every(line => line.startsWith('-I') && line.includes('br0'))).toBe(true);
  });
});

describe('releaseLines()', () => {
  test('removes addresses and interfaces, and none with similar names', () => {
    const two = { ...closed, pods: [...pods, parseIp('10.9.0.22')] };
    const one = applied(NOTHING, ensureLines(NOTHING, two));
    const other = { ...closed, ingress: { home: 'br01', policy: 'same-bridge' } } as const;
    const saved = applied(one, ensureLines(one, other));
    const left = applied(saved, releaseLines(saved, pods, ['br0'])).rules.join('\n');
    expect(left).not.toMatch(/10\.9\.0\.2\/| br0 /);
    expect(left).toMatch(/10\.9\.0\.22\/32/);
    expect(left).toMatch(/ br01 /);
  });
});

describe('parseSaved()', () => {
  test('reads what iptables-save prints', () => {
    const text =
      '# Generated\n*filter\n:FORWARD ACCEPT [0:0]\n:CNI-ADMIN - [0:0]\n-A FORWARD -j CNI-ADMIN\nCOMMIT\n';
    expect(parseSaved(text)).toEqual({ chains: ['FORWARD', 'CNI-ADMIN'], rules: ['FORWARD -j CNI-ADMIN'] });
  });
});

/** What the lines make of a table. */
function applied({ chains, rules }: SavedTable, lines: readonly string[]): SavedTable {
  const next = [...rules];
  const made = [...chains];
  for (const line of lines) {
    const rule = line.slice(3).replace(/^(\S+) 1 /, '$1 ');
    if (line.startsWith('-N')) made.push(rule);
    else if (line.startsWith('-A')) next.push(rule);
    else if (line.startsWith('-D')) next.splice(next.indexOf(rule), 1);
    else next.unshift(rule);
  }
  return { chains: made, rules: next };
}
