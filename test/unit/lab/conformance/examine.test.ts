// Are the rules a table that can be relied on?
import { expect, test } from 'bun:test';
import { showable } from '../../../../src/cli/failure.ts';
import type { Finding, Report } from '../../../../src/lab/conformance/exam.ts';
import {
  RULES,
  renderFinding,
  renderHeading,
  renderVerdict,
} from '../../../../src/lab/conformance/examine.ts';

test('every rule has a unique id', () => {
  const ids = RULES.map(({ id }) => id);
  expect(new Set(ids).size).toBe(ids.length);
  expect(ids.filter(id => !/^[a-z]+(\/[a-z-]+)$/.test(id))).toEqual([]);
});

test('rules over all replies come last', () => {
  const first = RULES.findIndex(({ id }) => /^(reply|process)\//.test(id));
  expect(RULES.slice(first).filter(({ id }) => !/^(reply|process)\//.test(id))).toEqual([]);
});

test('every rule names its source', () => {
  const sources = /^(SPEC: |reference skeleton$|conventions: |good practice$)/;
  expect(RULES.filter(({ source }) => !sources.test(source)).map(({ id }) => id)).toEqual([]);
  const courtesy = RULES.filter(
    ({ level, source }) => level === 'must' && !/^(SPEC|conventions)/.test(source),
  );
  expect(courtesy.map(({ id }) => id)).toEqual([]);
});

const rule: Omit<Finding, 'outcome'> = {
  id: 'del/twice',
  title: 'DEL can be repeated',
  level: 'must',
  source: 'SPEC: DEL',
};
const courtesy = { ...rule, id: 'reply/quiet', level: 'should' } as const;
const report: Report = {
  executable: '/bin/x',
  supportedVersions: ['1.0.0'],
  rules: [
    { ...rule, outcome: 'broken', details: 'code 999 "gone"' },
    { ...courtesy, outcome: 'kept' },
  ],
  ok: false,
  calls: 12,
};

test('renderFinding() prints one line, with the observation below', () => {
  expect(renderFinding({ ...rule, outcome: 'kept' }, { colour: false })).toBe(
    'kept     must    del/twice                        DEL can be repeated\n',
  );
  expect(renderFinding({ ...rule, outcome: 'broken', details: 'code 999' }, { colour: false })).toEndWith(
    '\n                 SPEC: DEL; seen: code 999\n',
  );
  expect(renderFinding({ ...rule, outcome: 'skipped', details: 'no need' }, { colour: false })).toEndWith(
    '\n                 no need\n',
  );
  expect(showable(renderFinding({ ...rule, outcome: 'broken' }, { colour: true }))).toStartWith(
    '\x1b[31mbroken',
  );
});

test('renderVerdict() counts outcomes', () => {
  expect(renderVerdict(report)).toBe(
    'does not conform: kept 1, broken 1 must and 0 should, skipped 0; 12 calls\n',
  );
});

test('renderHeading() says when there is no configuration', () => {
  const subject = {
    executable: '/bin/x',
    chained: false,
    ifname: 'eth0',
    pluginDirs: [],
    env: {},
    deadlineMs: 1,
  };
  expect(renderHeading(subject)).toBe('/bin/x, without a configuration (--conf or --from)\n');
  expect(renderHeading({ ...subject, conf: {}, chained: true })).toBe('/bin/x, as a chained plugin\n');
});
