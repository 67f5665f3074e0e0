// What does a report contain, and how does it look?
import { describe, expect, test } from 'bun:test';
import { showable } from '../../../src/cli/failure.ts';
import {
  isProblem,
  type PluginReport,
  renderSection,
  type Section,
  toJson,
} from '../../../src/lab/report.ts';

const probe = (outcome: 'ok' | 'failed' | 'skipped'): Section => ({
  kind: 'probe',
  what: 'w',
  outcome,
  seen: 's',
});

describe('isProblem()', () => {
  test('is true for failures and for garbage', () => {
    const verb = { kind: 'verb', verb: 'ADD', durationMs: 1, plugins: [] } as const;
    expect(isProblem({ ...verb, failure: { message: 'm' } })).toBe(true);
    expect(isProblem(probe('failed'))).toBe(true);
    expect(isProblem({ kind: 'left', left: ['veth v'], kept: [] })).toBe(true);
    expect([verb, probe('ok'), probe('skipped')].map(isProblem)).toEqual([false, false, false]);
    expect(isProblem({ kind: 'left', left: [], kept: ['bridge b'] })).toBe(false);
  });
});

describe('toJson()', () => {
  test('is one object for the whole report', () => {
    const sections: Section[] = [
      { kind: 'lab', network: 'n', version: '1.0.0', plugins: 1, rootless: true, durationMs: 3 },
      { kind: 'verb', verb: 'ADD', durationMs: 1, plugins: [] },
      probe('ok'),
      { kind: 'left', left: [], kept: ['bridge b'] },
      { kind: 'verdict', ok: true, failures: 0, durationMs: 9 },
    ];
    expect(toJson(sections)).toEqual({
      ok: true,
      network: 'n',
      version: '1.0.0',
      plugins: 1,
      rootless: true,
      durationMs: 9,
      verbs: [{ verb: 'ADD', durationMs: 1, plugins: [] }],
      probes: [{ what: 'w', outcome: 'ok', seen: 's' }],
      left: [],
      kept: ['bridge b'],
    });
  });
});

const plugin = (report: Partial<PluginReport>): PluginReport => ({
  type: 'x',
  durationMs: 1,
  result: [],
  host: [],
  container: [],
  files: [],
  ...report,
});

const SECTIONS: readonly Section[] = [
  { kind: 'lab', network: 'podnet', version: '1.0.0', plugins: 2, rootless: false, durationMs: 4.04 },
  {
    kind: 'verb',
    verb: 'ADD',
    durationMs: 31.7,
    plugins: [
      plugin({
        type: 'bridge + host-local',
        durationMs: 21.25,
        result: ['+ cni0', '+ 10.1.0.2/24 gateway 10.1.0.1'],
        host: ['+ bridge cni0'],
        container: ['+ veth eth0', 'eth0: up'],
        files: ['+ file /var/lib/cni/networks/podnet/10.1.0.2'],
      }),
      plugin({ type: 'portmap', durationMs: 7, host: ['+ 2 elements in table inet t'] }),
    ],
  },
  { kind: 'verb', verb: 'CHECK', durationMs: 9, plugins: [plugin({}), plugin({})] },
  { kind: 'probing' },
  { kind: 'probe', what: 'gateway 10.1.0.1 replies to the container', outcome: 'ok', seen: '0.2 ms' },
  { kind: 'probe', what: 'at most 10 Mbit out of the container', outcome: 'failed', seen: '912 Mbit' },
  {
    kind: 'probe',
    what: 'gateway 10.9.0.1 replies to the container',
    outcome: 'skipped',
    seen: 'not of this host',
  },
  {
    kind: 'verb',
    verb: 'DEL',
    durationMs: 20,
    plugins: [plugin({ type: 'bridge', host: ['- bridge cni0'] })],
  },
  { kind: 'left', left: ['veth veth1 in cni0'], kept: ['table inet t: 2 chains'] },
  { kind: 'verdict', ok: false, failures: 2, durationMs: 1234 },
];

