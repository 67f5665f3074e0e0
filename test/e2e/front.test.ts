// Does the front answer, ask and hand over as documented, whatever a daemon sends and whatever its caller gives it?
import { afterAll, describe, expect, setDefaultTimeout, test } from 'bun:test';
import fs from 'node:fs';
import type net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import fc from 'fast-check';
import { BegunCalls } from '../../src/daemon/calls.ts';
import { decline, socketPathOf, wireOf } from '../../src/daemon/protocol.ts';
import { asksAfter, decodeFrame, decodeRequest, encodeAnswer, SIGN, WIRE } from '../../src/daemon/wire.ts';
import { SEND_FLAG } from '../../src/plugin/delete-devices.ts';
import { type Finished, run } from '../helpers/command.ts';
import { deadline } from '../helpers/deadline.ts';
import { BUILDS, findFrontProblem, makeStubbedFront, runCore } from '../helpers/front.ts';
import { requires, testNeeding } from '../helpers/skip.ts';
import { ROOT } from '../helpers/source-tree.ts';
import { typeInto } from '../helpers/terminal.ts';
import { until } from '../helpers/until.ts';
import { actAsDaemon } from '../helpers/wire.ts';

setDefaultTimeout(deadline(120_000));

const BIN = path.join(ROOT, 'dist/bin');
const problem = findFrontProblem();
const tmp = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-front-'));
afterAll(() => fs.rmSync(tmp, { recursive: true, force: true }));

/** In a user namespace of one user, files cannot be given to another. */
const ONE_USER = /^\s*0\s+\d+\s+(?!1\s*$)/.test(fs.readFileSync('/proc/self/uid_map', 'utf8'))
  ? undefined
  : 'needs root, who can give files to other users';

const CONF = '{"cniVersion":"1.0.0","name":"n","type":"tuning"}';
/** A call that fails without touching anything. */
const CALL = {
  ...{ CNI_COMMAND: 'ADD', CNI_CONTAINERID: 'c', CNI_IFNAME: 'eth0', CNI_NETNS: '/run/netns/none' },
  CATENA_RUN_DIR: path.join(tmp, 'no-daemon'),
};

