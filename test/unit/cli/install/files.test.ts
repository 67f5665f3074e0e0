import { describe, expect, test } from 'bun:test';
import { nameFirst, nameUsually } from '../../../../src/cli/install/files.ts';

describe('nameFirst()', () => {
  test.each([
    [[], '10-net.conflist'],
    [['87-podman.conflist', 'calico.conf'], '10-net.conflist'],
    [['10-calico.conflist'], '05-net.conflist'],
    [['05-cilium.conflist'], '00-net.conflist'],
    [['00-multus.conf'], '00-00-net.conflist'],
    [['00-00-a.conflist'], '00-00-00-net.conflist'],
  ])('sorts before %j', (others, name) => {
    expect(nameFirst('net', others)).toBe(name);
  });

  test('reports a name that cannot be preceded', () => {
    expect(() => nameFirst('net', ['!.conf'])).toThrow('sorts before "!.conf": choose one with --conf-name');
  });
});

test('nameUsually() leaves room before and after', () => {
  expect(nameUsually('net')).toBe('10-net.conflist');
});
