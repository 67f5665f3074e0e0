// Which combinations of options does tap refuse?
import { expect, test } from 'bun:test';
import { TapConf, validateTapConf } from '../../../../plugins/tap/config.ts';

const validate = (conf: object) => validateTapConf(TapConf.parse(conf));

test.each([
  {},
  { owner: 0, group: 4294967294, multiQueue: true, mtu: 65521, bridge: 'br0', selinuxContext: 'a:b:c:s0' },
  { kind: 'macvtap', master: 'ens4', mode: 'passthru', mtu: 9000, mac: '02:00:00:00:00:01' },
])('accepts %p', conf => {
  expect(() => validate(conf)).not.toThrow();
});

test.each([
  [{ kind: 'tun' }, '"kind" is "tun"'],
  [{ mtu: 67 }, '"mtu" is 67'],
  [{ mtu: 65522 }, '"mtu" is 65522'],
  [{ owner: -1 }, '"owner" is -1'],
  [{ group: 4294967295 }, '"group" is 4294967295'],
  [{ bridge: 'a b' }, '"bridge" is "a b"'],
  [{ selinuxContext: 'a\nb' }, 'line break'],
  [{ master: 'ens4' }, '"master" is for'],
  [{ kind: 'macvtap' }, '"master" is missing'],
  [{ kind: 'macvtap', master: '..' }, '"master" is ".."'],
  [{ kind: 'macvtap', master: 'ens4', mode: 'toString' }, '"mode" is "toString"'],
  [{ kind: 'macvtap', master: 'ens4', multiQueue: true }, '"multiQueue" has no effect'],
  [{ kind: 'macvtap', master: 'ens4', bridge: 'br0' }, '"bridge" has no effect'],
])('refuses %p', (conf, words) => {
  expect(() => validate(conf)).toThrow(words);
});