describe.skipIf(problem !== undefined)(`the front${problem === undefined ? '' : `: ${problem}`}`, () => {
  const names = fs
    .readdirSync(BIN)
    .filter(name => name !== 'catena-core')
    .sort();

  test('answers VERSION and prints the about text byte by byte like the Bun program', async () => {
    const links = path.join(tmp, 'links');
    fs.mkdirSync(links);
    const aliases = ['multus', 'multus-shim'];
    for (const name of aliases) fs.symlinkSync(path.join(BIN, 'catena'), path.join(links, name));
    for (const name of [...names, ...aliases]) {
      const file = path.join(aliases.includes(name) ? links : BIN, name);
      const version = { CNI_COMMAND: 'VERSION' };
      expect(await run([file], { env: version, stdin: '' })).toEqual(await runCore(name, version));
      // Called by hand, the command prints its help.
      if (name !== 'catena') expect(await run([file])).toEqual(await runCore(name, {}));
    }
  });

  test.each([
    ...['{"cniVersion":"1.0.0"}', ' { "cniVersion" :\t"0.4.0" }\n', '{"cniVersion":"1.1.0"}', ' '],
    ...['{"cniVersion":"9.9.9"}', '{"cniVersion":""}', '{"cniVersion":1}', '{"cniVersion":"1.0.0"', '{', 'x'],
    ...[
      '{"cniVersion":"1.0.0"} x',
      '{"name":"a","cniVersion":"0.4.0"}',
      `{"cniVersion":"${'1'.repeat(99)}"}`,
    ],
  ])('answers VERSION with the version of the request, like the Bun program: %s', async stdin => {
    const version = { CNI_COMMAND: 'VERSION' };
    const told = await run([path.join(BIN, 'bridge')], { env: version, stdin });
    expect(told).toEqual(await runCore('bridge', version, Buffer.from(stdin)));
    const named = /"(0\.4\.0|1\.0\.0)"\s*\}\s*$/.exec(stdin)?.[1] ?? '1.1.0';
    expect(JSON.parse(told.stdout)).toMatchObject({ cniVersion: named });
  });

  test('answers VERSION although its caller keeps the pipe open, and asks no terminal', async () => {
    const env = { CNI_COMMAND: 'VERSION' };
    const child = Bun.spawn([path.join(BIN, 'bridge')], {
      env,
      stdin: 'pipe',
      stdout: 'pipe',
      timeout: 30_000,
    });
    expect(JSON.parse(await child.stdout.text())).toMatchObject({ cniVersion: '1.1.0' });
    expect(await child.exited).toBe(0);
    await child.stdin.end();
    const { shown } = await typeInto([path.join(BIN, 'bridge')], '', { env: { ...process.env, ...env } });
    expect(JSON.parse(shown.slice(shown.indexOf('{')))).toMatchObject({ cniVersion: '1.1.0' });
  });

  test.each(BUILDS)('has a child write a message to descriptor 3, and ends, %s', async build => {
    const { dir } = await makeStubbedFront(path.join(tmp, `send-${build.length}`), build);
    for (const [letters, bytes] of [
      ['ajbcpp', [0x09, 0x12, 0xff]],
      ['ajb', [0x09]],
      ['aj'.repeat(4_000), Array(4_000).fill(0x09)],
    ] as const) {
      const file = path.join(dir, 'message');
      const fd = fs.openSync(file, 'w');
      const child = Bun.spawn([path.join(dir, 'catena'), SEND_FLAG, letters], {
        stdio: ['ignore', 'pipe', 'pipe', fd],
        timeout: 30_000,
      });
      expect(await child.exited).toBe(0);
      fs.closeSync(fd);
      await until(() => fs.statSync(file).size === bytes.length);
      expect([...fs.readFileSync(file)]).toEqual([...bytes]);
      expect(await child.stderr.text()).toBe('');
    }
  });

  test.each([
    ['a configuration', CONF],
    ['nothing', ''],
    ['what is no JSON', '{"a":'],
    ['no UTF-8', '\xff\xfe{'],
    ['more than a configuration may have', `"${'x'.repeat(17 << 20)}"`],
  ])('hands %s on standard input to the Bun program', async (_, text) => {
    const stdin = Buffer.from(text, 'latin1');
    const child = Bun.spawn([path.join(BIN, 'tuning')], {
      env: { PATH: process.env.PATH, ...CALL },
      ...{ stdin, stdout: 'pipe', stderr: 'pipe', timeout: 60_000 },
    });
    const [stdout, stderr] = await Promise.all([child.stdout.text(), child.stderr.text()]);
    expect({ exitCode: await child.exited, stdout, stderr }).toEqual(await runCore('tuning', CALL, stdin));
  });

  test.each(['<&-', '>&-', '2>&-', '<&- >&-', '</'])(
    'ends like the Bun program when its streams are %s',
    async streams => {
      const exitCode = async (program: string): Promise<number> =>
        (await run(['bash', '-c', `exec -a tuning "$0" ${streams}`, program], { env: CALL, stdin: CONF }))
          .exitCode;
      expect(await exitCode(path.join(BIN, 'tuning'))).toBe(await exitCode(path.join(BIN, 'catena-core')));
    },
  );

  test('says what is missing if the Bun program does not stand beside it', async () => {
    const alone = path.join(tmp, 'alone');
    fs.mkdirSync(alone);
    for (const name of ['bridge', 'catena']) fs.copyFileSync(path.join(BIN, name), path.join(alone, name));
    const text = `Cannot start ${alone}/catena-core (errno 2); install Catena again`;
    const called = await run([path.join(alone, 'bridge')], { env: CALL, stdin: CONF });
    expect(called).toMatchObject({ exitCode: 1, stderr: '' });
    expect(JSON.parse(called.stdout)).toEqual({ code: 5, msg: text });
    const typed = await run([path.join(alone, 'catena'), 'list']);
    expect(typed).toEqual({ exitCode: 1, stdout: '', stderr: `catena: ${text}\n` });
  });

  test('has the Bun program hear of its children, whatever its caller ignores', async () => {
    const heard = path.join(tmp, 'heard');
    fs.mkdirSync(heard);
    fs.copyFileSync(path.join(BIN, 'catena'), path.join(heard, 'catena'));
    // A shell would hear of them without the front.
    fs.writeFileSync(path.join(heard, 'catena-core'), '#!/bin/cat /proc/self/status\n', { mode: 0o755 });
    const ignoring = await run(['env', '--ignore-signal=CHLD', path.join(heard, 'catena'), 'list']);
    const ignored = Number.parseInt(/^SigIgn:\s*(\w+)/m.exec(ignoring.stdout)?.[1] ?? '', 16);
    expect(ignored & (1 << (os.constants.signals.SIGCHLD - 1))).toBe(0);
  });

  test('has the Bun program be a plugin although the environment makes it a plain Bun', async () => {
    const env = { ...CALL, CNI_COMMAND: 'DEL', BUN_BE_BUN: '1', CATENA_RUN_DIR: tmp };
    const told = await run([path.join(BIN, 'tuning')], { env, stdin: '{"cniVersion":"9.9.9"}' });
    expect(told).toMatchObject({ exitCode: 1, stdout: expect.stringMatching(/"code": 7,/) });
  });

  test('has a daemon free memory seldom, unless its environment says when', async () => {
    const told = path.join(tmp, 'told');
    fs.mkdirSync(told);
    fs.copyFileSync(path.join(BIN, 'catena'), path.join(told, 'catena'));
    fs.writeFileSync(
      path.join(told, 'catena-core'),
      '#!/bin/sh\necho "$1 $MIMALLOC_PURGE_HOLES_MIN_INTERVAL $BUN_GC_TIMER_INTERVAL"\n',
      {
        mode: 0o755,
      },
    );
    const catena = path.join(told, 'catena');
    expect((await run([catena, 'daemon'])).stdout).toBe('daemon 60000 30000\n');
    expect((await run([catena, 'daemon'], { env: { MIMALLOC_PURGE_HOLES_MIN_INTERVAL: '5' } })).stdout).toBe(
      'daemon 5 30000\n',
    );
    expect((await run([catena, 'help'])).stdout).toBe('help  \n');
  });

  describe.each(BUILDS)('%s', build => {
    let runs = 0;
    const made = makeStubbedFront(path.join(tmp, build), build);

    interface Told extends Finished {
      /** What the daemon received. */
      readonly received: Buffer;
    }

    /** Calls the front beside a daemon that does this with the connection. */
    async function callBeside(
      serve: (client: net.Socket, key: string) => unknown,
      {
        stdin = CONF,
        name = 'tuning',
        args = [] as string[],
        env = {},
        under = [] as string[],
        owner = 0,
      } = {},
    ): Promise<Told> {
      const { dir } = await made;
      const runDir = path.join(tmp, `run-${build.length}-${runs++}`);
      let received: Buffer = Buffer.alloc(0);
      const daemon = await actAsDaemon(socketPathOf(runDir), (client, bytes) => {
        received = bytes;
        client.on('data', more => {
          received = Buffer.concat([received, more as Buffer]);
        });
        serve(client, bytes.toString('latin1', WIRE.WIRE_AT_KEY, WIRE.WIRE_AT_KEY + WIRE.WIRE_KEY_BYTES));
      });
      try {
        if (owner !== 0) fs.chownSync(wireOf(socketPathOf(runDir)), owner, owner);
        const all = { ...CALL, CATENA_RUN_DIR: runDir, ...env };
        const finished = await run([...under, path.join(dir, name), ...args], { env: all, stdin });
        return { ...finished, received };
      } finally {
        await daemon.stop();
      }
    }

    const ANSWER = encodeAnswer({ exitCode: 3, stdout: '{"answer":1}\n', stderr: 'log\n' });
    const ANSWERED = { exitCode: 3, stdout: '{"answer":1}\n', stderr: 'log\n' };
    /** What the stub prints after this verdict. */
    const byCore = (verdict: string, stdin = CONF) => ({
      exitCode: 0,
      stdout: `|${verdict}|${stdin}`,
      stderr: '',
    });

    test('sends what a process of its own would get, and prints the answer', async () => {
      const answered = await callBeside(client => client.end(ANSWER));
      expect(answered).toMatchObject(ANSWERED);
      const request = decodeRequest(answered.received);
      const identity = (file: string) => `${fs.statSync(file).dev}:${fs.statSync(file).ino}`;
      expect(request).toMatchObject({
        place: {
          executable: identity(path.join((await made).dir, 'catena-core')),
          network: identity('/proc/self/ns/net'),
          mount: identity('/proc/self/ns/mnt'),
        },
        ...{ plugin: 'tuning', args: [], cwd: process.cwd(), stdin: CONF },
      });
      expect(request?.env).toMatchObject({ CNI_COMMAND: 'ADD', CNI_CONTAINERID: 'c', LC_ALL: 'C' });
      expect(request?.key).toMatch(/^[\da-f]{8}-[\da-f]{4}-4[\da-f]{3}-[89ab][\da-f]{3}-[\da-f]{12}$/);
    });

    test('tells the daemon how wide the terminal of a command is', async () => {
      const onTerminal = `script --quiet --return --command "stty cols 60; exec '$0' $*" /dev/null`;
      const serve = (client: net.Socket) => client.end(ANSWER);
      const command = { name: 'catena', args: ['add', 'x'], env: { PATH: process.env.PATH } };
      const { received } = await callBeside(serve, { ...command, under: ['bash', '-c', onTerminal] });
      expect(decodeRequest(received)?.env).toMatchObject({ COLUMNS: '60' });
      const plain = await callBeside(serve, command);
      expect(decodeRequest(plain.received)?.env).not.toHaveProperty('COLUMNS');
    });

    test('sends a command without standard input, and a call of the runner without a plugin', async () => {
      const command = await callBeside(client => client.end(ANSWER), {
        name: 'catena',
        args: ['add', '', 'x y'],
      });
      expect(command).toMatchObject(ANSWERED);
      const asked = decodeRequest(command.received);
      expect(asked?.args).toEqual(['add', '', 'x y']);
      expect(asked?.stdin).toBe('');
      const runner = await callBeside(client => client.end(ANSWER), { name: 'catena' });
      const called = decodeRequest(runner.received);
      expect(called).toMatchObject({ args: [], stdin: CONF });
      expect(called).not.toHaveProperty('plugin');
    });

    test('asks whether a daemon serves its executable, and leaves any other answer to the core', async () => {
      const probe = { name: 'catena', args: ['daemon', '--ping', '--deadline=4'] };
      const alive = { exitCode: 0, stdout: 'daemon\n', stderr: '' };
      const { received, ...finished } = await callBeside(client => client.end(encodeAnswer(alive)), probe);
      expect(finished).toEqual(alive);
      const { dev, ino } = fs.statSync(path.join((await made).dir, 'catena-core'));
      expect(asksAfter(received)).toEqual({ executable: `${dev}:${ino}` });
      const others: ((client: net.Socket) => unknown)[] = [
        client => client.end(encodeAnswer(decline('build', ''))),
        client => client.end(ANSWER),
        client => client.end(ANSWER.subarray(0, 20)),
        client => client.end(Buffer.alloc(200, 1)),
        client => client.end(hugeFrame()),
        () => {},
      ];
      for (const serve of others) {
        const { stdout } = await callBeside(serve, probe);
        expect(stdout).toBe(`${probe.args.join(' ')}||${CONF}`);
      }
    });

    test.each([
      [
        'a probe with other options',
        { name: 'catena', args: ['daemon', '--ping', '-v'] },
        'daemon --ping -v||',
      ],
      ['another command', { name: 'catena', args: ['list'] }, 'list||'],
      ['a worker', { args: ['--worker'] }, '--worker||'],
      ['another verb', { env: { CNI_COMMAND: 'NONE' } }, '||'],
      ['a namespace of its own process', { env: { CNI_NETNS: '/proc/self/ns/net' } }, '||'],
      ['a call that a worker makes', { env: { CATENA_SERVED: '1' } }, '||'],
      ['an injected fault', { env: { CATENA_FAULT: 'kernel:1' } }, '||'],
    ])('does not ask for %s', async (_, options, said) => {
      const { received, ...finished } = await callBeside(client => client.end(ANSWER), options);
      expect(received.length).toBe(0);
      expect(finished).toEqual({ exitCode: 0, stdout: `${said}${CONF}`, stderr: '' });
    });

    test('of several values of a variable the last one counts, as for the Bun program', async () => {
      // What os.execve of Python cannot do: its environment is a dictionary.
      const script = [
        'import ctypes, os, sys',
        "env = [b'CNI_COMMAND=NONE'] + [k + b'=' + v for k, v in os.environb.items()]",
        'argv = [os.fsencode(arg) for arg in sys.argv[1:]]',
        'array = lambda all: (ctypes.c_char_p * (len(all) + 1))(*all, None)',
        'ctypes.CDLL(None).execve(argv[0], array(argv), array(env))',
      ].join('\n');
      const under = ['python3', '-c', script];
      expect(await callBeside(client => client.end(ANSWER), { under })).toMatchObject(ANSWERED);
    });

    testNeeding(
      'does not ask a daemon whose socket belongs to another user',
      async () => {
        const { received, ...finished } = await callBeside(client => client.end(ANSWER), { owner: 65_534 });
        expect([received.length, finished]).toEqual([0, { exitCode: 0, stdout: `||${CONF}`, stderr: '' }]);
      },
      ONE_USER,
    );

    test.each([
      ['"declined"', [encodeAnswer(decline('build', ''))], 'declined'],
      ['"begun"', [encodeAnswer({ ...decline('workers', ''), begun: true })], 'lost'],
      ['"declined" after signs of life', [SIGN, SIGN, encodeAnswer(decline('build', ''))], 'declined'],
      ['nothing', [], 'broken'],
      ['signs of life only', [SIGN, SIGN], 'broken'],
      ['half a header', [ANSWER.subarray(0, 11)], 'broken'],
      ['half an answer', [ANSWER.subarray(0, -1)], 'broken'],
      ['HTTP', [Buffer.from('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}')], 'broken'],
      ['more than a client accepts', [hugeFrame()], 'broken'],
    ])('lets the Bun program make the call after %s', async (_, pieces, verdict) => {
      const finished = await callBeside(async client => {
        for (const piece of pieces) client.write(piece);
        client.end();
      });
      expect(finished).toMatchObject(byCore(verdict));
    });

    test('takes an answer that comes late and byte by byte', async () => {
      const slow = async (client: net.Socket) => {
        for (let i = 0; i < 5; i++) {
          client.write(SIGN);
          await Bun.sleep(300);
        }
        for (const byte of ANSWER) {
          client.write(Uint8Array.of(byte));
          await Bun.sleep(1);
        }
      };
      expect(await callBeside(slow)).toMatchObject(ANSWERED);
    });

    test.each([
      [11, 'declined'],
      [12, 'lost'],
    ])('asks the Bun program what a silence means: %p is "%s"', async (status, verdict) => {
      const front = await made;
      front.setVerdict(status);
      let key = '';
      expect(
        await callBeside((_, asked) => {
          key = asked;
        }),
      ).toMatchObject(byCore(verdict));
      expect(front.judged()).toContain(key);
    });

    test('waits for a daemon that computes, without asking what its silence means', async () => {
      (await made).setVerdict(11);
      const busy = (client: net.Socket) => {
        for (const until = performance.now() + 2_200; performance.now() < until; );
        client.end(ANSWER);
      };
      expect(await callBeside(busy)).toMatchObject(ANSWERED);
    });

    test('waits on if the Bun program says so', async () => {
      (await made).setVerdict(10);
      const late = (client: net.Socket) => setTimeout(() => client.end(ANSWER), 2_500);
      expect(await callBeside(late)).toMatchObject(ANSWERED);
    });

    // An overloaded daemon answers and forgets the call while the Bun program, just as slow, looks for it among the begun ones.
    test.each([11, 12])('prints the answer that came while the silence was judged as %p', async status => {
      const front = await made;
      front.setVerdict(status);
      const release = front.holdVerdict();
      const late = async (client: net.Socket, key: string) => {
        await until(() => front.judged().includes(key));
        client.write(ANSWER, release);
      };
      expect(await callBeside(late)).toMatchObject(ANSWERED);
    });

    test('loses nothing of a large input when the connection ends while it is sent', async () => {
      const stdin = 'x'.repeat(8 << 20);
      const finished = await callBeside(client => client.destroy(), { stdin });
      expect(finished.exitCode).toBe(0);
      expect(finished.stdout.replace(/^\|(declined|broken)\|/, '')).toBe(stdin);
    });

    // Memcheck watches what is undefined, which the sanitizers do not.
    if (build === 'as built') {
      testNeeding(
        'decides nothing by memory that was never written, however a call ends',
        async () => {
          const front = await made;
          const under = ['valgrind', '--quiet', '--error-exitcode=99'];
          const call = (serve: (client: net.Socket) => unknown, options = {}) =>
            callBeside(serve, { env: { PATH: process.env.PATH }, under, ...options });
          expect(await call(client => client.end(ANSWER))).toMatchObject(ANSWERED);
          const declined = encodeAnswer(decline('build', ''));
          expect(await call(client => client.end(declined))).toMatchObject(byCore('declined'));
          expect(await call(client => client.end(ANSWER.subarray(0, -1)))).toMatchObject(byCore('broken'));
          front.setVerdict(12);
          expect(await call(() => {})).toMatchObject(byCore('lost'));
          const command = await call(client => client.end(ANSWER), { name: 'catena', args: ['add', 'x'] });
          expect(command).toMatchObject(ANSWERED);
          const version = { CNI_COMMAND: 'VERSION' };
          const told = await run([...under, path.join(BIN, 'tuning')], { env: version, stdin: '' });
          expect(told).toEqual(await runCore('tuning', version));
          const about = await run([...under, path.join(BIN, 'tuning')]);
          expect(about).toEqual(await runCore('tuning', {}));
        },
        requires('valgrind'),
      );
    }

    test('ends with the answer, or with the Bun program, whatever the daemon sends', async () => {
      // A busy machine may be silent for a second between two pieces.
      (await made).setVerdict(10);
      const frames = fc.array(fc.constantFrom(SIGN, ANSWER, encodeAnswer(decline('build', ''))), {
        maxLength: 3,
      });
      const damaged = fc
        .tuple(frames, fc.array(fc.tuple(fc.nat(80), fc.nat(255)), { maxLength: 4 }), fc.nat(100))
        .map(([some, changes, end]) => {
          const bytes = Buffer.concat(some);
          for (const [at, value] of changes) if (at < bytes.length) bytes[at] = value;
          return bytes.subarray(0, end);
        });
      const input = fc.oneof(damaged, fc.uint8Array({ maxLength: 200 }));
      await fc.assert(
        fc.asyncProperty(input, fc.nat(60), async (bytes, cut) => {
          const finished = await callBeside(async client => {
            client.write(bytes.subarray(0, cut));
            await Bun.sleep(1);
            client.end(bytes.subarray(cut));
          });
          expect(finished).toMatchObject(expectedFor(bytes));
        }),
        { numRuns: 60, endOnFailure: true },
      );
    });

    /** What the documented protocol makes of these bytes and the end of the connection. */
    function expectedFor(bytes: Uint8Array): object {
      const first = decodeFrame(bytes);
      if (first === undefined || first === 'broken') return byCore('broken');
      if (first.frame.kind === 'sign') return expectedFor(bytes.subarray(first.length));
      if (first.frame.kind === 'declined') return byCore(first.frame.begun ? 'lost' : 'declined');
      // The outputs are the same bytes; invalid ones may be shown in another way.
      return { exitCode: first.frame.reply.exitCode };
    }
  });

  test('and the Bun program make a call that a daemon never begins', async () => {
    const socket = socketPathOf(path.join(tmp, 'frozen'));
    const daemon = await actAsDaemon(socket, () => {});
    const now = (Date.now() + 0.5) / 1000;
    fs.utimesSync(wireOf(socket), now, now);
    const calls = new BegunCalls(socket, fs.statSync(wireOf(socket)));
    try {
      const env = { ...CALL, CATENA_RUN_DIR: path.dirname(socket) };
      const finished = await run([path.join(BIN, 'tuning')], { env, stdin: CONF });
      expect(finished).toEqual(await runCore('tuning', CALL, Buffer.from(CONF)));
    } finally {
      calls.close();
      await daemon.stop();
    }
  });
});

/** An answer whose length is above the limit. */
function hugeFrame(): Uint8Array {
  const bytes = Uint8Array.from(SIGN);
  const view = new DataView(bytes.buffer);
  view.setUint32(WIRE.WIRE_REPLY_AT_KIND, WIRE.WIRE_REPLY_ANSWER, true);
  view.setUint32(WIRE.WIRE_REPLY_AT_TOTAL, WIRE.WIRE_REPLY_LIMIT + 24, true);
  view.setUint32(WIRE.WIRE_REPLY_AT_STDOUT, WIRE.WIRE_REPLY_LIMIT, true);
  return bytes;
}
