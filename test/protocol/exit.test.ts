// What does the runtime make of every way in which a plugin's process can end? (reference notes "Exit handling")

import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import path from 'node:path';
import { addNetwork, deleteNetwork, networkStatus } from '../../src/chain/run/run.ts';
import type { Runtime } from '../../src/chain/run/runtime.ts';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import { ATTACHMENT, listOf, makeNoopChain, type NoopChain } from '../helpers/noop-chain.ts';

let chain: NoopChain;
beforeAll(() => {
  chain = makeNoopChain();
});
afterAll(() => chain.dispose());

const LIST = listOf('1.1.0', [{ type: 'says' }]);
const RESULT = '{"cniVersion":"1.1.0"}';

interface Ending {
  readonly SAYS?: string;
  readonly SAYS_ERR?: string;
  readonly SAYS_EXIT?: string;
  readonly SAYS_SIGNAL?: string;
}
const runtimeFor = (ending: Ending): Runtime => ({
  ...chain.runtime,
  env: { PATH: process.env.PATH, ...ending },
});
async function failureOf(step: Promise<unknown>): Promise<CniError> {
  const error = await step.then(
    () => undefined,
    thrown => thrown,
  );
  if (error instanceof CniError) return error;
  throw new Error(`expected a CniError, found ${error}`);
}

describe('exit status 0', () => {
  test.each(['', 'words', '{"code":7,"msg":"it means nothing"}'])('is a successful DEL: %j', async SAYS => {
    await deleteNetwork(LIST, ATTACHMENT, runtimeFor({ SAYS, SAYS_ERR: 'a warning' }));
    await networkStatus(LIST, runtimeFor({ SAYS }));
  });

  test('is a successful ADD with a result, and standard error is passed on', async () => {
    const said: string[] = [];
    const runtime = { ...runtimeFor({ SAYS: RESULT, SAYS_ERR: 'a warning' }), onPlugin };
    function onPlugin({ stderr }: { stderr: string }): void {
      said.push(stderr);
    }
    expect(await addNetwork(LIST, ATTACHMENT, runtime)).toEqual({ cniVersion: '1.1.0' });
    expect(said).toEqual(['a warning']);
    await deleteNetwork(LIST, ATTACHMENT, runtime);
  });
});

describe('a non-zero exit status', () => {
  // Where the reference has less to say, the row is what is better: its error of an empty object is empty, it drops
  // what is on standard error beside an error object, and it forgets the exit status.
  test.each<[string, Ending, { code: number; message: string; details?: string }]>([
    ['an error object', { SAYS: '{"code":7,"msg":"bad"}' }, { code: 7, message: 'bad' }],
    [
      'an error object with details',
      { SAYS: '{"cniVersion":"1.1.0","code":105,"msg":"bad","details":"very"}\n' },
      { code: 105, message: 'bad', details: 'very' },
    ],
    [
      'an error object and words',
      { SAYS: '{"code":7,"msg":"bad"}', SAYS_ERR: 'beside' },
      { code: 7, message: 'bad' },
    ],
    [
      'an error object in other letter case, and null for what is absent',
      { SAYS: '{"Code":7,"MSG":"bad","details":null}' },
      { code: 7, message: 'bad' },
    ],
    ['an error object without code', { SAYS: '{"msg":"bad"}' }, { code: 0, message: 'bad' }],
    [
      'an unsigned code beyond the table',
      { SAYS: '{"code":4294967295,"msg":"x"}' },
      { code: 4294967295, message: 'x' },
    ],
    [
      'an empty object',
      { SAYS: '{}' },
      {
        code: 0,
        message: 'Plugin "says" failed and its output is not a CNI error: "{}"',
        details: 'exit status 3',
      },
    ],
    ...[
      '{"code":-1,"msg":"x"}',
      '{"code":"7","msg":"x"}',
      '{"code":7.5,"msg":"x"}',
      '{"code":1}{"code":2}',
      'up',
      '[]',
    ].map((SAYS): [string, Ending, { code: number; message: string; details: string }] => [
      `what is no error object, ${SAYS}`,
      { SAYS },
      {
        code: 0,
        message: `Plugin "says" failed and its output is not a CNI error: ${JSON.stringify(SAYS)}`,
        details: 'exit status 3',
      },
    ]),
    [
      'words on standard error only',
      { SAYS_ERR: 'no such "device"\n' },
      { code: 0, message: 'Plugin "says" failed with "no such \\"device\\"": exit status 3' },
    ],
    ['nothing', {}, { code: 0, message: 'Plugin "says" failed with no error message: exit status 3' }],
    [
      'nothing, by a signal',
      { SAYS_SIGNAL: 'SEGV' },
      { code: 0, message: 'Plugin "says" failed with no error message: ended by SIGSEGV' },
    ],
  ])('with %s', async (_, ending, expected) => {
    const error = await failureOf(networkStatus(LIST, runtimeFor({ SAYS_EXIT: '3', ...ending })));
    expect(error).toMatchObject(expected);
    expect(error.details).toBe(expected.details as never);
    expect(error.plugin).toEqual({
      network: 'testnet',
      type: 'says',
      index: 0,
      verb: 'STATUS',
      executable: path.join(chain.runtime.pluginDirs[0] ?? '', 'says'),
      durationMs: expect.any(Number),
      ...(ending.SAYS_SIGNAL === undefined ? { exitCode: 3 } : { signal: 'SIGSEGV' }),
      ...(ending.SAYS_ERR === undefined ? {} : { stderr: ending.SAYS_ERR }),
    });
  });

  test.each(Object.entries(ErrorCode))(
    'passes code "%s" (%d) through every verb that fails',
    async (_, code) => {
      const runtime = runtimeFor({ SAYS: JSON.stringify({ code, msg: 'it says' }), SAYS_EXIT: '1' });
      for (const step of [
        () => networkStatus(LIST, runtime),
        () => deleteNetwork(LIST, ATTACHMENT, runtime),
        () => addNetwork(LIST, ATTACHMENT, runtime),
      ]) {
        expect(await failureOf(step())).toMatchObject({ code, message: 'it says' });
      }
    },
  );
});

describe('a plugin without a process', () => {
  test.each([
    ['is not there', undefined, 0, 'Cannot find plugin "link": no such file in'],
    ['may not be executed', 0o644, 0, 'Cannot start plugin "link": EACCES'],
    ['has an interpreter that is not there', 0o755, 0, 'Cannot start plugin "link": ENOENT'],
  ])('fails because the file %s', async (_, mode, code, message) => {
    const dir = fs.mkdtempSync(path.join(chain.dir, 'bin-'));
    if (mode !== undefined) fs.writeFileSync(path.join(dir, 'link'), '#!/nonexistent/sh\n', { mode });
    const runtime = { ...chain.runtime, pluginDirs: [dir] };
    const error = await failureOf(networkStatus(listOf('1.1.0', [{ type: 'link' }]), runtime));
    expect(error).toMatchObject({ code, message: expect.stringContaining(message) });
    expect(error.plugin).toMatchObject({ network: 'testnet', type: 'link', index: 0, verb: 'STATUS' });
    expect(error.plugin?.exitCode).toBeUndefined();
  });

  test('fails when the deadline passed before the call started', async () => {
    const runtime = { ...chain.runtime, signal: AbortSignal.abort() };
    const error = await failureOf(networkStatus(LIST, runtime));
    expect(error.message).toBe('Cannot finish STATUS of plugin "says": it was interrupted');
    expect(error.plugin?.ended).toBe('interrupt');
  });
});
