// Are kernel parameters read and written at the place that their path names? Nothing is changed here.
import { describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import { describeError } from '../../../src/cni/errors.ts';
import { ensureSysctl, findSysctl, readSysctl, trySysctl, writeSysctl } from '../../../src/sys/sysctl.ts';

const OSTYPE = 'kernel/ostype';

describe('readSysctl()', () => {
  test('returns the value without its newline', () => {
    expect(readSysctl(OSTYPE)).toBe('Linux');
    expect(`${readSysctl('kernel/osrelease')}\n`).toBe(fs.readFileSync('/proc/sys/kernel/osrelease', 'utf8'));
  });

  test('returns nothing for a directory', () => {
    expect(() => readSysctl('net/ipv4')).toThrow('EISDIR');
  });

  test('throws for a missing parameter, findSysctl() does not', () => {
    expect(() => readSysctl('net/nothing')).toThrow('ENOENT');
    expect(findSysctl('net/nothing')).toBeUndefined();
    expect(findSysctl(OSTYPE)).toBe('Linux');
  });
});

describe('writeSysctl()', () => {
  test('names the parameter and the value when it fails, and creates no file', () => {
    expect(() => writeSysctl('net/nothing', '1')).toThrow('Cannot set sysctl "net/nothing" to "1": ENOENT');
    expect(() => writeSysctl(OSTYPE, 'Hurd')).toThrow('Cannot set sysctl "kernel/ostype" to "Hurd"');
  });

  test('says once why it fails', () => {
    let reason = '';
    try {
      writeSysctl('net/nothing', '1');
    } catch (error) {
      reason = describeError(error);
    }
    expect(reason.match(/ENOENT/g)).toEqual(['ENOENT']);
  });

  test('is not called by ensureSysctl() when the value is right', () => {
    ensureSysctl(OSTYPE, 'Linux');
    expect(() => ensureSysctl(OSTYPE, 'Hurd')).toThrow('Cannot set sysctl');
  });

  test('may fail in trySysctl()', () => {
    trySysctl('net/nothing', '1');
  });
});
