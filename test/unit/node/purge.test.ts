// Does a purge take our files alone, even from a directory that we share by mistake?

import { afterAll, expect, test } from 'bun:test';
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseSaved } from '../../../src/netlink/iptables/program.ts';
import { findUser, purgeFiles, removalLines } from '../../../src/node/purge.ts';

const dir = fs.mkdtempSync(join(tmpdir(), 'cat-purge-'));
afterAll(() => fs.rmSync(dir, { recursive: true }));

test('locks of others stay if the run directory is /run', () => {
  const ours = ['watch.lock', 'between.lock', 'bridge-4026531840-cni0.lock', 'host-access-4026531840.lock'];
  const others = ['xtables.lock', 'crond.lock', 'apt-1.lock.d', 'lock'];
  for (const name of [...ours, ...others]) fs.writeFileSync(join(dir, name), '');
  purgeFiles(
    { runDir: dir, stateDir: dir, leaseDirs: [], binDirs: [], shared: [], types: ['bridge'] },
    false,
  );
  expect(fs.readdirSync(dir).sort()).toEqual(others.toSorted());
});

const FILTER = ['CNI-FORWARD', 'CNI-ADMIN'];
const IDLE = [
  ':FORWARD ACCEPT [0:0]',
  ':CNI-ADMIN - [0:0]',
  ':CNI-FORWARD - [0:0]',
  '-A FORWARD -m comment --comment "CNI firewall plugin rules" -j CNI-FORWARD',
  '-A FORWARD -s 192.0.2.1/32 -j ACCEPT',
  '-A CNI-FORWARD -m comment --comment "CNI firewall plugin admin overrides" -j CNI-ADMIN',
];

test.each([
  ['none', [], undefined],
  ['a container', ['-A CNI-FORWARD -s 10.22.0.2/32 -j ACCEPT'], /10\.22\.0\.2/],
  ['the operator', ['-A CNI-ADMIN -d 192.0.2.0/24 -j DROP'], /192\.0\.2\.0/],
  ['the operator, everything', ['-A CNI-ADMIN -j DROP'], /DROP/],
])('rules of %s beside the fixed ones', (_of, rules, found) => {
  const user = findUser(parseSaved([...IDLE, ...rules].join('\n')), FILTER);
  if (found === undefined) expect(user).toBeUndefined();
  else expect(user).toMatch(found);
});

test('the chains of host ports are idle without a jump to a chain of a container', () => {
  const chains = ['CNI-HOSTPORT-DNAT', 'CNI-HOSTPORT-SETMARK', 'CNI-HOSTPORT-MASQ'];
  const fixed = [
    '-A CNI-HOSTPORT-MASQ -m mark --mark 0x2000/0x2000 -j MASQUERADE',
    '-A CNI-HOSTPORT-SETMARK -m comment --comment "CNI portfwd masquerade mark" -j MARK --set-xmark 0x2000/0x2000',
  ];
  const port =
    '-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name" -m multiport --dports 80 -j CNI-DN-0';
  expect(findUser(parseSaved(fixed.join('\n')), chains)).toBeUndefined();
  expect(findUser(parseSaved([...fixed, port].join('\n')), chains)).toContain('CNI-DN-0');
});

test('rules of other programs stay, and jumps go before the chains', () => {
  expect(removalLines(parseSaved(IDLE.join('\n')), FILTER)).toEqual([
    '-D FORWARD -m comment --comment "CNI firewall plugin rules" -j CNI-FORWARD',
    '-F CNI-FORWARD',
    '-F CNI-ADMIN',
    '-X CNI-FORWARD',
    '-X CNI-ADMIN',
  ]);
});
