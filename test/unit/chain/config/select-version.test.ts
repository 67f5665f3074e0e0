import { describe, expect, test } from 'bun:test';
import { selectVersion } from '../../../../src/chain/config/select-version.ts';
import { parseConflist } from '../../../../src/cni/conflist.ts';
import { CniError } from '../../../../src/cni/errors.ts';

const select = (versions: { cniVersion?: string; cniVersions?: string[] }) =>
  selectVersion(parseConflist({ name: 'n', plugins: [{ type: 't' }], ...versions }));

describe('selectVersion()', () => {
  test.each([
    ['neither', {}, '0.1.0'],
    ['an empty cniVersion', { cniVersion: '' }, '0.1.0'],
    ['cniVersion alone', { cniVersion: '0.3.1' }, '0.3.1'],
    ['the highest of cniVersions', { cniVersions: ['0.4.0', '1.1.0', '1.0.0'] }, '1.1.0'],
    ['cniVersion among cniVersions', { cniVersion: '1.0.0', cniVersions: ['0.3.1', '0.4.0'] }, '1.0.0'],
    ['versions we do not speak yet', { cniVersions: ['1.0.0', '1.2.0', '2.0.0'] }, '1.0.0'],
    ['a newer cniVersion', { cniVersion: '9.0.0', cniVersions: ['0.4.0'] }, '0.4.0'],
    ['numbers in numeric order', { cniVersions: ['0.4.0', '0.10.0', '1.0.0'] }, '1.0.0'],
    ['missing parts', { cniVersions: ['1', '0.4'] }, '1.0.0'],
    ['leading zeros', { cniVersions: ['01.01.00'] }, '1.1.0'],
  ])('selects %s', (_, versions, expected) => {
    expect(select(versions)).toBe(expected as never);
  });

  test.each([
    ['an unknown cniVersion', { cniVersion: '1.2.3' }, 1],
    ['a short cniVersion, which plugins compare as text', { cniVersion: '1.0' }, 1],
    ['only newer versions', { cniVersions: ['1.2.0', '2.0.0'] }, 1],
    ['an empty cniVersions', { cniVersions: [] }, 1],
    ['an element with a letter', { cniVersions: ['v1.0.0'] }, 7],
    ['an element with a pre-release', { cniVersions: ['1.0.0-rc1'] }, 7],
    ['an element with four parts', { cniVersions: ['1.0.0.0'] }, 7],
    ['an element with a hole', { cniVersions: ['1..0'] }, 7],
    ['an element with space', { cniVersions: [' 1.0.0'] }, 7],
    ['a bad cniVersion beside cniVersions', { cniVersion: 'x', cniVersions: ['1.0.0'] }, 7],
  ])('refuses %s', (_, versions, code) => {
    try {
      select(versions);
      expect.unreachable();
    } catch (error) {
      expect(error).toBeInstanceOf(CniError);
      expect((error as CniError).code).toBe(code);
    }
  });

  test('names the versions that it supports', () => {
    expect(() => select({ cniVersion: '1.2.3' })).toThrow(
      'Cannot use "cniVersion" of the list: found "1.2.3", supported versions are 0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0',
    );
  });
});