const PLAIN = `network podnet: 2 plugins, CNI 1.0.0; a fake host, as root, created in 4.0 ms

ADD   31.7 ms
  plugin               time     result                          kernel and files
  bridge + host-local  21.3 ms  + cni0                          + bridge cni0
                                + 10.1.0.2/24 gateway 10.1.0.1  + veth eth0 (container)
                                                                eth0: up (container)
                                                                + file /var/lib/cni/networks/podnet/10.1.0.2
  portmap              7.0 ms                                   + 2 elements in table inet t

CHECK 2 plugins succeeded, 9.0 ms

CHECKS
  ok       gateway 10.1.0.1 replies to the container: 0.2 ms
  FAILED   at most 10 Mbit out of the container: 912 Mbit
  skipped  gateway 10.9.0.1 replies to the container: not of this host

DEL   20.0 ms
  plugin  time    kernel and files
  bridge  1.0 ms  - bridge cni0

left behind:
  veth veth1 in cni0
kept by the network for its next container:
  table inet t: 2 chains

CHECKS FAILED: 2 problems, in 1.23 s
`;

const render = (sections: readonly Section[], colour: boolean) =>
  sections.map(section => renderSection(section, { colour })).join('');

describe('renderSection()', () => {
  test('renders a report as text', () => {
    expect(render(SECTIONS, false)).toBe(PLAIN);
  });

  test('puts changes below results where a terminal is too narrow for both', () => {
    const lines = renderSection(SECTIONS[1] as Section, { colour: false }, 80).split('\n');
    expect(lines.slice(2)).toEqual([
      '  plugin               time     result, kernel and files',
      '  bridge + host-local  21.3 ms  + cni0',
      '                                + 10.1.0.2/24 gateway 10.1.0.1',
      '                                + bridge cni0',
      '                                + veth eth0 (container)',
      '                                eth0: up (container)',
      '                                + file /var/lib/cni/networks/podnet/10.1.0.2',
      '  portmap              7.0 ms   + 2 elements in table inet t',
      '',
    ]);
    expect(renderSection(SECTIONS[1] as Section, { colour: false }, 120)).toBe(
      renderSection(SECTIONS[1] as Section, { colour: false }),
    );
  });

  test('adds nothing but colours', () => {
    const painted = showable(render(SECTIONS, true));
    expect(painted).toContain('\u001b[31mFAILED\u001b[39m');
    // biome-ignore lint/suspicious/noControlCharactersInRegex: what colours are made of
    expect(painted.replace(/\u001b\[\d+m/g, '').replace(/ +$/gm, '')).toBe(PLAIN);
  });

  test('shows how a plugin failed', () => {
    const failure = { message: 'Cannot do it: no', code: 7, details: 'more', stderr: 'line 1\nline 2' };
    const plugins = [plugin({ type: 'tuning', failure })];
    expect(render([{ kind: 'verb', verb: 'ADD', durationMs: 5, plugins: plugins, failure }], false)).toBe(`
ADD   5.0 ms
  plugin  time
  tuning  1.0 ms
  FAILED  Cannot do it: no (code 7)
          more
          line 1
          line 2
`);
  });

  test('shows a failure before any plugin ran', () => {
    const failure = { message: 'Cannot find plugin "x"' };
    expect(render([{ kind: 'verb', verb: 'ADD', durationMs: 5, plugins: [], failure }], false)).toBe(`
ADD   5.0 ms
  FAILED  Cannot find plugin "x"
`);
  });

  test('says why a verb did not run, and when all was as promised', () => {
    const skipped = {
      kind: 'verb',
      verb: 'CHECK',
      durationMs: 0,
      plugins: [],
      skipped: 'the list disables it',
    } as const;
    expect(render([skipped, { kind: 'verdict', ok: true, failures: 0, durationMs: 9 }], false)).toBe(`
CHECK skipped: the list disables it

all checks passed, in 9.0 ms
`);
  });
});
