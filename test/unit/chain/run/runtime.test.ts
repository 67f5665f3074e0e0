import { expect, test } from 'bun:test';
import { pluginEnv } from '../../../../src/chain/run/call-plugins.ts';
import { checkAttachment, deadlineOf } from '../../../../src/chain/run/runtime.ts';

test('pluginEnv() overrides all six inherited variables, with empty values for those unset', () => {
  const env = { CNI_NETNS: 'inherited', CNI_NETNS_OVERRIDE: '1', TRACEPARENT: 't' };
  expect(pluginEnv('STATUS', { pluginDirs: ['/a', '/b'], env })).toEqual({
    CNI_COMMAND: 'STATUS',
    CNI_CONTAINERID: '',
    CNI_NETNS: '',
    CNI_IFNAME: '',
    CNI_ARGS: '',
    CNI_PATH: '/a:/b',
    CNI_NETNS_OVERRIDE: '1',
    TRACEPARENT: 't',
  });
});

test('deadlineOf() accepts one for all verbs or one for each', () => {
  const pluginDirs: string[] = [];
  expect(deadlineOf({ pluginDirs }, 'ADD')).toBe(60_000);
  expect(deadlineOf({ pluginDirs, deadlineMs: 5 }, 'DEL')).toBe(5);
  expect(deadlineOf({ pluginDirs, deadlineMs: { DEL: 7 } }, 'DEL')).toBe(7);
  expect(deadlineOf({ pluginDirs, deadlineMs: { DEL: 7 } }, 'ADD')).toBe(60_000);
});

test('checkAttachment() warns of an argument that most plugins cannot parse', () => {
  const warnings: string[] = [];
  const attachment = { containerId: 'c', netns: '', ifname: 'eth0', args: [['K', 'a=b']] as const };
  checkAttachment(attachment, 'DEL', { onWarning: ({ message }) => warnings.push(message) });
  expect(warnings).toEqual([
    'Cannot use CNI_ARGS pair "K=a=b": most plugins cannot read a value that contains "="',
  ]);
});
